//! Why a request is not granted.

use super::conflict::{Asker, Blockers, View};
use super::{Held, Model, Waiter};
use leasehold_core::*;

impl Model {
    /// Why a request is not granted: "a refused try says who holds it, since when, until when, how many wait". Of several
    /// claims that are blocked the first that is held decides, then one in a reclaim window, then one that others wait for.
    pub(crate) fn why_not(&self, ask: &Acquire, waiter: &Waiter, view: View) -> Refusal {
        if let Some(grace) = self.grace.filter(|_| self.strict_grace() && !ask.reclaim) {
            let ends_in = Timestamp::since(grace.ends_at, self.now);
            return Refusal::GracePeriod { ends_in };
        }
        let blocked: Vec<(&Claim, Blockers)> = ask
            .claims
            .iter()
            .map(|claim| (claim, self.blockers(Asker::of(ask), claim, waiter.ticket, view)))
            .filter(|(_, blockers)| !blockers.none())
            .collect();
        let is_window = |held: &Held| self.state_of(held) == HolderState::ReclaimWindow;
        let first = |which: &dyn Fn(&Blockers) -> bool| {
            let (claim, blockers) = blocked.iter().find(|(_, blockers)| which(blockers))?;
            Some(Box::new(self.conflict(claim.scope.clone(), blockers, waiter)))
        };
        if let Some(held) = first(&|blockers| !blockers.holders.iter().all(is_window)) {
            return Refusal::Held(held);
        }
        if let Some(window) = first(&|blockers| !blockers.holders.is_empty()) {
            return Refusal::ReclaimWindow(window);
        }
        if let Some(queued) = first(&|_| true) {
            return Refusal::Held(queued);
        }
        // Only its time is over, or nobody is granted anything.
        let nobody = self.conflict(ask.claims[0].scope.clone(), &Blockers::default(), waiter);
        if self.suspended { Refusal::Suspended } else { Refusal::Held(Box::new(nobody)) }
    }

    /// A refusal that tells of a kept place always names a conflict to tell it with.
    pub(crate) fn with_place(&self, mut refusal: Refusal, waiter: &Waiter) -> Refusal {
        if self.kept.iter().all(|kept| kept.waiter.ticket != waiter.ticket) {
            return refusal;
        }
        let first = waiter.ask.claims[0].scope.clone();
        let nobody = Box::new(self.conflict(first, &Blockers::default(), waiter));
        if let Refusal::GracePeriod { ends_in } = refusal {
            refusal = Refusal::GracePeriodPlaceKept { ends_in, conflict: nobody };
        } else if refusal == Refusal::Suspended {
            refusal = Refusal::Held(nobody);
        }
        if let Refusal::Held(conflict)
        | Refusal::ReclaimWindow(conflict)
        | Refusal::GracePeriodPlaceKept { conflict, .. } = &mut refusal
        {
            conflict.place = Some(self.place(waiter));
        }
        refusal
    }

    fn conflict(&self, scope: Scope, blockers: &Blockers, waiter: &Waiter) -> Conflict {
        let mut holders: Vec<Holder> =
            blockers.holders.iter().map(|held| self.holder(held)).collect();
        holders.sort_by(|one, other| (one.fence, &one.scope).cmp(&(other.fence, &other.scope)));
        holders.truncate(Conflict::HOLDERS_MAX);
        Conflict {
            waiters: self.waiting_for(&waiter.ask.namespace, &scope).count(),
            scope,
            holders,
            waited: self.now.since(waiter.since),
            place: None,
        }
    }
}
