//! Commands of operators and file systems on others' grants: break locks, remove files.

use std::collections::BTreeSet;

use crate::budget::{Budget, LOOK_STEPS};
use crate::command::{Break, BreakSession, RemoveFile};
use crate::conflict::Blocker;
use crate::effect::{Answer, Step};
use crate::id::Ticket;
use crate::inode::Party;
use crate::mode::Mode;
use crate::namespace::{Holders, NamespaceIdx, NamespaceState};
use crate::queue::Queue;
use crate::range::ByteRange;
use crate::refusal::Refusal;
use crate::scope::{Key, Scope};
use crate::table::LockTable;
use crate::transition::Ending;

impl LockTable {
    pub(super) fn break_locks(&mut self, breaking: &Break, step: &mut Step) -> super::Handled {
        let Some(space) = self.namespace_idx(&breaking.namespace) else {
            return Ok(Answer::Broken { grants: 0, truncated: false });
        };
        let ending = Ending::Revoked(breaking.reason.clone());
        let len_max = self.limits.endings_per_step_max;
        let (chosen, is_all) = match breaking.fence {
            None => self.first_grants_overlapping(space, &breaking.scope, len_max),
            Some(fence) => {
                let mut budget = Budget::new(LOOK_STEPS);
                self.grants_with(space, &breaking.scope, fence, None, &mut budget)
            }
        };
        let grants = chosen.len();
        for grant in chosen {
            self.end_found(space, grant, &breaking.scope, &ending, step);
        }
        Ok(Answer::Broken { grants, truncated: !is_all && grants > 0 })
    }

    pub(super) fn break_session(
        &mut self,
        breaking: &BreakSession,
        step: &mut Step,
    ) -> super::Handled {
        let space =
            self.namespace_idx(&breaking.namespace).ok_or(Refusal::SessionNotFound(None))?;
        let at = self.space(space);
        let found = at.sessions.get(&breaking.number).ok_or(Refusal::SessionNotFound(None))?;
        let id = at.lease(*found).id;
        let lease = self.live_lease(space, id, step).ok_or(Refusal::SessionNotFound(None))?;
        let ending = Ending::Revoked(breaking.reason.clone());
        self.tell_lost(breaking.namespace.clone(), id, None, &ending, step);
        let grants = self.end_whole(space, lease, ending, step);
        Ok(Answer::SessionClosed { grants, replayed: false })
    }

    pub(super) fn remove_file(&mut self, remove: &RemoveFile, step: &mut Step) -> super::Handled {
        let Some(space) = self.namespace_idx(&remove.namespace) else {
            return Ok(Answer::FileRemoved { grants: 0, waiters: 0, truncated: false });
        };
        let inode = remove.inode;
        let len_max = self.limits.endings_per_step_max;
        let mut waiting = self.waiting_on_file(space, inode, len_max + 1);
        let mut truncated = waiting.len() > len_max;
        waiting.truncate(len_max);
        let waiters = waiting.len();
        for ticket in waiting {
            self.refuse_waiter(space, ticket, &Refusal::FileRemoved(inode), step);
        }
        let file = Scope::inode(inode);
        let (found, is_all) = self.first_grants_overlapping(space, &file, len_max - waiters);
        truncated |= !is_all;
        let grants = found.len();
        for grant in found {
            self.end_found(space, grant, &file, &Ending::FileRemoved, step);
        }
        Ok(Answer::FileRemoved { grants, waiters, truncated })
    }

    /// Some of those who wait for bytes of a file, by place.
    fn waiting_on_file(&self, space: NamespaceIdx, inode: u64, len_max: usize) -> Vec<Ticket> {
        let file = self.space(space).inodes.get(&inode);
        let queues = file.into_iter().flat_map(|file| file.queues.values());
        let mut waiting = BTreeSet::new();
        for (ticket, _) in queues.flat_map(Queue::iter) {
            if waiting.len() >= len_max {
                break;
            }
            waiting.insert(ticket);
        }
        waiting.into_iter().collect()
    }

    /// As much of it as is met first, by fence, and whether that is all.
    pub(crate) fn first_grants_overlapping(
        &self,
        space: NamespaceIdx,
        scope: &Scope,
        len_max: usize,
    ) -> (Vec<Blocker>, bool) {
        let mut all = self.space(space).grants_of(scope);
        let mut found: Vec<Blocker> = all.by_ref().take(len_max).collect();
        found.sort_by_cached_key(|grant| (self.fence_of(space, grant), grant.scope()));
        (found, all.next().is_none())
    }

    /// Ends a grant that was found before; an earlier ending may have taken it along.
    fn end_found(
        &mut self,
        space: NamespaceIdx,
        grant: Blocker,
        within: &Scope,
        ending: &Ending,
        step: &mut Step,
    ) {
        match grant {
            Blocker::Grant { key, fence, lease, .. } => {
                let held = self.space(space).leases.get(lease.0);
                let Some(held) = held.filter(|held| held.held.get(fence, &key).is_some()) else {
                    return;
                };
                let (id, over) = (held.id, held.is_over());
                if !over {
                    let namespace = self.space(space).name.clone();
                    self.tell_lost(namespace, id, Some(fence), ending, step);
                }
                self.end_fence(space, lease, fence, ending.clone(), step);
            }
            Blocker::Piece { inode, range, lease, owner } => {
                let within = match within {
                    Scope::Range { range, .. } => *range,
                    Scope::Key(_) => ByteRange::ALL,
                };
                let part = range.intersection(within).expect("it was found to overlap");
                let at = self.space(space);
                let (namespace, held) = (at.name.clone(), at.lease(lease));
                let party = Party { owner, lease };
                let fence = at.inodes[&inode].pieces[&(party, range.start())].fence();
                if !held.is_over() {
                    self.tell_lost(namespace, held.id, Some(fence), ending, step);
                }
                self.end_bytes(space, lease, owner, inode, part, ending.clone(), step);
            }
            Blocker::Waiter { .. } => {}
        }
    }
}

impl NamespaceState {
    /// The grants of one key, by token.
    pub(crate) fn grants_on<'a>(
        &'a self,
        key: &'a Key,
        holders: &'a Holders,
    ) -> impl Iterator<Item = Blocker> + 'a {
        let held = holders.iter().filter(|&(_, lease)| self.counts(lease));
        held.map(|(fence, lease)| {
            let grant = self.lease(lease).held.get(fence, key);
            let owner = grant.expect("a holder has its grant").owner;
            Blocker::Grant { key: key.clone(), fence, lease, owner }
        })
    }

    /// Everything held that overlaps the scope, reclaim windows too.
    fn grants_of<'a>(&'a self, scope: &'a Scope) -> Box<dyn Iterator<Item = Blocker> + 'a> {
        match scope {
            Scope::Key(key) => {
                let held = self.holders_overlapping(key, Mode::Exclusive);
                Box::new(held.flat_map(|(key, holders)| self.grants_on(key, holders)))
            }
            Scope::Range { inode, range } => {
                let at = self.inodes.get(inode).into_iter();
                let pieces = at.flat_map(|at| at.overlapping(*range));
                let pieces = pieces.filter(|(party, _)| self.counts(party.lease));
                Box::new(pieces.map(|(Party { owner, lease }, piece)| {
                    let range = piece.range;
                    Blocker::Piece { inode: *inode, range, lease, owner }
                }))
            }
        }
    }
}
