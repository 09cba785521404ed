//! The holders and waiters of one scope, as far as a budget goes.

use super::view::WaiterView;
use super::{Holder, HolderState};
use crate::budget::Budget;
use crate::conflict::Blocker;
use crate::fencing_token::FencingToken;
use crate::id::Ticket;
use crate::inode::Party;
use crate::lease::{Lease, LeaseState, metadata_of};
use crate::mode::Mode;
use crate::namespace::{Holders, NamespaceIdx, NamespaceState};
use crate::range::ByteRange;
use crate::scope::Scope;
use crate::table::LockTable;

impl LockTable {
    /// A grant as others may see it; `None` for a waiter.
    pub(crate) fn holder(&self, space: NamespaceIdx, grant: &Blocker) -> Option<Holder> {
        let at = self.space(space);
        match grant {
            Blocker::Waiter { .. } => None,
            Blocker::Grant { key, fence, lease, owner } => {
                let held = at.lease(*lease);
                let grant = held.held.get(*fence, key)?;
                Some(Holder {
                    scope: Scope::Key(key.clone()),
                    owner: at.owners.name(*owner).clone(),
                    mode: grant.mode,
                    fence: *fence,
                    since: grant.granted_at,
                    ttl: held.ttl,
                    deadline: self.deadline_shown(held, grant.reclaim_window),
                    state: self.holder_state(held),
                    reclaim_window: grant.reclaim_window,
                    session: held.session.as_ref().map(|session| session.terms.number),
                    metadata: metadata_of(grant.extra.as_deref()),
                })
            }
            Blocker::Piece { inode, range, lease, owner } => {
                let held = at.lease(*lease);
                let party = Party { owner: *owner, lease: *lease };
                let piece = at.inodes.get(inode)?.pieces.get(&(party, range.start()))?;
                Some(Holder {
                    scope: Scope::range(*inode, piece.range),
                    owner: at.owners.name(*owner).clone(),
                    mode: piece.mode,
                    fence: piece.fence(),
                    since: piece.granted_at,
                    ttl: held.ttl,
                    deadline: self.deadline_shown(held, piece.reclaim_window),
                    state: self.holder_state(held),
                    reclaim_window: piece.reclaim_window,
                    session: held.session.as_ref().map(|session| session.terms.number),
                    metadata: piece.metadata.clone(),
                })
            }
        }
    }

    fn deadline_shown(&self, held: &Lease, window: crate::time::Millis) -> crate::time::Timestamp {
        if held.is_lapsed() { held.deadline.plus(window) } else { held.deadline }
    }

    /// Once the grace is over, a grant that has not been heard of is simply a grant.
    pub(crate) fn holder_state(&self, held: &Lease) -> HolderState {
        match held.state {
            LeaseState::Recovering if self.grace.is_some() => HolderState::Recovering,
            LeaseState::Live | LeaseState::Recovering | LeaseState::Ending => HolderState::Held,
            LeaseState::Lapsed(_) => HolderState::ReclaimWindow,
        }
    }

    pub(crate) fn fence_of(&self, space: NamespaceIdx, grant: &Blocker) -> FencingToken {
        match grant {
            Blocker::Grant { fence, .. } => *fence,
            Blocker::Piece { inode, range, owner, lease } => {
                let party = Party { owner: *owner, lease: *lease };
                self.space(space).inodes[inode].pieces[&(party, range.start())].fence()
            }
            Blocker::Waiter { .. } => FencingToken::ZERO,
        }
    }

    /// The holders of a scope, reclaim windows too; the first `named_max` of them by token.
    pub(crate) fn holding(
        &self,
        space: NamespaceIdx,
        scope: &Scope,
        named_max: usize,
        budget: &mut Budget,
    ) -> Holding {
        let at = self.space(space);
        let mut found = Holding::default();
        match scope {
            Scope::Key(key) => {
                for (key, holders) in at.holders_overlapping(key, Mode::Exclusive) {
                    let named = named_max.min(holders.len());
                    found.is_cut = budget.take(1 + named).is_err();
                    if found.is_cut {
                        break;
                    }
                    found.len += at.counted(holders, budget);
                    found.last_fence = found.last_fence.max(Some(holders.last_fence()));
                    found.grants.extend(at.grants_on(key, holders).take(named));
                }
            }
            Scope::Range { inode, range } => {
                let file = at.inodes.get(inode);
                for (Party { owner, lease }, piece) in
                    file.into_iter().flat_map(|file| file.overlapping(*range))
                {
                    found.is_cut = budget.take(1).is_err();
                    if found.is_cut {
                        break;
                    }
                    found.last_fence = found.last_fence.max(Some(piece.fence()));
                    if !at.counts(lease) {
                        continue;
                    }
                    found.len += 1;
                    if named_max > 0 {
                        let (inode, range) = (*inode, piece.range);
                        found.grants.push(Blocker::Piece { inode, range, lease, owner });
                    }
                }
                if *range == ByteRange::ALL && at.ending.is_empty() {
                    found.len = file.map_or(0, |file| file.pieces.len());
                }
            }
        }
        found.grants.sort_by_cached_key(|grant| (self.fence_of(space, grant), grant.scope()));
        found.grants.truncate(named_max);
        found
    }

    /// Those who wait for anything that overlaps the scope; of them the first `named_max` by place.
    pub(crate) fn waiting_for(
        &self,
        space: NamespaceIdx,
        scope: &Scope,
        named_max: usize,
        budget: &mut Budget,
    ) -> Waiting {
        let mut found = Waiting::default();
        let mut queues = Vec::new();
        for queue in self.space(space).queues_for(scope) {
            found.is_cut = budget.take(1).is_err();
            if found.is_cut {
                break;
            }
            found.len += queue.len();
            queues.push(queue);
        }
        // Who stands in one queue alone is counted once.
        let counts_each = queues.len() > 1 && queues.iter().any(|queue| queue.has_sets());
        let taken_max = if counts_each { usize::MAX } else { named_max };
        for queue in queues {
            for (ticket, _) in queue.iter().take(taken_max) {
                if budget.take(1).is_err() {
                    found.is_cut = true;
                    break;
                }
                found.tickets.push(ticket);
            }
        }
        found.tickets.sort_unstable();
        found.tickets.dedup();
        if counts_each && !found.is_cut {
            found.len = found.tickets.len();
        }
        found.tickets.truncate(named_max);
        found
    }

    pub(crate) fn waiter_view(
        &self,
        space: NamespaceIdx,
        ticket: Ticket,
        scope: &Scope,
    ) -> WaiterView {
        let waiter = &self.space(space).waiters[&ticket];
        let claims = &waiter.request.claims;
        let claim = claims.iter().find(|claim| claim.scope.overlaps(scope)).unwrap_or(&claims[0]);
        WaiterView {
            owner: waiter.request.owner.clone(),
            scope: claim.scope.clone(),
            mode: claim.mode,
            ticket,
            since: waiter.since,
            deadline: waiter.deadline,
        }
    }
}

/// The holders of a scope, as far as a look goes.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// The first of it, by token.
    pub(crate) grants: Vec<Blocker>,
    pub(crate) len: usize,
    pub(crate) last_fence: Option<FencingToken>,
    /// There is more than was looked at.
    pub(crate) is_cut: bool,
}

/// Those who wait for a scope, as far as a look goes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The first of them, by place.
    pub(super) tickets: Vec<Ticket>,
    pub(crate) len: usize,
    pub(crate) is_cut: bool,
}

impl NamespaceState {
    /// The number of the holders of a key that count, as far as the budget goes.
    fn counted(&self, holders: &Holders, budget: &mut Budget) -> usize {
        if self.ending.is_empty() {
            return holders.len();
        }
        let looked_at = holders.iter().take_while(|_| budget.take(1).is_ok());
        looked_at.filter(|&(_, lease)| self.counts(lease)).count()
    }
}
