//! The real server with TLS: what a scanner finds, what a signal does, and what it refuses to start as.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_e2e::server::{binary, free_port};
use leasehold_e2e::tls::{Authority, Certificate};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that speaks TLS. It is killed when this is dropped.
struct Secure {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
    _authority: Authority,
}

impl Secure {
    fn start() -> Result<Secure> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::new()?;
        let (certificate, key) = authority.sign(Certificate::Good)?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let settings = format!(
            "listen = \"{address}\"\nstore = \"memory\"\n[tls]\ncert = {certificate:?}\nkey = {key:?}\n"
        );
        let config = folder.path().join("leasehold.toml");
        std::fs::write(&config, settings)?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new(binary()?);
        command.arg("serve").arg("--config").arg(&config).stdin(Stdio::null());
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut server = Secure { child, address, folder, _authority: authority };
        server.wait_for_log("\"serving\"")?;
        Ok(server)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn wait_for_log(&mut self, text: &str) -> Result<()> {
        let begun = Instant::now();
        while !self.log().contains(text) {
            ensure!(self.child.try_wait()?.is_none(), "it has ended: {}", self.log());
            ensure!(begun.elapsed() < PATIENCE, "no {text:?} in its log: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of an attribute in a line of XML.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[test]
fn scanner_finds_tls_1_2_and_1_3_alone_and_no_weak_suite() -> Result<()> {
    let server = Secure::start()?;
    let mut scan = Command::new("sslscan");
    let scanned = scan.arg("--xml=-").arg(server.address.to_string()).output();
    let scanned = scanned.context("sslscan is missing: run `cargo xtask needs`")?;
    let report = String::from_utf8(scanned.stdout)?;
    let lines = |tag: &str| {
        let tag = format!("<{tag} ");
        report.lines().map(str::trim).filter(move |line| line.starts_with(&tag)).collect::<Vec<_>>()
    };
    let protocols = lines("protocol");
    for (version, enabled) in [("1.0", "0"), ("1.1", "0"), ("1.2", "1"), ("1.3", "1")] {
        let found = protocols.iter().find(|line| {
            attribute(line, "type") == Some("tls") && attribute(line, "version") == Some(version)
        });
        let found = found.and_then(|line| attribute(line, "enabled"));
        ensure!(found == Some(enabled), "TLS {version}: {found:?} in\n{report}");
    }
    let old = protocols.iter().filter(|line| attribute(line, "type") == Some("ssl"));
    ensure!(old.clone().count() > 0, "{report}");
    ensure!(old.clone().all(|line| attribute(line, "enabled") == Some("0")), "{report}");
    let suites = lines("cipher");
    ensure!(suites.len() >= 6, "{report}");
    for suite in suites {
        let name = attribute(suite, "cipher").context("a suite has a name")?;
        let version = attribute(suite, "sslversion").context("a suite has a version")?;
        let bits: u32 = attribute(suite, "bits").context("a suite has bits")?.parse()?;
        let is_sealed = name.contains("GCM") || name.contains("CHACHA20");
        ensure!(is_sealed && bits >= 128, "{suite}");
        ensure!(version == "TLSv1.3" || name.starts_with("ECDHE-"), "{suite}");
    }
    for line in lines("heartbleed") {
        ensure!(attribute(line, "vulnerable") == Some("0"), "{line}");
    }
    for line in lines("compression") {
        ensure!(attribute(line, "supported") == Some("0"), "{line}");
    }
    Ok(())
}

#[test]
fn hangup_reads_the_certificate_anew() -> Result<()> {
    let mut server = Secure::start()?;
    let process = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(process, rustix::process::Signal::HUP)?;
    server.wait_for_log("TLS files read")
}

fn refused(folder: &Path, settings: &str) -> Result<Output> {
    let config = folder.join("leasehold.toml");
    std::fs::write(&config, format!("listen = \"0.0.0.0:1\"\nstore = \"memory\"\n{settings}"))?;
    Ok(Command::new(binary()?).arg("serve").arg("--config").arg(&config).output()?)
}

/// Attack 55, and the end of 56.
#[test]
fn server_that_others_can_reach_says_what_it_lacks() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::new()?;
    let (certificate, key) = authority.sign(Certificate::Good)?;
    let tls = format!("[tls]\ncert = {certificate:?}\nkey = {key:?}\n");
    let open = "insecure_anonymous = true\n";
    for (settings, said) in [
        ("", "neither TLS nor authentication"),
        (tls.as_str(), "there is no authentication"),
        ("[auth]\nenabled = true\n", "there is no TLS"),
    ] {
        let output = refused(folder.path(), settings)?;
        let told = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(78), "{settings}: {}", output.status);
        ensure!(told.contains("0.0.0.0:1 can be reached by others"), "{told}");
        ensure!(told.contains(said), "{told}");
    }
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    let output = refused(folder.path(), &format!("{open}{tls}"))?;
    let told = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(78), "{}", output.status);
    ensure!(told.contains("can be read by others than its owner (mode 644)"), "{told}");
    Ok(())
}
