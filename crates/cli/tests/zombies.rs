//! `leasehold run` leaves nothing of its command alive when another can have the lock: not when the server is gone, not
//! when the wrapper is killed or stopped, not when the lock is broken. Whatever the command has started: children that
//! ignore SIGTERM, that forked twice, that are in sessions of their own.
//!
//! Each process of the tree writes the time to a file, again and again. A rival stands in the queue for the lock. When the
//! rival gets it, or when the lease must be over by the count of the one who asked, the last time in each file must be
//! earlier, and no process of the tree may be left.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold_client::{Client, Clock, SystemClock, Transport};
use parking_lot::Mutex;

use common::{Server, polling, send};

const TRIALS: usize = 50;
const STARTED_AT_ONCE: usize = 5;
const TTL: Duration = Duration::from_secs(3);
/// How long anything may take that is not promised.
const PATIENCE: Duration = Duration::from_secs(60);
/// The command line of a process that writes the time.
const BEAT: &str = "LEASEHOLD_TEST_BEAT";
const FILES: [&str; 4] = ["command", "child", "daemon", "twice"];

/// The trials mostly sleep, but two hundred trees at once would be a test of the machine.
static TURN: Mutex<()> = Mutex::new(());

/// Not a test: the process that writes the time, for the trials below.
#[test]
fn beat() {
    let Some(file) = std::env::var_os(BEAT) else { return };
    let file = std::fs::File::create(file).unwrap();
    polling::repeat(|| {
        std::os::unix::fs::FileExt::write_all_at(&file, &now().to_le_bytes(), 0).unwrap();
    });
}

/// `CLOCK_BOOTTIME`, in nanoseconds.
fn now() -> u64 {
    SystemClock.now().as_nanos()
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap()
}

/// Waits until the clock of the machine says so.
fn wait_until(moment: u64) {
    polling::until("that moment comes", || now() >= moment);
}

/// One command under `leasehold run`.
struct Trial {
    wrapper: Child,
    lock: String,
    folder: PathBuf,
}

impl Trial {
    fn start(server: &Server, folder: &Path, number: usize) -> Trial {
        let lock = format!("trial/{number}");
        let folder = folder.join(number.to_string());
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        // The command, a child, a daemon that forked and has its own session, and one that forked twice.
        let line = r#"
            trap "" TERM HUP INT
            beat() { LEASEHOLD_TEST_BEAT="$FOLDER/$1" exec "$BEATER" --exact beat; }
            ( beat child ) &
            LEASEHOLD_TEST_BEAT="$FOLDER/daemon" setsid -f "$BEATER" --exact beat
            ( setsid -f sh -c 'LEASEHOLD_TEST_BEAT="$FOLDER/twice" setsid -f "$BEATER" --exact beat' )
            beat command"#;
        let ttl = format!("{}ms", TTL.as_millis());
        let wrapper = server
            .command(&["run", &lock, "--ttl", &ttl, "--grace", "1m", "-q", "-c", line])
            .env("FOLDER", &folder)
            .env("BEATER", std::env::current_exe().unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Trial { wrapper, lock, folder }
    }

    fn beat(&self, file: &str) -> Option<u64> {
        let bytes = std::fs::read(self.folder.join(file)).ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn last_beat(&self) -> u64 {
        FILES.iter().filter_map(|file| self.beat(file)).max().unwrap_or(0)
    }

    /// False if the lock was lost before the tree was up: on a machine this busy that may happen.
    fn is_up(&mut self) -> bool {
        polling::found(&format!("{}: the tree is up", self.lock), || {
            if FILES.iter().all(|file| self.beat(file).is_some()) {
                return Some(true);
            }
            let status = self.wrapper.try_wait().unwrap()?;
            assert_eq!(status.code(), Some(76), "{}", self.lock);
            assert!(self.alive().is_empty(), "{}", self.lock);
            Some(false)
        })
    }

    /// The processes of the tree that are alive: all that know of the folder, but for the wrapper and its guard.
    fn alive(&self) -> Vec<i32> {
        let mark = format!("FOLDER={}\0", self.folder.display()).into_bytes();
        let ours = Path::new(common::BINARY).canonicalize().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let is_marked = environment.windows(mark.len()).any(|part| part == mark);
            is_marked && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe != ours)
        })
        .collect()
    }

    /// Nothing of it wrote after that moment, and nothing of it is there.
    fn assert_gone_before(&self, moment: u64, why: &str) -> i64 {
        let alive = self.alive();
        assert!(alive.is_empty(), "{}: {alive:?} live when {why}", self.lock);
        let last = self.last_beat();
        assert!(last < moment, "{}: wrote {} ns after {why}", self.lock, last - moment);
        i64::try_from((moment - last) / 1_000_000).unwrap()
    }

    fn ended(&mut self) -> ExitStatus {
        let what = format!("{}: the wrapper has ended", self.lock);
        polling::found(&what, || self.wrapper.try_wait().unwrap())
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = self.wrapper.kill();
        let _ = self.wrapper.wait();
        // Only if a test failed: its own processes and no others.
        for pid in self.alive() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// A tree that is up.
fn trial(server: &Server, folder: &Path, number: usize) -> Trial {
    loop {
        let mut trial = Trial::start(server, folder, number);
        if trial.is_up() {
            return trial;
        }
    }
}

/// All the trees, a few at a time: starting them is not what is tried here.
fn trials(server: &Server, folder: &Path) -> Vec<Trial> {
    let numbers: Vec<usize> = (0..TRIALS).collect();
    let start = |numbers: &[usize]| -> Vec<Trial> {
        std::thread::scope(|scope| {
            let start = |&number| scope.spawn(move || trial(server, folder, number));
            let starting: Vec<_> = numbers.iter().map(start).collect();
            starting.into_iter().map(|trial| trial.join().unwrap()).collect()
        })
    };
    numbers.chunks(STARTED_AT_ONCE).flat_map(start).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Lets a rival stand in the queue for each lock, and looks at each tree the moment its rival has the lock.
fn judge_by_rivals(server: &Server, trials: &[Trial], strike: impl Fn(&Trial) + Sync) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap();
    let client = Client::builder(&server.address).transport(Transport::Http);
    let client = runtime.block_on(client.connect()).unwrap();
    let spare: Mutex<Vec<i64>> = Mutex::default();
    let begun = now();
    std::thread::scope(|scope| {
        for (number, trial) in trials.iter().enumerate() {
            let (client, runtime, spare, strike) = (&client, &runtime, &spare, &strike);
            scope.spawn(move || {
                // Each at another moment between two heartbeats.
                wait_until(begun + nanos(TTL) / 3 * number as u64 / TRIALS as u64);
                strike(trial);
                let request = client.lock(&trial.lock).wait(PATIENCE).acquire();
                let _rival = runtime.block_on(request).unwrap();
                let left = trial.assert_gone_before(now(), "a rival has the lock");
                spare.lock().push(left);
            });
        }
    });
    report("before the rival", spare.into_inner());
}

fn report(what: &str, mut spare: Vec<i64>) {
    spare.sort_unstable();
    println!(
        "{} trials; dead {what} by {} ms at least, {} ms usually",
        spare.len(),
        spare[0],
        spare[spare.len() / 2]
    );
    assert_eq!(spare.len(), TRIALS);
}

#[test]
fn nothing_lives_when_the_wrapper_was_killed() {
    let _turn = TURN.lock();
    let (server, folder) = (Server::start(), folder());
    let trials = trials(&server, folder.path());
    judge_by_rivals(&server, &trials, |trial| send(libc::SIGKILL, trial.wrapper.id()));
}

#[test]
fn nothing_lives_when_the_wrapper_was_stopped() {
    let _turn = TURN.lock();
    let (server, folder) = (Server::start(), folder());
    let mut trials = trials(&server, folder.path());
    judge_by_rivals(&server, &trials, |trial| send(libc::SIGSTOP, trial.wrapper.id()));
    for trial in &mut trials {
        send(libc::SIGCONT, trial.wrapper.id());
        assert_eq!(trial.ended().code(), Some(76), "{}", trial.lock);
    }
}

#[test]
fn nothing_lives_when_the_server_is_gone_for_the_length_of_the_lease() {
    let _turn = TURN.lock();
    let (mut server, folder) = (Server::start(), folder());
    let mut trials = trials(&server, folder.path());
    // No renewal can have been asked for after this that was answered.
    server.kill();
    let over = now() + nanos(TTL);
    wait_until(over);
    let spare = trials.iter().map(|trial| trial.assert_gone_before(over, "the lease is over"));
    report("before the lease was over", spare.collect());
    for trial in &mut trials {
        assert_eq!(trial.ended().code(), Some(76), "{}", trial.lock);
    }
}

#[test]
fn nothing_lives_after_the_length_of_a_lease_that_was_broken() {
    let _turn = TURN.lock();
    let (server, folder) = (Server::start(), folder());
    let mut trials = trials(&server, folder.path());
    let broken: Vec<u64> = trials
        .iter()
        .map(|trial| {
            let done = server.run(&["break", &trial.lock, "--reason", "a trial"]);
            // One that was lost already has no holder.
            assert!(matches!(done.status.code(), Some(0 | 1)), "{}", common::text(&done.stderr));
            now() + nanos(TTL)
        })
        .collect();
    let mut spare = Vec::new();
    for (trial, over) in trials.iter_mut().zip(broken) {
        wait_until(over);
        spare.push(trial.assert_gone_before(over, "the lease would have been over"));
        assert_eq!(trial.ended().code(), Some(76), "{}", trial.lock);
    }
    report("before the lease would have been over", spare);
}

/// Nobody has to wait for the end of the lease: the guard gives the lock back when nothing is left of the command.
#[test]
fn lock_is_given_back_when_the_wrapper_was_killed() {
    let server = Server::start();
    for locks in [&["alone"][..], &["set/a", "set/b"]] {
        let args =
            [&["run", "--ttl", "10m"], locks, &["-c", "echo ready; exec sleep 300"]].concat();
        let mut wrapper = server.command(&args).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(wrapper.stdout.as_mut().unwrap(), &mut ready).unwrap();
        send(libc::SIGKILL, wrapper.id());
        wrapper.wait().unwrap();
        let is_free = || server.run(&["test", locks[0]]).status.success();
        polling::until("the lock is given back", is_free);
    }
}

/// The guard can be killed too: then the wrapper does its work.
#[test]
fn nothing_lives_when_the_guard_was_killed() {
    let (server, folder) = (Server::start(), folder());
    let mut trial = trial(&server, folder.path(), 0);
    send(libc::SIGKILL, guard_of(trial.wrapper.id()));
    assert_eq!(trial.ended().code(), Some(70));
    assert!(trial.alive().is_empty());
}

/// A guard that was stopped goes on, as its wrapper tells it to.
#[test]
fn guard_that_was_stopped_does_its_work() {
    let (mut server, folder) = (Server::start(), folder());
    let mut trial = trial(&server, folder.path(), 0);
    send(libc::SIGSTOP, guard_of(trial.wrapper.id()));
    server.kill();
    let over = now() + nanos(TTL);
    assert_eq!(trial.ended().code(), Some(76));
    trial.assert_gone_before(over.max(now()), "the lease is over");
    assert!(trial.last_beat() < over);
}

fn guard_of(wrapper: u32) -> u32 {
    let children = Command::new("ps")
        .args(["-o", "pid=,args=", "--ppid", &wrapper.to_string()])
        .output()
        .unwrap();
    let children = common::text(&children.stdout);
    let guard = children.lines().find(|line| line.contains("run-guard")).expect("there is a guard");
    guard.split_whitespace().next().unwrap().parse().unwrap()
}
