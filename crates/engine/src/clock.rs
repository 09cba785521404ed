//! The one clock the engine reads.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use leasehold_core::Timestamp;

/// Tells the time on the server's own monotonic axis.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
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
