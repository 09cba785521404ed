//! What a measurement found.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::process::{cpu_time, cpu_time_with_children};

/// So many pairs in so long, and what they cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) done: u64,
    pub(crate) took: Duration,
    /// How long an acquire took: half of them no longer, and all but one in a hundred no longer.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// All but one in a thousand.
    #[allow(dead_code, reason = "a benchmark that shares this file does not print it")]
    pub(crate) p999: Duration,
    client: Duration,
    server: Duration,
}

/// A measurement under way.
pub(crate) struct Meter {
    server: u32,
    began: Instant,
    client_before: Duration,
    server_before: Duration,
}

impl Meter {
    /// Of this process as the client and that one as the server.
    pub(crate) fn start(server: u32) -> Meter {
        Meter {
            server,
            began: Instant::now(),
            client_before: cpu_time(std::process::id()),
            server_before: cpu_time_with_children(server),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn stop(self, done: u64) -> Load {
        Load {
            done,
            took: self.began.elapsed(),
            p50: Duration::ZERO,
            p99: Duration::ZERO,
            p999: Duration::ZERO,
            client: cpu_time(std::process::id()) - self.client_before,
            server: cpu_time_with_children(self.server) - self.server_before,
        }
    }
}

impl Load {
    #[must_use]
    pub(crate) fn with_waits(mut self, mut waits: Vec<Duration>) -> Load {
        waits.sort_unstable();
        let at = |part: usize| waits.get(waits.len() * part / 1000).copied().unwrap_or_default();
        (self.p50, self.p99, self.p999) = (at(500), at(990), at(999));
        self
    }

    pub(crate) fn rate(&self) -> f64 {
        self.done as f64 / self.took.as_secs_f64()
    }

    pub(crate) fn client_micros(&self) -> f64 {
        self.client.as_secs_f64() * 1e6 / self.done.max(1) as f64
    }

    pub(crate) fn server_micros(&self) -> f64 {
        self.server.as_secs_f64() * 1e6 / self.done.max(1) as f64
    }

    /// What client and server have used of the processors, in µs a pair.
    #[allow(dead_code, reason = "a benchmark that shares this file prints it otherwise")]
    pub(crate) fn processor(&self) -> String {
        format!("{:.1} + {:.1}", self.server_micros(), self.client_micros())
    }
}

/// The same measured several times, in turns with others.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The slowest first.
    loads: Vec<Load>,
    /// Why it cannot be measured.
    pub(crate) fault: Option<String>,
}

impl Row {
    pub(crate) fn new(name: &'static str) -> Row {
        Row { name, loads: Vec::new(), fault: None }
    }

    pub(crate) fn take(&mut self, measured: Result<Load, String>) {
        match measured {
            Ok(load) => {
                let at = self.loads.partition_point(|other| other.rate() < load.rate());
                self.loads.insert(at, load);
            }
            Err(why) => self.fault = Some(why),
        }
    }

    pub(crate) fn median(&self) -> Option<Load> {
        self.loads.get(self.loads.len() / 2).copied().filter(|_| self.fault.is_none())
    }

    /// Pairs a second of the slowest turn, the median and the quickest.
    #[allow(dead_code, reason = "a benchmark that shares this file prints it otherwise")]
    pub(crate) fn rates(&self) -> Option<[f64; 3]> {
        let (slowest, quickest) = (self.loads.first()?, self.loads.last()?);
        Some([slowest.rate(), self.median()?.rate(), quickest.rate()])
    }

    /// From the slowest to the quickest.
    pub(crate) fn range(&self) -> String {
        match (self.loads.first(), self.loads.last()) {
            (Some(slowest), Some(quickest)) => {
                format!("{:.0} to {:.0}", slowest.rate(), quickest.rate())
            }
            (None, _) | (_, None) => String::new(),
        }
    }
}

/// How often everything is measured.
pub(crate) fn turns() -> u64 {
    setting("LEASEHOLD_BENCH_TURNS", 5)
}

/// A number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A part of a name that no measurement had before: what the last one did not give back is still held.
pub(crate) fn fresh() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}
