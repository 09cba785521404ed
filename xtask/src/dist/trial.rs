//! Tries what is handed out: the unit, the packages in a Debian of their own, the image. As root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Dist, VERSION};
use crate::cargo::run;

/// What is needed beside what builds: Debian packages.
const PROGRAMS: [(&str, &str); 5] = [
    ("mmdebstrap", "mmdebstrap"),
    ("rpm", "rpm"),
    ("umoci", "umoci"),
    ("systemd-analyze", "systemd"),
    ("chroot", "coreutils"),
];
/// What `systemd-analyze security` may say at most, in tenths.
const EXPOSURE_MAX: &str = "20";
/// Later than ours, by both dpkg and rpm.
const LATER: &str = "99.0.0";
const TIMEOUT: Duration = Duration::from_secs(30);
const ADDRESS: &str = "127.0.0.1:18097";

pub(super) fn trial(dist: &Dist) -> Result<()> {
    let is_missing = |program: &str| Command::new(program).arg("--version").output().is_err();
    let missing: Vec<_> =
        PROGRAMS.iter().filter(|one| is_missing(one.0)).map(|one| one.1).collect();
    ensure!(missing.is_empty(), "the trial needs: apt-get install {}", missing.join(" "));
    unit(dist)?;
    debian(dist)?;
    rpm(dist)?;
    image(dist)?;
    eprintln!("trial: the unit, both packages and the image are in order");
    Ok(())
}

fn unit(dist: &Dist) -> Result<()> {
    let unit = dist.stage.join("leasehold.service");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--no-pager", "--offline=true", "--threshold", EXPOSURE_MAX]);
    run(security.arg(&unit).stdout(Stdio::null()))?;
    // It looks for the program where the package puts it.
    let text = fs::read_to_string(&unit)?;
    let here = dist.stage.join("leasehold").display().to_string();
    let folder = dist.stage.join("unit");
    fs::create_dir(&folder)?;
    let copy = folder.join("leasehold.service");
    fs::write(&copy, text.replace("/usr/bin/leasehold", &here))?;
    run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(copy))
}

/// A Debian with nothing but what is essential, made once.
fn chroot(dist: &Dist, name: &str) -> Result<PathBuf> {
    let archive = dist.out.with_file_name("debian.tar");
    if !archive.exists() {
        let mut make = Command::new("mmdebstrap");
        run(make.args(["--quiet", "--variant=essential", "stable"]).arg(&archive))?;
    }
    let root = dist.stage.join(name);
    fs::create_dir(&root)?;
    run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&root))?;
    Ok(root)
}

fn inside(root: &Path, args: &[&str]) -> Result<()> {
    run(Command::new("chroot").arg(root).args(args))
}

fn copied(dist: &Dist, root: &Path, packager: &str) -> Result<[String; 2]> {
    let later = dist.stage.join("later");
    fs::create_dir_all(&later)?;
    dist.package(packager, LATER, &later)?;
    let one = |folder: &Path, version: &str| -> Result<String> {
        let file = super::sorted(folder)?.into_iter().find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(packager) && name.contains(version)
        });
        let file = file.with_context(|| format!("there is no .{packager} of {version}"))?;
        let name = file.file_name().context("a name")?.to_string_lossy().into_owned();
        fs::copy(&file, root.join(&name))?;
        Ok(format!("/{name}"))
    };
    Ok([one(&dist.out, VERSION)?, one(&later, LATER)?])
}

fn debian(dist: &Dist) -> Result<()> {
    let root = chroot(dist, "debian")?;
    let [ours, later] = copied(dist, &root, "deb")?;
    inside(&root, &["dpkg", "--install", &ours])?;
    inside(&root, &["leasehold", "version"])?;
    let settings = root.join("etc/leasehold/leasehold.toml");
    let changed = fs::read_to_string(&settings)? + "threads = 2\n";
    fs::write(&settings, &changed)?;
    with_server(&root, "root", |root| {
        inside(
            root,
            &["leasehold", "acquire", "kept", "--owner", "a", "--ttl", "1h", "--addr", &url()],
        )
    })?;
    inside(&root, &["dpkg", "--install", "--force-confold", &later])?;
    ensure!(fs::read_to_string(&settings)? == changed, "an upgrade has changed the settings");
    with_server(&root, "root", |root| {
        let line = format!("! leasehold test kept --addr {}", url());
        inside(root, &["sh", "-c", &line])
    })?;
    inside(&root, &["dpkg", "--remove", "leasehold"])?;
    ensure!(!root.join("usr/bin/leasehold").exists(), "the program is still there");
    let data = root.join("var/lib/leasehold/leasehold.db");
    ensure!(data.exists() && settings.exists(), "to remove is not to forget");
    inside(&root, &["dpkg", "--purge", "leasehold"])?;
    for path in ["var/lib/leasehold", "etc/leasehold/leasehold.toml", "usr/share/doc/leasehold"] {
        ensure!(!root.join(path).exists(), "{path} is left after a purge");
    }
    Ok(())
}

/// Into the same kind of root: what it depends on goes by other names there.
fn rpm(dist: &Dist) -> Result<()> {
    let root = chroot(dist, "rpm")?;
    let [ours, later] = copied(dist, &root, "rpm")?;
    let rpm = |args: &[&str], file: &str| {
        let mut rpm = Command::new("rpm");
        run(rpm.arg("--root").arg(&root).arg("--nodeps").args(args).arg(file))
    };
    let at = |name: &str| root.join(name.trim_start_matches('/')).display().to_string();
    rpm(&["--install"], &at(&ours))?;
    inside(&root, &["leasehold", "version"])?;
    let settings = root.join("etc/leasehold/leasehold.toml");
    let changed = fs::read_to_string(&settings)? + "threads = 2\n";
    fs::write(&settings, &changed)?;
    rpm(&["--upgrade"], &at(&later))?;
    ensure!(fs::read_to_string(&settings)? == changed, "an upgrade has changed the settings");
    inside(&root, &["leasehold", "version"])?;
    rpm(&["--erase"], "leasehold")?;
    ensure!(!root.join("usr/bin/leasehold").exists(), "the program is still there");
    Ok(())
}

/// Unpacked by a program of others, and run as the user it names.
fn image(dist: &Dist) -> Result<()> {
    let bundle = dist.stage.join("bundle");
    let mut unpack = Command::new("umoci");
    unpack.args(["unpack", "--image"]);
    unpack.arg(format!("{}:{VERSION}", dist.stage.join("oci").display()));
    run(unpack.arg(&bundle))?;
    let config = fs::read_to_string(bundle.join("config.json"))?;
    let config: serde_json::Value = serde_json::from_str(&config)?;
    ensure!(config["process"]["user"]["uid"] == 65532, "it runs as {}", config["process"]["user"]);
    let root = bundle.join("rootfs");
    inside(&root, &["/usr/bin/leasehold", "version"])?;
    fs::create_dir_all(root.join("etc/leasehold"))?;
    let settings = format!("listen = \"{ADDRESS}\"\ndata = \"/data\"\n");
    fs::write(root.join("etc/leasehold/leasehold.toml"), settings)?;
    with_server(&root, "65532:65532", |root| {
        inside(root, &["/usr/bin/leasehold", "acquire", "x", "--owner", "a", "--addr", &url()])
    })?;
    ensure!(root.join("data/leasehold.db").exists(), "its user can write into /data");
    Ok(())
}

fn url() -> String {
    format!("http://{ADDRESS}")
}

/// A server of that root while something is done.
fn with_server(root: &Path, user: &str, act: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let log = root.join("leasehold.log");
    let mut serve = Command::new("chroot");
    serve.arg(format!("--userspec={user}")).arg(root).arg("/usr/bin/leasehold");
    serve.args(["serve", "--config", "/etc/leasehold/leasehold.toml", "--listen", ADDRESS]);
    let file = File::create(&log)?;
    let mut server = Server(serve.stdout(file.try_clone()?).stderr(file).spawn()?);
    let since = Instant::now();
    while !fs::read_to_string(&log)?.contains("\"serving\"") {
        let ended = server.0.try_wait()?;
        ensure!(ended.is_none() && since.elapsed() < TIMEOUT, "{}", fs::read_to_string(&log)?);
        sleep(Duration::from_millis(20));
    }
    act(root)?;
    let pid = server.0.id().to_string();
    run(Command::new("kill").arg(pid))?;
    let status = server.0.wait()?;
    ensure!(status.success(), "the server ended with {status}: {}", fs::read_to_string(&log)?);
    Ok(())
}

/// Ends with the trial.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
