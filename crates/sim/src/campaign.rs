//! Many worlds, on all cores: what they came to together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::coverage::Coverage;
use crate::cut::Cut;
use crate::judge::{Peaks, Verdict};
use crate::time::{Micros, SECOND};

/// How often it is said how far it has come.
const PROGRESS: Duration = Duration::from_secs(10);

/// Which worlds to live through.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed, and the first that is not one any more.
    pub seeds: std::ops::Range<u64>,
    /// No new world begins after this, once so many seeds are done.
    pub time: Option<(Duration, u64)>,
    /// How long each world lasts, if its seed is not to say it.
    pub length: Option<Micros>,
    pub threads: usize,
    /// Says from time to time how far it has come.
    pub is_loud: bool,
    /// Ends with the first world that fails.
    pub is_hasty: bool,
}

/// What came of a campaign.
#[derive(Debug, Default)]
pub struct Tally {
    pub seeds: u64,
    pub events: u64,
    pub simulated: Micros,
    /// Of all threads together: the time that they had a core to themselves.
    pub worked: Duration,
    pub took: Duration,
    pub coverage: Coverage,
    /// How long each queue was at most.
    pub peaks: Peaks,
    pub failed: Vec<(u64, Verdict)>,
}

impl Campaign {
    pub fn run(&self) -> Tally {
        let start = Instant::now();
        let next = AtomicU64::new(self.seeds.start);
        let is_over = AtomicBool::new(false);
        let tally = Mutex::new(Tally::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| self.work(start, &next, &is_over, &tally));
            }
        });
        let mut tally = tally.into_inner();
        tally.took = start.elapsed();
        tally.failed.sort_by_key(|(seed, _)| *seed);
        tally
    }

    fn work(&self, start: Instant, next: &AtomicU64, is_over: &AtomicBool, tally: &Mutex<Tally>) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_late = self.time.is_some_and(|(time, least)| {
                start.elapsed() > time && seed >= self.seeds.start + least
            });
            if seed >= self.seeds.end || is_late || is_over.load(Ordering::Relaxed) {
                return;
            }
            let began = worked();
            let run = crate::run(seed, self.length, &Cut::default(), false);
            let mut tally = tally.lock();
            tally.worked += worked().saturating_sub(began);
            tally.seeds += 1;
            tally.events += run.events;
            tally.simulated += run.simulated;
            tally.coverage.add(&run.coverage);
            tally.peaks.add(&run.peaks);
            if let Err(verdict) = run.verdict {
                if self.is_loud {
                    eprintln!("seed {seed} failed: {verdict}");
                }
                is_over.fetch_or(self.is_hasty, Ordering::Relaxed);
                tally.failed.push((seed, verdict));
            }
            let took = start.elapsed();
            if self.is_loud && took > tally.took + PROGRESS {
                tally.took = took;
                let of = self.seeds.end - self.seeds.start;
                eprintln!("{:.1} %: {}", tally.seeds as f64 * 100.0 / of as f64, tally.line(took));
            }
        }
    }
}

/// How long this thread has had a core, whoever else wants one.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Tally {
    /// The numbers in one line.
    pub fn line(&self, took: Duration) -> String {
        let (hours, worked) =
            (self.simulated as f64 / (3600 * SECOND) as f64, self.worked.as_secs_f64());
        let seconds = self.simulated as f64 / SECOND as f64;
        format!(
            "{} seeds, {hours:.1} simulated hours in {:.1} s, of which {worked:.1} s at work; {:.0} events/s and {:.0} times \
             real time per core, {:.1} events in a simulated second; {} failed",
            self.seeds,
            took.as_secs_f64(),
            self.events as f64 / worked.max(0.001),
            seconds / worked.max(0.001),
            self.events as f64 / seconds.max(0.001),
            self.failed.len()
        )
    }
}

/// The command that lives through a failing world again, with a trace.
pub fn replay_command(seed: u64, length: Option<Micros>, cut: &Cut) -> String {
    let length = length.map(|length| format!(" --length {length}")).unwrap_or_default();
    let cut = if *cut == Cut::default() { String::new() } else { format!(" --cut {cut}") };
    format!("cargo xtask sim --seed {seed}{length}{cut}")
}
