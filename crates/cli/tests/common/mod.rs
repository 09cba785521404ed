//! The real binary, and a server of its own for each test.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) mod polling;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");

/// A server process. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    /// One that forgets everything.
    pub(crate) fn start() -> Server {
        Server::start_on("memory")
    }

    pub(crate) fn start_on(store: &str) -> Server {
        Server::start_with(&["--store", store])
    }

    /// One with these flags, in memory unless they say otherwise. It may want tokens.
    pub(crate) fn start_with(flags: &[&str]) -> Server {
        let listen = format!("127.0.0.1:{}", free_port());
        let child = Command::new(BINARY)
            .args(["serve", "--listen", &listen])
            .args(flags)
            .env("LEASEHOLD_STORE", "memory")
            .env("LEASEHOLD_LOG", "error")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { child, address: format!("http://{listen}") };
        polling::until("the server is ready", || {
            // With another answer than that there is none: the server is up.
            server.run(&["cluster", "-q"]).status.code().is_some_and(|code| code != 69)
        });
        server
    }

    /// One that is started by this command, when it takes whoever comes from that home directory.
    pub(crate) fn start_by(mut command: Command, address: String, home: &Path) -> Server {
        let child =
            command.env("LEASEHOLD_LOG", "error").stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server { child: child.spawn().unwrap(), address };
        polling::until("the server is ready", || {
            let mut asked = server.command(&["whoami", "-q"]);
            at_home(&mut asked, home);
            asked.output().unwrap().status.success()
        });
        server
    }

    /// Waits until so many stand in the queue for the lock.
    pub(crate) fn wait_for_waiters(&self, lock: &str, number: u32) {
        let shown = format!("\"waiters_total\":{number}");
        let is_so = || self.says(&["get", lock, "-o", "json"]).0.contains(&shown);
        polling::until(&format!("{number} in line for {lock}"), is_so);
    }

    /// Waits until the lock is held.
    pub(crate) fn wait_for_holder(&self, lock: &str) {
        let is_held = || self.says(&["get", lock, "-o", "json"]).0.contains("\"holders\":[{");
        polling::until(&format!("a holder of {lock}"), is_held);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The command against this server.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = plain(args);
        command.env("LEASEHOLD_ADDR", &self.address);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What it prints, and how it ends.
    pub(crate) fn says(&self, args: &[&str]) -> (String, i32) {
        let output = self.run(args);
        (text(&output.stdout), output.status.code().unwrap_or(-1))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command, without anything that the environment of the test may say.
pub(crate) fn plain(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.args(args).env("USER", "tester").stdin(Stdio::null());
    command
}

/// A port of loopback that is free.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Lets a command find its profiles below that directory, and no others.
pub(crate) fn at_home(command: &mut Command, home: &Path) {
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", home);
}

/// What comes of a command that reads this.
pub(crate) fn fed(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// The verbs, as the help itself lists them.
pub(crate) fn verbs(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let words = lines.filter_map(|line| line.split_whitespace().next());
    words.filter(|word| *word != "help").map(str::to_string).collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn send(signal: i32, pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
