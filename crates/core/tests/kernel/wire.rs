//! What the test and its processes say to each other: a line for an order, a line for the answer.

use std::fmt;

use leasehold_core::{ByteRange, Mode};

/// The last byte that the kernel can lock; a lock that reaches it goes to the end of the file and beyond.
const OFFSET_MAX: u64 = i64::MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Read,
    Write,
}

impl Kind {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Kind::Read => Mode::Shared,
            Kind::Write => Mode::Exclusive,
        }
    }

    pub(crate) fn of(mode: Mode) -> Kind {
        match mode {
            Mode::Shared => Kind::Read,
            Mode::Exclusive | Mode::Permits(_) => Kind::Write,
        }
    }

    fn parse(text: &str) -> Option<Kind> {
        match text {
            "read" => Some(Kind::Read),
            "write" => Some(Kind::Write),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Read => "read",
            Kind::Write => "write",
        })
    }
}

/// Bytes as fcntl(2) is told of them: no length means to the end, a negative one means the bytes before `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: i64,
    pub(crate) len: i64,
}

impl Span {
    pub(crate) const ALL: Span = Span { start: 0, len: 0 };

    pub(crate) fn bytes(self) -> ByteRange {
        let (first, last) = match self.len {
            0 => (self.start, i64::MAX),
            1.. => (self.start, self.start + (self.len - 1)),
            ..0 => (self.start + self.len, self.start - 1),
        };
        let unsigned = |offset: i64| u64::try_from(offset).expect("no offset is negative");
        file_range(unsigned(first), unsigned(last))
    }

    /// How a process would name this range.
    pub(crate) fn of(range: ByteRange) -> Span {
        let signed = |offset| i64::try_from(offset).expect("the kernel can lock it");
        let start = signed(range.start());
        let len = range.end().map_or(0, |end| signed(end) - start);
        Span { start, len }
    }

    fn parse(start: &str, len: &str) -> Option<Span> {
        let (start, len) = (start.parse().ok()?, len.parse().ok()?);
        Some(Span { start, len })
    }
}

/// The table's range for bytes of the kernel, both ends included.
pub(crate) fn file_range(first: u64, last: u64) -> ByteRange {
    let last = if last == OFFSET_MAX { u64::MAX } else { last };
    ByteRange::inclusive(first, last).expect("the kernel locks no empty range")
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.start, self.len)
    }
}

/// The descriptor of the file that is closed; each of them drops all locks of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    Opened,
    OpenedToRead,
    Duplicate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Lock {
        wait: bool,
        kind: Kind,
        span: Span,
    },
    Unlock(Span),
    Test {
        kind: Kind,
        span: Span,
    },
    Close(Close),
    /// Never waits; `None` unlocks.
    Flock(Option<Kind>),
}

impl Order {
    pub(crate) fn parse(line: &str) -> Option<Order> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["lock", kind, start, len] => Order::Lock {
                wait: false,
                kind: Kind::parse(kind)?,
                span: Span::parse(start, len)?,
            },
            ["wait", kind, start, len] => {
                Order::Lock { wait: true, kind: Kind::parse(kind)?, span: Span::parse(start, len)? }
            }
            ["unlock", start, len] => Order::Unlock(Span::parse(start, len)?),
            ["test", kind, start, len] => {
                Order::Test { kind: Kind::parse(kind)?, span: Span::parse(start, len)? }
            }
            ["close", "opened"] => Order::Close(Close::Opened),
            ["close", "opened-to-read"] => Order::Close(Close::OpenedToRead),
            ["close", "duplicate"] => Order::Close(Close::Duplicate),
            ["flock", "off"] => Order::Flock(None),
            ["flock", kind] => Order::Flock(Some(Kind::parse(kind)?)),
            _ => return None,
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Lock { wait, kind, span } => {
                let word = if *wait { "wait" } else { "lock" };
                write!(f, "{word} {kind} {span}")
            }
            Order::Unlock(span) => write!(f, "unlock {span}"),
            Order::Test { kind, span } => write!(f, "test {kind} {span}"),
            Order::Close(Close::Opened) => f.write_str("close opened"),
            Order::Close(Close::OpenedToRead) => f.write_str("close opened-to-read"),
            Order::Close(Close::Duplicate) => f.write_str("close duplicate"),
            Order::Flock(None) => f.write_str("flock off"),
            Order::Flock(Some(kind)) => write!(f, "flock {kind}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) fn last() -> Errno {
        let code = std::io::Error::last_os_error().raw_os_error();
        Errno(code.expect("a failed call leaves its errno"))
    }
}

/// What the kernel said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    Failed(Errno),
    Free,
    Conflict { pid: u32, kind: Kind, span: Span },
}

impl Reply {
    pub(crate) fn parse(line: &str) -> Option<Reply> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["done"] => Reply::Done,
            ["failed", code] => Reply::Failed(Errno(code.parse().ok()?)),
            ["free"] => Reply::Free,
            ["conflict", pid, kind, start, len] => Reply::Conflict {
                pid: pid.parse().ok()?,
                kind: Kind::parse(kind)?,
                span: Span::parse(start, len)?,
            },
            _ => return None,
        })
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Done => f.write_str("done"),
            Reply::Failed(Errno(code)) => write!(f, "failed {code}"),
            Reply::Free => f.write_str("free"),
            Reply::Conflict { pid, kind, span } => write!(f, "conflict {pid} {kind} {span}"),
        }
    }
}
