//! What the kernel says of its own lock table: `/proc/locks`.
//!
//! ```text
//! 1: POSIX  ADVISORY  WRITE 812 fe:00:2101 0 9
//! 1: -> POSIX  ADVISORY  READ 813 fe:00:2101 4 EOF
//! 1:  -> POSIX  ADVISORY  WRITE 814 fe:00:2101 0 EOF
//! ```
//!
//! An arrow marks a request that waits. One level deeper it waits behind the request above it, and is not woken before
//! that one has been granted or has left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;

use leasehold_core::ByteRange;

use super::wire::{Kind, file_range};

/// What some processes have locked, and who of them waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelLocks {
    pub(crate) pieces: BTreeSet<(u32, ByteRange, Kind)>,
    pub(crate) flocks: BTreeSet<(u32, Kind)>,
    pub(crate) waiting: BTreeMap<u32, Waiting>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) range: ByteRange,
    pub(crate) kind: Kind,
    /// The processes whose waiting requests it stands behind.
    behind: Vec<u32>,
}

impl KernelLocks {
    /// All locks of these processes. They lock one file only.
    pub(crate) fn read(pids: &BTreeSet<u32>) -> KernelLocks {
        KernelLocks::parse(&read_proc(), pids)
    }

    fn parse(text: &str, pids: &BTreeSet<u32>) -> KernelLocks {
        let mut locks = KernelLocks::default();
        let mut above: Vec<u32> = Vec::new();
        for line in text.lines() {
            let Some(entry) = Entry::parse(line) else {
                continue;
            };
            above.truncate(entry.depth.saturating_sub(1));
            if pids.contains(&entry.pid) {
                locks.add(&entry, &above);
            }
            if entry.depth > 0 {
                above.push(entry.pid);
            }
        }
        locks
    }

    fn add(&mut self, entry: &Entry, above: &[u32]) {
        let (pid, range, kind) = (entry.pid, entry.range, entry.kind);
        match (entry.depth, entry.is_flock) {
            (0, false) => {
                self.pieces.insert((pid, range, kind));
            }
            (0, true) => {
                self.flocks.insert((pid, kind));
            }
            _ => {
                let behind = above.to_vec();
                let waiting = Waiting { range, kind, behind };
                self.waiting.insert(pid, waiting);
            }
        }
    }

    /// Whether the one waits behind the other, which therefore goes first.
    pub(crate) fn is_behind(&self, one: u32, other: u32) -> bool {
        self.waiting.get(&one).is_some_and(|waiting| waiting.behind.contains(&other))
    }
}

/// The whole text as of one moment.
///
/// Each read is of one moment, and gives a page at most. When there is more, locks that others take in between can shift
/// ours from one page to the next; then only two texts that are the same are believed.
fn read_proc() -> String {
    let (mut text, mut reads) = read_pages();
    while reads > 1 {
        let (again, reads_again) = read_pages();
        if again == text {
            break;
        }
        (text, reads) = (again, reads_again);
    }
    String::from_utf8(text).expect("the kernel writes plain text")
}

/// The text, and in how many reads it came.
fn read_pages() -> (Vec<u8>, usize) {
    let mut file = File::open("/proc/locks").expect("the kernel shows its locks");
    let (mut text, mut reads) = (Vec::new(), 0);
    let mut page = vec![0; 1 << 16];
    loop {
        match file.read(&mut page).expect("the kernel shows its locks") {
            0 => return (text, reads),
            len => text.extend_from_slice(&page[..len]),
        }
        reads += 1;
    }
}

struct Entry {
    /// 0 for a lock; 1 for a request that waits for it; 2 for one that waits behind that.
    depth: usize,
    is_flock: bool,
    pid: u32,
    kind: Kind,
    range: ByteRange,
}

impl Entry {
    fn parse(line: &str) -> Option<Entry> {
        let (_, rest) = line.split_once(": ")?;
        let (depth, rest) = match rest.split_once("-> ") {
            Some((indent, rest)) => (indent.len() + 1, rest),
            None => (0, rest),
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [class, _, kind, pid, _, first, last] = words[..] else {
            return None;
        };
        let is_flock = match class {
            "POSIX" => false,
            "FLOCK" => true,
            _ => return None,
        };
        let kind = match kind {
            "READ" => Kind::Read,
            "WRITE" => Kind::Write,
            _ => return None,
        };
        let last = match last {
            "EOF" => u64::MAX,
            last => last.parse().ok()?,
        };
        Some(Entry {
            depth,
            is_flock,
            pid: pid.parse().ok()?,
            kind,
            range: file_range(first.parse().ok()?, last),
        })
    }
}

#[test]
fn waiting_requests_know_whom_they_stand_behind() {
    let text = "1: POSIX  ADVISORY  WRITE 812 fe:00:2101 0 9\n\
                1: -> POSIX  ADVISORY  READ 813 fe:00:2101 4 EOF\n\
                1:  -> POSIX  ADVISORY  WRITE 814 fe:00:2101 0 EOF\n\
                1: -> POSIX  ADVISORY  READ 815 fe:00:2101 0 0\n\
                2: FLOCK  ADVISORY  WRITE 812 fe:00:2101 0 EOF\n\
                3: POSIX  ADVISORY  WRITE 99 fe:00:77 0 EOF\n";
    let locks = KernelLocks::parse(text, &BTreeSet::from([812, 813, 814, 815]));
    assert_eq!(locks.pieces, BTreeSet::from([(812, file_range(0, 9), Kind::Write)]));
    assert_eq!(locks.flocks, BTreeSet::from([(812, Kind::Write)]));
    assert_eq!(locks.waiting.len(), 3);
    assert!(locks.is_behind(814, 813));
    assert!(!locks.is_behind(815, 813));
    assert!(!locks.is_behind(813, 814));
}
