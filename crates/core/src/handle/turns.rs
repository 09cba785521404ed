//! Ends in turns what would take too long at once.
//!
//! A lease under which much stands is marked as over in one step: from then on nothing under it counts as held. What
//! stood under it ends in later steps, so much at a time, by transitions of its own. Whoever wants some of it before its
//! turn ends that on the spot.

use crate::command::Acquire;
use crate::conflict::Blocker;
use crate::effect::Step;
use crate::id::Ticket;
use crate::inode::Party;
use crate::lease::LeaseIdx;
use crate::namespace::NamespaceIdx;
use crate::refusal::Refusal;
use crate::table::LockTable;
use crate::transition::{Ending, Transition};

/// The part of a turn that a command does which has work of its own: a server that is never idle goes on too.
const BESIDE_OTHERS: usize = 32;

impl LockTable {
    /// Whether the end of a lease, with its waiters, is more than one step may do.
    fn ends_in_turns(&self, space: NamespaceIdx, lease: LeaseIdx) -> bool {
        let at = self.space(space);
        let len = at.lease(lease).held.len() + at.wanted_under(lease).waiters;
        len > self.limits.endings_per_step_max
    }

    /// Ends a lease with its waiters and everything under it.
    pub(super) fn end_now_or_in_turns(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ending: Ending,
        step: &mut Step,
    ) {
        let at = self.space(space);
        let (namespace, id) = (at.name.clone(), at.lease(lease).id);
        if self.ends_in_turns(space, lease) {
            self.enact(Transition::LeaseEnding { namespace, lease: id, ending }, step);
        } else {
            self.refuse_session_waiters(space, lease, step);
            self.enact(Transition::LeaseEnded { namespace, lease: id, ending }, step);
        }
    }

    /// Goes on with leases that are over. Whether anything came free that others wait for is seen to by the caller.
    pub(super) fn end_in_turns(&mut self, is_tick: bool, step: &mut Step) {
        if self.suspended {
            return;
        }
        let max = self.limits.endings_per_step_max;
        let mut left = if is_tick { max } else { (max / BESIDE_OTHERS).max(1) };
        while left > 0
            && let Some(&(space, lease)) = self.ending.first()
        {
            let waiting: Vec<Ticket> = self.space(space).waits_under(lease).take(left).collect();
            left -= waiting.len();
            for ticket in waiting {
                self.refuse_waiter(space, ticket, &Refusal::LeaseLost(None), step);
            }
            if left > 0 {
                left = left.saturating_sub(self.end_some(space, lease, left, step));
            }
        }
    }

    /// Ends the first of what stood under a lease; says how much that was.
    fn end_some(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        len_max: usize,
        step: &mut Step,
    ) -> usize {
        let at = self.space(space);
        let (held, namespace) = (at.lease(lease), at.name.clone());
        let len = held.held.len();
        if len <= len_max {
            if planted!("end-given-up-half-way") {
                self.ending.remove(&(space, lease));
                return len_max;
            }
            let ending = at.ending[&lease].ending.clone();
            let id = held.id;
            self.enact(Transition::LeaseEnded { namespace, lease: id, ending }, step);
            return len.max(1);
        }
        let grants = held.held.grants().map(|grant| {
            let (key, fence, owner) = (grant.key.clone(), grant.fence, grant.owner);
            Blocker::Grant { key, fence, lease, owner }
        });
        let pieces = held.held.pieces().into_iter().flatten().map(|&(inode, owner, start)| {
            let range = at.inodes[&inode].pieces[&(Party { owner, lease }, start)].range;
            Blocker::Piece { inode, range, lease, owner }
        });
        let first: Vec<Blocker> = grants.chain(pieces).take(len_max).collect();
        for grant in &first {
            self.end_ended(space, grant, step);
        }
        first.len()
    }

    /// Ends one grant of a lease that is over; an earlier ending may have taken it along.
    fn end_ended(&mut self, space: NamespaceIdx, grant: &Blocker, step: &mut Step) {
        let at = self.space(space);
        let namespace = at.name.clone();
        let under_way = grant.lease().and_then(|lease| Some((lease, at.ending.get(&lease)?)));
        let Some((number, under_way)) = under_way else { return };
        let (held, ending) = (at.lease(number), under_way.ending.clone());
        let lease = held.id;
        let ended = match grant {
            Blocker::Grant { key, fence, .. } => {
                if held.held.get(*fence, key).is_none() {
                    return;
                }
                let (fence, key) = (*fence, key.clone());
                Transition::KeyEnded { namespace, lease, fence, key, ending }
            }
            Blocker::Piece { inode, range, owner, .. } => {
                let (inode, range, owner) = (*inode, *range, at.owners.name(*owner).clone());
                Transition::RangeEnded { namespace, lease, owner, inode, range, ending }
            }
            Blocker::Waiter { .. } => return,
        };
        self.enact(ended, step);
    }

    /// Ends the grants on the claimed scopes that no longer count as held; if they are very many, the rest in its turn.
    pub(super) fn clear_the_way(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        ticket: Ticket,
        step: &mut Step,
    ) {
        let mut left = self.limits.endings_per_step_max;
        for claim in &request.claims {
            while left > 0 && !self.space(space).ending.is_empty() {
                let asker = self.asker(space, request, ticket, true);
                let ended = self.space(space).ended_in_the_way(claim, asker, left);
                if ended.is_empty() {
                    break;
                }
                left -= ended.len();
                for grant in &ended {
                    self.end_ended(space, grant, step);
                }
            }
        }
    }
}
