//! Simulated time, as the SDK reads it.

use std::time::Duration;

use leasehold_client::machine::Moment;
use leasehold_client::{Clock, Sleep};

/// How long the world has lasted.
pub(crate) fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

pub(crate) fn micros() -> u64 {
    u64::try_from(elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The same for all clients: none of them drifts, so that what two of them believe can be compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedClock;

impl Clock for SimulatedClock {
    fn now(&self) -> Moment {
        Moment::ZERO.plus(elapsed())
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }
}

pub(crate) fn now() -> Moment {
    SimulatedClock.now()
}
