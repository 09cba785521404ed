//! Taking back lasting changes that no store has kept: the table as it was at an earlier revision.
//!
//! Once [`LockTable::keep_undo`] was called, each transition leaves behind what it takes to undo it, until
//! [`LockTable::settle`] says that it is durable. An undone change has never happened: revision and fencing token go back
//! too, as nobody can have seen either. Waiters, deadlines of other leases and the grace stay as they are.

use std::collections::VecDeque;

use crate::change::Listener;
use crate::effect::Step;
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner, RegisterName, Revision, Ticket};
use crate::lease::{Held, Lease, LeaseIdx, LeaseState};
use crate::namespace::{Known, NamespaceIdx, NamespaceState};
use crate::queue::Waiter;
use crate::range::ByteRange;
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::snapshot::LeaseEntry;
use crate::snapshotting::{entry_of, grant_entry, header_of};
use crate::table::{LockTable, Unfit};
use crate::time::{Millis, Timestamp};
use crate::transition::{Ending, Granted, Transition};

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
    /// Names and paths granted under a lease that was there before.
    Keys {
        namespace: Namespace,
        lease: LeaseId,
        fence: FencingToken,
    },
    /// Names and paths that ended.
    Ended(Box<Image>),
    /// Leases as they were, with everything under them; and the one that was opened.
    Leases {
        before: Vec<Image>,
        opened: Option<(Namespace, LeaseId)>,
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
        fence: Option<FencingToken>,
    },
}

/// A lease with all or some of what stands under it, and what of it does not last.
#[derive(Clone, Debug)]
struct Image {
    entry: LeaseEntry,
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

    /// How many lasting changes can be undone.
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
            Transition::LeaseEnded { namespace, lease, .. }
            | Transition::GrantEnded { namespace, lease, .. } => {
                self.find_lease(namespace, *lease).is_some()
            }
            Transition::KeyEnded { namespace, lease, fence, key, .. } => self
                .find_lease(namespace, *lease)
                .is_some_and(|(at, lease)| at.lease(lease).held.get(*fence, key).is_some()),
            Transition::RangeEnded { namespace, lease, owner, .. } => self
                .find_lease(namespace, *lease)
                .is_some_and(|(at, _)| at.owners.find(owner).is_some()),
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
            Transition::LeaseLapsed { namespace, lease, .. }
            | Transition::LeaseEnded { namespace, lease, .. }
            | Transition::GrantEnded { namespace, lease, .. }
            | Transition::KeyEnded { namespace, lease, .. }
            | Transition::RangeEnded { namespace, lease, .. } => {
                match self.find_lease(namespace, *lease) {
                    Some((at, lease)) => undo_of_ending(at, at.lease(lease), transition),
                    None => Undo::Never,
                }
            }
            Transition::FenceAccepted { namespace, register, .. }
            | Transition::FenceDeleted { namespace, register, .. } => {
                let fence = self.register(namespace, register);
                Undo::Register { namespace: namespace.clone(), register: register.clone(), fence }
            }
        }
    }

    fn undo_of_grant(&self, granted: &Granted) -> Undo {
        let (namespace, lease) = (granted.namespace.clone(), granted.lease);
        let has_bytes =
            granted.claims.iter().any(|claim| matches!(claim.scope, Scope::Range { .. }));
        let opened = granted.opens.map(|_| (namespace.clone(), lease));
        match opened {
            Some((namespace, lease)) if !has_bytes => return Undo::Opened { namespace, lease },
            None if !has_bytes => {
                return Undo::Keys { namespace, lease, fence: granted.fence };
            }
            Some(_) | None => {}
        }
        let Some(at) = self.space_named(&namespace) else {
            return Undo::Leases { before: Vec::new(), opened };
        };
        let mut leases: Vec<LeaseIdx> = at.lease_no(lease).into_iter().collect();
        for claim in &granted.claims {
            if let Scope::Range { inode, range } = claim.scope {
                leases.extend(bytes_touched(at, &granted.owner, inode, range));
            }
        }
        leases.sort_unstable();
        leases.dedup();
        let before = leases.into_iter().map(|lease| Image::whole(at, at.lease(lease))).collect();
        Undo::Leases { before, opened }
    }

    fn undo_one(&mut self, undo: Undo, step: &mut Step) {
        match undo {
            Undo::Never => {}
            Undo::Opened { namespace, lease } => self.undo_opening(&namespace, lease, step),
            Undo::Keys { namespace, lease, fence } => {
                let space = self.space_or_insert(&namespace);
                if let Some(lease) = self.space(space).lease_no(lease) {
                    self.remove_stamped(space, lease, fence);
                }
            }
            Undo::Ended(image) => self.put_keys_back(*image),
            Undo::Leases { before, opened } => {
                // All of them first: what one of them has now may be what another had before.
                for image in &before {
                    self.empty(image);
                }
                if let Some((namespace, lease)) = opened {
                    self.undo_opening(&namespace, lease, step);
                }
                before.into_iter().for_each(|image| self.put_back(image));
            }
            Undo::Ttl { namespace, lease, ttl, deadline } => {
                let space = self.space_or_insert(&namespace);
                if let Some(lease) = self.space(space).lease_no(lease) {
                    self.before_change(space, lease);
                    self.space_mut(space).lease_mut(lease).ttl = ttl;
                    self.set_deadline(space, lease, deadline);
                }
            }
            Undo::Register { namespace, register, fence } => match fence {
                Some(fence) => self.registers.set(&namespace, register, fence),
                None => drop(self.registers.remove(&namespace, &register)),
            },
        }
    }

    fn undo_opening(&mut self, namespace: &Namespace, lease: LeaseId, step: &mut Step) {
        let space = self.space_or_insert(namespace);
        if let Some(lease) = self.space(space).lease_no(lease) {
            for ticket in self.space(space).waits_under(lease).collect::<Vec<_>>() {
                self.refuse_waiter(space, ticket, &Refusal::LeaseLost(None), step);
            }
            self.end_lease(space, lease, &Ending::Withdrawn, &mut Listener::Undoing);
        }
    }

    /// Takes the keys of a grant out of its lease.
    fn remove_stamped(&mut self, space: NamespaceIdx, lease: LeaseIdx, fence: FencingToken) {
        self.before_change(space, lease);
        for key in self.space(space).lease(lease).held.stamped(fence) {
            self.end_grant(space, lease, fence, &key, &Ending::Withdrawn, &mut Listener::Undoing);
        }
    }

    /// Takes everything out of a lease, if it is there. It stays, with those who wait under it.
    fn empty(&mut self, image: &Image) {
        let space = self.space_or_insert(&image.entry.namespace);
        if let Some(lease) = self.space(space).lease_no(image.entry.lease) {
            self.before_change(space, lease);
            self.end_all(space, lease, &Ending::Withdrawn, false, &mut Listener::Undoing);
            let at = self.space_mut(space);
            if let Held::Many(many) =
                std::mem::replace(&mut at.lease_mut(lease).held, Held::Nothing)
            {
                for (fence, made) in many.requests {
                    at.forget_request(made.owner, &made.request.id, fence);
                }
            }
        }
    }

    /// Puts a lease back that ended, or what it had into one that is empty now.
    fn put_back(&mut self, image: Image) {
        let space = self.space_or_insert(&image.entry.namespace);
        let holders = holders_of(&image.entry);
        match self.space(space).lease_no(image.entry.lease) {
            Some(lease) if image.is_lapsed(self.space(space).lease(lease)) => {
                self.end_lease(space, lease, &Ending::Withdrawn, &mut Listener::Undoing);
                self.add_image(space, image);
            }
            Some(lease) => {
                self.refill(space, lease, image.entry);
                self.arm_again(space, lease);
            }
            None => self.add_image(space, image),
        }
        self.hold_again(space, holders);
    }

    /// Puts names and paths back under their lease, which may have ended with the last of them.
    fn put_keys_back(&mut self, image: Image) {
        let space = self.space_or_insert(&image.entry.namespace);
        let holders = holders_of(&image.entry);
        match self.space(space).lease_no(image.entry.lease) {
            Some(lease) => {
                self.before_change(space, lease);
                self.refill(space, lease, image.entry);
                self.arm_again(space, lease);
            }
            None => self.add_image(space, image),
        }
        self.hold_again(space, holders);
    }

    fn add_image(&mut self, space: NamespaceIdx, image: Image) {
        let Image { entry, state, deadline, attached } = image;
        let Ok(lease) = self.add_lease_entry(entry) else { return };
        let held = self.space_mut(space).lease_mut(lease);
        (held.state, held.deadline) = (state, deadline);
        held.session.iter_mut().for_each(|session| session.attached = attached);
        self.recovering += usize::from(state == LeaseState::Recovering);
        self.arm(space, lease, deadline);
        self.arm_again(space, lease);
    }

    fn refill(&mut self, space: NamespaceIdx, lease: LeaseIdx, entry: LeaseEntry) {
        let filled = self.fill(space, lease, entry);
        debug_assert!(filled.is_ok(), "it was taken from this table: {filled:?}");
    }

    fn arm_again(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        if self.space(space).lease(lease).is_over() {
            self.arm_window(space, lease);
        }
    }

    /// Owners hold something again: that may close a cycle, or let a waiter of the same owner through.
    fn hold_again(&mut self, space: NamespaceIdx, holders: Vec<(Owner, Option<u64>)>) {
        for (owner, inode) in holders {
            self.note_weakened(space, &owner);
            let at = self.space_mut(space);
            if let (Some(owner), Some(inode)) = (at.owners.find(&owner), inode) {
                at.entangle_all(owner, inode);
            }
        }
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
    /// Why a waiting request would be refused if it came now.
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

impl Image {
    fn whole(space: &NamespaceState, lease: &Lease) -> Image {
        Image { entry: entry_of(space, lease), ..Image::header(space, lease) }
    }

    fn header(space: &NamespaceState, lease: &Lease) -> Image {
        Image {
            entry: header_of(space, lease),
            state: lease.state,
            deadline: lease.deadline,
            attached: lease.session.as_ref().is_some_and(|session| session.attached),
        }
    }

    /// Whether the lease has lapsed since.
    fn is_lapsed(&self, lease: &Lease) -> bool {
        lease.is_over() && self.entry.lapsed.is_none()
    }
}

/// What an ending takes away. Names and paths one by one, as there may be many under a session; with bytes, which merge
/// and split, the whole lease.
fn undo_of_ending(at: &NamespaceState, lease: &Lease, ended: &Transition) -> Undo {
    let has_bytes = match &lease.held {
        Held::Many(many) => {
            !(many.pieces.is_empty() && many.sets.is_empty() && many.requests.is_empty())
        }
        Held::Nothing | Held::One(_) => false,
    };
    let keys = match ended {
        Transition::GrantEnded { fence, .. } if !has_bytes => {
            lease.held.stamped(*fence).into_iter().map(|key| (*fence, key)).collect()
        }
        Transition::KeyEnded { fence, key, .. } if !has_bytes => vec![(*fence, key.clone())],
        Transition::EpochBegan { .. }
        | Transition::Jumped { .. }
        | Transition::SessionOpened(_)
        | Transition::Granted(_)
        | Transition::TtlChanged { .. }
        | Transition::LeaseLapsed { .. }
        | Transition::LeaseEnded { .. }
        | Transition::GrantEnded { .. }
        | Transition::KeyEnded { .. }
        | Transition::RangeEnded { .. }
        | Transition::FenceAccepted { .. }
        | Transition::FenceDeleted { .. } => {
            let before = vec![Image::whole(at, lease)];
            return Undo::Leases { before, opened: None };
        }
    };
    let mut image = Image::header(at, lease);
    for (fence, key) in keys {
        let grant = lease.held.get(fence, &key);
        image.entry.grants.extend(grant.map(|grant| grant_entry(at, grant)));
    }
    Undo::Ended(Box::new(image))
}

/// The leases under which the owner holds any of these bytes.
fn bytes_touched(
    at: &NamespaceState,
    owner: &Owner,
    inode: u64,
    range: ByteRange,
) -> Vec<LeaseIdx> {
    let (Some(owner), Some(file)) = (at.owners.find(owner), at.inodes.get(&inode)) else {
        return Vec::new();
    };
    let own = file.overlapping(range).filter(|(party, _)| party.owner == owner);
    own.map(|(_, piece)| piece.lease).collect()
}

/// Owners, and the files of which they hold bytes.
fn holders_of(entry: &LeaseEntry) -> Vec<(Owner, Option<u64>)> {
    let keys = entry.grants.iter().map(|grant| (grant.owner.clone(), None));
    let bytes = entry.pieces.iter().map(|piece| (piece.owner.clone(), Some(piece.inode)));
    keys.chain(bytes).collect()
}
