//! Why a request is not granted.

use super::conflict::{Asker, Blockers, View};
use super::{Held, Model, Waiter};
use leasehold_core::*;

impl Model {
    /// Why a request is not granted: "a refused try says who holds it, since when, until when, how many wait".
    pub(crate) fn why_not(&self, ask: &Acquire, waiter: &Waiter, view: View) -> Refusal {
        let blocked = ask.claims.iter().find_map(|claim| {
            let blockers = self.blockers(Asker::of(ask), claim, waiter.ticket, view);
            (!blockers.none()).then(|| (claim.scope.clone(), blockers))
        });
        let ends_in = self.grace.map(|grace| Timestamp::since(grace.ends_at, self.now));
        let Some((scope, blockers)) = blocked else {
            // Only its time is over, or nobody is granted anything.
            let nobody = self.conflict(ask.claims[0].scope.clone(), &Blockers::default(), waiter);
            return match ends_in {
                Some(ends_in) if self.strict_grace() => {
                    Refusal::GracePeriod { ends_in, conflict: None }
                }
                _ if self.suspended => Refusal::Suspended,
                _ => Refusal::Held(Box::new(nobody)),
            };
        };
        let all = self.all_blockers(ask, waiter.ticket, view);
        let state_is = |state| move |held: &Held| self.state_of(held) == state;
        let recovering = all.holders.iter().any(state_is(HolderState::Recovering));
        let only_windows =
            all.waiters.is_empty() && all.holders.iter().all(state_is(HolderState::ReclaimWindow));
        let conflict = Box::new(self.conflict(scope, &blockers, waiter));
        match ends_in {
            Some(ends_in) if self.strict_grace() && !ask.reclaim => {
                Refusal::GracePeriod { ends_in, conflict: None }
            }
            Some(ends_in) if recovering => {
                Refusal::GracePeriod { ends_in, conflict: Some(conflict) }
            }
            _ if only_windows => Refusal::ReclaimWindow(conflict),
            _ => Refusal::Held(conflict),
        }
    }

    /// Those in the way of any claim.
    fn all_blockers(&self, ask: &Acquire, ticket: Ticket, view: View) -> Blockers {
        let mut all = Blockers::default();
        for claim in &ask.claims {
            let more = self.blockers(Asker::of(ask), claim, ticket, view);
            all.holders.extend(more.holders);
            all.waiters.extend(more.waiters);
        }
        all
    }

    /// A refusal that tells of a kept place always names a conflict to tell it with.
    pub(crate) fn with_place(&self, mut refusal: Refusal, waiter: &Waiter) -> Refusal {
        let first = waiter.ask.claims[0].scope.clone();
        let nobody = Box::new(self.conflict(first, &Blockers::default(), waiter));
        if let Refusal::GracePeriod { conflict: conflict @ None, .. } = &mut refusal {
            *conflict = Some(nobody);
        } else if refusal == Refusal::Suspended {
            refusal = Refusal::Held(nobody);
        }
        if let Refusal::Held(conflict)
        | Refusal::ReclaimWindow(conflict)
        | Refusal::GracePeriod { conflict: Some(conflict), .. } = &mut refusal
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
