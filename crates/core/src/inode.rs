//! The byte-range locks of one file, as fcntl(2) keeps them.
//!
//! Each owner's pieces are disjoint, and two pieces that touch differ in mode or lease: the canonical form. Locking
//! over an own piece replaces it, unlocking the middle of one splits it.

use std::collections::BTreeMap;

use crate::fence::Fence;
use crate::id::Ticket;
use crate::lease::{Extra, LeaseNo};
use crate::mode::Mode;
use crate::owners::OwnerNo;
use crate::queue::{InQueue, Queue};
use crate::range::ByteRange;
use crate::spans::Spans;
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    /// By owner and first byte.
    pub(crate) pieces: BTreeMap<(OwnerNo, u64), Piece>,
    /// Where all the pieces are.
    spans: Spans<OwnerNo>,
    /// The waiters, by the range they want.
    pub(crate) queues: BTreeMap<ByteRange, Queue>,
    /// Where all the queues are.
    queued: Spans<()>,
    /// Waiters whose owner holds bytes of this file or waits for more of it. Their own pieces and waiters do not
    /// block them, so that the queue in front of them does not tell whether they can be granted.
    entangled: Spans<Ticket>,
}

/// Bytes that one owner holds in one mode under one lease.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) range: ByteRange,
    pub(crate) mode: Mode,
    pub(crate) lease: LeaseNo,
    /// The lowest and the highest of the fences that merged into it.
    pub(crate) fences: (Fence, Fence),
    pub(crate) granted_at: Timestamp,
    pub(crate) reclaim_window: Millis,
    pub(crate) extra: Option<Box<Extra>>,
}

impl Piece {
    /// Whether a holder may show this fence for it.
    pub(crate) fn honours(&self, fence: Fence) -> bool {
        self.fences.0 <= fence && fence <= self.fences.1
    }
}

impl Inode {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.queues.is_empty()
    }

    pub(crate) fn insert(&mut self, owner: OwnerNo, piece: Piece) {
        self.spans.insert(piece.range, owner);
        self.pieces.insert((owner, piece.range.start()), piece);
    }

    pub(crate) fn remove(&mut self, owner: OwnerNo, start: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&(owner, start))?;
        self.spans.remove(piece.range, owner);
        Some(piece)
    }

    /// Pieces of anybody that overlap `range`.
    pub(crate) fn overlapping(
        &self,
        range: ByteRange,
    ) -> impl Iterator<Item = (OwnerNo, &Piece)> + '_ {
        self.spans.overlapping(range).map(|(found, owner)| {
            let piece = self.pieces.get(&(owner, found.start()));
            (owner, piece.expect("every span has its piece"))
        })
    }

    /// An owner's own pieces that overlap `range` or lie right beside it, in order.
    pub(crate) fn own_touching(&self, owner: OwnerNo, range: ByteRange) -> Vec<ByteRange> {
        let before = self.pieces.range((owner, 0)..(owner, range.start())).next_back();
        let end = range.last().saturating_add(1);
        let inside = self.pieces.range((owner, range.start())..=(owner, end));
        before
            .into_iter()
            .chain(inside)
            .map(|(_, piece)| piece.range)
            .filter(|own| own.touches(range))
            .collect()
    }

    pub(crate) fn own_overlapping(&self, owner: OwnerNo, range: ByteRange) -> Vec<ByteRange> {
        let mut own = self.own_touching(owner, range);
        own.retain(|own| own.overlaps(range));
        own
    }

    /// Whether the owner holds every byte of `range`, and in a way that `counts`.
    pub(crate) fn covered_by(
        &self,
        owner: OwnerNo,
        range: ByteRange,
        counts: impl Fn(&Piece) -> bool,
    ) -> bool {
        let mut next = range.start();
        for own in self.own_overlapping(owner, range) {
            let piece = &self.pieces[&(owner, own.start())];
            if own.start() > next || !counts(piece) {
                return false;
            }
            match own.end() {
                Some(end) if own.last() < range.last() => next = end,
                Some(_) | None => return true,
            }
        }
        false
    }

    pub(crate) fn has_pieces_of(&self, owner: OwnerNo) -> bool {
        self.pieces.range((owner, 0)..=(owner, u64::MAX)).next().is_some()
    }

    pub(crate) fn enqueue(&mut self, range: ByteRange, place: InQueue) {
        self.queues.entry(range).or_default().insert(place);
        self.queued.insert(range, ());
    }

    pub(crate) fn dequeue(&mut self, range: ByteRange, ticket: Ticket) {
        if let Some(queue) = self.queues.get_mut(&range) {
            queue.remove(ticket);
            if queue.is_empty() {
                self.queues.remove(&range);
                self.queued.remove(range, ());
            }
        }
        self.entangled.remove(range, ticket);
    }

    pub(crate) fn entangle(&mut self, range: ByteRange, ticket: Ticket) {
        self.entangled.insert(range, ticket);
    }

    pub(crate) fn entangled_with(
        &self,
        range: ByteRange,
    ) -> impl Iterator<Item = (ByteRange, Ticket)> {
        self.entangled.overlapping(range)
    }

    /// The queues for ranges that overlap `range`.
    pub(crate) fn queues_overlapping(
        &self,
        range: ByteRange,
    ) -> impl Iterator<Item = (ByteRange, &Queue)> + '_ {
        self.queued.overlapping(range).map(|(found, ())| (found, &self.queues[&found]))
    }
}
