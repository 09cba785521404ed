//! Who stands in the way of a request.

use super::{Held, Lease, LeaseState, Model, Waiter};
use leasehold_core::*;

/// Whether a request is looked at as it arrives or as it stands in the queue: an owner that comes back for what is in
/// its own reclaim window need not stand behind those who queued up for it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Arriving,
    Queued,
}

/// Who asks. Bytes belong to an owner under one lease: "the same owner name under another lease is another holder".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) owner: &'a Owner,
    /// Unless it opens its own.
    pub(crate) lease: Option<LeaseId>,
}

impl Asker<'_> {
    pub(crate) fn of(ask: &Acquire) -> Asker<'_> {
        let lease = match ask.under {
            Under::Session(id) => Some(id),
            Under::NewLease { .. } => None,
        };
        Asker { namespace: &ask.namespace, owner: &ask.owner, lease }
    }

    /// Whether these bytes are the asker's, or open to it in a reclaim window.
    pub(crate) fn has_bytes(&self, held: &Held) -> bool {
        held.owner == *self.owner && (Some(held.lease) == self.lease || held.window_until.is_some())
    }
}

/// Those in the way of one claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blockers {
    pub(crate) holders: Vec<Held>,
    pub(crate) waiters: Vec<Waiter>,
}

impl Blockers {
    pub(crate) fn none(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }
}

impl Model {
    /// "A waiter whose scope conflicts with no holder and no earlier waiter is granted at once, whatever else is
    /// queued", but only if it is still there, its session is live, and grants are made at all.
    pub(crate) fn may_be_granted(&self, waiter: &Waiter) -> bool {
        waiter.until.is_none_or(|until| self.now <= until)
            && !self.suspended
            && !self.strict_grace()
            && self.session_is_live(waiter)
            && self.is_free(&waiter.ask, waiter.ticket, View::Queued)
    }

    pub(crate) fn strict_grace(&self) -> bool {
        self.grace.is_some_and(|grace| grace.policy != GracePolicy::Conflicting)
    }

    /// "A grant is made only to a waiter that is still there": a session past its deadline is not.
    fn session_is_live(&self, waiter: &Waiter) -> bool {
        match waiter.ask.under {
            Under::NewLease { .. } => true,
            Under::Session(id) => self
                .standing(&waiter.ask.namespace, id)
                .is_some_and(|lease| self.now <= lease.deadline),
        }
    }

    /// Whether nothing stands in the way of any claim.
    pub(crate) fn is_free(&self, ask: &Acquire, ticket: Ticket, view: View) -> bool {
        let free = |claim| self.blockers(Asker::of(ask), claim, ticket, view).none();
        ask.claims.iter().all(free)
    }

    /// The holders and the earlier waiters that stand in the way of one claim.
    pub(crate) fn blockers(
        &self,
        asker: Asker<'_>,
        claim: &Claim,
        ticket: Ticket,
        view: View,
    ) -> Blockers {
        let Asker { namespace, owner, lease } = asker;
        let in_front = |waiter: &&Waiter| {
            waiter.ask.namespace == *namespace
                && waiter.ticket < ticket
                && !(is_bytes(claim)
                    && waiter.ask.owner == *owner
                    && lease.is_some_and(|lease| waiter.ask.under == Under::Session(lease)))
                && waiter.ask.claims.iter().any(|theirs| clash(claim, theirs))
        };
        let holds = |held: &&Held| {
            held.namespace == *namespace
                && !(held.owner == *owner && held.window_until.is_some())
                && !(is_bytes(claim) && asker.has_bytes(held))
                && clash(claim, &held.claim())
        };
        let queues = !self.need_not_queue(asker, claim, view);
        let blockers = Blockers {
            holders: self.held.iter().filter(holds).cloned().collect(),
            waiters: self.waiters.iter().filter(|_| queues).filter(in_front).cloned().collect(),
        };
        match claim.mode {
            Mode::Permits(limit) => count_permits(claim, limit.get() as usize, blockers),
            Mode::Exclusive | Mode::Shared => blockers,
        }
    }

    pub(crate) fn queued_blockers(&self, waiter: &Waiter, claim: &Claim) -> Blockers {
        self.blockers(Asker::of(&waiter.ask), claim, waiter.ticket, View::Queued)
    }

    /// An upgrade does not stand behind those who wait for the owner itself; nor does an owner that comes back for
    /// what is in its own reclaim window.
    fn need_not_queue(&self, asker: Asker<'_>, claim: &Claim, view: View) -> bool {
        match &claim.scope {
            Scope::Key(_) => {
                view == View::Arriving
                    && self.has_window(asker.namespace, asker.owner, &claim.scope)
            }
            Scope::Range { inode, range } => self.covers(asker, *inode, *range),
        }
    }

    /// Whether the owner's own reclaim window is open on exactly this key.
    pub(crate) fn has_window(&self, namespace: &Namespace, owner: &Owner, scope: &Scope) -> bool {
        self.held.iter().any(|held| {
            held.namespace == *namespace
                && held.scope == *scope
                && held.owner == *owner
                && held.window_until.is_some()
        })
    }

    pub(crate) fn lease_of(&self, held: &Held) -> &Lease {
        self.lease(&held.namespace, held.lease).expect("what is held stands under a lease")
    }

    pub(crate) fn state_of(&self, held: &Held) -> HolderState {
        match self.lease_of(held).state {
            LeaseState::Live => HolderState::Held,
            LeaseState::Recovering if self.grace.is_some() => HolderState::Recovering,
            LeaseState::Recovering => HolderState::Held,
            LeaseState::Lapsed => HolderState::ReclaimWindow,
        }
    }
}

impl Held {
    /// The fence that others are shown.
    pub(crate) fn fence(&self) -> FencingToken {
        *self.fences.last().expect("what is held was stamped")
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim { scope: self.scope.clone(), mode: self.mode }
    }
}

fn is_bytes(claim: &Claim) -> bool {
    matches!(claim.scope, Scope::Range { .. })
}

/// "Overlapping scopes conflict unless both are shared."
pub(crate) fn clash(one: &Claim, other: &Claim) -> bool {
    one.scope.overlaps(&other.scope) && one.mode.conflicts_with(other.mode)
}

/// Whether both ask for a permit of the very same scope.
pub(crate) fn same_semaphore(claim: &Claim, other: &Claim) -> bool {
    claim.scope == other.scope && claim.mode.permits().is_some() && other.mode.permits().is_some()
}

/// "A scope can also be held by up to `limit` holders at once": those of the same semaphore are in the way only once
/// they are as many as that.
fn count_permits(claim: &Claim, limit: usize, blockers: Blockers) -> Blockers {
    let rival = |held: &Held| same_semaphore(claim, &held.claim());
    let wants =
        |waiter: &Waiter| waiter.ask.claims.iter().any(|other| same_semaphore(claim, other));
    let taken = blockers.holders.iter().filter(|held| rival(held)).count()
        + blockers.waiters.iter().filter(|waiter| wants(waiter)).count();
    if taken >= limit {
        return blockers;
    }
    // A waiter that wants another scope which overlaps this one keeps it out as an exclusive lock does; one that
    // wants this scope and another such is counted by what it wants of the other.
    let clashes_elsewhere = |waiter: &Waiter| {
        let theirs = waiter.ask.claims.iter();
        theirs.filter(|other| !same_semaphore(claim, other)).any(|other| clash(claim, other))
    };
    Blockers {
        holders: blockers.holders.into_iter().filter(|held| !rival(held)).collect(),
        waiters: blockers.waiters.into_iter().filter(clashes_elsewhere).collect(),
    }
}
