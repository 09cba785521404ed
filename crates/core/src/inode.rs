//! The byte-range locks of one file, as fcntl(2) keeps them.
//!
//! A holder of bytes is an owner under one lease; the same owner name under another lease is another holder. Each
//! holder's pieces are disjoint, and two pieces that touch differ in mode: the canonical form. Locking over an own piece
//! replaces it, unlocking the middle of one splits it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::fencing_token::FencingToken;
use crate::id::Ticket;
use crate::lease::LeaseIdx;
use crate::mode::Mode;
use crate::owners::OwnerIdx;
use crate::queue::{InQueue, Queue};
use crate::quota::Hold;
use crate::range::ByteRange;
use crate::scope::Scope;
use crate::spans::Spans;
use crate::time::{Millis, Timestamp};
use crate::tokens::Tokens;

/// A holder of bytes: an owner under one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Party {
    pub(crate) owner: OwnerIdx,
    pub(crate) lease: LeaseIdx,
}

impl Party {
    /// Before and after every holder of that owner name.
    fn all_of(owner: OwnerIdx) -> (Party, Party) {
        (Party { owner, lease: LeaseIdx(0) }, Party { owner, lease: LeaseIdx(u32::MAX) })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    /// By holder and first byte.
    pub(crate) pieces: BTreeMap<(Party, u64), Piece>,
    /// The shared pieces, and the others: a shared request need not look at the former.
    shared: Spans<Party>,
    unshared: Spans<Party>,
    /// All pieces as they are listed.
    listed: BTreeSet<(ByteRange, FencingToken, Party)>,
    /// The waiters, by the range they want.
    pub(crate) queues: BTreeMap<ByteRange, Queue>,
    /// The index of all queues.
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
    pub(crate) lease: LeaseIdx,
    pub(crate) tokens: Tokens,
    pub(crate) granted_at: Timestamp,
    pub(crate) reclaim_window: Millis,
    pub(crate) metadata: Option<Arc<str>>,
}

impl Piece {
    /// The kind it is counted as.
    pub(crate) fn hold(&self, inode: u64) -> Hold {
        let bytes = self.metadata.as_ref().map_or(0, |metadata| metadata.len());
        Hold { kind: Scope::range(inode, self.range).kind(), mode: self.mode, bytes }
    }

    /// Whether its holder may show this token for it.
    pub(crate) fn honours(&self, token: FencingToken) -> bool {
        self.tokens.contains(token)
    }

    /// The token that it is shown with.
    pub(crate) fn fence(&self) -> FencingToken {
        self.tokens.highest()
    }
}

impl Inode {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.queues.is_empty()
    }

    pub(crate) fn insert(&mut self, party: Party, piece: Piece) {
        self.spans_mut(piece.mode).insert(piece.range, party);
        self.listed.insert((piece.range, piece.fence(), party));
        self.pieces.insert((party, piece.range.start()), piece);
    }

    pub(crate) fn remove(&mut self, party: Party, start: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&(party, start))?;
        self.spans_mut(piece.mode).remove(piece.range, party);
        self.listed.remove(&(piece.range, piece.fence(), party));
        Some(piece)
    }

    fn spans_mut(&mut self, mode: Mode) -> &mut Spans<Party> {
        if mode == Mode::Shared { &mut self.shared } else { &mut self.unshared }
    }

    /// Pieces of any holder that overlap `range`.
    pub(crate) fn overlapping(
        &self,
        range: ByteRange,
    ) -> impl Iterator<Item = (Party, &Piece)> + '_ {
        self.in_conflict(range, Mode::Exclusive)
            .map(|(found, party)| (party, self.at(party, found)))
    }

    /// The pieces of any owner that a request in this mode overlaps and that are not shared with it.
    pub(crate) fn in_conflict(
        &self,
        range: ByteRange,
        mode: Mode,
    ) -> impl Iterator<Item = (ByteRange, Party)> + '_ {
        let shared = (mode != Mode::Shared).then(|| self.shared.overlapping(range));
        self.unshared.overlapping(range).chain(shared.into_iter().flatten())
    }

    /// The piece of a holder that has exactly this range.
    pub(crate) fn at(&self, party: Party, range: ByteRange) -> &Piece {
        self.pieces.get(&(party, range.start())).expect("every span has its piece")
    }

    /// The pieces by place and token, from the one after this on.
    pub(crate) fn listed_after(
        &self,
        after: Option<(ByteRange, FencingToken)>,
    ) -> impl Iterator<Item = (Party, &Piece)> + '_ {
        let last = Party { owner: OwnerIdx::MAX, lease: LeaseIdx(u32::MAX) };
        let start = after.map_or(Unbounded, |(range, fence)| Excluded((range, fence, last)));
        let listed = self.listed.range((start, Unbounded));
        listed.map(|&(range, _, party)| (party, self.at(party, range)))
    }

    /// A holder's own pieces that overlap `range` or lie right beside it, in order.
    pub(crate) fn own_touching(&self, party: Party, range: ByteRange) -> Vec<ByteRange> {
        let before = self.pieces.range((party, 0)..(party, range.start())).next_back();
        let end = range.last().saturating_add(1);
        let inside = self.pieces.range((party, range.start())..=(party, end));
        before
            .into_iter()
            .chain(inside)
            .map(|(_, piece)| piece.range)
            .filter(|own| own.touches(range))
            .collect()
    }

    pub(crate) fn own_overlapping(&self, party: Party, range: ByteRange) -> Vec<ByteRange> {
        let mut own = self.own_touching(party, range);
        own.retain(|own| own.overlaps(range));
        own
    }

    /// Whether more than `max` of a holder's own pieces overlap `range`.
    pub(crate) fn has_more_own(&self, party: Party, range: ByteRange, max: usize) -> bool {
        let start = (party, range.start());
        let before = self.pieces.range((party, 0)..start).next_back();
        let before = before.filter(|(_, piece)| piece.range.overlaps(range));
        let own = self
            .pieces
            .range(start..)
            .take_while(|&(&(of, _), piece)| of == party && piece.range.overlaps(range));
        own.take(max + 1).count() + usize::from(before.is_some()) > max
    }

    /// A holder's own pieces that overlap `range`, in order.
    pub(crate) fn own_pieces(
        &self,
        party: Party,
        range: ByteRange,
    ) -> impl Iterator<Item = &Piece> + '_ {
        let own = self.own_overlapping(party, range).into_iter();
        own.map(move |own| &self.pieces[&(party, own.start())])
    }

    /// Whether anything is held under that owner name.
    pub(crate) fn has_pieces_of(&self, owner: OwnerIdx) -> bool {
        let (first, last) = Party::all_of(owner);
        self.pieces.range((first, 0)..=(last, u64::MAX)).next().is_some()
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

/// Whether the parts together have every byte of `range`.
pub(crate) fn is_covered(range: ByteRange, mut parts: Vec<ByteRange>) -> bool {
    parts.sort_unstable_by_key(|part| part.start());
    let mut next = range.start();
    for part in parts.into_iter().filter(|part| part.overlaps(range)) {
        if part.start() > next {
            return false;
        }
        if part.last() >= range.last() {
            return true;
        }
        next = next.max(part.last() + 1);
    }
    false
}
