//! Numbers about what has happened since the start, for metrics. Counted where it happens, so none is missed.

use std::collections::BTreeMap;

use leasehold_core::{Namespace, News, ScopeKind};

use crate::engine::Published;

/// What has happened since the engine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub granted: BTreeMap<(Namespace, ScopeKind), u64>,
    /// By namespace and the word for the ending, as in `Ending`.
    pub ended: BTreeMap<(Namespace, &'static str), u64>,
    pub deadlocks: u64,
}

impl Counts {
    /// Mostly the same happens many times in a row: that is looked up once.
    pub(crate) fn count(&mut self, events: &[Published]) {
        for alike in events.chunk_by(|one, next| Counted::of(one) == Counted::of(next)) {
            let len = alike.len() as u64;
            match Counted::of(&alike[0]) {
                Counted::Granted(namespace, kind) => {
                    *self.granted.entry((namespace.clone(), kind)).or_insert(0) += len;
                }
                Counted::Ended(namespace, ending) => {
                    *self.ended.entry((namespace.clone(), ending)).or_insert(0) += len;
                }
                Counted::Deadlock => self.deadlocks += len,
                Counted::Nothing => {}
            }
        }
    }
}

/// As what an event counts.
#[derive(PartialEq, Eq)]
enum Counted<'a> {
    Granted(&'a Namespace, ScopeKind),
    Ended(&'a Namespace, &'static str),
    Deadlock,
    Nothing,
}

impl Counted<'_> {
    fn of(published: &Published) -> Counted<'_> {
        let namespace = &published.event.namespace;
        match &published.event.news {
            News::Granted { scope, .. } => Counted::Granted(namespace, scope.kind()),
            News::Ended { ending, .. } => Counted::Ended(namespace, ending.as_str()),
            News::Deadlock { .. } => Counted::Deadlock,
            News::EpochBegan { .. }
            | News::GraceEnded
            | News::SessionOpened { .. }
            | News::SessionEnded { .. }
            | News::TtlChanged { .. }
            | News::FenceAccepted { .. }
            | News::Queued { .. }
            | News::Left { .. } => Counted::Nothing,
        }
    }
}

impl Counts {
    /// What has happened in another group counts as well.
    pub fn add(&mut self, other: &Counts) {
        for (key, count) in &other.granted {
            *self.granted.entry(key.clone()).or_insert(0) += count;
        }
        for (key, count) in &other.ended {
            *self.ended.entry(key.clone()).or_insert(0) += count;
        }
        self.deadlocks += other.deadlocks;
    }
}

/// How long commits take and how much each carries: counts by upper bound, and the sum.
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

/// What the store was asked to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Commits {
    pub seconds: Histogram,
    /// Transitions per record.
    pub batch_size: Histogram,
    pub failures: u64,
}

impl Commits {
    /// What was written for another group counts as well.
    pub fn add(&mut self, other: &Commits) {
        self.seconds.add(&other.seconds);
        self.batch_size.add(&other.batch_size);
        self.failures += other.failures;
    }
}

impl Default for Commits {
    fn default() -> Commits {
        const SECONDS: &[f64] =
            &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0];
        const SIZES: &[f64] =
            &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];
        Commits { seconds: Histogram::new(SECONDS), batch_size: Histogram::new(SIZES), failures: 0 }
    }
}
