//! What one measurement found.

use std::time::{Duration, Instant};

use crate::process::cpu_time;

/// So many pairs in so long, and what they cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) done: u64,
    pub(crate) took: Duration,
    /// How long an acquire took: half of them no longer, and all but one in a hundred no longer.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
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
            server_before: cpu_time(server),
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
            client: cpu_time(std::process::id()) - self.client_before,
            server: cpu_time(self.server) - self.server_before,
        }
    }
}

impl Load {
    #[must_use]
    pub(crate) fn with_waits(mut self, mut waits: Vec<Duration>) -> Load {
        waits.sort_unstable();
        let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or_default();
        (self.p50, self.p99) = (at(50), at(99));
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
}
