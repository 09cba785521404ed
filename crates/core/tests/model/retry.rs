//! The same request once more: the client's own id says so.

use std::time::Duration;

use super::acquire::granted;
use super::conflict::View;
use super::{Asked, Held, Known, Model, Waiter};
use leasehold_core::*;

impl Model {
    /// "`acquire` with the same `request_id` by the same owner returns the same grant, not a conflict."
    pub(crate) fn replay(&mut self, ask: &Acquire) -> Result<Option<Outcome>, Refusal> {
        let Some(id) = &ask.request_id else {
            return Ok(None);
        };
        if let Some(before) = self.granted_before(ask, id) {
            let same = before.asked == asked(ask);
            return if same {
                Ok(Some(self.replayed(before)))
            } else {
                Err(Refusal::RequestIdReused)
            };
        }
        let (now, latest) = (self.now, self.wait_limit(ask));
        // A kept place is known by its ticket alone.
        let Some(waiter) = self.waiters.iter_mut().find(|waiter| {
            waiter.parked_until.is_none()
                && waiter.ask.namespace == ask.namespace
                && waiter.ask.owner == ask.owner
                && waiter.ask.request_id == ask.request_id
        }) else {
            return Ok(None);
        };
        if asked(&waiter.ask) != asked(ask) {
            return Err(Refusal::RequestIdReused);
        }
        if ask.wait == Wait::Never {
            let as_a_try = Waiter { since: now, ..Waiter::clone(waiter) };
            return Err(self.why_not(ask, &as_a_try, View::Queued));
        }
        waiter.calls.push(ask.call);
        waiter.until = waiter.until.and_then(|until| Some(until.max(latest?)));
        let waiter = waiter.clone();
        let position = self.position(&waiter);
        Ok(Some(Outcome::Queued(Queued { ticket: waiter.ticket, position })))
    }

    /// The grant of an earlier request with the same id, as long as its lease stands.
    fn granted_before(&self, ask: &Acquire, id: &RequestId) -> Option<&Known> {
        self.known.iter().find(|known| {
            known.namespace == ask.namespace
                && known.owner == ask.owner
                && known.id == *id
                && self.standing(&known.namespace, known.lease).is_some()
        })
    }

    /// A request id is good as long as all that was granted is held as it was granted: the first part that ends, is
    /// cut or merges into a newer piece takes it along.
    pub(crate) fn forget_request_of(&mut self, held: &Held) {
        self.known.retain(|known| known.fence != held.fences.1);
    }

    pub(crate) fn remember_request(&mut self, ask: &Acquire, lease: LeaseId) {
        let Some(id) = ask.request_id.clone() else {
            return;
        };
        self.known.retain(|known| {
            known.namespace != ask.namespace || known.owner != ask.owner || known.id != id
        });
        self.known.push(Known {
            namespace: ask.namespace.clone(),
            owner: ask.owner.clone(),
            id,
            asked: asked(ask),
            lease,
            fence: self.fence,
            granted_at: self.now,
        });
    }

    fn replayed(&self, known: &Known) -> Outcome {
        let lease = self.lease(&known.namespace, known.lease).expect("it holds something");
        granted(Grant {
            lease: lease.id,
            owner: known.owner.clone(),
            fence: known.fence,
            ttl: lease.ttl,
            deadline: lease.deadline,
            granted_at: known.granted_at,
            waited: Duration::ZERO,
            replayed: true,
            gained: Vec::new(),
        })
    }
}

/// What makes a request the same request: everything but how long it waits and where its answer goes.
pub(crate) fn asked(ask: &Acquire) -> Asked {
    let (session, ttl) = match ask.under {
        Under::Session(id) => (Some(id), None),
        Under::NewLease { ttl, .. } => (None, Some(ttl)),
    };
    Asked {
        claims: ask.claims.clone(),
        session,
        ttl,
        reclaim_window: ask.reclaim_window,
        reclaim: ask.reclaim,
        metadata: ask.metadata.clone(),
    }
}
