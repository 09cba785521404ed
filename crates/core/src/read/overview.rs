//! The overview: the number of grants, the longest waits, the next expiries.
//!
//! Nothing here looks at everything. Those who came first wait longest, and the timers are in order; only a lease that
//! was renewed stands too early among them, so a few more are looked at than are named.

use crate::id::Namespace;
use crate::namespace::{NamespaceIdx, NamespaceState};
use crate::read::Holder;
use crate::read::view::Overview;
use crate::table::LockTable;
use crate::time::Timestamp;

/// The number of timers that are looked at.
const LOOKED_AT_MAX: usize = 10_000;

impl LockTable {
    /// Numbers of one namespace; of those who wait and those who lapse next at most `len_max` each.
    pub fn overview(&self, namespace: &Namespace, len_max: usize) -> Overview {
        let mut overview = Overview {
            grants: 0,
            sessions: 0,
            waiters: 0,
            longest_waits: Vec::new(),
            next_to_lapse: Vec::new(),
            is_partial: false,
            revision: self.revision,
        };
        let Some(space) = self.namespace_idx(namespace) else {
            return overview;
        };
        let at = self.space(space);
        overview.grants = at.grants_len;
        overview.sessions = at.sessions.len();
        overview.waiters = at.waiters.len();
        let waiting = at.waiters.iter().take(len_max);
        overview.longest_waits = waiting
            .map(|(&ticket, waiter)| {
                self.waiter_view(space, ticket, &waiter.request.claims[0].scope)
            })
            .collect();
        (overview.next_to_lapse, overview.is_partial) = self.next_to_lapse(space, len_max);
        overview
    }

    /// Holders by the end of their lease, and whether leases were left out.
    fn next_to_lapse(&self, space: NamespaceIdx, len_max: usize) -> (Vec<Holder>, bool) {
        let at = self.space(space);
        let mut soonest: Vec<(Timestamp, Holder)> = Vec::new();
        for (looked_at, &(moment, of, no)) in self.lease_timers.iter().enumerate() {
            let is_full = soonest.len() >= len_max;
            // A timer is never later than its lease's end, so none of those that follow can come before the last one.
            if is_full && soonest.last().is_none_or(|(last, _)| *last <= moment) {
                return (only_holders(soonest), false);
            }
            if looked_at >= LOOKED_AT_MAX {
                return (only_holders(soonest), true);
            }
            if of != space || at.lease(no).is_over() {
                continue;
            }
            if let Some(holder) = self.first_holder(space, no) {
                let place = soonest.partition_point(|(deadline, _)| *deadline <= holder.deadline);
                soonest.insert(place, (holder.deadline, holder));
                soonest.truncate(len_max);
            }
        }
        (only_holders(soonest), false)
    }

    /// One of the grants that stand under a lease.
    fn first_holder(&self, space: NamespaceIdx, no: crate::lease::LeaseIdx) -> Option<Holder> {
        use crate::conflict::Blocker;
        let at: &NamespaceState = self.space(space);
        let held = &at.lease(no).held;
        let grant = held.grants().next().map(|grant| {
            let (key, fence, owner) = (grant.key.clone(), grant.fence, grant.owner);
            Blocker::Grant { key, fence, lease: no, owner }
        });
        let piece = || {
            let &(inode, owner, start) = held.pieces()?.iter().next()?;
            let party = crate::inode::Party { owner, lease: no };
            let range = at.inodes.get(&inode)?.pieces.get(&(party, start))?.range;
            Some(Blocker::Piece { inode, range, lease: no, owner })
        };
        self.holder(space, &grant.or_else(piece)?)
    }
}

fn only_holders(soonest: Vec<(Timestamp, Holder)>) -> Vec<Holder> {
    soonest.into_iter().map(|(_, holder)| holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acquire, holding, renew_all};

    #[test]
    fn those_that_lapse_next_come_first_although_their_timers_lag_behind() {
        let mut table = holding(&["a", "b", "c"]);
        // Its timer stays where it was; its deadline does not.
        renew_all(&mut table, 5_000, "a");
        acquire(&mut table, 5_000, "soon", 2_000, 0);
        let overview = table.overview(&Namespace::default(), 3);
        let names: Vec<String> =
            overview.next_to_lapse.iter().map(|h| h.scope.to_string()).collect();
        assert_eq!(names, ["soon", "b", "c"]);
        assert_eq!((overview.grants, overview.is_partial), (4, false));
    }

    #[test]
    fn those_who_came_first_wait_longest() {
        let mut table = holding(&["a", "b"]);
        acquire(&mut table, 1_000, "b", 10_000, 60_000);
        acquire(&mut table, 2_000, "a", 10_000, 60_000);
        let overview = table.overview(&Namespace::default(), 1);
        assert_eq!(overview.waiters, 2);
        assert_eq!(overview.longest_waits[0].scope.to_string(), "b");
    }
}
