//! The wait-for graph as people are shown it.

use super::{QueueOf, Wanted};
use crate::budget::{Budget, Cut};
use crate::id::Ticket;
use crate::inode::is_covered;
use crate::mode::Mode;
use crate::namespace::NamespaceState;
use crate::owners::OwnerIdx;
use crate::queue::{InQueue, Queue, Waiter};
use crate::scope::Scope;

/// One claim of one waiter, and who is in its way.
pub(crate) struct Wait<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) waiter: &'a Waiter,
    pub(crate) scope: &'a Scope,
    pub(crate) mode: Mode,
    pub(crate) blockers: Vec<OwnerIdx>,
}

impl NamespaceState {
    /// The waits of the namespace by place, each with its holders and with those right ahead of it in each queue; whoever stands
    /// further ahead is in the way of those. Whether some were left out, for `len_max` or the budget.
    pub(crate) fn first_waits(&self, len_max: usize, budget: &mut Budget) -> (Vec<Wait<'_>>, bool) {
        let mut waits = Vec::new();
        for (&ticket, waiter) in &self.waiters {
            if budget.take(1).is_err() {
                return (waits, true);
            }
            for claim in &waiter.request.claims {
                let wanted = Wanted { ticket, lease: waiter.lease, claim };
                if waits.len() >= len_max {
                    return (waits, true);
                }
                let Ok(blockers) = self.nearest(waiter.owner, wanted, budget) else {
                    return (waits, true);
                };
                let (scope, mode) = (&claim.scope, claim.mode);
                waits.push(Wait { ticket, waiter, scope, mode, blockers });
            }
        }
        (waits, false)
    }

    /// Those who hold what a claim wants, and those right ahead of it.
    fn nearest(
        &self,
        owner: OwnerIdx,
        wanted: Wanted<'_>,
        budget: &mut Budget,
    ) -> Result<Vec<OwnerIdx>, Cut> {
        let mut found = Vec::new();
        let asker = wanted.asker(owner);
        let add = |owner: OwnerIdx, found: &mut Vec<OwnerIdx>, budget: &mut Budget| {
            budget.take(1 + found.len() / 8)?;
            if !found.contains(&owner) {
                found.push(owner);
            }
            Ok(())
        };
        for holder in self.holders_in_the_way(wanted.claim, asker) {
            budget.take(1)?;
            if let Some((_, holder)) = holder {
                add(holder, &mut found, budget)?;
            }
        }
        let mut queues: Vec<(QueueOf<'_>, &Queue)> = Vec::new();
        if let Some(held) = self.permits_short(wanted, asker, budget)? {
            for holder in held {
                add(holder, &mut found, budget)?;
            }
            if let Scope::Key(key) = &wanted.claim.scope {
                queues.extend(self.queues.get(key).map(|queue| (QueueOf::Key(key), queue)));
            }
        }
        queues.extend(self.queues_in_the_way(owner, wanted));
        for (of, queue) in queues {
            budget.take(1)?;
            for place in queue.ahead(wanted.ticket, wanted.claim.mode).rev() {
                budget.take(1)?;
                if matches!(of, QueueOf::Range(..)) && asker.is_own(place) {
                    continue;
                }
                add(place.owner, &mut found, budget)?;
                if self.stands_behind_all(of, place) {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Those who hold the permits that a claim wants, if there are too few.
    fn permits_short(
        &self,
        wanted: Wanted<'_>,
        asker: crate::conflict::Asker,
        budget: &mut Budget,
    ) -> Result<Option<Vec<OwnerIdx>>, Cut> {
        let Some(limit) = wanted.claim.mode.permits() else { return Ok(None) };
        let limit = limit.get() as usize;
        let mut held = Vec::new();
        for holder in self.permits_held(wanted.claim, asker) {
            budget.take(1)?;
            held.extend(holder.map(|(_, owner)| owner));
        }
        let missing = limit.saturating_sub(held.len());
        let queue = self.queue(&wanted.claim.scope);
        let ahead =
            queue.map_or(0, |q| q.ahead(wanted.ticket, Mode::Exclusive).take(missing).count());
        budget.take(ahead)?;
        Ok((ahead >= missing).then_some(held))
    }

    /// Whether every waiter further ahead in its queue is in the way of this waiter.
    fn stands_behind_all(&self, of: QueueOf<'_>, place: InQueue) -> bool {
        match (of, place.mode) {
            (_, Mode::Shared) => false,
            (QueueOf::Key(_), Mode::Exclusive) => true,
            (QueueOf::Key(key), Mode::Permits(limit)) => {
                self.held.get(key).is_some_and(|held| held.len() >= limit.get() as usize)
            }
            (QueueOf::Range(inode, range), Mode::Exclusive | Mode::Permits(_)) => {
                let asker = self.waiters[&place.ticket].asker(place.ticket);
                let at = self.inodes.get(&inode);
                at.is_none_or(|at| !is_covered(range, self.own_bytes(at, range, asker)))
            }
        }
    }
}
