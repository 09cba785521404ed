//! Failed authentications, counted by address: whoever guesses has to wait, whoever knows does not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::Timestamp;
use parking_lot::Mutex;

use crate::net::limits::network_of;

/// So many in a window from one address; more are answered without a word about the credential.
const FAILURES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// When more addresses are known than that, those whose window is over are forgotten, or else all.
const ADDRESSES_MAX: usize = 10_000;

/// Addresses with failures of the last minute. It is looked at only when an authentication fails.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, Window>>);

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Timestamp,
    failures: u32,
}

impl Failures {
    /// Notes one more; how long the address has to wait, if it had too many.
    pub(super) fn note(&self, now: Timestamp, address: IpAddr) -> Option<Duration> {
        let mut windows = self.0.lock();
        let is_over = |window: &Window| now.since(window.since) >= WINDOW;
        if windows.len() >= ADDRESSES_MAX {
            windows.retain(|_, window| !is_over(window));
            if windows.len() >= ADDRESSES_MAX {
                windows.clear();
            }
        }
        let fresh = Window { since: now, failures: 0 };
        let window = windows.entry(network_of(address)).or_insert(fresh);
        if is_over(window) {
            *window = fresh;
        }
        window.failures = window.failures.saturating_add(1);
        let left = WINDOW.saturating_sub(now.since(window.since));
        (window.failures > FAILURES_MAX).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1000)
    }

    #[test]
    fn eleventh_failure_of_a_minute_has_to_wait() {
        let failures = Failures::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        for second in 0..10 {
            assert_eq!(failures.note(at(second), address), None);
        }
        assert_eq!(failures.note(at(10), address), Some(Duration::from_secs(50)));
        assert_eq!(failures.note(at(10), IpAddr::from([10, 0, 0, 2])), None);
        assert_eq!(failures.note(at(60), address), None, "a new minute");
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let failures = Failures::default();
        for last in 0..=10u16 {
            let address = IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
            assert_eq!(failures.note(at(0), address).is_some(), last == 10);
        }
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(network_of(mapped), IpAddr::from([10, 0, 0, 1]));
        assert_eq!(failures.note(at(0), IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 0])), None);
    }

    #[test]
    fn so_many_addresses_are_kept_at_most() {
        let failures = Failures::default();
        for number in 0..25_000u32 {
            failures.note(at(0), IpAddr::from(number.to_be_bytes()));
        }
        assert!(failures.0.lock().len() <= ADDRESSES_MAX);
    }
}
