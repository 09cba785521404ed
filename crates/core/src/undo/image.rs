//! Images: what a lease holds before a change, whole or in the part that the change touches.

use std::collections::BTreeSet;

use super::{Image, Undo};
use crate::change::ranges_of;
use crate::fencing_token::FencingToken;
use crate::id::Owner;
use crate::inode::Party;
use crate::lease::{Lease, LeaseIdx};
use crate::namespace::NamespaceState;
use crate::owners::OwnerIdx;
use crate::range::ByteRange;
use crate::scope::Key;
use crate::snapshot::LeaseEntry;
use crate::snapshotting::{
    entry_of, grant_entry, header_of, piece_entry, request_entry, set_entry,
};
use crate::transition::{Granted, Transition};

impl Image {
    fn whole(space: &NamespaceState, lease: &Lease) -> Image {
        let entry = entry_of(space, lease);
        let remembered = entry.requests.iter().map(|made| pieces_with(lease, made.fence)).collect();
        Image { entry, remembered, part: None, ..Image::empty(space, lease) }
    }

    pub(super) fn empty(space: &NamespaceState, lease: &Lease) -> Image {
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
    pub(super) fn part(
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
    pub(super) fn is_lapsed(&self, lease: &Lease) -> bool {
        lease.is_lapsed() && self.entry.lapsed.is_none()
    }
}

fn pieces_with(lease: &Lease, token: FencingToken) -> usize {
    lease.held.byte_request(token).map_or(0, |made| made.pieces)
}

/// Bytes of a file, and who holds them.
type Bytes = (u64, OwnerIdx, ByteRange);

pub(super) fn undo_of_ending(at: &NamespaceState, lease: LeaseIdx, ended: &Transition) -> Undo {
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
pub(super) fn before_bytes(at: &NamespaceState, granted: &Granted) -> Vec<Image> {
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
pub(super) fn holders_of(entry: &LeaseEntry) -> BTreeSet<(Owner, Option<u64>)> {
    let keys = entry.grants.iter().map(|grant| (grant.owner.clone(), None));
    let bytes = entry.pieces.iter().map(|piece| (piece.owner.clone(), Some(piece.inode)));
    keys.chain(bytes).collect()
}
