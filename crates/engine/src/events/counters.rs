//! Numbers about what has happened since the start, for metrics. Counted where it happens, so none is missed.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::{Ending, Namespace, News};
use tokio::time::Instant;

use crate::writer::Published;

/// So many namespaces are counted each by its name, the others together: whoever can name a namespace must not be able to
/// fill the memory.
const NAMESPACES_MAX: usize = 100;

/// Counts of events since the engine started. It never grows beyond a few kilobytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub totals: Totals,
    /// By namespace as below, and by kind of mode.
    pub granted: BTreeMap<(Option<Namespace>, &'static str), u64>,
    /// By the word for the ending, as in `Ending`, and by namespace; `None` stands for all that have no count of their
    /// own.
    pub ended: BTreeMap<(Option<Namespace>, &'static str), u64>,
    /// The namespaces that have one.
    named: BTreeSet<Namespace>,
}

/// Counts of all namespaces together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub granted: u64,
    /// Grants whose lease lapsed, in the recovery grace as well.
    pub expired: u64,
    pub deadlocks: u64,
}

impl Counts {
    /// Mostly the same happens many times in a row: that is looked up once.
    pub(crate) fn count(&mut self, events: &[Published]) {
        for alike in events.chunk_by(|one, next| Counted::of(one) == Counted::of(next)) {
            let len = alike.len() as u64;
            match Counted::of(&alike[0]) {
                Counted::Granted(namespace, mode) => {
                    self.totals.granted += len;
                    let name = self.name(namespace);
                    *self.granted.entry((name, mode)).or_insert(0) += len;
                }
                Counted::Ended(namespace, ending) => self.count_ended(namespace, ending, len),
                Counted::Deadlock => self.totals.deadlocks += len,
                Counted::Nothing => {}
            }
        }
    }

    fn count_ended(&mut self, namespace: &Namespace, ending: &'static str, len: u64) {
        if matches!(ending, "expired" | "grace_expired") {
            self.totals.expired += len;
        }
        let name = self.name(namespace);
        *self.ended.entry((name, ending)).or_insert(0) += len;
    }

    /// The name under which a namespace is counted.
    fn name(&mut self, namespace: &Namespace) -> Option<Namespace> {
        if !self.named.contains(namespace) {
            if self.named.len() >= NAMESPACES_MAX {
                return None;
            }
            self.named.insert(namespace.clone());
        }
        Some(namespace.clone())
    }
}

/// As what an event counts.
#[derive(PartialEq, Eq)]
enum Counted<'a> {
    Granted(&'a Namespace, &'static str),
    Ended(&'a Namespace, &'static str),
    Deadlock,
    Nothing,
}

impl Counted<'_> {
    fn of(published: &Published) -> Counted<'_> {
        let namespace = &published.event.namespace;
        match &published.event.news {
            News::Granted { mode, .. } => Counted::Granted(namespace, mode.kind()),
            // Its time had begun when the stream broke.
            News::Ended { ending: Ending::Expired, disconnected: true, .. } => {
                Counted::Ended(namespace, Ending::Disconnected.as_str())
            }
            News::Ended { ending, .. } => Counted::Ended(namespace, ending.as_str()),
            News::Deadlock { .. } => Counted::Deadlock,
            News::EpochBegan { .. }
            | News::GraceEnded
            | News::SessionOpened { .. }
            | News::SessionEnded { .. }
            | News::TtlChanged { .. }
            | News::FenceAccepted { .. }
            | News::FenceDeleted { .. }
            | News::Queued { .. }
            | News::Left { .. } => Counted::Nothing,
        }
    }
}

impl Counts {
    /// Adds the counts of another group.
    pub fn add(&mut self, other: &Counts) {
        for ((namespace, mode), count) in &other.granted {
            let name = namespace.as_ref().and_then(|namespace| self.name(namespace));
            *self.granted.entry((name, mode)).or_insert(0) += count;
        }
        for ((namespace, ending), count) in &other.ended {
            let name = namespace.as_ref().and_then(|namespace| self.name(namespace));
            *self.ended.entry((name, ending)).or_insert(0) += count;
        }
        self.totals.add(other.totals);
    }
}

impl Totals {
    pub fn add(&mut self, other: Totals) {
        let Totals { granted, expired, deadlocks } = other;
        self.granted += granted;
        self.expired += expired;
        self.deadlocks += deadlocks;
    }
}

/// Histograms of the duration of commits and of their size: counts by upper bound, and the sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Upper bounds, ascending; what is above all of them counts in the last place.
    pub bounds: &'static [f64],
    pub counts: Vec<u64>,
    pub sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place] += 1;
        self.sum += value;
    }

    fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }
}

/// Counts of writes to the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Commits {
    pub seconds: Histogram,
    /// Transitions per record.
    pub batch_size: Histogram,
    pub failures: u64,
    /// The time it took to end what was due, each time something was.
    pub sweep_seconds: Histogram,
    /// When the last snapshot was complete.
    pub snapshot: Option<Instant>,
}

impl Commits {
    /// Adds the writes of another group.
    pub fn add(&mut self, other: &Commits) {
        let Commits { seconds, batch_size, failures, sweep_seconds, snapshot } = other;
        self.seconds.add(seconds);
        self.batch_size.add(batch_size);
        self.failures += failures;
        self.sweep_seconds.add(sweep_seconds);
        self.snapshot = [self.snapshot, *snapshot].into_iter().flatten().min();
    }
}

impl Default for Commits {
    fn default() -> Commits {
        const SECONDS: &[f64] =
            &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0];
        const SWEEP_SECONDS: &[f64] =
            &[0.000_01, 0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5];
        const SIZES: &[f64] =
            &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];
        Commits {
            seconds: Histogram::new(SECONDS),
            batch_size: Histogram::new(SIZES),
            failures: 0,
            sweep_seconds: Histogram::new(SWEEP_SECONDS),
            snapshot: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use leasehold_core::{Event, FencingToken, Mode, Owner, Revision, Scope, Timestamp};

    fn ended(namespace: &str, ending: Ending) -> Published {
        ended_after(namespace, ending, false)
    }

    fn ended_after(namespace: &str, ending: Ending, disconnected: bool) -> Published {
        let news = News::Ended {
            scope: Scope::parse("x").expect("a name"),
            owner: Owner::new("a").expect("a name"),
            mode: Mode::Exclusive,
            fence: FencingToken::new(1).expect("a small number"),
            since: Timestamp::ZERO,
            ending,
            window: None,
            session: None,
            disconnected,
        };
        let namespace = Namespace::new(namespace).expect("a name");
        let event = Event { revision: Revision(1), at: Timestamp::ZERO, namespace, news };
        Published { event: Arc::new(event), last_of_revision: true }
    }

    #[test]
    fn session_that_is_not_taken_up_again_ends_by_its_disconnect() {
        let mut counts = Counts::default();
        counts.count(&[ended_after("n", Ending::Expired, true), ended("n", Ending::Expired)]);
        let ended: Vec<_> = counts.ended.iter().map(|((_, ending), len)| (*ending, *len)).collect();
        assert_eq!(ended, [("disconnected", 1), ("expired", 1)]);
        assert_eq!(counts.totals.expired, 1);
    }

    #[test]
    fn counts_do_not_grow_with_the_namespaces_that_were_ever_named() {
        let mut counts = Counts::default();
        for number in 0..10_000 {
            let name = format!("n{number}");
            counts.count(&[ended(&name, Ending::Expired), ended(&name, Ending::Released)]);
        }
        assert_eq!(counts.ended.len(), 2 * (NAMESPACES_MAX + 1));
        assert_eq!(counts.ended[&(None, "expired")], 10_000 - NAMESPACES_MAX as u64);
        assert_eq!(counts.ended.values().sum::<u64>(), 20_000);
        assert_eq!(counts.totals.expired, 10_000);
        // Several groups together are bounded as well.
        let mut both = counts.clone();
        let mut others = Counts::default();
        others.count(&[ended("else", Ending::Released), ended("n1", Ending::Released)]);
        both.add(&others);
        assert_eq!(both.ended.len(), counts.ended.len());
        assert_eq!(both.ended.values().sum::<u64>(), 20_002);
    }
}
