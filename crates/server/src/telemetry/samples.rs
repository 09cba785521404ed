//! The last ten minutes, sampled: what the overview draws. Kept whether or not anybody looks, because people look
//! afterwards.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::Series;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::convert::wall;
use crate::service::app::App;

const EVERY: Duration = Duration::from_secs(2);
const LEN_MAX: usize = 300;

#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<VecDeque<Sample>>);

/// The figures at one moment; the counts are those since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) held: u64,
    pub(crate) waiters: u64,
    pub(crate) sessions: u64,
    pub(crate) grants: u64,
    pub(crate) expired: u64,
    pub(crate) deadlocks: u64,
}

impl Sample {
    /// All that this server decides about.
    pub(crate) async fn now(app: &App) -> Sample {
        let mut sample = Sample::default();
        for engine in app.groups.all() {
            let (stats, totals) = (app.stats(engine).await.unwrap_or_default(), engine.totals());
            sample.held += stats.held as u64;
            sample.waiters += stats.waiters as u64;
            sample.sessions += stats.sessions as u64;
            sample.grants += totals.granted;
            sample.expired += totals.expired;
            sample.deadlocks += totals.deadlocks;
        }
        sample
    }
}

impl Samples {
    fn push(&self, sample: Sample) {
        let mut samples = self.samples();
        samples.push_back(sample);
        // One more than is shown: what happened in an interval is the difference to the sample before it.
        if samples.len() > LEN_MAX + 1 {
            samples.pop_front();
        }
    }

    pub(crate) fn series(&self) -> Series {
        let samples = self.samples();
        let shown = || samples.iter().skip(1);
        let gains = |of: fn(&Sample) -> u64| {
            let pairs = samples.iter().zip(shown());
            pairs.map(|(before, after)| of(after).saturating_sub(of(before))).collect()
        };
        Series {
            every_ms: u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX),
            locks_held: shown().map(|sample| sample.held).collect(),
            waiters: shown().map(|sample| sample.waiters).collect(),
            grants: gains(|sample| sample.grants),
            expired: gains(|sample| sample.expired),
            deadlocks: gains(|sample| sample.deadlocks),
        }
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.0.lock()
    }
}

/// Takes samples until the server stops.
pub(crate) async fn sample(app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        if app.clock.runs_by_itself() {
            wall::look(app.now());
        }
        app.samples.push(Sample::now(&app).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_tells_levels_and_what_happened_in_each_interval() {
        let samples = Samples::default();
        assert_eq!(samples.series().grants, [0; 0]);
        for (held, grants) in [(1, 10), (3, 15), (2, 15)] {
            samples.push(Sample { held, grants, ..Sample::default() });
        }
        let series = samples.series();
        assert_eq!((series.locks_held, series.grants), (vec![3, 2], vec![5, 0]));
    }

    #[test]
    fn only_the_last_ten_minutes_are_kept() {
        let samples = Samples::default();
        for grants in 0..1000 {
            samples.push(Sample { grants, ..Sample::default() });
        }
        assert_eq!(samples.series().grants, vec![1; LEN_MAX]);
    }
}
