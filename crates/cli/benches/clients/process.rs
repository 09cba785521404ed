//! Servers as processes, and what they use up.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A folder that goes when it is no longer needed.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("leasehold-clients-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    /// A new place in it, empty.
    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that ends with the measurement.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it, and waits until somebody listens on that port.
    pub(crate) async fn start(command: &mut Command, port: u16) -> Result<Server, String> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = Server(child.map_err(|error| {
            format!("{} cannot be started: {error}", command.get_program().display())
        })?);
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if began.elapsed() > Duration::from_secs(30) {
                return Err("the server does not get ready".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}

/// Whether a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    ["/usr/bin", "/usr/sbin", "/usr/local/bin"]
        .iter()
        .any(|at| Path::new(at).join(program).exists())
}

/// What a process has used of the processors so far.
pub(crate) fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may have spaces: user and system time are the 14th and 15th field.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks =
        rest.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// The same of a process and of what it has started, where a connection has a process of its own.
pub(crate) fn cpu_time_with_children(process: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    let of_children = children.split_whitespace().filter_map(|text| text.parse().ok());
    cpu_time(process) + of_children.map(cpu_time).sum::<Duration>()
}

/// How many bytes a process has had written to a disk so far.
pub(crate) fn written_bytes(process: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|text| text.parse().ok()).unwrap_or(0)
}
