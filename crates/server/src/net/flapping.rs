//! Peers that connect and go, again and again: something is wrong with them, or with the way to them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::net::limits::network_of;

/// A connection that ends sooner than this was a brief one.
const BRIEF: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(60);
/// So many brief connections in a window are nobody's business: a health check may come every second.
const BRIEF_MAX: u32 = 60;
/// So many peers are kept an eye on at a time.
const PEERS_MAX: usize = 4096;
/// There is at most one line in the log in so long, whoever flaps.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// The brief connections of each peer in its current window.
#[derive(Debug, Default)]
pub(crate) struct Flapping(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    by_peer: HashMap<IpAddr, Window>,
    said: Option<Instant>,
    /// When peers whose window is over were last forgotten.
    cleaned: Option<Instant>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    brief: u32,
    /// The log says so already.
    is_told: bool,
}

impl Flapping {
    /// A connection has ended. Returns whether its peer flaps.
    pub(crate) fn ended(&self, now: Instant, peer: IpAddr, lasted: Duration) -> bool {
        if lasted >= BRIEF {
            return false;
        }
        let peer = network_of(peer);
        let mut seen = self.0.lock();
        let Seen { by_peer, said, cleaned } = &mut *seen;
        if by_peer.len() >= PEERS_MAX && !by_peer.contains_key(&peer) {
            if cleaned.is_none_or(|last| now.duration_since(last) >= SAID_EVERY) {
                *cleaned = Some(now);
                by_peer.retain(|_, window| now.duration_since(window.since) < WINDOW);
            }
            if by_peer.len() >= PEERS_MAX {
                return false;
            }
        }
        let fresh = || Window { since: now, brief: 0, is_told: false };
        let window = by_peer.entry(peer).or_insert_with(fresh);
        if now.duration_since(window.since) >= WINDOW {
            *window = fresh();
        }
        window.brief += 1;
        if window.brief <= BRIEF_MAX {
            return false;
        }
        let may_say = said.is_none_or(|last| now.duration_since(last) >= SAID_EVERY);
        if !window.is_told && may_say {
            window.is_told = true;
            *said = Some(now);
            let seconds = now.duration_since(window.since).as_secs();
            tracing::warn!(%peer, connections = window.brief, seconds, "connections from this peer keep flapping");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn only_many_brief_connections_within_a_minute_are_flapping() {
        let flapping = Flapping::default();
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let flaps =
            |peer, seconds, lasted| flapping.ended(at(seconds), peer, Duration::from_secs(lasted));
        // Every second, for ever.
        assert!((0..600).all(|second| !flaps(A, second, 0)));
        // Many, but they stay.
        assert!((0..600).all(|_| !flaps(A, 700, 10)));
        assert!((0..60).all(|_| !flaps(A, 800, 1)));
        assert!(flaps(A, 801, 1) && !flaps(B, 801, 1));
        assert!(!flaps(A, 870, 1), "a new minute");
    }

    #[test]
    fn peers_that_are_watched_are_bounded() {
        let flapping = Flapping::default();
        let now = Instant::now();
        for number in 0..100_000_u32 {
            flapping.ended(now, IpAddr::V4(number.into()), Duration::ZERO);
        }
        assert_eq!(flapping.0.lock().by_peer.len(), PEERS_MAX);
    }
}
