//! The real server as a process of our own: started, killed, stopped, started again on the same data.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::client::Http;
use crate::history::{Event, Operation, Recorder};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A server process. It is killed when this is dropped; only processes started here are ever ended.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    data: PathBuf,
    flags: Vec<String>,
    planted: Option<&'static str>,
    /// A command that becomes the server, such as `env` or a shell that sets limits.
    wrapper: Vec<String>,
    log: PathBuf,
    /// Keeps the directory of the data, if we made it, and the log.
    _directory: TempDir,
}

impl Server {
    /// A server with data of its own.
    pub async fn start() -> Result<Server> {
        Server::start_with(&[]).await
    }

    /// A server with data of its own, started with these flags too.
    pub async fn start_with(flags: &[&str]) -> Result<Server> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        Server::start_in(directory, data, flags, None).await
    }

    /// A server on data that lies elsewhere.
    pub async fn start_on(data: &Path, flags: &[&str]) -> Result<Server> {
        Server::start_in(tempfile::tempdir()?, data.to_path_buf(), flags, None).await
    }

    /// A server with data of its own, started by a command that becomes it.
    pub async fn start_under(wrapper: &[&str], flags: &[&str]) -> Result<Server> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        Server::start_wrapped(directory, data, flags, None, wrapper).await
    }

    /// The same with a bug in it that was put there on purpose.
    pub async fn start_planted_on(data: &Path, bug: &'static str) -> Result<Server> {
        Server::start_in(tempfile::tempdir()?, data.to_path_buf(), &[], Some(bug)).await
    }

    async fn start_in(
        directory: TempDir,
        data: PathBuf,
        flags: &[&str],
        planted: Option<&'static str>,
    ) -> Result<Server> {
        Server::start_wrapped(directory, data, flags, planted, &[]).await
    }

    async fn start_wrapped(
        directory: TempDir,
        data: PathBuf,
        flags: &[&str],
        planted: Option<&'static str>,
        wrapper: &[&str],
    ) -> Result<Server> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let log = directory.path().join("log");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_string()).collect();
        let wrapper: Vec<String> = wrapper.iter().map(|part| (*part).to_string()).collect();
        let child = spawn(address, &data, &flags, planted, &wrapper, &log)?;
        let mut server =
            Server { child, address, data, flags, planted, wrapper, log, _directory: directory };
        server.wait_until_ready().await?;
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the server has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether the process has ended by itself, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends the process at once (SIGKILL). It is gone when this returns.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// Starts a server that is not running on the same data and address.
    pub async fn start_again(&mut self) -> Result<()> {
        self.spawn_again()?;
        self.wait_until_ready().await
    }

    /// The same with other flags from now on.
    pub async fn start_again_with(&mut self, flags: &[&str]) -> Result<()> {
        self.flags = flags.iter().map(|flag| (*flag).to_string()).collect();
        self.start_again().await
    }

    /// The same, without waiting until it serves.
    pub fn spawn_again(&mut self) -> Result<()> {
        self.child =
            spawn(self.address, &self.data, &self.flags, self.planted, &self.wrapper, &self.log)?;
        Ok(())
    }

    /// The same with a fault in its system calls from the very first on: `what` is what strace takes after `inject=`.
    /// It is not awaited.
    pub fn start_again_injected(&mut self, what: &str) -> Result<()> {
        let mut strace = Command::new("strace");
        // The server is the child, and strace its grandchild, which ends with it.
        strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={what}")]);
        strace.arg(binary()?);
        self.child = serve(&mut strace, self.address, &self.data, &self.flags, &self.log)?;
        Ok(())
    }

    /// Kills the server and starts it again; the history says so.
    pub async fn crash(&mut self, recorder: &Recorder) -> Result<()> {
        let invoked = recorder.now();
        self.kill()?;
        let down = recorder.now();
        self.start_again().await?;
        let returned = recorder.now();
        let event = Event::Restart { down };
        recorder.record(Operation { client: u32::MAX, lock: 0, invoked, returned, event });
        Ok(())
    }

    /// Lets the process stand still (SIGSTOP), as if it slept.
    pub fn pause(&self) -> Result<()> {
        self.signal(libc::SIGSTOP)
    }

    pub fn go_on(&self) -> Result<()> {
        self.signal(libc::SIGCONT)
    }

    /// Sends the process SIGHUP.
    pub fn hang_up(&self) -> Result<()> {
        self.signal(libc::SIGHUP)
    }

    fn signal(&self, signal: libc::c_int) -> Result<()> {
        let pid = libc::pid_t::try_from(self.pid()).context("a process id is small")?;
        // SAFETY: the process is a child of ours that has not been waited for, so the id is still its own.
        #[allow(unsafe_code, reason = "the standard library can only kill")]
        let sent = unsafe { libc::kill(pid, signal) };
        if sent != 0 {
            bail!("cannot send a signal: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }

    /// Asks the process to end (SIGTERM) and waits until it has.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(libc::SIGTERM)?;
        let since = Instant::now();
        while since.elapsed() < STOP_TIMEOUT {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("the server did not stop in {STOP_TIMEOUT:?}; its log:\n{}", self.log())
    }

    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let since = Instant::now();
        let mut http = Http::new(self.address);
        while since.elapsed() < READY_TIMEOUT {
            if let Some(status) = self.ended() {
                bail!("the server ended with {status}; its log:\n{}", self.log());
            }
            if http.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("the server was not ready in {READY_TIMEOUT:?}; its log:\n{}", self.log())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn spawn(
    address: SocketAddr,
    data: &Path,
    flags: &[String],
    planted: Option<&str>,
    wrapper: &[String],
    log: &Path,
) -> Result<Child> {
    let mut command = match planted {
        None => match wrapper.split_first() {
            None => Command::new(binary()?),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(binary()?);
                command
            }
        },
        Some(bug) => {
            let mut command = Command::new(planted_binary()?);
            command.env("LEASEHOLD_PLANTED", bug);
            command
        }
    };
    serve(&mut command, address, data, flags, log)
}

fn serve(
    command: &mut Command,
    address: SocketAddr,
    data: &Path,
    flags: &[String],
    log: &Path,
) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    command.arg("serve").arg("--listen").arg(address.to_string());
    if !flags.iter().any(|flag| flag == "--store") {
        command.arg("--data").arg(data);
    }
    command.args(flags).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().context("cannot start the server")
}

/// The binary that goes with these tests; built when it is first needed. `LEASEHOLD_BIN` names another one.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BINARY.get_or_init(|| match std::env::var_os("LEASEHOLD_BIN") {
        Some(path) => Ok(path.into()),
        None => build(false).map_err(|error| format!("{error:#}")),
    });
    match built {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}"),
    }
}

/// The binary with the bugs that `LEASEHOLD_PLANTED` names; in a folder of its own, so that it is never mistaken for the
/// other.
fn planted_binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BINARY.get_or_init(|| build(true).map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}"),
    }
}

/// Builds the binary with the profile of the test that runs: it lies beside the test's own folder.
fn build(planted: bool) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let profile = test.ancestors().nth(2).context("a test lies in target/<profile>/deps")?;
    let mut target = profile.parent().context("a profile lies in target")?.to_path_buf();
    let folder = profile.file_name().context("a profile has a name")?;
    let name = match folder.to_str() {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let mut features: &[&str] = &[];
    if planted {
        target.push("planted");
        features = &["--features", "planted"];
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What is said to this test about its own package would let some dependencies be built anew.
    for (name, _) in std::env::vars_os() {
        let is_about_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_about_package) {
            cargo.env_remove(&name);
        }
    }
    let status = cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--package", "leasehold-cli", "--profile", name])
        .args(features)
        .env("CARGO_TARGET_DIR", &target)
        .status()?;
    if !status.success() {
        bail!("cannot build the server");
    }
    Ok(target.join(folder).join("leasehold"))
}

/// A port that nobody listens on, below those that the system gives to clients: a client that calls a server which is
/// down could otherwise be connected to itself.
pub fn free_port() -> Result<u16> {
    const FIRST: u16 = 20_000;
    const LEN: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % u32::from(LEN))?;
    for _ in 0..LEN {
        let offset = start.wrapping_add(NEXT.fetch_add(7, Ordering::Relaxed)) % LEN;
        let port = FIRST + offset;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free")
}
