//! What can be seen of the model, in the words of the real table.

use super::conflict::clash;
use super::{Held, Lease, LeaseState, Model, Waiter};
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

    /// One scope: everything held that overlaps it, and everybody who waits for anything that does.
    pub(crate) fn get(&self, namespace: &Namespace, scope: &Scope) -> LockView {
        let held = self.held.iter().filter(|held| held.namespace == *namespace);
        let held = held.filter(|held| held.scope.overlaps(scope));
        let mut holders: Vec<Holder> = held.map(|held| self.holder(held)).collect();
        holders.sort_by(|one, other| (one.fence, &one.scope).cmp(&(other.fence, &other.scope)));
        let waiters: Vec<WaiterView> = self
            .waiting(namespace)
            .filter_map(|waiter| waiter_view(waiter, scope))
            .collect();
        LockView {
            scope: scope.clone(),
            state: state_of(&holders),
            holders_len: holders.len(),
            last_fence: holders.iter().map(|holder| holder.fence).max(),
            holders,
            waiters_len: waiters.len(),
            waiters,
            revision: self.revision,
        }
    }

    pub(crate) fn session_views(&self, namespace: &Namespace) -> Vec<SessionView> {
        let leases = self.leases.iter().filter(|lease| lease.namespace == *namespace);
        let mut views: Vec<SessionView> =
            leases.filter_map(|lease| self.session_view(lease)).collect();
        views.sort_by_key(|view| view.number);
        views
    }

    fn session_view(&self, lease: &Lease) -> Option<SessionView> {
        let session = lease.session.as_ref()?;
        let under = |waiter: &&Waiter| waiter.ask.under == Under::Session(lease.id);
        Some(SessionView {
            namespace: lease.namespace.clone(),
            number: session.terms.number,
            owner: lease.owner.clone(),
            adapter: session.terms.adapter.clone(),
            on_disconnect: session.terms.on_disconnect,
            attached: session.attached,
            recovering: lease.state == LeaseState::Recovering,
            opened_at: session.opened_at,
            ttl: lease.ttl,
            deadline: lease.deadline,
            grants: self.grants_under(&lease.namespace, lease.id),
            waiters: self.waiters.iter().filter(under).count(),
            metadata: session.terms.metadata.clone(),
        })
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
            waiters: self.waiters.len(),
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
}

/// A waiter as seen from one scope: by the first of its claims that overlaps it.
fn waiter_view(waiter: &Waiter, scope: &Scope) -> Option<WaiterView> {
    let claim = waiter.ask.claims.iter().find(|claim| claim.scope.overlaps(scope))?;
    Some(WaiterView {
        owner: waiter.ask.owner.clone(),
        scope: claim.scope.clone(),
        mode: claim.mode,
        ticket: waiter.ticket,
        since: waiter.since,
        deadline: waiter.until,
    })
}

/// The firmest of the holders.
fn state_of(holders: &[Holder]) -> LockState {
    let has = |state| holders.iter().any(|holder| holder.state == state);
    if has(HolderState::Held) {
        LockState::Held
    } else if has(HolderState::Recovering) {
        LockState::Recovering
    } else if has(HolderState::ReclaimWindow) {
        LockState::ReclaimWindow
    } else {
        LockState::Free
    }
}
