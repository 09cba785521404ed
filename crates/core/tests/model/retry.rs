//! The same request once more: the client's own id says so.

use std::time::Duration;

use super::acquire::granted;
use super::conflict::View;
use super::{Asked, Held, Known, Lease, LeaseState, Model, Session, Waiter};
use leasehold_core::*;

impl Model {
    /// "`acquire` with the same `request_id` by the same owner returns the same grant, not a conflict."
    pub(crate) fn replay(&mut self, ask: &Acquire) -> Result<Option<Outcome>, Refusal> {
        let Some(id) = &ask.request_id else {
            return Ok(None);
        };
        if let Some(before) = self.granted_before(&ask.namespace, &ask.owner, id) {
            let same = before.asked == asked(ask);
            return if same {
                Ok(Some(self.replayed(before)))
            } else {
                Err(Refusal::RequestIdReused)
            };
        }
        if self.opened_before(&ask.namespace, &ask.owner, id).is_some() {
            return Err(Refusal::RequestIdReused);
        }
        let (now, latest) = (self.now, self.wait_limit(ask));
        let Some(waiter) =
            self.waiters.iter_mut().find(|w| waits_as(w, &ask.namespace, &ask.owner, id))
        else {
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
        Ok(Some(Outcome::Queued(Queued { ticket: waiter.shown(), position })))
    }

    /// The grant of an earlier request with the same id, as long as its lease stands and anything of it is held.
    fn granted_before(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        id: &RequestId,
    ) -> Option<&Known> {
        self.known.iter().find(|known| {
            known.namespace == *namespace
                && known.owner == *owner
                && known.id == *id
                && self.standing(&known.namespace, known.lease).is_some()
                && self.still_held(known)
        })
    }

    /// The session that a request with this id has opened, as long as it stands.
    pub(crate) fn opened_before(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        id: &RequestId,
    ) -> Option<(&Lease, &Session)> {
        let standing = self.leases.iter().filter(|lease| lease.state != LeaseState::Lapsed);
        let mut sessions = standing.filter_map(|lease| Some((lease, lease.session.as_ref()?)));
        sessions.find(|(lease, session)| {
            lease.namespace == *namespace
                && lease.owner == *owner
                && session.asked.request_id.as_ref() == Some(id)
        })
    }

    /// The opening of a session, once more: "the same grant, `replayed`; the same id with another body is refused".
    pub(crate) fn reopen(&self, ask: &OpenSession) -> Result<Option<Opened>, Refusal> {
        let Some(id) = &ask.request_id else { return Ok(None) };
        if let Some((lease, session)) = self.opened_before(&ask.namespace, &ask.owner, id) {
            let same = OpenSession { id: ask.id, ..session.asked.clone() } == *ask;
            let opened = Opened {
                session: lease.id,
                number: session.terms.number,
                ttl: lease.ttl,
                deadline: lease.deadline,
                replayed: true,
            };
            return if same { Ok(Some(opened)) } else { Err(Refusal::RequestIdReused) };
        }
        let waits = self.waiters.iter().any(|w| waits_as(w, &ask.namespace, &ask.owner, id));
        if waits || self.granted_before(&ask.namespace, &ask.owner, id).is_some() {
            return Err(Refusal::RequestIdReused);
        }
        Ok(None)
    }

    /// Whether anything that was granted to a request is still held with its fence.
    fn still_held(&self, known: &Known) -> bool {
        let own = |held: &&Held| {
            held.namespace == known.namespace
                && held.owner == known.owner
                && held.lease == known.lease
                && held.fences.contains(&known.fence)
        };
        let mut held = self.held.iter().filter(own);
        held.any(|held| known.asked.claims.iter().any(|claim| claim.scope.overlaps(&held.scope)))
    }

    pub(crate) fn remember_request(&mut self, ask: &Acquire, lease: LeaseId) {
        let Some(id) = ask.request_id.clone() else {
            return;
        };
        self.forget_id(ask);
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

fn waits_as(waiter: &Waiter, namespace: &Namespace, owner: &Owner, id: &RequestId) -> bool {
    waiter.ask.namespace == *namespace
        && waiter.ask.owner == *owner
        && waiter.ask.request_id.as_ref() == Some(id)
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
