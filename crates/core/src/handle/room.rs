//! Room: the limits on what a lease may hold, on what one step may change, and on how many share a scope.

use crate::command::{Acquire, Claim, Under};
use crate::id::{LeaseId, Owner, Ticket};
use crate::inode::Party;
use crate::lease::LeaseIdx;
use crate::namespace::{NamespaceIdx, room_for};
use crate::quota::{Need, Quotas};
use crate::range::ByteRange;
use crate::refusal::{Limit, Refusal};
use crate::scope::Scope;
use crate::table::LockTable;

impl LockTable {
    /// Every grant takes a fencing token, and their number has an end.
    pub(super) fn check_tokens_left(&self) -> Result<(), Refusal> {
        match self.fence.next() {
            Some(_) => Ok(()),
            None => Err(Refusal::Limit(Limit::Tokens)),
        }
    }

    /// Replacing ranges of its own takes time for each, so a lease may replace so many in one step and no more.
    pub(super) fn check_own_ranges_claimed(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
    ) -> Result<(), Refusal> {
        let Under::Session(lease) = request.under else { return Ok(()) };
        request
            .claims
            .iter()
            .try_for_each(|claim| self.check_own_ranges(space, lease, &request.owner, &claim.scope))
    }

    /// Refuses a scope that covers more of a lease's own ranges than one step may change.
    pub(super) fn check_own_ranges(
        &self,
        space: NamespaceIdx,
        lease: LeaseId,
        owner: &Owner,
        scope: &Scope,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let Scope::Range { inode, range } = *scope else { return Ok(()) };
        let (Some(lease), Some(owner)) = (at.lease_no(lease), at.owners.find(owner)) else {
            return Ok(());
        };
        let max = self.limits.own_ranges_per_step_max;
        match at.inodes.get(&inode) {
            Some(file) if file.has_more_own(Party { owner, lease }, range, max) => {
                Err(Refusal::Limit(Limit::OwnRanges { scope: scope.clone(), max }))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Giving back the middle of a range leaves two: one more, which counts like any other.
    pub(super) fn check_split(
        &self,
        space: NamespaceIdx,
        lease: LeaseId,
        owner: &Owner,
        scope: &Scope,
        quotas: &Quotas,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let Scope::Range { inode, range } = *scope else { return Ok(()) };
        let (Some(lease), Some(number)) = (at.live_lease(lease), at.owners.find(owner)) else {
            return Ok(());
        };
        let Some(file) = at.inodes.get(&inode) else { return Ok(()) };
        let mut own = file.own_pieces(Party { owner: number, lease }, range);
        match own.next() {
            Some(piece) if matches!(piece.range.without(range), (Some(_), Some(_))) => {
                self.check_room_under(space, lease, 1, false)?;
                let need = Need::of_piece(piece.hold(inode));
                self.check_hold_quota(space, owner, quotas, need)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A session holds so much and no more.
    pub(super) fn check_session_room(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
    ) -> Result<(), Refusal> {
        let Under::Session(id) = request.under else { return Ok(()) };
        let lease = self.space(space).live_lease(id).ok_or(Refusal::SessionNotFound(None))?;
        let has_window = !request.reclaim_window.is_zero();
        self.check_room_under(space, lease, room_for(&request.claims), has_window)
    }

    /// A lease holds and waits for so much and no more; less if it is to lapse into reclaim windows, as it does so in one step.
    pub(super) fn check_room_under(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        more: usize,
        has_window: bool,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let wanted = at.wanted_under(lease);
        let room = at.lease(lease).held.len() + wanted.room + more;
        let max = self.limits.locks_per_session_max;
        if room > max {
            return Err(Refusal::Limit(Limit::LocksPerSession { max }));
        }
        let max = self.limits.windowed_locks_per_session_max;
        let has_window = has_window || wanted.windows > 0 || at.has_window(lease);
        if has_window && room > max {
            return Err(Refusal::Limit(Limit::WindowedLocksPerSession { max }));
        }
        Ok(())
    }

    /// All contenders of a semaphore must ask with the same limit. A request without permits that meets one is
    /// blocked by it, unless it is the owner's own window: so for those it is mostly enough to look once they are.
    pub(super) fn check_limits_match(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
    ) -> Result<(), Refusal> {
        request.claims.iter().try_for_each(|claim| self.check_limit_matches(space, claim))
    }

    pub(crate) fn check_limit_matches(
        &self,
        space: NamespaceIdx,
        claim: &Claim,
    ) -> Result<(), Refusal> {
        if let Scope::Key(key) = &claim.scope
            && let Some(current) = self.space(space).mode_in_use(key)
            && current.permits() != claim.mode.permits()
        {
            let (scope, asked) = (claim.scope.clone(), claim.mode);
            return Err(Refusal::LimitMismatch { scope, current, asked });
        }
        Ok(())
    }

    /// The claimed bytes that are not held under the lease yet.
    pub(super) fn gained_bytes(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
    ) -> Vec<(u64, ByteRange)> {
        let at = self.space(space);
        let party = self.asker(space, request, Ticket(0), false).party();
        let mut gained = Vec::new();
        for claim in &request.claims {
            let Scope::Range { inode, range } = claim.scope else {
                continue;
            };
            let own = match (at.inodes.get(&inode), party) {
                (Some(at), Some(party)) => at.own_overlapping(party, range),
                (None, _) | (_, None) => Vec::new(),
            };
            let mut rest = Some(range);
            for held in own {
                let Some(left) = rest else { break };
                let (before, after) = left.without(held);
                gained.extend(before.map(|part| (inode, part)));
                rest = after;
            }
            gained.extend(rest.map(|part| (inode, part)));
        }
        gained
    }
}
