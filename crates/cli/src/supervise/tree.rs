//! All that lives below a process, and how it is ended.
//!
//! A process that was sent SIGKILL can start no other. So each round of killing ends what it found, and what was
//! started meanwhile is found by the next round, under us if its parent is gone.

use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait as wait_for_any,
};

use crate::output::talk;

/// Between two rounds of killing.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A process as it was when we looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    /// In clock ticks since boot: together with its number it is the process and no other.
    started: u64,
    is_dead: bool,
}

/// Sends a signal to all that lives below us, except to `spared`, which may be our own other half.
///
/// Says how many there were, and how many of them we may not touch.
pub(super) fn signal(signal: Signal, spared: Option<Pid>) -> Found {
    let mut found = Found::default();
    for process in below(own_pid()) {
        if process.is_dead || spared.is_some_and(|pid| pid.as_raw_pid() == process.pid) {
            continue;
        }
        match send(process, signal) {
            Ok(()) => found.alive += 1,
            Err(Errno::PERM) => {
                found.alive += 1;
                found.untouchable += 1;
            }
            // It ended meanwhile.
            Err(_) => {}
        }
    }
    found
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) alive: usize,
    pub(super) untouchable: usize,
}

/// Kills until nothing is left; with `spared`, until nothing else is found. `reaped` is told of each child of ours that
/// was waited for.
pub(super) async fn kill_all(spared: Option<Pid>, mut reaped: impl FnMut(Pid, i32)) {
    let mut pause = PAUSE;
    let mut was_said = false;
    loop {
        let found = signal(Signal::KILL, spared);
        let left = reap(&mut reaped);
        if left == Left::Nothing || (spared.is_some() && found.alive == 0) {
            return;
        }
        if found.untouchable > 0 {
            if !was_said {
                talk(&format!(
                    "leasehold: {} processes of the command may not be ended by this user and go on without the lock",
                    found.untouchable
                ));
                was_said = true;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tokio::time::sleep(pause).await;
    }
}

/// The processes below us, by the kernel's own count. A look at all processes takes a while, and one that is started
/// meanwhile by another that ends may be missed; but it is then a child of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Something,
}

/// Takes note of the children that have ended.
pub(super) fn reap(reaped: &mut impl FnMut(Pid, i32)) -> Left {
    loop {
        match wait_for_any(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => reaped(pid, status.as_raw()),
            Ok(None) => return Left::Something,
            Err(Errno::INTR) => {}
            // There are no children: whoever had one below us that lives would be one, or below one.
            Err(_) => return Left::Nothing,
        }
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// All processes below one, parents before children.
fn below(root: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found: Vec<Process> = children.remove(&root).unwrap_or_default();
    let mut at = 0;
    while let Some(process) = found.get(at) {
        if let Some(more) = children.remove(&process.pid) {
            found.extend(more);
        }
        at += 1;
    }
    found
}

fn all() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| look(entry.file_name().to_str()?.parse().ok()?))
}

fn look(pid: i32) -> Option<Process> {
    // One read: its size is not known before, and it is never larger.
    let mut stat = [0; 1024];
    let len = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut stat).ok()?;
    parse(pid, stat.get(..len)?)
}

/// `pid (name) state parent …`: the name may contain anything, so what follows its last bracket is read.
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let threads: u64 = fields.get(17)?.parse().ok()?;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        // A process whose first thread has ended looks like a zombie while its others go on.
        is_dead: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
    })
}

/// To this very process, not to one that got its number since we looked.
fn send(process: Process, signal: Signal) -> Result<(), Errno> {
    let pid = Pid::from_raw(process.pid).ok_or(Errno::SRCH)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    match look(process.pid) {
        Some(now) if now.started == process.started => pidfd_send_signal(&handle, signal),
        Some(_) | None => Err(Errno::SRCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_read_whatever_its_name() {
        let stat = b"42 (a) b) (c) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 12345 0 0";
        let process = Process { pid: 42, parent: 7, started: 12345, is_dead: false };
        assert_eq!(parse(42, stat), Some(process));
    }

    #[test]
    fn zombie_with_threads_is_alive() {
        let stat = |threads: u32| {
            format!("1 (x) Z 7 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 {threads} 0 9 0 0").into_bytes()
        };
        assert!(parse(1, &stat(1)).is_some_and(|process| process.is_dead));
        assert!(parse(1, &stat(2)).is_some_and(|process| !process.is_dead));
    }

    #[test]
    fn children_are_found_below_their_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(below(own_pid()).iter().any(|process| process.pid == pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!below(own_pid()).iter().any(|process| process.pid == pid));
    }
}
