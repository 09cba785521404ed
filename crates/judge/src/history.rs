//! Histories: the requests of clients, their times, and their outcomes.
//!
//! All moments are read from one monotonic clock of one machine, so that they can be compared with each other and with
//! lengths of leases.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::ops::Add;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A moment, in nanoseconds since the history began.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Moment(pub u64);

impl Moment {
    pub const NEVER: Moment = Moment(u64::MAX);
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, length: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A fencing token: the number by which a grant is known.
pub type Token = u64;

/// One lock out of those that a history is about.
pub type LockIndex = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    Exclusive,
    Shared,
}

impl Mode {
    pub fn conflicts_with(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// A request and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// `waited`: the request was ready to stand in the queue.
    Acquire {
        mode: Mode,
        ttl: Duration,
        waited: bool,
        outcome: Acquired,
    },
    Renew {
        token: Token,
        ttl: Duration,
        outcome: Kept,
    },
    Release {
        token: Token,
        outcome: Kept,
    },
    /// The server was stopped at once, at the latest at `down`, and another one took over.
    Restart {
        down: Moment,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acquired {
    Granted(Token),
    /// Another owner was in the way.
    Refused,
    /// No answer came. If it was granted, then before the operation's `returned`.
    Unknown,
}

/// The outcome of a renewal or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    Done,
    /// The lease is no longer there.
    Lost,
    /// No answer came. If it was done, then before the operation's `returned`.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub client: u32,
    pub lock: LockIndex,
    pub invoked: Moment,
    pub returned: Moment,
    pub event: Event,
}

/// Collects operations from many clients.
#[derive(Clone, Debug)]
pub struct Recorder {
    began: Instant,
    operations: Arc<Mutex<Vec<Operation>>>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder { began: Instant::now(), operations: Arc::default() }
    }
}

impl Recorder {
    pub fn now(&self) -> Moment {
        Moment::default() + self.began.elapsed()
    }

    pub fn record(&self, operation: Operation) {
        self.operations.lock().push(operation);
    }

    pub fn len(&self) -> usize {
        self.operations.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what was recorded so far.
    pub fn take(&self) -> Vec<Operation> {
        std::mem::take(&mut *self.operations.lock())
    }
}

/// Writes a history down, an operation a line, to be judged again later.
pub fn save(path: &Path, history: &[Operation]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for operation in history {
        serde_json::to_writer(&mut file, operation)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Reads a saved history.
pub fn load(path: &Path) -> io::Result<Vec<Operation>> {
    let lines = BufReader::new(File::open(path)?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}
