//! Taking back lasting changes that no store has kept: the table as it was at an earlier revision.
//!
//! Once [`LockTable::keep_undo`] was called, each transition leaves behind what it takes to undo it, until
//! [`LockTable::settle`] says that it is durable. An undone change has never happened: revision and fencing token go back
//! too, as nobody can have seen either. Waiters, deadlines of other leases and the grace stay as they are.

use std::collections::{BTreeSet, VecDeque};

use crate::change::{Listener, ranges_of};
use crate::effect::Step;
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner, RegisterName, Revision, Ticket};
use crate::inode::Party;
use crate::lease::{Held, Lease, LeaseIdx, LeaseState};
use crate::namespace::{Known, NamespaceIdx, NamespaceState};
use crate::owners::OwnerIdx;
use crate::queue::Waiter;
use crate::range::ByteRange;
use crate::refusal::Refusal;
use crate::registers::Register;
use crate::scope::{Key, Scope};
use crate::snapshot::LeaseEntry;
use crate::snapshotting::{
    entry_of, grant_entry, header_of, piece_entry, request_entry, set_entry,
};
use crate::table::{LockTable, Unfit};
use crate::time::{Millis, Timestamp};
use crate::transition::{Ending, Granted, Request, Transition};

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

    fn undo_one(&mut self, undo: Undo, step: &mut Step) {
        match undo {
            Undo::Never => {}
            Undo::Opened { namespace, lease } => self.undo_opening(&namespace, lease, step),
            Undo::Granted { namespace, lease, fence, opened, before } => {
                // All of them first: what one of them has now may be what another had before.
                for image in &before {
                    self.empty(image);
                }
                if opened {
                    self.undo_opening(&namespace, lease, step);
                } else {
                    let space = self.space_or_insert(&namespace);
                    if let Some(lease) = self.space(space).lease_no(lease) {
                        self.remove_stamped(space, lease, fence);
                    }
                }
                before.into_iter().for_each(|image| self.put_back(image));
            }
            Undo::Ended(image) => {
                self.empty(&image);
                self.put_back(*image);
            }
            Undo::Ending { namespace, lease, state, deadline } => {
                let space = self.space_or_insert(&namespace);
                if let Some(lease) = self.space(space).lease_no(lease) {
                    self.undo_ending(space, lease, state, deadline);
                }
            }
            Undo::Ttl { namespace, lease, ttl, deadline } => {
                let space = self.space_or_insert(&namespace);
                if let Some(lease) = self.space(space).lease_no(lease) {
                    self.before_change(space, lease);
                    self.space_mut(space).lease_mut(lease).ttl = ttl;
                    self.set_deadline(space, lease, deadline);
                }
            }
            Undo::Register { namespace, register, before } => match before {
                Some(Register { high_water, principal }) => {
                    self.registers.set(&namespace, register, &principal, high_water);
                }
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

    /// A lease that was marked as over stands again, with everything under it.
    fn undo_ending(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        state: LeaseState,
        deadline: Timestamp,
    ) {
        self.before_change(space, lease);
        self.ending.remove(&(space, lease));
        let at = &mut self.spaces[space.0];
        at.ending.remove(&lease);
        let held = at.lease_mut(lease);
        (held.state, held.deadline) = (state, deadline);
        let (owner, session) = (held.owner, held.session.clone());
        let grants: BTreeSet<OwnerIdx> = held.held.grants().map(|grant| grant.owner).collect();
        let pieces = held.held.pieces().into_iter().flatten().map(|&(_, owner, _)| owner);
        let owners: BTreeSet<OwnerIdx> = grants.into_iter().chain(pieces).collect();
        if let Some(session) = session {
            at.sessions.insert(session.terms.number, lease);
            if let Some(Request { id, digest }) = session.terms.request.clone() {
                at.requests.entry((owner, id)).or_insert(Known::Opened { lease, digest });
            }
            self.count_session(space, owner, &session);
        }
        self.recovering += usize::from(state == LeaseState::Recovering);
        self.arm(space, lease, deadline);
        for owner in owners {
            let owner = self.space(space).owners.name(owner).clone();
            self.note_weakened(space, &owner);
        }
    }

    /// Takes the names and paths of a grant out of its lease, and what is remembered of it.
    fn remove_stamped(&mut self, space: NamespaceIdx, lease: LeaseIdx, fence: FencingToken) {
        self.before_change(space, lease);
        for key in self.space(space).lease(lease).held.stamped(fence) {
            self.end_grant(space, lease, fence, &key, &Ending::Withdrawn, &mut Listener::Undoing);
        }
        if let Held::Many(many) = &mut self.space_mut(space).lease_mut(lease).held {
            many.sets.remove(&fence);
        }
        self.forget_byte_request(space, lease, fence);
    }

    /// Takes what an image shows out of its lease, if that is there. It stays, with those who wait under it.
    fn empty(&mut self, image: &Image) {
        let space = self.space_or_insert(&image.entry.namespace);
        let Some(lease) = self.space(space).lease_no(image.entry.lease) else { return };
        self.before_change(space, lease);
        let (ending, mut listener) = (Ending::Withdrawn, Listener::Undoing);
        if let Some(part) = &image.part {
            for (inode, owner, range) in part {
                if let Some(owner) = self.space(space).owners.find(owner) {
                    self.end_range(space, lease, owner, *inode, *range, &ending, &mut listener);
                }
            }
            return;
        }
        self.end_all(space, lease, &ending, false, &mut listener);
        let at = self.space_mut(space);
        if let Held::Many(many) = std::mem::replace(&mut at.lease_mut(lease).held, Held::Nothing) {
            for (fence, made) in many.requests {
                at.forget_request(made.owner, &made.request.id, fence);
            }
        }
    }

    /// Puts a lease back that ended, or what it had into one that has it no more.
    fn put_back(&mut self, image: Image) {
        let space = self.space_or_insert(&image.entry.namespace);
        let holders = holders_of(&image.entry);
        match self.space(space).lease_no(image.entry.lease) {
            Some(lease) if image.is_lapsed(self.space(space).lease(lease)) => {
                self.end_lease(space, lease, &Ending::Withdrawn, &mut Listener::Undoing);
                self.add_image(space, image);
            }
            Some(lease) => {
                self.refill(space, lease, image);
                self.arm_again(space, lease);
            }
            None => self.add_image(space, image),
        }
        self.hold_again(space, holders);
    }

    fn add_image(&mut self, space: NamespaceIdx, image: Image) {
        let Image { entry, state, deadline, attached, part: _, remembered: _ } = image;
        let Ok(lease) = self.add_lease_entry(entry) else { return };
        let held = self.space_mut(space).lease_mut(lease);
        (held.state, held.deadline) = (state, deadline);
        held.session.iter_mut().for_each(|session| session.attached = attached);
        self.recovering += usize::from(state == LeaseState::Recovering);
        if state != LeaseState::Ending {
            self.arm(space, lease, deadline);
            self.arm_again(space, lease);
        }
    }

    fn refill(&mut self, space: NamespaceIdx, lease: LeaseIdx, image: Image) {
        let Image { mut entry, remembered, .. } = image;
        let tokens: Vec<FencingToken> = entry.requests.iter().map(|made| made.fence).collect();
        let held = &self.space(space).lease(lease).held;
        entry.requests.retain(|made| held.byte_request(made.fence).is_none());
        let filled = self.fill(space, lease, entry);
        debug_assert!(filled.is_ok(), "it was taken from this table: {filled:?}");
        // Pieces that the change did not touch may remember the same tokens.
        for (token, pieces) in tokens.into_iter().zip(remembered) {
            let many = self.space_mut(space).lease_mut(lease).held.many();
            many.requests.entry(token).and_modify(|made| made.pieces = pieces);
        }
    }

    fn arm_again(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        if self.space(space).lease(lease).is_lapsed() {
            self.arm_window(space, lease);
        }
    }

    /// Owners hold something again: that may close a cycle, or let a waiter of the same owner through.
    fn hold_again(&mut self, space: NamespaceIdx, holders: BTreeSet<(Owner, Option<u64>)>) {
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

impl Image {
    fn whole(space: &NamespaceState, lease: &Lease) -> Image {
        let entry = entry_of(space, lease);
        let remembered = entry.requests.iter().map(|made| pieces_with(lease, made.fence)).collect();
        Image { entry, remembered, part: None, ..Image::empty(space, lease) }
    }

    fn empty(space: &NamespaceState, lease: &Lease) -> Image {
        Image {
            entry: header_of(space, lease),
            part: Some(Vec::new()),
            remembered: Vec::new(),
            state: lease.state,
            deadline: lease.deadline,
            attached: lease.session.as_ref().is_some_and(|session| session.attached),
        }
    }

    /// Names and paths granted with a token, the pieces that lie in these ranges, and what is remembered of the tokens
    /// of both.
    fn part(
        space: &NamespaceState,
        lease: LeaseIdx,
        fence: Option<FencingToken>,
        keys: &[Key],
        ranges: &[Bytes],
    ) -> Image {
        let held = space.lease(lease);
        let mut image = Image::empty(space, held);
        let mut tokens = BTreeSet::from_iter(fence);
        let grants = keys.iter().filter_map(|key| held.held.get(fence?, key));
        image.entry.grants = grants.map(|grant| grant_entry(space, grant)).collect();
        let mut pieces = BTreeSet::new();
        for &(inode, owner, range) in ranges {
            let own =
                space.inodes.get(&inode).map(|at| at.own_pieces(Party { owner, lease }, range));
            for piece in own.into_iter().flatten() {
                if pieces.insert((inode, owner, piece.range.start())) {
                    tokens.extend(piece.tokens.as_slice());
                    image.entry.pieces.push(piece_entry(space, inode, owner, piece));
                }
            }
        }
        let is_all = image.entry.grants.len() + pieces.len() == held.held.len();
        if is_all && held.session.is_none() {
            // It ends with the last of what it has.
            return Image::whole(space, held);
        }
        for token in tokens {
            if let Some(made) = held.held.byte_request(token) {
                image.entry.requests.push(request_entry(space, token, made));
                image.remembered.push(made.pieces);
            }
        }
        let set = fence.and_then(|fence| Some((fence, held.held.set(fence)?)));
        image.entry.sets = set.into_iter().map(|(fence, set)| set_entry(fence, set)).collect();
        let named = |&(inode, owner, range)| (inode, space.owners.name(owner).clone(), range);
        image.part = Some(ranges.iter().map(named).collect());
        image
    }

    /// Whether the lease has lapsed since.
    fn is_lapsed(&self, lease: &Lease) -> bool {
        lease.is_lapsed() && self.entry.lapsed.is_none()
    }
}

fn pieces_with(lease: &Lease, token: FencingToken) -> usize {
    lease.held.byte_request(token).map_or(0, |made| made.pieces)
}

/// Bytes of a file, and who holds them.
type Bytes = (u64, OwnerIdx, ByteRange);

fn undo_of_ending(at: &NamespaceState, lease: LeaseIdx, ended: &Transition) -> Undo {
    let held = &at.lease(lease).held;
    let image = match ended {
        Transition::GrantEnded { fence, .. } => {
            let ranges = held.set(*fence).map_or(Vec::new(), |set| {
                let bytes = set.ranges.iter();
                bytes
                    .flat_map(|(inode, range)| pieces_of(at, lease, &set.owner, *inode, *range))
                    .collect()
            });
            Image::part(at, lease, Some(*fence), &held.stamped(*fence), &ranges)
        }
        Transition::KeyEnded { fence, key, .. } => {
            Image::part(at, lease, Some(*fence), std::slice::from_ref(key), &[])
        }
        Transition::RangeEnded { owner, inode, range, .. } => {
            let ranges = pieces_of(at, lease, owner, *inode, *range);
            Image::part(at, lease, None, &[], &ranges)
        }
        Transition::EpochBegan { .. }
        | Transition::Jumped { .. }
        | Transition::SessionOpened(_)
        | Transition::Granted(_)
        | Transition::TtlChanged { .. }
        | Transition::LeaseLapsed { .. }
        | Transition::LeaseEnding { .. }
        | Transition::LeaseEnded { .. }
        | Transition::FenceAccepted { .. }
        | Transition::FenceDeleted { .. } => Image::whole(at, at.lease(lease)),
    };
    Undo::Ended(Box::new(image))
}

/// The pieces under a lease that overlap these bytes.
fn pieces_of(
    at: &NamespaceState,
    lease: LeaseIdx,
    owner: &Owner,
    inode: u64,
    range: ByteRange,
) -> Vec<Bytes> {
    let (Some(owner), Some(file)) = (at.owners.find(owner), at.inodes.get(&inode)) else {
        return Vec::new();
    };
    let own = file.own_overlapping(Party { owner, lease }, range).into_iter();
    own.map(|own| (inode, owner, own)).collect()
}

/// Leases as they are before bytes are granted: the one under which they are, with the pieces that they merge with or lie
/// over, and those out of whose reclaim windows they are taken.
fn before_bytes(at: &NamespaceState, granted: &Granted) -> Vec<Image> {
    let ranges = ranges_of(granted);
    let under = at.lease_no(granted.lease);
    let Some(owner) = at.owners.find(&granted.owner) else {
        let named = |(inode, range)| (inode, granted.owner.clone(), range);
        let part = Some(ranges.into_iter().map(named).collect::<Vec<_>>());
        let under = under.filter(|_| part.as_ref().is_some_and(|part| !part.is_empty()));
        let image = under.map(|lease| Image { part, ..Image::empty(at, at.lease(lease)) });
        return image.into_iter().collect();
    };
    let mut touched: Vec<(LeaseIdx, Bytes)> = Vec::new();
    for (inode, range) in ranges {
        let file = at.inodes.get(&inode);
        if let Some(lease) = under {
            let own = file.map(|file| file.own_touching(Party { owner, lease }, range));
            let all = own.into_iter().flatten().fold(range, ByteRange::union);
            touched.push((lease, (inode, owner, all)));
        }
        let lapsed = file.map(|file| at.lapsed_bytes(file, range, owner));
        let lapsed = lapsed.into_iter().flatten();
        touched.extend(lapsed.map(|(old, piece)| (old.lease, (inode, owner, piece.range))));
    }
    touched.sort_unstable();
    touched.dedup();
    let by_lease = touched.chunk_by(|(one, _), (other, _)| one == other);
    let image = |touched: &[(LeaseIdx, Bytes)]| {
        let ranges: Vec<Bytes> = touched.iter().map(|(_, bytes)| *bytes).collect();
        Image::part(at, touched[0].0, None, &[], &ranges)
    };
    by_lease.map(image).collect()
}

/// Owners, and the files of which they hold bytes.
fn holders_of(entry: &LeaseEntry) -> BTreeSet<(Owner, Option<u64>)> {
    let keys = entry.grants.iter().map(|grant| (grant.owner.clone(), None));
    let bytes = entry.pieces.iter().map(|piece| (piece.owner.clone(), Some(piece.inode)));
    keys.chain(bytes).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::command::{Acquire, Claim, Command, Release, Under, Unlock, Wait};
    use crate::effect::{Answer, Grant, Outcome};
    use crate::id::{CallId, RequestId};
    use crate::mode::Mode;

    /// Names, and as many pieces of a file.
    const LOCKS: u64 = 1_000;

    struct Session {
        table: LockTable,
        asked: u64,
    }

    impl Session {
        fn acquire(&mut self, locks: &[&str], mode: Mode, has_id: bool) -> Grant {
            let id = LeaseId::from_u128(1);
            self.asked += 1;
            let scopes = locks.iter().map(|lock| Scope::parse(lock).unwrap());
            let acquire = Acquire {
                call: CallId(self.asked),
                namespace: Namespace::default(),
                owner: Owner::new("a").unwrap(),
                claims: scopes.map(|scope| Claim { scope, mode }).collect(),
                under: match self.asked {
                    1 => Under::NewLease { id, ttl: Duration::from_secs(60) },
                    _ => Under::Session(id),
                },
                wait: Wait::Never,
                keep_place: false,
                ticket: None,
                request_id: has_id.then(|| RequestId::new(&format!("r{}", self.asked)).unwrap()),
                reclaim_window: Duration::ZERO,
                reclaim: false,
                metadata: None,
            };
            let outcome = self.handle(Command::Acquire(acquire));
            let Outcome::Answered(Answer::Granted(grant)) = outcome else { panic!("{outcome:?}") };
            *grant
        }

        fn handle(&mut self, command: Command) -> Outcome {
            self.table.handle(Timestamp::ZERO, command, &mut Step::new())
        }

        /// The number of grants, pieces and requests that the newest change keeps to be undone.
        fn kept(&self) -> usize {
            let len = |image: &Image| {
                let LeaseEntry { grants, pieces, requests, .. } = &image.entry;
                grants.len() + pieces.len() + requests.len()
            };
            match self.table.undo.as_ref().and_then(|log| log.0.back()) {
                Some((_, Undo::Granted { before, .. })) => before.iter().map(len).sum(),
                Some((_, Undo::Ended(image))) => len(image),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn change_of_a_large_session_keeps_what_it_touches() {
        let mut session = Session { table: LockTable::new(crate::Limits::default(), 1), asked: 0 };
        session.table.keep_undo();
        let mut last = None;
        for number in 0..LOCKS {
            let bytes = format!("inode:1@{}..{}", number * 10, number * 10 + 5);
            session.acquire(&[&bytes], Mode::Shared, true);
            last = Some(session.acquire(&[&format!("n/{number}")], Mode::Exclusive, true));
        }
        let before = (session.table.revision(), session.table.digest());
        // Alone, between two pieces that it merges with, and over three.
        for (bytes, kept) in [("inode:2@0..5", 0), ("inode:1@105..110", 4), ("inode:1@200..225", 6)]
        {
            session.acquire(&[bytes], Mode::Shared, true);
            assert_eq!(session.kept(), kept, "{bytes}");
        }
        session.acquire(&["inode:1@302..304"], Mode::Exclusive, false);
        assert_eq!(session.kept(), 2, "a piece, and the request that it was granted for");
        let set = session.acquire(&["set", "inode:1@406..408"], Mode::Exclusive, true);
        assert_eq!(session.kept(), 0);
        let (namespace, owner) = (Namespace::default(), Owner::new("a").unwrap());
        let range = ByteRange::inclusive(502, 512).unwrap();
        let unlock = Unlock { namespace, session: set.lease, owner, inode: 1, range };
        assert_eq!(
            session.handle(Command::Unlock(unlock)),
            Outcome::Answered(Answer::Unlocked { changed: true })
        );
        assert_eq!(session.kept(), 4, "two pieces and their requests");
        for (grant, scope, kept) in
            [(set, "set", 4), (last.unwrap(), &format!("n/{}", LOCKS - 1), 1)]
        {
            let release = Release {
                namespace: Namespace::default(),
                scope: Scope::parse(scope).unwrap(),
                owner: grant.owner.clone(),
                lease: grant.lease,
                fence: grant.fence,
            };
            let released = session.handle(Command::Release(release));
            assert!(matches!(released, Outcome::Answered(Answer::Released { .. })), "{released:?}");
            assert!(session.kept() <= kept, "{} of {grant:?}", session.kept());
        }
        session.table.roll_back(before.0, &mut Step::new());
        assert_eq!(session.table.digest(), before.1);
    }
}
