//! A server process that outlives nobody.
//!
//! A small shell stands between: it starts the server when it is told to, and ends it and removes its data when its
//! standard input is closed. That happens when the owner is dropped, and also when the whole test process dies, in
//! whatever way. A signal to the whole group of processes has the same effect.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::polling::wait_until;

const WARDEN: &str = r#"
folder=$1; shift
child=
trap : TERM INT HUP
while read -r line; do
    "$@" >> "$folder/log" 2>&1 < /dev/null &
    child=$!
    echo $child
done
if [ -n "$child" ]; then
    kill -QUIT $child
    kill -CONT $child
    (sleep 2; kill -9 $child) > /dev/null &
    killer=$!
    wait $child
    kill $killer
fi
rm -rf "$folder"
"#;

/// A server, its folder and its warden.
#[derive(Debug)]
pub(super) struct Process {
    folder: PathBuf,
    warden: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pid: Option<u32>,
}

/// The user for servers that refuse to run as root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The one that the package made, if we are root; otherwise nobody but ourselves.
    pub(super) fn of_postgres() -> Option<Account> {
        if fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() != 0) {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").expect("users are listed");
        let entry = users.lines().find(|line| line.starts_with("postgres:"));
        let fields: Vec<&str> = entry.expect("the package made its user").split(':').collect();
        let number = |at: usize| fields[at].parse().expect("it is a number");
        Some(Account { uid: number(2), gid: number(3) })
    }

    /// Makes a file the account's alone.
    pub(super) fn give(account: Option<Account>, path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        if let Some(account) = account {
            chown(path, Some(account.uid), Some(account.gid)).expect("root may give it away");
        }
    }

    pub(super) fn apply(account: Option<Account>, command: &mut Command) {
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
    }
}

static ON_DISK: AtomicBool = AtomicBool::new(false);

/// Servers that are started from now on keep their data on a disk: for benchmarks.
pub fn use_disk() {
    ON_DISK.store(true, Ordering::SeqCst);
}

/// A folder in memory where there is such a place: no test of a store that is a server cuts the power.
pub(super) fn folder(account: Option<Account>) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let is_fast = memory.is_dir() && !ON_DISK.load(Ordering::SeqCst);
    let above = if is_fast { memory.to_path_buf() } else { std::env::temp_dir() };
    let made = tempfile::Builder::new().prefix("leasehold-").tempdir_in(above);
    let folder = made.expect("a folder can be made").keep();
    if let Some(account) = account {
        chown(&folder, Some(account.uid), Some(account.gid)).expect("root may give it away");
    }
    folder
}

impl Process {
    pub(super) fn start(
        folder: &Path,
        account: Option<Account>,
        program: &Path,
        args: &[String],
    ) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WARDEN, "warden"]).arg(folder).arg(program).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        Account::apply(account, &mut command);
        let mut warden = command.spawn().expect("a shell can be started");
        let orders = warden.stdin.take();
        let answers = BufReader::new(warden.stdout.take().expect("it was asked for"));
        let mut process =
            Process { folder: folder.to_path_buf(), warden, orders, answers, pid: None };
        process.start_again();
        process
    }

    /// Starts the server on the same data. It must not be running.
    pub(super) fn start_again(&mut self) {
        let orders = self.orders.as_mut().expect("the warden is there");
        orders.write_all(b"start\n").expect("the warden listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the warden answers");
        self.pid = Some(line.trim().parse().expect("it says the process id"));
    }

    /// Waits until it is ready. If it has ended instead, because another process had its port for a moment, it is started again.
    pub(super) fn wait_until_ready(&mut self, mut is_ready: impl FnMut() -> bool) {
        let what = format!("the server of {} is ready", self.folder.display());
        wait_until(&what, || {
            let is_ready = is_ready();
            if !is_ready && self.is_gone() {
                self.start_again();
            }
            is_ready
        });
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.expect("it is running")
    }

    pub(super) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let sent = kill.arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(sent.expect("there is a kill").success(), "{name} could not be sent");
    }

    /// Ends the server with this signal; it is gone when this returns.
    pub(super) fn end(&mut self, name: &str) {
        self.signal(name);
        wait_until("the server is gone", || self.is_gone());
        self.pid = None;
    }

    /// It has ended, by itself or because it was told to.
    pub(super) fn is_gone(&self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.warden.wait();
    }
}

/// A port that nobody uses. Each is given out once in this process, so that servers started at the same time differ.
pub(super) fn free_port() -> u16 {
    static GIVEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut given = GIVEN.lock();
    loop {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let port = socket.local_addr().expect("it is bound").port();
        if !given.contains(&port) {
            given.push(port);
            return port;
        }
    }
}

/// The path of a program, also of one that is not in `PATH`.
pub(super) fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = std::env::split_paths(&path)
        .chain(["/usr/bin".into(), "/usr/sbin".into()])
        .chain(versions.map(|version| version.path().join("bin")));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: `cargo xtask needs` does it"))
}
