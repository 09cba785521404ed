//! The one clock the engine reads.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Timestamp;
use tokio::time::Instant;

/// Tells the time on the server's own monotonic axis.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    fn now(&self) -> Timestamp;

    /// Says whether time passes while a task looks at it again and again. Where it does not, because a test moves it, the
    /// engine never spins.
    fn runs_by_itself(&self) -> bool {
        true
    }
}

/// The machine's monotonic clock. Its axis starts at the wall clock's time when the server starts, so that moments mean
/// something to people; after that no change of the wall clock moves it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
    start_millis: u64,
}

impl SystemClock {
    pub fn new() -> SystemClock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_millis = u64::try_from(wall.as_millis()).unwrap_or(0);
        SystemClock { start: Instant::now(), start_millis }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.start_millis.saturating_add(elapsed))
    }
}

/// The clock of the runtime, which stands still while a task runs if the test has paused it or simulates it.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    start: Instant,
    start_shown: Timestamp,
}

impl RuntimeClock {
    /// Shows `now` at this moment.
    pub fn showing(now: Timestamp) -> RuntimeClock {
        RuntimeClock { start: Instant::now(), start_shown: now }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.start_shown.as_millis().saturating_add(elapsed))
    }

    fn runs_by_itself(&self) -> bool {
        false
    }
}
