//! Several processes that lock one file, and what came of it once all has settled.
//!
//! Nothing here guesses by time. A process has either answered its last order, or it is one of those that the kernel
//! itself names as waiting. When every process is the one or the other at the same moment, nothing more will happen by
//! itself: a request that was woken and tries again is not among the waiting meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::locks::KernelLocks;
use super::wire::{Order, Reply, Span};
use super::worker;

/// How long, in looks of a millisecond, the kernel may take to settle before something must be wrong.
const LOOKS_MAX: usize = 60_000;

pub(crate) struct Fleet {
    file: PathBuf,
    pub(crate) inode: u64,
    processes: Vec<Process>,
    lines: Receiver<Line>,
    sender: Sender<Line>,
    /// The kernel's locks as of the last time all was settled.
    pub(crate) locks: KernelLocks,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    thread: i32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Has not answered its last order.
    Busy,
    /// Its call was ended by a signal; it is among the waiting until it has noticed.
    Interrupted,
}

struct Line {
    pid: u32,
    /// `None` at the end.
    text: Option<String>,
}

impl Fleet {
    pub(crate) fn start(name: &str, len: usize) -> Fleet {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}", std::process::id()));
        fs::write(&file, "locked by many\n").expect("a file can be made");
        let inode = fs::metadata(&file).expect("the file is there").ino();
        let (sender, lines) = channel();
        let mut fleet = Fleet {
            file,
            inode,
            processes: Vec::new(),
            lines,
            sender,
            locks: KernelLocks::default(),
        };
        for _ in 0..len {
            let process = fleet.spawn();
            fleet.processes.push(process);
        }
        fleet
    }

    fn spawn(&self) -> Process {
        let binary = std::env::current_exe().expect("the test knows where it is");
        let mut child = Command::new(binary)
            .args(["--exact", super::WORKER, "--nocapture", "--test-threads=1"])
            .env(worker::FILE, &self.file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test can start itself");
        let orders = child.stdin.take().expect("its input is piped");
        let output = child.stdout.take().expect("its output is piped");
        let (pid, sender) = (child.id(), self.sender.clone());
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            let answers = lines.filter_map(|line| line.strip_prefix('@').map(str::to_string));
            for text in answers.map(Some).chain([None]) {
                if sender.send(Line { pid, text }).is_err() {
                    return;
                }
            }
        });
        let thread = self.ready(pid);
        Process { child, orders, thread, state: State::Idle }
    }

    /// Waits for the first word of a new process: its thread.
    fn ready(&self, pid: u32) -> i32 {
        loop {
            let patience = Duration::from_secs(60);
            let line = self.lines.recv_timeout(patience).expect("a process starts");
            let thread = line.text.as_deref().and_then(|t| t.strip_prefix("ready "));
            match thread {
                Some(thread) if line.pid == pid => {
                    return thread.parse().expect("a thread is a number");
                }
                // The end of a process that was ended before.
                _ => assert!(line.text.is_none(), "nobody else has anything to say"),
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    pub(crate) fn pid(&self, process: usize) -> u32 {
        self.processes[process].child.id()
    }

    pub(crate) fn is_busy(&self, process: usize) -> bool {
        self.processes[process].state != State::Idle
    }

    pub(crate) fn order(&mut self, process: usize, order: Order) {
        let process = &mut self.processes[process];
        assert_eq!(process.state, State::Idle, "a process does one thing at a time");
        process.state = State::Busy;
        writeln!(process.orders, "{order}").expect("a process takes orders");
    }

    /// Ends the call that a process waits in.
    pub(crate) fn interrupt(&mut self, process: usize) {
        let process = &mut self.processes[process];
        process.state = State::Interrupted;
        let pid = i32::try_from(process.child.id()).expect("a pid is small");
        // SAFETY: sends a signal that the process has a handler for; no memory is involved.
        #[expect(unsafe_code, reason = "a signal to one thread is not in std")]
        let failed =
            unsafe { libc::syscall(libc::SYS_tgkill, pid, process.thread, libc::SIGUSR1) } != 0;
        assert!(!failed, "the thread is there");
    }

    /// Ends a process, by its own will or not, and puts a new one into its place.
    pub(crate) fn replace(&mut self, process: usize, kill: bool) {
        let new = self.spawn();
        let mut old = std::mem::replace(&mut self.processes[process], new);
        if kill {
            old.child.kill().expect("an own process can be killed");
        }
        drop(old.orders);
        old.child.wait().expect("an own process can be waited for");
    }

    /// Waits until everybody has answered or waits for a lock; says who answered what.
    pub(crate) fn settle(&mut self) -> BTreeMap<usize, Reply> {
        let mut replies = BTreeMap::new();
        let pids: BTreeSet<u32> = self.processes.iter().map(|p| p.child.id()).collect();
        for _ in 0..LOOKS_MAX {
            while let Ok(line) = self.lines.try_recv() {
                self.take(&line, &mut replies);
            }
            let locks = KernelLocks::read(&pids);
            let is_settled = |process: &Process| match process.state {
                State::Idle => true,
                State::Busy => locks.waiting.contains_key(&process.child.id()),
                State::Interrupted => false,
            };
            if self.processes.iter().all(is_settled) {
                self.locks = locks;
                return replies;
            }
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(1)) {
                self.take(&line, &mut replies);
            }
        }
        panic!("the kernel does not settle");
    }

    fn take(&mut self, line: &Line, replies: &mut BTreeMap<usize, Reply>) {
        let mut processes = self.processes.iter_mut().enumerate();
        let Some((at, process)) = processes.find(|(_, p)| p.child.id() == line.pid) else {
            // Of a process that was ended.
            return;
        };
        let text = line.text.as_deref().expect("no process ends by itself");
        let reply = Reply::parse(text).expect("processes answer in words that parse");
        assert_ne!(process.state, State::Idle, "nobody answers without an order");
        process.state = State::Idle;
        replies.insert(at, reply);
    }

    /// Nobody waits for or holds anything afterwards.
    pub(crate) fn reset(&mut self) {
        while let Some(process) = (0..self.len()).find(|&process| self.is_busy(process)) {
            self.interrupt(process);
            self.settle();
        }
        for process in 0..self.len() {
            self.order(process, Order::Unlock(Span::ALL));
            self.settle();
            self.order(process, Order::Flock(None));
            self.settle();
        }
        assert_eq!(self.locks, KernelLocks::default(), "an unlocked file has no locks");
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Whoever has ended already cannot be killed, which is as well.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        let _ = fs::remove_file(&self.file);
    }
}
