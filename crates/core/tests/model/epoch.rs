//! A new authority, the recovery grace, and taking up again what was held before it.

use std::time::Duration;

use super::range::{bytes_of, covered};
use super::{Answered, Grace, Held, LeaseState, Model, millis};
use leasehold_core::*;

impl Model {
    /// "All stored grants come back as `recovering`, with their full ttl counted from now; the epoch has risen."
    pub(crate) fn begin_epoch(&mut self, ask: &BeginEpoch) -> Answered {
        if ask.epoch <= self.epoch {
            let (presented, current) = (ask.epoch, self.epoch);
            return Err(Refusal::StaleEpoch { presented, current });
        }
        self.epoch = ask.epoch;
        self.waiters.clear();
        self.kept.clear();
        self.past.clear();
        self.record(Transition::EpochBegan { epoch: ask.epoch });
        self.tell(&Namespace::default(), News::EpochBegan { epoch: ask.epoch });
        let now = self.now;
        for lease in self.leases.iter_mut().filter(|lease| lease.state != LeaseState::Lapsed) {
            let kept = match lease.session.as_ref().map(|session| session.terms.on_disconnect) {
                Some(OnDisconnect::Keep(kept)) => millis(kept),
                Some(OnDisconnect::Release) | None => Millis::ZERO,
            };
            lease.state = LeaseState::Recovering;
            lease.deadline = now.plus(lease.ttl.max(kept));
            if let Some(session) = &mut lease.session {
                session.attached = false;
            }
        }
        for held in self.held.iter_mut().filter(|held| held.window_until.is_some()) {
            held.window_until = Some(now.plus(held.window));
        }
        let recovering = self.recovering();
        let on = ask.grace == GracePolicy::StrictUnknown || recovering > 0;
        let ends_at = now.plus(millis(ask.grace_length));
        self.grace = on.then_some(Grace { policy: ask.grace, ends_at });
        Ok(Answer::EpochBegun { recovering })
    }

    /// After a restore: all go on above anything handed out since the backup.
    pub(crate) fn jump(&mut self, ask: &Jump) -> Answer {
        let skipped = ask.fence.get().saturating_sub(self.fence.get());
        self.revision = Revision(self.revision.0 + skipped);
        self.epoch = self.epoch.max(ask.epoch);
        self.fence = self.fence.max(ask.fence);
        self.record(Transition::Jumped { epoch: ask.epoch, fence: ask.fence });
        Answer::Done
    }

    pub(crate) fn recovering(&self) -> usize {
        self.leases.iter().filter(|lease| lease.state == LeaseState::Recovering).count()
    }

    /// "The grace is over when every expected session has come back or lapsed (early exit), and at the latest when its
    /// timer ends." Where nobody knows who is expected, only the timer ends it.
    pub(crate) fn end_grace_if_over(&mut self) {
        let all_back = self.recovering() == 0;
        if self.grace.is_some_and(|grace| {
            all_back && grace.policy != GracePolicy::StrictUnknown || grace.ends_at < self.now
        }) {
            self.end_grace();
        }
    }

    /// "Then refusals for grace stop, and a recovering grant still inside its ttl is simply a grant."
    pub(crate) fn end_grace(&mut self) {
        self.grace = None;
        self.tell(&Namespace::default(), News::GraceEnded);
    }

    /// The holder was heard of.
    pub(crate) fn revive(&mut self, namespace: &Namespace, id: LeaseId) {
        if let Some(session) = &mut self.lease_mut(namespace, id).session {
            session.kept = false;
        }
        let now = self.now;
        let lease = self.lease_mut(namespace, id);
        lease.state = LeaseState::Live;
        lease.deadline = now.plus(lease.ttl);
        self.end_grace_if_over();
    }

    /// "An acquire with `reclaim: true` by the same owner and session makes the grant live again": what the owner
    /// holds already is the answer, and its lease was heard of. A grant has one fence: what was granted with several
    /// cannot be reclaimed in one go.
    pub(crate) fn hear_again(&mut self, held: &[Vec<Held>]) -> Result<Grant, Refusal> {
        let mut newest_first: Vec<&Held> = held.iter().flatten().collect();
        newest_first.sort_by_key(|held| std::cmp::Reverse(held.fence()));
        let is_of_all = |one: &&&Held| held.iter().all(|of_claim| honours(of_claim, one.fence()));
        let Some(newest) = newest_first.iter().find(is_of_all) else {
            return Err(Refusal::Invalid(Invalid::NotOneGrant));
        };
        self.revive(&newest.namespace, newest.lease);
        let lease = self.lease_of(newest);
        Ok(Grant {
            lease: lease.id,
            owner: newest.owner.clone(),
            fence: newest.fence(),
            ttl: lease.ttl,
            deadline: lease.deadline,
            granted_at: newest.granted_at,
            waited: Duration::ZERO,
            replayed: true,
            gained: Vec::new(),
        })
    }

    /// What is not held any more can be reclaimed inside one's own window, or where nobody knows who held what.
    pub(crate) fn check_reclaim(&self, ask: &Acquire) -> Result<(), Refusal> {
        if ask.claims.iter().all(|claim| self.may_take_back(ask, &claim.scope)) {
            return Ok(());
        }
        match self.grace.map(|grace| grace.policy) {
            None => Err(Refusal::NoGrace),
            Some(GracePolicy::Conflicting | GracePolicy::Strict) => {
                let unheld = ask.claims.iter().find(|claim| self.own_of(ask, claim).is_none());
                let scope = unheld.unwrap_or(&ask.claims[0]).scope.clone();
                Err(Refusal::NothingToReclaim(scope))
            }
            Some(GracePolicy::StrictUnknown) => Ok(()),
        }
    }

    /// Whether all of a scope is in the owner's own reclaim window.
    fn may_take_back(&self, ask: &Acquire, scope: &Scope) -> bool {
        let Scope::Range { inode, range } = *scope else {
            return self.has_window(&ask.namespace, &ask.owner, scope);
        };
        let own = self.held.iter().filter(|held| {
            held.namespace == ask.namespace
                && held.owner == ask.owner
                && held.window_until.is_some()
        });
        let bytes: Vec<ByteRange> = own.filter_map(|held| bytes_of(held, inode)).collect();
        covered(range, &bytes)
    }

    /// All that a reclaim asks for, claim by claim, if the owner holds all of it in that mode under the lease it names.
    pub(crate) fn held_already(&self, ask: &Acquire) -> Option<Vec<Vec<Held>>> {
        let Under::Session(id) = ask.under else {
            return None;
        };
        // What is still in doubt can be claimed while the grace is on, and no longer.
        let lease = self.standing(&ask.namespace, id)?;
        if lease.state == LeaseState::Recovering && self.grace.is_none() {
            return None;
        }
        ask.claims.iter().map(|claim| self.own_of(ask, claim)).collect()
    }

    /// What the owner holds of a claim in that mode under the lease that the request names, if it is all of it.
    fn own_of(&self, ask: &Acquire, claim: &Claim) -> Option<Vec<Held>> {
        let Under::Session(id) = ask.under else {
            return None;
        };
        let own = self
            .held
            .iter()
            .filter(|held| held.namespace == ask.namespace && held.owner == ask.owner)
            .filter(|held| held.lease == id && held.window_until.is_none());
        let found: Vec<Held> = own
            .filter(|held| held.mode == claim.mode && held.scope.overlaps(&claim.scope))
            .filter(|held| matches!(held.scope, Scope::Range { .. }) || held.scope == claim.scope)
            .cloned()
            .collect();
        if let Scope::Range { inode, range } = claim.scope {
            let bytes: Vec<ByteRange> =
                found.iter().filter_map(|held| bytes_of(held, inode)).collect();
            if !covered(range, &bytes) {
                return None;
            }
        }
        (!found.is_empty()).then_some(found)
    }
}

/// Whether what is held of a claim was granted with this fence: any grant of a name, all bytes of a range.
fn honours(held: &[Held], fence: FencingToken) -> bool {
    let honours = |held: &Held| held.fences.contains(&fence);
    match held.first().map(|held| &held.scope) {
        Some(Scope::Range { .. }) => held.iter().all(honours),
        Some(Scope::Key(_)) | None => held.iter().any(honours),
    }
}
