//! Byte ranges: pieces that are put in, cut, merged and taken out.

use super::Listener;
use super::ended::Ended;
use crate::fencing_token::FencingToken;
use crate::inode::{Party, Piece};
use crate::lease::LeaseIdx;
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerIdx;
use crate::range::ByteRange;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::transition::{Ending, Granted};

impl LockTable {
    /// Locks bytes as fcntl(2) does: over the holder's own pieces, merging with those of the same mode.
    pub(super) fn lock_range(
        &mut self,
        space: NamespaceIdx,
        party: Party,
        inode: u64,
        mut piece: Piece,
        listener: &mut Listener<'_>,
    ) {
        self.space_mut(space).inodes.entry(inode).or_default();
        let asked = piece.range;
        self.take_bytes_back(space, party, inode, asked, listener);
        let mut merged = Vec::new();
        for own in self.space(space).inodes[&inode].own_touching(party, asked) {
            let old = &self.space(space).inodes[&inode].pieces[&(party, own.start())];
            let same = old.mode == piece.mode;
            let merge = same && !planted!("adjacent-ranges-not-merged", !own.overlaps(asked));
            if merge {
                let old = self.take_piece(space, party, inode, own.start());
                if old.fence() != piece.fence() {
                    // Its bytes are held on, with the later token.
                    let (scope, ended) = (Scope::range(inode, own), Ended::piece(&old));
                    self.remember(space, party, scope, &ended, &Ending::Replaced, listener);
                }
                piece.range = piece.range.union(old.range);
                piece.tokens = piece.tokens.merged_with(&old.tokens);
                piece.reclaim_window = piece.reclaim_window.max(old.reclaim_window);
                merged.push(old.tokens);
            } else if own.overlaps(asked) {
                let weaker = piece.mode == crate::mode::Mode::Shared;
                let ending = &Ending::Replaced;
                self.cut_piece(space, party, inode, own.start(), asked, ending, listener);
                if planted!("no-wake-up-on-downgrade", weaker) {
                    self.freed.pop();
                }
            }
        }
        self.put_piece(space, party.owner, inode, piece);
        for tokens in merged {
            self.forget_spent_requests(space, party.lease, &tokens);
        }
        let at = self.space_mut(space);
        at.entangle_all(party.owner, inode);
        // With these bytes in hand, a waiter of the same owner may no longer stand behind others.
        if at.waits_of(party.owner).next().is_some() {
            self.freed.push((space, Scope::range(inode, asked)));
        }
    }

    /// Ends the owner's own reclaim windows on bytes that it has acquired again.
    fn take_bytes_back(
        &mut self,
        space: NamespaceIdx,
        party: Party,
        inode: u64,
        asked: ByteRange,
        listener: &mut Listener<'_>,
    ) {
        let at = self.space(space);
        let lapsed = at.lapsed_bytes(&at.inodes[&inode], asked, party.owner);
        let mut lapsed: Vec<(FencingToken, u64, Party)> =
            lapsed.map(|(old, piece)| (piece.fence(), piece.range.start(), old)).collect();
        lapsed.sort_unstable();
        for (_, start, old) in lapsed {
            self.before_change(space, old.lease);
            self.cut_piece(space, old, inode, start, asked, &Ending::Replaced, listener);
            self.drop_if_bare(space, old.lease);
        }
    }

    /// Takes `hole` out of one piece; what lies outside it stays.
    #[expect(clippy::too_many_arguments, reason = "the piece's place and the hole")]
    fn cut_piece(
        &mut self,
        space: NamespaceIdx,
        party: Party,
        inode: u64,
        start: u64,
        hole: ByteRange,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        let owner = party.owner;
        let piece = self.take_piece(space, party, inode, start);
        let gone = piece.range.intersection(hole).expect("only overlapping pieces are cut");
        self.tell_ended(
            space,
            piece.lease,
            Scope::range(inode, gone),
            owner,
            &Ended::piece(&piece),
            ending,
            listener,
        );
        self.freed.push((space, Scope::range(inode, gone)));
        let at = self.space(space);
        if at.waits_of(owner).next().is_some() {
            let weakened = (at.name.clone(), at.owners.name(owner).clone());
            self.weakened.insert(weakened);
        }
        let (before, after) = piece.range.without(hole);
        for rest in [before, after].into_iter().flatten() {
            self.put_piece(space, owner, inode, Piece { range: rest, ..piece.clone() });
        }
        let spent = planted!("request-forgotten-with-a-part", before.is_some() || after.is_some());
        for &token in piece.tokens.as_slice().iter().filter(|_| spent) {
            self.forget_byte_request(space, party.lease, token);
        }
        self.forget_spent_requests(space, party.lease, &piece.tokens);
    }

    pub(crate) fn put_piece(
        &mut self,
        space: NamespaceIdx,
        owner: OwnerIdx,
        inode: u64,
        piece: Piece,
    ) {
        let at = self.space_mut(space);
        let lease = piece.lease;
        let held = at.lease_mut(lease).held.many();
        held.pieces.insert((inode, owner, piece.range.start()));
        held.count_tokens(&piece.tokens);
        held.count_window(piece.reclaim_window);
        let token = piece.fence();
        let is_first = held.shown_with(token).next().is_none();
        held.shown.insert((token, inode, owner, piece.range.start()));
        if is_first {
            at.know_token(token, lease);
        }
        let hold = piece.hold(inode);
        at.inodes.entry(inode).or_default().insert(Party { owner, lease }, piece);
        self.count_hold(space, owner, lease, hold);
    }

    fn take_piece(&mut self, space: NamespaceIdx, party: Party, inode: u64, start: u64) -> Piece {
        let at = self.space_mut(space);
        let piece = at.inodes.get_mut(&inode).and_then(|inode| inode.remove(party, start));
        let piece = piece.expect("the piece was just found there");
        let held = at.lease_mut(party.lease).held.many();
        held.pieces.remove(&(inode, party.owner, start));
        held.uncount_tokens(&piece.tokens);
        held.uncount_window(piece.reclaim_window);
        let token = piece.fence();
        held.shown.remove(&(token, inode, party.owner, start));
        if held.shown_with(token).next().is_none() {
            at.forget_token(token, party.lease);
        }
        self.uncount_hold(space, party.owner, party.lease, piece.hold(inode));
        piece
    }

    /// Ends the owner's hold under this lease on bytes of a file.
    #[expect(clippy::too_many_arguments, reason = "whose bytes, which, and why")]
    pub(crate) fn end_range(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        inode: u64,
        range: ByteRange,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        let Some(at) = self.space(space).inodes.get(&inode) else {
            return;
        };
        let party = Party { owner, lease };
        let own = at.own_overlapping(party, range);
        // Each cut forgets the owner for a moment if this is all it holds.
        self.space_mut(space).owners.mention_again(owner);
        for own in own {
            self.cut_piece(space, party, inode, own.start(), range, ending, listener);
        }
        self.forget_owner(space, owner);
        self.space_mut(space).drop_inode_if_empty(inode);
    }
}

pub(crate) fn ranges_of(granted: &Granted) -> Vec<(u64, ByteRange)> {
    let ranges = granted.claims.iter().filter_map(|claim| match claim.scope {
        Scope::Range { inode, range } => Some((inode, range)),
        Scope::Key(_) => None,
    });
    ranges.collect()
}
