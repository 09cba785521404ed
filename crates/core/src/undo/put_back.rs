//! Putting back: an image takes the place of what a change has left.

use std::collections::BTreeSet;

use super::image::holders_of;
use super::{Image, Undo};
use crate::change::Listener;
use crate::effect::Step;
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner};
use crate::lease::{Held, LeaseIdx, LeaseState};
use crate::namespace::{Known, NamespaceIdx};
use crate::owners::OwnerIdx;
use crate::refusal::Refusal;
use crate::registers::Register;
use crate::table::LockTable;
use crate::time::Timestamp;
use crate::transition::{Ending, Request};

impl LockTable {
    pub(super) fn undo_one(&mut self, undo: Undo, step: &mut Step) {
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
    pub(super) fn empty(&mut self, image: &Image) {
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
}
