//! What the server tells a service manager: here a socket of our own.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_e2e::server::binary;

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn manager_hears_that_it_is_ready_alive_and_stopping() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path)?;
    heard_in_order(&socket, path.as_os_str())
}

#[test]
fn manager_may_listen_on_a_name_that_no_file_has() -> Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("leasehold-notify-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
    heard_in_order(&UnixDatagram::bind_addr(&address)?, format!("@{name}").as_ref())
}

fn heard_in_order(socket: &UnixDatagram, name: &std::ffi::OsStr) -> Result<()> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    let folder = tempfile::tempdir()?;
    let mut server = Ended(serve(folder.path(), name, "300000")?);
    let ready = heard(socket)?;
    ensure!(ready.starts_with("READY=1\nSTATUS=serving on 127.0.0.1:"), "{ready}");
    for _ in 0..3 {
        ensure!(heard(socket)? == "WATCHDOG=1\n");
    }
    let pid = libc::pid_t::try_from(server.0.id())?;
    // SAFETY: the process is a child of ours that has not been waited for, so the id is still its own.
    #[allow(unsafe_code, reason = "the standard library can only kill")]
    let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
    ensure!(sent == 0);
    let stopping = std::iter::repeat_with(|| heard(socket))
        .find(|said| !matches!(said, Ok(said) if said == "WATCHDOG=1\n"));
    ensure!(stopping.context("it says so")?? == "STOPPING=1\nSTATUS=stopping\n");
    ensure!(server.0.wait()?.success());
    Ok(())
}

#[test]
fn a_socket_that_is_gone_keeps_nobody_from_serving() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("notify");
    drop(UnixDatagram::bind(&path)?);
    let mut server = Ended(serve(folder.path(), path.as_os_str(), "300000")?);
    for _ in 0..1000 {
        let log = std::fs::read_to_string(folder.path().join("log"))?;
        if log.contains("could not be told") && log.contains("\"serving\"") {
            ensure!(server.0.try_wait()?.is_none());
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("{}", std::fs::read_to_string(folder.path().join("log"))?)
}

/// A server that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(folder: &Path, socket: &std::ffi::OsStr, watchdog_usec: &str) -> Result<Child> {
    let log = std::fs::File::create(folder.join("log"))?;
    let mut command = Command::new(binary()?);
    command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", watchdog_usec);
    command.env("LEASEHOLD_LOG_FORMAT", "json").stdin(Stdio::null());
    Ok(command.stdout(log.try_clone()?).stderr(log).spawn()?)
}

fn heard(socket: &UnixDatagram) -> Result<String> {
    let mut buffer = [0; 1024];
    let len = socket.recv(&mut buffer).context("nothing was heard")?;
    Ok(String::from_utf8(buffer[..len].to_vec())?)
}
