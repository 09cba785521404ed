//! So many there may be of something at a time, in all and from each network, or of each principal or namespace.
//!
//! A network is one address of IPv4, and a /64 of IPv6: one host may have all of that to itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The number of connections, in all and from each network, or whatever else they are counted by.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter<K = IpAddr> {
    max: usize,
    per_peer_max: usize,
    places: Mutex<Places<K>>,
}

#[derive(Debug)]
struct Places<K> {
    taken: usize,
    by_peer: HashMap<K, usize>,
}

/// The reason why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// So many there may be in all.
    InAll(usize),
    /// So many there may be from one network.
    OfPeer(usize),
}

impl<K: Clone + Eq + Hash> ConnectionLimiter<K> {
    pub(crate) fn new(max: usize, per_peer_max: usize) -> Arc<ConnectionLimiter<K>> {
        let places = Mutex::new(Places { taken: 0, by_peer: HashMap::new() });
        Arc::new(ConnectionLimiter { max, per_peer_max, places })
    }

    /// The number of places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.places.lock().taken
    }

    /// One place for what has a limit of its own; one without a peer counts in all only.
    pub(crate) fn enter_up_to(
        self: &Arc<ConnectionLimiter<K>>,
        peer: Option<K>,
        per_peer_max: usize,
    ) -> Result<ConnectionPermit<K>, Full> {
        let mut places = self.places.lock();
        if places.taken >= self.max {
            return Err(Full::InAll(self.max));
        }
        if let Some(peer) = &peer {
            let of_peer = places.by_peer.get(peer).copied().unwrap_or(0);
            if of_peer >= per_peer_max {
                return Err(Full::OfPeer(per_peer_max));
            }
            places.by_peer.insert(peer.clone(), of_peer + 1);
        }
        places.taken += 1;
        Ok(ConnectionPermit { limiter: self.clone(), peer })
    }
}

impl ConnectionLimiter {
    /// One place; one without a peer counts in all only.
    pub(crate) fn enter(
        self: &Arc<ConnectionLimiter>,
        peer: Option<IpAddr>,
    ) -> Result<ConnectionPermit, Full> {
        self.enter_up_to(peer.map(network_of), self.per_peer_max)
    }
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit<K: Clone + Eq + Hash = IpAddr> {
    limiter: Arc<ConnectionLimiter<K>>,
    peer: Option<K>,
}

impl<K: Clone + Eq + Hash> Drop for ConnectionPermit<K> {
    fn drop(&mut self) {
        let mut places = self.limiter.places.lock();
        places.taken -= 1;
        if let Some(peer) = &self.peer
            && let Some(of_peer) = places.by_peer.get_mut(peer)
        {
            *of_peer -= 1;
            if *of_peer == 0 {
                places.by_peer.remove(peer);
            }
        }
    }
}

/// The address; of IPv6 the /64, which one host may have to itself.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_share_its_places() {
        let limiter = ConnectionLimiter::new(9, 1);
        let of = |subnet, host| IpAddr::from([0x2001, 0xdb8, 0, subnet, 0, 0, 0, host]);
        let _first = limiter.enter(Some(of(1, 1))).unwrap();
        assert_eq!(limiter.enter(Some(of(1, 2))).unwrap_err(), Full::OfPeer(1));
        let _other = limiter.enter(Some(of(2, 1))).unwrap();
        let _v4 = limiter.enter(Some(IpAddr::from([10, 0, 0, 1]))).unwrap();
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(limiter.enter(Some(mapped)).unwrap_err(), Full::OfPeer(1));
    }

    #[test]
    fn places_are_counted_in_all_and_by_address_and_come_back() {
        let limiter = ConnectionLimiter::new(3, 2);
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let first = limiter.enter(Some(a)).unwrap();
        let _second = limiter.enter(Some(a)).unwrap();
        assert_eq!(limiter.enter(Some(a)).unwrap_err(), Full::OfPeer(2));
        let _third = limiter.enter(Some(b)).unwrap();
        assert_eq!(limiter.enter(Some(b)).unwrap_err(), Full::InAll(3));
        assert_eq!(limiter.enter(None).unwrap_err(), Full::InAll(3));
        drop(first);
        let _fourth = limiter.enter(None).unwrap();
        assert_eq!(limiter.places.lock().by_peer[&a], 1);
    }
}
