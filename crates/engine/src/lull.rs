//! The moments after a slow store has written a record.
//!
//! Whoever was answered will soon ask again, most likely, and then shares the next record with those who wait already.
//! Otherwise the two would take turns for ever, and each would wait for two records. With a quicker store it is better to
//! decide what some ask while the record of the others is written.

use std::time::Duration;

use tokio::time::Instant;

/// A store is slow if it usually takes so long for a record: about as long as a crowd takes to ask again.
pub(crate) const SLOW: Duration = Duration::from_micros(400);
const LENGTH_MAX: Duration = Duration::from_micros(500);
/// After so many lulls in a row that were in vain, as many records go without one before the next is tried.
const VAIN_MAX: u32 = 8;

/// Whether there is a lull, and whether there is to be one after the next record.
#[derive(Debug)]
pub(crate) struct Lulls {
    /// What a record has taken on average, lately.
    usual: Duration,
    /// How many lulls in a row were in vain; from `VAIN_MAX` on, how many records went without one as well.
    vain: u32,
    current: Option<Lull>,
}

#[derive(Debug)]
struct Lull {
    until: Instant,
    answered: usize,
    /// How many of them have not asked again.
    missing: usize,
}

impl Default for Lulls {
    fn default() -> Lulls {
        Lulls { usual: SLOW, vain: 0, current: None }
    }
}

impl Lulls {
    /// What a record has taken on average, lately.
    pub(crate) fn usual(&self) -> Duration {
        self.usual
    }

    /// A record that took so long is written: those who waited for it are about to be answered.
    pub(crate) fn written(&mut self, now: Instant, took: Duration) {
        // One that took far longer than the others says little about the next.
        self.usual = self.usual * 15 / 16 + took.min(self.usual * 2) / 16;
        self.current = None;
        if self.usual < SLOW {
            return;
        }
        if (VAIN_MAX..2 * VAIN_MAX).contains(&self.vain) {
            self.vain += 1;
            return;
        }
        // If this one is in vain too, it is the last for a while.
        self.vain = self.vain.min(VAIN_MAX - 1);
        let until = now + took.min(LENGTH_MAX);
        self.current = Some(Lull { until, answered: 0, missing: 0 });
    }

    pub(crate) fn answered(&mut self, count: usize) {
        if let Some(lull) = &mut self.current {
            lull.answered += count;
            lull.missing += count;
        }
    }

    pub(crate) fn asked(&mut self, count: usize) {
        if let Some(lull) = &mut self.current {
            lull.missing = lull.missing.saturating_sub(count);
        }
    }

    /// Whether there is one, over or not.
    pub(crate) fn is_on(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the next record is to wait for those who are missing.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        self.current.as_ref().is_some_and(|lull| lull.missing > 0 && now < lull.until)
    }

    /// Until when so many at least are missing.
    pub(crate) fn missing_until(&self, len_min: usize) -> Option<Instant> {
        self.current.as_ref().filter(|lull| lull.missing >= len_min).map(|lull| lull.until)
    }

    pub(crate) fn end(&mut self) {
        if let Some(lull) = self.current.take().filter(|lull| lull.answered > 0) {
            let is_in_vain = lull.missing > lull.answered / 2;
            self.vain = if is_in_vain { self.vain + 1 } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_micros(450);

    /// A record of ten, of whom so many come back; whether the next one waited for them.
    fn record(lulls: &mut Lulls, back: usize) -> bool {
        let now = Instant::now();
        lulls.written(now, TOOK);
        lulls.answered(10);
        let lasts = lulls.lasts(now);
        lulls.asked(back);
        lulls.end();
        lasts
    }

    #[test]
    fn record_waits_until_all_are_back() {
        let (mut lulls, now) = (Lulls::default(), Instant::now());
        lulls.written(now, TOOK);
        assert!(!lulls.lasts(now), "nobody was answered yet");
        lulls.answered(3);
        assert!(lulls.lasts(now));
        assert_eq!(lulls.missing_until(3), Some(now + TOOK));
        lulls.asked(1);
        assert!(lulls.lasts(now));
        assert_eq!(lulls.missing_until(3), None);
        lulls.asked(2);
        assert!(!lulls.lasts(now));
    }

    #[test]
    fn record_waits_no_longer_than_the_last_one_took() {
        let (mut lulls, now) = (Lulls::default(), Instant::now());
        lulls.written(now, TOOK);
        lulls.answered(3);
        assert!(!lulls.lasts(now + TOOK));
        lulls.written(now, Duration::from_secs(1));
        lulls.answered(3);
        assert!(!lulls.lasts(now + LENGTH_MAX), "nor longer than the limit");
    }

    #[test]
    fn quick_store_has_none() {
        let (mut lulls, now) = (Lulls::default(), Instant::now());
        for _ in 0..100 {
            lulls.written(now, SLOW / 2);
        }
        assert!(!lulls.is_on());
        lulls.written(now, Duration::from_secs(1));
        assert!(!lulls.is_on(), "one that took long does not make it a slow one");
        for _ in 0..100 {
            lulls.written(now, SLOW * 2);
        }
        assert!(lulls.is_on());
    }

    #[test]
    fn where_nobody_comes_back_few_records_wait() {
        let mut lulls = Lulls::default();
        let waited = (0..900).filter(|_| record(&mut lulls, 2)).count();
        assert!((50..150).contains(&waited), "{waited} of 900 waited");
        // It finds out when that has changed, and one that is in vain now and then changes nothing.
        let waited =
            (0..900).filter(|number| record(&mut lulls, if number % 9 == 0 { 0 } else { 9 }));
        assert!(waited.count() > 880);
    }
}
