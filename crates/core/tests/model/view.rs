//! What can be seen of the model, in the words of the real table.

use super::conflict::{View, clash};
use super::{Held, LeaseState, Model};
use leasehold_core::*;

impl Model {
    pub(crate) fn holder(&self, held: &Held) -> Holder {
        let lease = self.lease_of(held);
        Holder {
            scope: held.scope.clone(),
            owner: held.owner.clone(),
            mode: held.mode,
            fence: held.fences.1,
            since: held.granted_at,
            deadline: held.window_until.unwrap_or(lease.deadline),
            state: self.state_of(held),
            session: lease.session.as_ref().map(|session| session.terms.number),
            metadata: held.metadata.clone(),
        }
    }

    /// Everything held in a namespace, by scope, fence and owner.
    pub(crate) fn holders(&self, namespace: &Namespace) -> Vec<Holder> {
        let held = self.held.iter().filter(|held| held.namespace == *namespace);
        held.map(|held| self.holder(held)).collect()
    }

    /// The first moment at which a tick would find something to do: past the earliest of all deadlines.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let leases = self.leases.iter().filter(|lease| lease.state != LeaseState::Lapsed);
        let leases = leases.map(|lease| lease.deadline);
        let waits = self.waiters.iter().filter_map(|w| w.parked_until.or(w.until));
        let windows = self.held.iter().filter_map(|held| held.window_until);
        let grace = self.grace.map(|grace| grace.ends_at);
        let first = leases.chain(waits).chain(windows).chain(grace).min()?;
        Some(first.plus(Millis::new(1)))
    }

    pub(crate) fn stats(&self) -> Stats {
        let standing = || self.leases.iter().filter(|lease| lease.state != LeaseState::Lapsed);
        Stats {
            epoch: self.epoch,
            revision: self.revision,
            fence: self.fence,
            namespaces: self.namespaces().len(),
            grants: self.held.len(),
            leases: self.leases.len(),
            sessions: standing().filter(|lease| lease.session.is_some()).count(),
            recovering: self.recovering(),
            waiters: self.waiters.iter().filter(|w| w.parked_until.is_none()).count(),
        }
    }

    pub(crate) fn grace_view(&self) -> Option<GraceView> {
        self.grace.map(|grace| GraceView {
            strict: grace.policy == GracePolicy::Strict,
            ends_at: grace.ends_at,
            expected: self.recovering(),
        })
    }

    /// `F_GETLK`: those that would be in the way of a new request, waiters aside.
    pub(crate) fn in_the_way(&self, namespace: &Namespace, owner: &Owner, claim: &Claim) -> Vec<Holder> {
        let ranges_of_others = |held: &&Held| match held.scope {
            Scope::Range { .. } => held.owner != *owner,
            Scope::Key(_) => held.owner != *owner || held.window_until.is_none(),
        };
        let held = self.held.iter().filter(|held| held.namespace == *namespace);
        held.filter(|held| clash(claim, &held.claim()))
            .filter(ranges_of_others)
            .map(|held| self.holder(held))
            .collect()
    }

    /// Waiters in the order of arrival with the claims they are seen by.
    pub(crate) fn waiter_views(&self, namespace: &Namespace) -> Vec<WaiterView> {
        let mut views = Vec::new();
        let waiting = |w: &&super::Waiter| w.parked_until.is_none() && w.ask.namespace == *namespace;
        for waiter in self.waiters.iter().filter(waiting) {
            for claim in &waiter.ask.claims {
                views.push(WaiterView {
                    owner: waiter.ask.owner.clone(),
                    scope: claim.scope.clone(),
                    mode: claim.mode,
                    ticket: waiter.ticket,
                    since: waiter.since,
                    deadline: waiter.until,
                });
            }
        }
        views
    }

    /// Every waiter stands behind somebody, or grants are held back altogether.
    pub(crate) fn every_waiter_is_blocked(&self) -> bool {
        self.waiters.iter().all(|waiter| !self.may_be_granted(waiter))
    }

    pub(crate) fn blocked_by_others(&self, ticket: Ticket) -> bool {
        let waiter = self.waiters.iter().find(|waiter| waiter.ticket == ticket);
        waiter.is_some_and(|w| !self.is_free(&w.ask, w.ticket, View::Queued))
    }
}
