//! The time after which to try again, in every answer that names one.
//!
//! Clients that are refused together must not come back together, and the more of them there are the longer each
//! should stay away. A lock that frees itself soon is worth coming back for then.

use std::time::Duration;

use leasehold_core::{Conflict, Timestamp};

use crate::service::random;

const FIRST: Duration = Duration::from_millis(100);
const FOR_EACH_WAITER: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Milliseconds until a refused try may be repeated.
pub(crate) fn after_conflict(now: Timestamp, conflict: &Conflict) -> u64 {
    let waiters = u32::try_from(conflict.waiters).unwrap_or(u32::MAX);
    let base = FOR_EACH_WAITER.saturating_mul(waiters).saturating_add(FIRST).min(LONGEST);
    let free_in = conflict.holders.iter().map(|holder| holder.deadline.since(now)).max();
    jittered(free_in.map_or(base, |free_in| base.min(free_in.max(Duration::from_millis(10)))))
}

/// Between a time and one and a half times it: for requests that would only be refused again before.
pub(crate) fn not_before(length: Duration) -> u64 {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX / 2).max(2);
    millis + random::number() % (millis / 2)
}

/// Between half of it and one and a half times it.
pub(crate) fn jittered(length: Duration) -> u64 {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX / 2).max(2);
    millis / 2 + random::number() % millis
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::Scope;

    fn conflict(waiters: usize) -> Conflict {
        let scope = Scope::parse("a").unwrap();
        Conflict { scope, holders: Vec::new(), waiters, waited: Duration::ZERO, place: None }
    }

    #[test]
    fn the_longer_the_queue_the_later_the_retry() {
        let average = |waiters| {
            let all = (0..1000).map(|_| after_conflict(Timestamp::ZERO, &conflict(waiters)));
            all.sum::<u64>() / 1000
        };
        assert!((80..120).contains(&average(0)), "{}", average(0));
        assert!(average(10) > 4 * average(0));
        assert!(average(1_000_000) < 6000);
    }

    #[test]
    fn two_retries_hardly_ever_fall_together() {
        let mut all: Vec<u64> = (0..100).map(|_| jittered(Duration::from_secs(60))).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 95);
        assert!(all.iter().all(|&millis| (30_000..90_000).contains(&millis)));
        let never_early = (0..100).map(|_| not_before(Duration::from_secs(60)));
        assert!(never_early.into_iter().all(|millis| (60_000..90_000).contains(&millis)));
    }
}
