//! Moments on the client's own clock.

use std::fmt;
use std::time::Duration;

/// A moment on a clock that only this client reads and that goes on while the machine sleeps. Where it starts does not
/// matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    pub const ZERO: Moment = Moment(0);
    pub const MAX: Moment = Moment(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    pub const fn from_millis(millis: u64) -> Moment {
        Moment(millis.saturating_mul(1_000_000))
    }

    #[must_use]
    pub fn plus(self, length: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(length)))
    }

    #[must_use]
    pub fn minus(self, length: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(length)))
    }

    /// Duration since `earlier`; zero if it is later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}
