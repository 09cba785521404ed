//! True time, which nobody in the world can read, and the clocks of the nodes, which all differ from it.

use std::fmt;
use std::ops::Add;

use leasehold_core::Timestamp;

/// A moment of true time, in microseconds since the world began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

/// A duration in microseconds.
pub type Micros = u64;

pub const MILLI: Micros = 1000;
pub const SECOND: Micros = 1_000_000;

impl Add<Micros> for Moment {
    type Output = Moment;

    fn add(self, length: Micros) -> Moment {
        Moment(self.0.saturating_add(length))
    }
}

impl Moment {
    pub fn since(self, earlier: Moment) -> Micros {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}.{:06}", self.0 / SECOND, self.0 % SECOND)
    }
}

/// A clock that never goes back: where it started, and how fast it runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it showed at the moment `since`.
    shown: Micros,
    since: Moment,
    /// Parts in a million by which it is too fast; negative if it is too slow.
    drift_ppm: i64,
}

const MILLION: u64 = 1_000_000;

impl Clock {
    pub fn new(since: Moment, shown: Micros, drift_ppm: i64) -> Clock {
        Clock { shown, since, drift_ppm }
    }

    /// What it shows.
    pub fn at(&self, moment: Moment) -> Micros {
        self.shown + self.own_length(moment.since(self.since))
    }

    /// The first moment at which it shows at least that.
    pub fn when(&self, shown: Micros) -> Moment {
        self.since + times(shown.saturating_sub(self.shown), MILLION, self.rate(), self.rate() - 1)
    }

    fn own_length(&self, length: Micros) -> Micros {
        times(length, self.rate(), MILLION, 0)
    }

    /// How far it goes in a million.
    fn rate(&self) -> u64 {
        MILLION.saturating_add_signed(self.drift_ppm)
    }

    /// As a server reads it, in whole milliseconds.
    pub fn timestamp(&self, moment: Moment) -> Timestamp {
        Timestamp::from_millis(self.at(moment) / MILLI)
    }

    /// The first moment at which a server reads at least that.
    pub fn when_timestamp(&self, timestamp: Timestamp) -> Moment {
        self.when(timestamp.as_millis().saturating_mul(MILLI))
    }
}

/// A length times a fraction, rounded up with what is `more`.
fn times(length: Micros, over: u64, under: u64, more: u64) -> Micros {
    // Wide arithmetic is slow, and nobody lives that long.
    match length.checked_mul(over).and_then(|product| product.checked_add(more)) {
        Some(product) => product / under,
        None => {
            let product = u128::from(length) * u128::from(over) + u128::from(more);
            u64::try_from(product / u128::from(under)).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_shows_what_it_was_waited_for_and_not_a_moment_earlier() {
        for drift_ppm in [-50_000, -1, 0, 3, 50_000] {
            let clock = Clock::new(Moment(500), 1_000_000, drift_ppm);
            for shown in [1_000_001, 1_234_567, 99_000_000] {
                let moment = clock.when(shown);
                assert!(clock.at(moment) >= shown, "{drift_ppm} {shown}");
                assert!(clock.at(Moment(moment.0 - 1)) < shown, "{drift_ppm} {shown}");
            }
        }
    }
}
