//! The limits on handshakes at a time: so many in all, so many from one network; others wait for their turn.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::net::limits::network_of;

const IN_ALL_MAX: usize = 256;
const OF_NETWORK_MAX: usize = 64;

/// Places for handshakes.
#[derive(Debug)]
pub(super) struct Slots {
    in_all: Arc<Semaphore>,
    networks: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    waiting: AtomicUsize,
}

/// A handshake's place, given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    #[expect(dead_code, reason = "held, never read")]
    in_all: OwnedSemaphorePermit,
    #[expect(dead_code, reason = "held, never read")]
    of_network: OfNetwork,
}

impl Slots {
    pub(super) fn new() -> Arc<Slots> {
        Arc::new(Slots {
            in_all: Arc::new(Semaphore::new(IN_ALL_MAX)),
            networks: Mutex::default(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// A place as soon as there is one, first come, first served.
    pub(super) async fn enter(self: &Arc<Slots>, peer: IpAddr) -> Slot {
        let network = network_of(peer);
        let semaphore = {
            let mut networks = self.networks.lock();
            let fresh = || Arc::new(Semaphore::new(OF_NETWORK_MAX));
            networks.entry(network).or_insert_with(fresh).clone()
        };
        let mut of_network = OfNetwork { permit: None, slots: self.clone(), network };
        of_network.permit = Some(self.permit(semaphore).await);
        let in_all = self.permit(self.in_all.clone()).await;
        Slot { in_all, of_network }
    }

    async fn permit(&self, semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
        if let Ok(permit) = semaphore.clone().try_acquire_owned() {
            return permit;
        }
        let _waiting = Waiting::new(&self.waiting);
        semaphore.acquire_owned().await.expect("it is never closed")
    }

    /// Whether others wait for a place.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn new(waiting: &AtomicUsize) -> Waiting<'_> {
        waiting.fetch_add(1, Relaxed);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A place of those of a network; the last one that goes takes the network along.
#[derive(Debug)]
struct OfNetwork {
    permit: Option<OwnedSemaphorePermit>,
    slots: Arc<Slots>,
    network: IpAddr,
}

impl Drop for OfNetwork {
    fn drop(&mut self) {
        let mut networks = self.slots.networks.lock();
        drop(self.permit.take());
        let is_last = networks.get(&self.network).is_some_and(|semaphore| {
            // Whoever waits holds it too.
            Arc::strong_count(semaphore) == 1
        });
        if is_last {
            networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    async fn is_waiting(entering: std::pin::Pin<&mut impl Future<Output = Slot>>) -> bool {
        let mut entering = entering;
        poll_fn(|cx| Poll::Ready(entering.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn one_network_leaves_places_for_others() {
        let slots = Slots::new();
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut held = Vec::new();
        for _ in 0..OF_NETWORK_MAX {
            held.push(slots.enter(one).await);
        }
        assert!(!slots.is_crowded());
        let mut next = pin!(slots.enter(one));
        assert!(is_waiting(next.as_mut()).await && slots.is_crowded());
        drop(slots.enter(other).await);
        held.pop();
        drop(next.await);
        drop(held);
        assert!(slots.networks.lock().is_empty() && !slots.is_crowded());
    }

    #[tokio::test]
    async fn so_many_networks_together_have_to_wait() {
        let slots = Slots::new();
        let mut held = Vec::new();
        for number in 0..IN_ALL_MAX {
            let peer = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            held.push(slots.enter(peer).await);
        }
        {
            let mut next = pin!(slots.enter(IpAddr::from([10, 0, 0, 1])));
            assert!(is_waiting(next.as_mut()).await && slots.is_crowded());
        }
        assert!(!slots.is_crowded(), "it has given up");
        assert_eq!(slots.networks.lock().len(), IN_ALL_MAX);
    }
}
