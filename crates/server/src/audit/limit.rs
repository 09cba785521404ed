//! Lines that anybody can cause: so many a second from one address, and then their number.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::net::limits::network_of;

/// So many lines a second from one address.
const LINES_MAX: u64 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// More addresses than that share one number.
const ADDRESSES_MAX: usize = 10_000;

/// Counts by address; of IPv6 by the /64.
#[derive(Debug, Default)]
pub(crate) struct Limiter(Mutex<HashMap<IpAddr, Window>>);

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    lines: u64,
}

impl Limiter {
    /// Whether one more line about this address is written.
    pub(crate) fn takes(&self, address: IpAddr) -> bool {
        let mut windows = self.0.lock();
        let mut address = network_of(address);
        if windows.len() >= ADDRESSES_MAX && !windows.contains_key(&address) {
            address = IpAddr::from([0, 0, 0, 0]);
        }
        let window =
            windows.entry(address).or_insert_with(|| Window { since: Instant::now(), lines: 0 });
        window.lines += 1;
        window.lines <= LINES_MAX
    }

    /// Ends the seconds that are over: of which addresses how many lines were left out.
    pub(crate) fn left_out(&self, now: Instant) -> Vec<(IpAddr, u64)> {
        let mut over = Vec::new();
        self.0.lock().retain(|address, window| {
            let is_over = now.saturating_duration_since(window.since) >= SECOND;
            if is_over && window.lines > LINES_MAX {
                over.push((*address, window.lines - LINES_MAX));
            }
            !is_over
        });
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_of_one_address_and_then_their_number() {
        let limiter = Limiter::default();
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let taken = (0..100).filter(|_| limiter.takes(a)).count();
        assert_eq!(taken, 10);
        assert!(limiter.takes(b));
        let start = Instant::now();
        assert_eq!(limiter.left_out(start + SECOND), [(a, 90)]);
        assert_eq!(limiter.left_out(start + SECOND), []);
        assert!(limiter.takes(a), "a new second");
    }

    #[test]
    fn addresses_are_bounded() {
        let limiter = Limiter::default();
        for number in 0..50_000u32 {
            limiter.takes(IpAddr::from(number.to_be_bytes()));
        }
        assert!(limiter.0.lock().len() <= ADDRESSES_MAX + 1);
        assert_eq!(limiter.left_out(Instant::now() + SECOND).len(), 1, "the others together");
    }
}
