//! Taking back lasting changes that no store has kept: the table as it was at an earlier revision.
//!
//! Once [`LockTable::keep_undo`] was called, each transition leaves behind what it takes to undo it, until
//! [`LockTable::settle`] says that it is durable. An undone change has never happened: revision and fencing token go back
//! too, as nobody can have seen either. Waiters, deadlines of other leases and the grace stay as they are.

mod image;
mod put_back;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use image::{before_bytes, undo_of_ending};

use crate::change::Listener;
use crate::effect::Step;
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner, RegisterName, Revision, Ticket};
use crate::inode::Party;
use crate::lease::{LeaseIdx, LeaseState};
use crate::namespace::{Known, NamespaceIdx, NamespaceState};
use crate::queue::Waiter;
use crate::range::ByteRange;
use crate::refusal::Refusal;
use crate::registers::Register;
use crate::scope::Scope;
use crate::snapshot::LeaseEntry;
use crate::table::{LockTable, Unfit};
use crate::time::{Millis, Timestamp};
use crate::transition::{Granted, Transition};

/// The changes that can be undone, oldest first, each with the fencing token before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct UndoLog(VecDeque<(FencingToken, Undo)>);

#[derive(Clone, Debug)]
enum Undo {
    /// The beginning of an epoch stays.
    Never,
    Opened {
        namespace: Namespace,
        lease: LeaseId,
    },
    /// Granted, under a lease that was opened with it or was there before. What its bytes lie over now is in the images.
    Granted {
        namespace: Namespace,
        lease: LeaseId,
        fence: FencingToken,
        opened: bool,
        before: Vec<Image>,
    },
    /// A lease that ended or lapsed, or what of it did.
    Ended(Box<Image>),
    /// A lease was marked as over.
    Ending {
        namespace: Namespace,
        lease: LeaseId,
        state: LeaseState,
        deadline: Timestamp,
    },
    Ttl {
        namespace: Namespace,
        lease: LeaseId,
        ttl: Millis,
        deadline: Timestamp,
    },
    Register {
        namespace: Namespace,
        register: RegisterName,
        before: Option<Register>,
    },
}

/// A lease as it was, with all that stood under it or only what a change touches: a session may hold a hundred thousand
/// locks. And what of it does not last.
#[derive(Clone, Debug)]
struct Image {
    entry: LeaseEntry,
    /// The bytes that the change touches, by file and owner. `None`: the entry is the whole lease.
    part: Option<Vec<(u64, Owner, ByteRange)>>,
    /// The number of pieces under the lease that remembered the token of each request in the entry.
    remembered: Vec<usize>,
    state: LeaseState,
    deadline: Timestamp,
    attached: bool,
}

impl LockTable {
    /// From now on every lasting change can be undone, until it is settled.
    pub fn keep_undo(&mut self) {
        self.undo = Some(UndoLog::default());
    }

    /// Everything up to this revision is durable.
    pub fn settle(&mut self, durable: Revision) {
        let Some(log) = &mut self.undo else { return };
        let open = usize::try_from(self.revision.0 - durable.0).unwrap_or(usize::MAX);
        let len = log.0.len().saturating_sub(open);
        log.0.drain(..len);
    }

    /// The number of lasting changes that can be undone.
    pub fn undo_len(&self) -> usize {
        self.undo.as_ref().map_or(0, |log| log.0.len())
    }

    /// Undoes every lasting change after a revision, as far as they are remembered. Waiting requests that would not have
    /// been let in are refused.
    pub fn roll_back(&mut self, to: Revision, step: &mut Step) {
        self.look_back(to, step);
        self.refuse_unfit_waiters(step);
        self.freed.clear();
    }

    /// The same for a moment, until the changes are applied again: waiting requests stay.
    pub fn look_back(&mut self, to: Revision, step: &mut Step) {
        while self.revision > to
            && let Some((fence, undo)) = self.undo.as_mut().and_then(|log| log.0.pop_back())
        {
            self.undo_one(undo, step);
            self.revision.0 -= 1;
            self.fence = fence;
        }
        self.endings.roll_back(self.revision);
        self.freed.clear();
    }

    /// Requests that wait with another limit than is in use again, or by an id that leads to a grant again.
    fn refuse_unfit_waiters(&mut self, step: &mut Step) {
        let mut unfit = Vec::new();
        for (space, at) in self.spaces_by_name() {
            for (&ticket, waiter) in &at.waiters {
                unfit.extend(at.unfit_after_undo(ticket, waiter).map(|why| (space, ticket, why)));
            }
        }
        for (space, ticket, refusal) in unfit {
            self.refuse_waiter(space, ticket, &refusal, step);
        }
    }

    /// Makes an ending again that was rolled back, if what it ends is there.
    pub fn end_again(&mut self, ended: Transition, step: &mut Step) {
        let is_there = match &ended {
            Transition::LeaseEnding { namespace, lease, .. } => self
                .find_lease(namespace, *lease)
                .is_some_and(|(at, lease)| !at.lease(lease).is_over()),
            Transition::LeaseEnded { namespace, lease, .. }
            | Transition::GrantEnded { namespace, lease, .. } => {
                self.find_lease(namespace, *lease).is_some()
            }
            Transition::KeyEnded { namespace, lease, fence, key, .. } => self
                .find_lease(namespace, *lease)
                .is_some_and(|(at, lease)| at.lease(lease).held.get(*fence, key).is_some()),
            Transition::RangeEnded { namespace, lease, owner, inode, range, .. } => {
                self.find_lease(namespace, *lease).is_some_and(|(at, lease)| {
                    let (owner, file) = (at.owners.find(owner), at.inodes.get(inode));
                    owner.zip(file).is_some_and(|(owner, file)| {
                        !file.own_overlapping(Party { owner, lease }, *range).is_empty()
                    })
                })
            }
            Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::SessionOpened(_)
            | Transition::Granted(_)
            | Transition::TtlChanged { .. }
            | Transition::LeaseLapsed { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => false,
        };
        if is_there {
            self.enact(ended, step);
        }
    }

    /// The ttl that a lease has, if there is one.
    pub fn ttl_of(&self, namespace: &Namespace, lease: LeaseId) -> Option<Millis> {
        let (at, lease) = self.find_lease(namespace, lease)?;
        Some(at.lease(lease).ttl)
    }

    fn find_lease(
        &self,
        namespace: &Namespace,
        lease: LeaseId,
    ) -> Option<(&NamespaceState, LeaseIdx)> {
        let at = self.space_named(namespace)?;
        Some((at, at.lease_no(lease)?))
    }

    /// Remembers how to undo a change that is about to be made.
    pub(crate) fn note_undo(&mut self, transition: &Transition) {
        if self.undo.is_some() {
            let undo = self.undo_of(transition);
            let fence = self.fence;
            if let Some(log) = &mut self.undo {
                log.0.push_back((fence, undo));
            }
        }
    }

    /// The change did not fit and was not made.
    pub(crate) fn forget_last_undo(&mut self) {
        self.undo.iter_mut().for_each(|log| drop(log.0.pop_back()));
    }

    fn undo_of(&self, transition: &Transition) -> Undo {
        match transition {
            Transition::EpochBegan { .. } | Transition::Jumped { .. } => Undo::Never,
            Transition::SessionOpened(opened) => {
                Undo::Opened { namespace: opened.namespace.clone(), lease: opened.lease }
            }
            Transition::Granted(granted) => self.undo_of_grant(granted),
            Transition::TtlChanged { namespace, lease, .. } => {
                let Some((at, found)) = self.find_lease(namespace, *lease) else {
                    return Undo::Never;
                };
                let held = at.lease(found);
                let (namespace, lease) = (namespace.clone(), *lease);
                Undo::Ttl { namespace, lease, ttl: held.ttl, deadline: held.deadline }
            }
            Transition::LeaseEnding { namespace, lease, .. } => {
                let Some((at, found)) = self.find_lease(namespace, *lease) else {
                    return Undo::Never;
                };
                let held = at.lease(found);
                let (namespace, lease) = (namespace.clone(), *lease);
                Undo::Ending { namespace, lease, state: held.state, deadline: held.deadline }
            }
            Transition::LeaseLapsed { namespace, lease, .. }
            | Transition::LeaseEnded { namespace, lease, .. }
            | Transition::GrantEnded { namespace, lease, .. }
            | Transition::KeyEnded { namespace, lease, .. }
            | Transition::RangeEnded { namespace, lease, .. } => {
                match self.find_lease(namespace, *lease) {
                    Some((at, lease)) => undo_of_ending(at, lease, transition),
                    None => Undo::Never,
                }
            }
            Transition::FenceAccepted { namespace, register, .. }
            | Transition::FenceDeleted { namespace, register, .. } => {
                let before = self.registers.find(namespace, register).cloned();
                Undo::Register { namespace: namespace.clone(), register: register.clone(), before }
            }
        }
    }

    fn undo_of_grant(&self, granted: &Granted) -> Undo {
        let (namespace, lease) = (granted.namespace.clone(), granted.lease);
        let opened = granted.opens.is_some();
        let before = match self.space_named(&namespace) {
            Some(at) => before_bytes(at, granted),
            None => Vec::new(),
        };
        if opened && before.is_empty() {
            return Undo::Opened { namespace, lease };
        }
        Undo::Granted { namespace, lease, fence: granted.fence, opened, before }
    }

    /// Makes a change again that was undone and turned out to be durable. The next command deals with what follows from
    /// it: waiters to look at again, cycles that it closes.
    pub fn redo(&mut self, transition: &Transition) -> Result<(), Unfit> {
        self.change(transition, &mut Listener::Nobody)?;
        if let Transition::Granted(granted) = transition
            && let Some(space) = self.namespace_idx(&granted.namespace)
        {
            self.note_weakened(space, &granted.owner);
        }
        Ok(())
    }

    /// An owner that waits holds something again: that may close a cycle.
    fn note_weakened(&mut self, space: NamespaceIdx, owner: &Owner) {
        let at = self.space(space);
        let waits = at.owners.find(owner).is_some_and(|owner| at.waits_of(owner).next().is_some());
        if waits {
            let weakened = (at.name.clone(), owner.clone());
            self.weakened.insert(weakened);
        }
    }
}

impl NamespaceState {
    /// The refusal that a waiting request would get if it came now.
    fn unfit_after_undo(&self, ticket: Ticket, waiter: &Waiter) -> Option<Refusal> {
        for claim in &waiter.request.claims {
            if let Scope::Key(key) = &claim.scope
                && let Some(current) = self.held.get(key).map(|holders| holders.mode())
                && current.permits() != claim.mode.permits()
            {
                let (scope, asked) = (claim.scope.clone(), claim.mode);
                return Some(Refusal::LimitMismatch { scope, current, asked });
            }
        }
        let id = waiter.request.request_id.clone()?;
        let known = self.requests.get(&(waiter.owner, id));
        (known != Some(&Known::Waiting(ticket))).then_some(Refusal::Suspended)
    }
}
