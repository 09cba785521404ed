//! The delay of calls in the inbox, and the levels at which calls are shed because of it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// The delays are judged over so long.
const WINDOW: Duration = Duration::from_secs(1);
/// Delays that the next level begins with.
const LEVELS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// A level of shedding. Each level refuses what those below it do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shedding {
    #[default]
    Nothing,
    /// Reads of accounts that have more than their share queued.
    Reads,
    /// Ordinary calls of those.
    Ordinary,
    /// Ordinary calls and reads of all accounts that have any waiting.
    All,
}

/// The delays of the current window.
#[derive(Debug)]
pub(crate) struct Load {
    since: Option<Instant>,
    calls: u64,
    /// For each level, the number of calls that were delayed by more than its threshold.
    above: [u64; LEVELS.len()],
    shedding: Shedding,
}

impl Load {
    pub(crate) fn new() -> Load {
        Load { since: None, calls: 0, above: [0; LEVELS.len()], shedding: Shedding::Nothing }
    }

    pub(crate) fn shedding(&self) -> Shedding {
        self.shedding
    }

    /// Calls were taken out after this delay.
    pub(crate) fn note(&mut self, delay: Duration, calls: usize) {
        self.calls += calls as u64;
        for (above, level) in self.above.iter_mut().zip(LEVELS) {
            *above += if delay > level { calls as u64 } else { 0 };
        }
    }

    /// Decides anew when the window is over: by the delay that one call in a hundred exceeds. With nothing queued,
    /// nothing is refused. True at the beginning of a new window.
    pub(crate) fn judge(&mut self, now: Instant, is_empty: bool) -> bool {
        if is_empty {
            if self.shedding != Shedding::Nothing || self.calls > 0 {
                *self = Load::new();
                return true;
            }
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if now - since < WINDOW {
            return false;
        }
        let exceeds = |above: u64| above * 100 > self.calls;
        let shedding = match self.above {
            [_, _, above] if exceeds(above) => Shedding::All,
            [_, above, _] if exceeds(above) => Shedding::Ordinary,
            [above, _, _] if exceeds(above) => Shedding::Reads,
            _ => Shedding::Nothing,
        };
        *self = Load { since: Some(now), shedding, ..Load::new() };
        true
    }
}

/// Counts of calls refused in the inbox since the start, and the level of shedding now.
#[derive(Debug, Default)]
pub(crate) struct Shed {
    full: AtomicU64,
    reads: AtomicU64,
    ordinary: AtomicU64,
    level: AtomicU8,
}

/// The same in plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShedCounts {
    /// Calls of accounts whose queue was full.
    pub full: u64,
    /// Reads that were refused because of the delay.
    pub reads: u64,
    /// Ordinary calls that were.
    pub ordinary: u64,
    /// 0: nothing is refused; 1: reads of those above their share; 2: their ordinary calls too; 3: both of all that have
    /// any waiting.
    pub level: u8,
}

impl ShedCounts {
    /// Adds those of another engine; of the levels the higher one counts.
    pub fn add(&mut self, other: ShedCounts) {
        self.full += other.full;
        self.reads += other.reads;
        self.ordinary += other.ordinary;
        self.level = self.level.max(other.level);
    }
}

impl Shed {
    pub(crate) fn count_full(&self, calls: usize) {
        self.full.fetch_add(calls as u64, Relaxed);
    }

    pub(crate) fn count_reads(&self, calls: usize) {
        self.reads.fetch_add(calls as u64, Relaxed);
    }

    pub(crate) fn count_ordinary(&self, calls: usize) {
        self.ordinary.fetch_add(calls as u64, Relaxed);
    }

    pub(crate) fn set_level(&self, shedding: Shedding) {
        self.level.store(shedding as u8, Relaxed);
    }

    pub(crate) fn counts(&self) -> ShedCounts {
        ShedCounts {
            full: self.full.load(Relaxed),
            reads: self.reads.load(Relaxed),
            ordinary: self.ordinary.load(Relaxed),
            level: self.level.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn judged(delays: &[(Duration, usize)]) -> Shedding {
        let (mut load, start) = (Load::new(), Instant::now());
        load.judge(start, false);
        delays.iter().for_each(|&(delay, calls)| load.note(delay, calls));
        load.judge(start + WINDOW, false);
        load.shedding()
    }

    #[test]
    fn one_call_in_a_hundred_decides() {
        assert_eq!(judged(&[(MS, 1000)]), Shedding::Nothing);
        assert_eq!(judged(&[(MS, 990), (3000 * MS, 10)]), Shedding::Nothing);
        assert_eq!(judged(&[(MS, 980), (101 * MS, 20)]), Shedding::Reads);
        assert_eq!(judged(&[(MS, 980), (501 * MS, 20)]), Shedding::Ordinary);
        assert_eq!(judged(&[(MS, 980), (2001 * MS, 20)]), Shedding::All);
    }

    #[test]
    fn nothing_is_refused_before_a_window_is_over_or_with_nothing_queued() {
        let (mut load, start) = (Load::new(), Instant::now());
        load.judge(start, false);
        load.note(3000 * MS, 10);
        load.judge(start + WINDOW / 2, false);
        assert_eq!(load.shedding(), Shedding::Nothing);
        load.judge(start + WINDOW, false);
        assert_eq!(load.shedding(), Shedding::All);
        load.judge(start + WINDOW + MS, true);
        assert_eq!(load.shedding(), Shedding::Nothing);
    }
}
