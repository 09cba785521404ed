//! Moments and lengths of time. The core never reads a clock: `now` always comes in as an argument.

use std::fmt;
use std::time::Duration;

/// A moment on the server's own monotonic axis, in whole milliseconds.
///
/// Where the axis starts does not matter to the rules. An engine that starts it near the wall clock gets moments
/// that mean something to people, and still never lets the wall clock move one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const ZERO: Timestamp = Timestamp(0);
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    pub const fn from_millis(millis: u64) -> Timestamp {
        Timestamp(millis)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn plus(self, length: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(length.0 as u64))
    }

    /// The time since `earlier`; zero if it is later.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// A duration in whole milliseconds, up to 49 days: what a ttl is stored as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(u32);

impl Millis {
    pub const ZERO: Millis = Millis(0);

    pub const fn new(millis: u32) -> Millis {
        Millis(millis)
    }

    pub const fn from_secs(secs: u32) -> Millis {
        Millis(secs.saturating_mul(1000))
    }

    pub const fn get(self) -> u32 {
        self.0
    }

    /// The whole milliseconds of `length`, or `None` if it is longer than 49 days.
    pub fn from_duration(length: Duration) -> Option<Millis> {
        u32::try_from(length.as_millis()).ok().map(Millis)
    }

    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
