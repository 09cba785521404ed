//! Refusing: the reason why a request cannot be granted now, and who is in its way.

use std::time::Duration;

use crate::budget::{Budget, LOOK_STEPS};
use crate::command::Acquire;
use crate::conflict::{Asker, Blockers, Want};
use crate::effect::{Effect, Step};
use crate::id::Ticket;
use crate::namespace::NamespaceIdx;
use crate::read::{Holder, HolderState};
use crate::refusal::{Conflict, Place, Refusal};
use crate::table::LockTable;
use crate::time::Timestamp;

impl LockTable {
    /// The refusal of a request that cannot be granted now.
    pub(super) fn refusal_for(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        asker: Asker,
        place: Option<Place>,
        since: Timestamp,
    ) -> Refusal {
        if let Some(grace) = self.grace.filter(|grace| grace.policy.is_strict() && !request.reclaim)
        {
            let ends_in = grace.ends_at.since(self.now);
            let Some(place) = place else { return Refusal::GracePeriod { ends_in } };
            let conflict = Box::new(self.kept_place(space, request, place, since));
            return Refusal::GracePeriodPlaceKept { ends_in, conflict };
        }
        let (mut conflict, reason) = self.conflict(space, request, asker);
        conflict.place = place;
        conflict.waited = self.now.since(since);
        let conflict = Box::new(conflict);
        match reason {
            Reason::Nothing if self.suspended && place.is_none() => Refusal::Suspended,
            Reason::ReclaimWindow => Refusal::ReclaimWindow(conflict),
            Reason::Nothing | Reason::Waiters | Reason::Held => Refusal::Held(conflict),
        }
    }

    /// A conflict without holders, by which the caller learns of the place that is kept for it.
    fn kept_place(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        place: Place,
        since: Timestamp,
    ) -> Conflict {
        let scope = request.claims[0].scope.clone();
        let waiters = self.waiters_for(space, &scope, &mut Budget::new(LOOK_STEPS));
        let waited = self.now.since(since);
        Conflict { scope, holders: Vec::new(), waiters, waited, place: Some(place) }
    }

    /// The conflict of the blocked claims and its kind, with the holders in the way of the first claim that decides it.
    fn conflict(&self, space: NamespaceIdx, request: &Acquire, asker: Asker) -> (Conflict, Reason) {
        let at = self.space(space);
        let want = Want::Some(Conflict::HOLDERS_MAX);
        let holders = |blockers: &Blockers| -> Vec<Holder> {
            blockers.iter().filter_map(|blocker| self.holder(space, blocker)).collect()
        };
        let mut decided = (Reason::Nothing, &request.claims[0], Vec::new());
        for claim in &request.claims {
            let blockers = at.blockers(claim, asker, want);
            let holders = holders(&blockers);
            let reason = Reason::of(&blockers, &holders);
            if reason > decided.0 {
                decided = (reason, claim, holders);
            }
        }
        let (reason, claim, mut holders) = decided;
        holders.sort_by(|one, other| (one.fence, &one.scope).cmp(&(other.fence, &other.scope)));
        holders.truncate(Conflict::HOLDERS_MAX);
        let conflict = Conflict {
            scope: claim.scope.clone(),
            holders,
            waiters: self.waiters_for(space, &claim.scope, &mut Budget::new(LOOK_STEPS)),
            waited: Duration::ZERO,
            place: None,
        };
        (conflict, reason)
    }

    /// Tells the holders that another owner wants it; whether they hear that is not for us to know.
    pub(super) fn tell_holders(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        ticket: Ticket,
        step: &mut Step,
    ) {
        let at = self.space(space);
        let asker = self.asker(space, request, ticket, false);
        for claim in &request.claims {
            let want = Want::Some(Conflict::HOLDERS_MAX);
            for blocker in at.blockers(claim, asker, want).iter() {
                let Some(held) = blocker.lease().map(|lease| at.lease(lease)) else { continue };
                if !held.is_over() {
                    step.effects.push(Effect::Wanted {
                        namespace: request.namespace.clone(),
                        lease: held.id,
                        fence: self.fence_of(space, blocker),
                        scope: claim.scope.clone(),
                        waiter: request.owner.clone(),
                    });
                }
            }
        }
    }
}

/// The kind of refusal that the blockers add up to; of several, the last in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Nothing,
    /// Nothing is held, but others wait for it.
    Waiters,
    /// All that is held are reclaim windows.
    ReclaimWindow,
    Held,
}

impl Reason {
    fn of(blockers: &Blockers, holders: &[Holder]) -> Reason {
        if blockers.is_empty() {
            Reason::Nothing
        } else if holders.is_empty() {
            Reason::Waiters
        } else if holders.iter().all(|holder| holder.state == HolderState::ReclaimWindow) {
            Reason::ReclaimWindow
        } else {
            Reason::Held
        }
    }
}
