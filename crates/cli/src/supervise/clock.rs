//! The clock that goes on while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};

use super::deadlines::Nanos;

pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
