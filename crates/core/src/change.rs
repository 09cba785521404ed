//! The effect of each transition on the table: the only place where what lasts is touched.

use crate::command::Claim;
use crate::effect::{News, Step};
use crate::endings::{self, What};
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner};
use crate::inode::{Party, Piece};
use crate::lease::{
    ByteRequest, Extra, Grant, Held, Lapse, Lease, LeaseIdx, LeaseState, Session, SetRanges,
    request_of,
};
use crate::namespace::{Known, NamespaceIdx, UnderWay};
use crate::owners::OwnerIdx;
use crate::range::ByteRange;
use crate::scope::{Key, Scope};
use crate::table::{LockTable, Unfit};
use crate::time::{Millis, Timestamp};
use crate::tokens::Tokens;
use crate::transition::{Ending, Granted, SessionOpened, Transition};

/// The receiver of events for watchers.
pub(crate) enum Listener<'a> {
    Step(&'a mut Step),
    /// It was told when it happened; now it is replayed.
    Nobody,
    /// It is undone, and has never happened.
    Undoing,
}

impl Listener<'_> {
    fn hear(&mut self, table: &LockTable, namespace: &Namespace, news: News) {
        match self {
            Listener::Step(step) => table.tell(namespace.clone(), news, step),
            Listener::Nobody | Listener::Undoing => {}
        }
    }
}

impl LockTable {
    pub(crate) fn change(
        &mut self,
        transition: &Transition,
        listener: &mut Listener<'_>,
    ) -> Result<(), Unfit> {
        self.note_undo(transition);
        self.revision.0 += 1;
        let changed = self.make(transition, listener);
        if changed.is_err() {
            self.forget_last_undo();
        }
        changed
    }

    fn make(&mut self, transition: &Transition, listener: &mut Listener<'_>) -> Result<(), Unfit> {
        match transition {
            Transition::EpochBegan { epoch } => {
                self.epoch = *epoch;
                self.endings.clear();
                listener.hear(self, &Namespace::default(), News::EpochBegan { epoch: *epoch });
            }
            Transition::Jumped { epoch, fence } => {
                // Revisions jump as far as fences: those handed out since the backup are never met again.
                let skipped = fence.get().saturating_sub(self.fence.get());
                self.revision.0 = self.revision.0.saturating_add(skipped);
                self.epoch = self.epoch.max(*epoch);
                self.fence = self.fence.max(*fence);
            }
            Transition::SessionOpened(opened) => self.open_session(opened, listener)?,
            Transition::Granted(granted) => self.add_grant(granted, listener)?,
            Transition::TtlChanged { namespace, lease, ttl } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.before_change(space, lease);
                let changed = self.space_mut(space).lease_mut(lease);
                changed.ttl = *ttl;
                let owner = changed.owner;
                let owner = self.space(space).owners.name(owner).clone();
                listener.hear(self, namespace, News::TtlChanged { owner, ttl: *ttl });
            }
            Transition::LeaseLapsed { namespace, lease, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.lapse(space, lease, ending, listener);
            }
            Transition::LeaseEnding { namespace, lease, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                if self.space(space).lease(lease).is_over() {
                    return Err(self.unfit("a lease that is over"));
                }
                self.begin_to_end(space, lease, ending, listener);
            }
            Transition::LeaseEnded { namespace, lease, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.end_lease(space, lease, ending, listener);
            }
            Transition::GrantEnded { namespace, lease, fence, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.end_stamped(space, lease, *fence, ending, listener);
            }
            Transition::KeyEnded { namespace, lease, fence, key, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                if self.space(space).lease(lease).held.get(*fence, key).is_none() {
                    return Err(self.unfit("a grant that is not there"));
                }
                self.before_change(space, lease);
                self.end_grant(space, lease, *fence, key, ending, listener);
                self.drop_if_bare(space, lease);
            }
            Transition::RangeEnded { namespace, lease, owner, inode, range, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                let owner = self.space(space).owners.find(owner);
                let owner = owner.ok_or_else(|| self.unfit("an owner that holds nothing"))?;
                self.before_change(space, lease);
                self.end_range(space, lease, owner, *inode, *range, ending, listener);
                self.drop_if_bare(space, lease);
            }
            Transition::FenceAccepted { namespace, register, principal, fence } => {
                self.registers.set(namespace, register.clone(), principal, *fence);
                let accepted = News::FenceAccepted { register: register.clone(), fence: *fence };
                listener.hear(self, namespace, accepted);
            }
            Transition::FenceDeleted { namespace, register, reason } => {
                let removed = self.registers.remove(namespace, register);
                removed.ok_or_else(|| self.unfit("an unknown fence register"))?;
                let deleted =
                    News::FenceDeleted { register: register.clone(), reason: reason.clone() };
                listener.hear(self, namespace, deleted);
            }
        }
        Ok(())
    }

    fn unfit(&self, what: &'static str) -> Unfit {
        Unfit { revision: self.revision, what }
    }

    fn locate(
        &self,
        namespace: &Namespace,
        lease: LeaseId,
    ) -> Result<(NamespaceIdx, LeaseIdx), Unfit> {
        let space =
            self.namespace_idx(namespace).ok_or_else(|| self.unfit("an unknown namespace"))?;
        let lease = self.space(space).lease_no(lease);
        Ok((space, lease.ok_or_else(|| self.unfit("an unknown lease"))?))
    }

    fn open_session(
        &mut self,
        opened: &SessionOpened,
        listener: &mut Listener<'_>,
    ) -> Result<(), Unfit> {
        let session = Session {
            terms: opened.terms.clone(),
            opened_at: opened.opened_at,
            attached: false,
            kept: false,
        };
        let space = self.space_or_insert(&opened.namespace);
        self.add_lease(space, opened.lease, &opened.owner, opened.ttl, Some(Box::new(session)))?;
        let told = News::SessionOpened {
            number: opened.terms.number,
            owner: opened.owner.clone(),
            adapter: opened.terms.adapter.clone(),
        };
        listener.hear(self, &opened.namespace, told);
        Ok(())
    }

    pub(crate) fn add_lease(
        &mut self,
        space: NamespaceIdx,
        id: LeaseId,
        owner: &Owner,
        ttl: Millis,
        session: Option<Box<Session>>,
    ) -> Result<LeaseIdx, Unfit> {
        if self.space(space).lease_no(id).is_some() {
            return Err(self.unfit("a lease id that is in use"));
        }
        let deadline = self.now.plus(ttl);
        let owner = self.mention(space, owner);
        if let Some(session) = &session {
            self.count_session(space, owner, session);
        }
        let at = &mut self.spaces[space.0];
        let number = session.as_ref().map(|session| session.terms.number);
        let request = session.as_ref().and_then(|session| session.terms.request.clone());
        let lease = at.insert_lease(Lease {
            id,
            owner,
            ttl,
            state: LeaseState::Live,
            deadline,
            timer: deadline,
            session,
            held: Held::Nothing,
        });
        if let Some(number) = number {
            at.sessions.insert(number, lease);
        }
        if let Some(request) = request {
            at.requests
                .insert((owner, request.id), Known::Opened { lease, digest: request.digest });
        }
        self.lease_timers.insert((deadline, space, lease));
        if let Some(snapshotting) = &mut self.snapshotting {
            snapshotting.skip(space, lease);
        }
        Ok(lease)
    }

    fn add_grant(&mut self, granted: &Granted, listener: &mut Listener<'_>) -> Result<(), Unfit> {
        let space = self.space_or_insert(&granted.namespace);
        let lease = match granted.opens {
            Some(ttl) => self.add_lease(space, granted.lease, &granted.owner, ttl, None)?,
            None => self.locate(&granted.namespace, granted.lease)?.1,
        };
        self.before_change(space, lease);
        self.fence = self.fence.max(granted.fence);
        let owner = match granted.opens {
            Some(_) => self.space(space).lease(lease).owner,
            None => self.mention(space, &granted.owner),
        };
        self.remember_request(space, lease, owner, granted);
        for claim in &granted.claims {
            self.add_claim(space, lease, owner, claim, granted, listener);
        }
        self.remember_set(space, lease, granted);
        if granted.opens.is_none() {
            self.forget_owner(space, owner);
        }
        Ok(())
    }

    fn add_claim(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        claim: &Claim,
        granted: &Granted,
        listener: &mut Listener<'_>,
    ) {
        match &claim.scope {
            Scope::Key(key) => {
                let extra = Extra::boxed(granted.request.clone(), granted.metadata.clone());
                let at = self.space_mut(space);
                at.add_holder(key, claim.mode, granted.fence, lease);
                let grant = Grant {
                    key: key.clone(),
                    fence: granted.fence,
                    granted_at: granted.granted_at,
                    mode: claim.mode,
                    owner,
                    reclaim_window: granted.reclaim_window,
                    extra,
                };
                let hold = grant.hold();
                at.lease_mut(lease).held.insert(grant);
                self.count_hold(space, owner, lease, hold);
            }
            Scope::Range { inode, range } => {
                let piece = Piece {
                    range: *range,
                    mode: claim.mode,
                    lease,
                    tokens: Tokens::One(granted.fence),
                    granted_at: granted.granted_at,
                    reclaim_window: granted.reclaim_window,
                    metadata: granted.metadata.clone(),
                };
                self.lock_range(space, Party { owner, lease }, *inode, piece, listener);
            }
        }
        let told = News::Granted {
            scope: claim.scope.clone(),
            owner: granted.owner.clone(),
            mode: claim.mode,
            fence: granted.fence,
            ttl: self.space(space).lease(lease).ttl,
            session: self.space(space).lease(lease).session_number(),
            waited: self.waited,
        };
        listener.hear(self, &granted.namespace, told);
    }

    /// Remembers the id and the digest by which a retry of the request is recognised.
    fn remember_request(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        granted: &Granted,
    ) {
        let Some(request) = &granted.request else { return };
        let fence = granted.fence;
        let at = self.space_mut(space);
        let known = Known::Granted { lease, fence, digest: request.digest };
        at.know_request(owner, request.id.clone(), known);
        let ranges = ranges_of(granted);
        if !ranges.is_empty() {
            let (request, granted_at) = (request.clone(), granted.granted_at);
            let request = ByteRequest { owner, request, granted_at, ranges, pieces: 0 };
            at.lease_mut(lease).held.many().requests.insert(fence, request);
        }
    }

    /// Forgets requests that were granted bytes, if no piece remembers their token and nothing else was granted with it.
    fn forget_spent_requests(&mut self, space: NamespaceIdx, lease: LeaseIdx, tokens: &Tokens) {
        for &token in tokens.as_slice() {
            let held = &self.space(space).lease(lease).held;
            let spent = held.byte_request(token).is_some_and(|request| request.pieces == 0);
            if spent && held.stamped(token).is_empty() {
                self.forget_byte_request(space, lease, token);
            }
        }
    }

    pub(crate) fn forget_byte_request(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        token: FencingToken,
    ) {
        let at = self.space_mut(space);
        if at.lease(lease).held.byte_request(token).is_none() {
            return;
        }
        if let Some(gone) = at.lease_mut(lease).held.many().requests.remove(&token) {
            at.forget_request(gone.owner, &gone.request.id, token);
        }
    }

    /// The byte ranges of a set that has keys too go with its fence.
    fn remember_set(&mut self, space: NamespaceIdx, lease: LeaseIdx, granted: &Granted) {
        if granted.claims.len() == 1 {
            return;
        }
        let ranges = ranges_of(granted);
        if !ranges.is_empty() && ranges.len() < granted.claims.len() {
            let many = self.space_mut(space).lease_mut(lease).held.many();
            let owner = granted.owner.clone();
            many.sets.insert(granted.fence, SetRanges { owner, ranges });
        }
    }

    /// Locks bytes as fcntl(2) does: over the holder's own pieces, merging with those of the same mode.
    fn lock_range(
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

    /// Ends everything stamped with one fence under a lease.
    fn end_stamped(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        self.before_change(space, lease);
        for key in self.space(space).lease(lease).held.stamped(fence) {
            self.end_grant(space, lease, fence, &key, ending, listener);
        }
        let set = self.space(space).lease(lease).held.set(fence).cloned();
        if let Some(set) = set {
            self.space_mut(space).lease_mut(lease).held.many().sets.remove(&fence);
            // What is withdrawn says itself which bytes go: those held before stay.
            let ranges = if *ending == Ending::Withdrawn { Vec::new() } else { set.ranges };
            for (inode, range) in ranges {
                let Some(owner) = self.space(space).owners.find(&set.owner) else {
                    break;
                };
                for own in self.honouring(space, lease, owner, inode, range, fence) {
                    self.end_range(space, lease, owner, inode, own, ending, listener);
                }
            }
        }
        self.forget_byte_request(space, lease, fence);
        self.drop_if_bare(space, lease);
    }

    /// The parts of `range` that the owner still holds under this lease and fence.
    pub(crate) fn honouring(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        inode: u64,
        range: ByteRange,
        fence: FencingToken,
    ) -> Vec<ByteRange> {
        let Some(at) = self.space(space).inodes.get(&inode) else {
            return Vec::new();
        };
        at.own_pieces(Party { owner, lease }, range)
            .filter(|piece| piece.honours(fence))
            .filter_map(|piece| piece.range.intersection(range))
            .collect()
    }

    pub(crate) fn end_grant(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
        key: &Key,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        let held = &mut self.space_mut(space).lease_mut(lease).held;
        let grant = held.remove(fence, key).expect("the grant was found there");
        self.grant_gone(space, lease, grant, ending, listener);
    }

    /// A grant was taken out of its lease: the rest of the table has to forget it.
    fn grant_gone(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        grant: Grant,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        let at = self.space_mut(space);
        at.remove_holder(&grant.key, grant.fence, lease);
        if let Some(request) = request_of(grant.extra.as_deref()) {
            at.forget_request(grant.owner, &request.id, grant.fence);
        }
        // Bytes that were granted with it may be gone already.
        self.forget_spent_requests(space, lease, &Tokens::One(grant.fence));
        let (hold, ended) = (grant.hold(), Ended::grant(&grant));
        let scope = Scope::Key(grant.key);
        self.tell_ended(space, lease, scope.clone(), grant.owner, &ended, ending, listener);
        self.uncount_hold(space, grant.owner, lease, hold);
        self.freed.push((space, scope));
    }

    /// A plain lease with nothing left under it is over; a session stays. Of a lapsed one, the next window counts.
    fn drop_if_bare(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        let Some(held) = self.space(space).leases.get(lease.0) else { return };
        if held.session.is_none() && held.held.is_empty() {
            self.forget_lease(space, lease);
        } else if held.is_lapsed() {
            self.arm_window(space, lease);
        }
    }

    fn forget_lease(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        let orphaned = self.spaces[space.0].waits_under(lease);
        self.orphaned.extend(orphaned.map(|ticket| (space, ticket)));
        let gone = self.spaces[space.0].remove_lease(lease);
        self.lease_timers.remove(&(gone.timer, space, lease));
        if gone.state == LeaseState::Recovering {
            self.recovering -= 1;
        }
        let was_ending = self.ending.remove(&(space, lease));
        if let Some(session) = gone.session.as_ref().filter(|_| !was_ending) {
            self.session_gone(space, lease, gone.owner, session);
        }
        self.forget_owner(space, gone.owner);
    }

    fn session_gone(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        session: &Session,
    ) {
        let at = &mut self.spaces[space.0];
        at.sessions.remove(&session.terms.number);
        if let Some(request) = &session.terms.request {
            at.forget_opening(owner, &request.id, lease);
        }
        self.uncount_session(space, owner, session);
    }

    pub(crate) fn end_lease(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        self.before_change(space, lease);
        let at = self.space(space);
        let under_way = at.ending.get(&lease).map(|under_way| under_way.grants);
        let grants = under_way.unwrap_or(at.lease(lease).held.len());
        self.end_all(space, lease, ending, false, listener);
        self.remember_lease(space, lease, grants, ending, listener);
        self.tell_session_ended(space, lease, ending, listener);
        self.forget_lease(space, lease);
    }

    /// Marks a lease as over. What stands under it counts no more, and ends in turns.
    fn begin_to_end(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ending: &Ending,
        listener: &Listener<'_>,
    ) {
        self.before_change(space, lease);
        let held = self.space(space).lease(lease);
        let (owner, what) = (held.owner, What::Lease { grants: held.held.len() });
        self.remember_what(space, Party { owner, lease }, what, ending, listener);
        let now = self.now;
        let at = &mut self.spaces[space.0];
        let held = at.lease_mut(lease);
        let was = std::mem::replace(&mut held.state, LeaseState::Ending);
        held.deadline = held.deadline.min(now);
        let (timer, owner, session) = (held.timer, held.owner, held.session.clone());
        let grants = held.held.len();
        at.ending.insert(lease, UnderWay { ending: ending.clone(), grants });
        self.ending.insert((space, lease));
        self.lease_timers.remove(&(timer, space, lease));
        self.recovering -= usize::from(was == LeaseState::Recovering);
        if let Some(session) = session {
            self.session_gone(space, lease, owner, &session);
        }
    }

    /// Ends what has no reclaim window; the rest stays for its last owner to take back.
    fn lapse(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        self.before_change(space, lease);
        let grants = self.space(space).lease(lease).held.len();
        self.end_all(space, lease, ending, true, listener);
        self.remember_lease(space, lease, grants, ending, listener);
        self.tell_session_ended(space, lease, ending, listener);
        self.spaces[space.0].uncount_standing(lease);
        self.spaces[space.0].lapsed_len += 1;
        let at = self.spaces[space.0].lease_mut(lease);
        if at.state == LeaseState::Recovering {
            self.recovering -= 1;
        }
        at.state = LeaseState::Lapsed(Lapse::of(ending));
        at.deadline = at.deadline.min(self.now);
        let owner = at.owner;
        if let Some(session) = at.session.take() {
            self.session_gone(space, lease, owner, &session);
        }
        self.arm_window(space, lease);
    }

    /// Sets the timer of a lapsed lease to where its next reclaim window ends.
    pub(crate) fn arm_window(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        let held = self.space(space).lease(lease);
        if let Some(shortest) = held.held.shortest_window() {
            self.arm(space, lease, held.deadline.plus(shortest));
        }
    }

    /// The reclaim windows that are left of a lapsed lease, with their ends.
    pub(crate) fn windows(&self, space: NamespaceIdx, lease: LeaseIdx) -> Vec<(Timestamp, Window)> {
        let at = self.space(space);
        let held = at.lease(lease);
        let end = |window: Millis| held.deadline.plus(window);
        let mut windows: Vec<(Timestamp, Window)> = held
            .held
            .grants()
            .map(|grant| (end(grant.reclaim_window), Window::Grant(grant.fence)))
            .collect();
        windows.dedup();
        for &(inode, owner, start) in held.held.pieces().into_iter().flatten() {
            let piece = &at.inodes[&inode].pieces[&(Party { owner, lease }, start)];
            windows.push((end(piece.reclaim_window), Window::Piece(owner, inode, piece.range)));
        }
        windows
    }

    /// Ends everything under a lease, or all but what has a reclaim window.
    pub(crate) fn end_all(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ending: &Ending,
        keep_windows: bool,
        listener: &mut Listener<'_>,
    ) {
        let held = &mut self.space_mut(space).lease_mut(lease).held;
        let pieces: Vec<_> = held.pieces().into_iter().flatten().copied().collect();
        for grant in held.take_grants() {
            if keep_windows && grant.reclaim_window > Millis::ZERO {
                let (owner, ended) = (grant.owner, Ended::grant(&grant).in_window());
                let scope = Scope::Key(grant.key.clone());
                self.space_mut(space).lease_mut(lease).held.insert(grant);
                // Its own owner no longer conflicts with it.
                self.freed.push((space, scope.clone()));
                self.tell_ended(space, lease, scope, owner, &ended, ending, listener);
            } else {
                self.grant_gone(space, lease, grant, ending, listener);
            }
        }
        for (inode, owner, start) in pieces {
            let party = Party { owner, lease };
            let piece = &self.space(space).inodes[&inode].pieces[&(party, start)];
            let range = piece.range;
            if keep_windows && piece.reclaim_window > Millis::ZERO {
                let ended = Ended::piece(piece).in_window();
                let scope = Scope::range(inode, range);
                self.tell_ended(space, lease, scope, owner, &ended, ending, listener);
            } else {
                self.end_range(space, lease, owner, inode, range, ending, listener);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of it is told")]
    fn tell_ended(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        scope: Scope,
        owner: OwnerIdx,
        ended: &Ended,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        if ended.window.is_none() {
            let party = Party { owner, lease };
            self.remember(space, party, scope.clone(), ended, ending, listener);
        }
        let at = self.space(space);
        let told = News::Ended {
            scope,
            owner: at.owners.name(owner).clone(),
            mode: ended.mode,
            fence: ended.fence,
            since: ended.since,
            ending: ending.clone(),
            window: ended.window,
            session: at.lease(lease).session_number(),
            disconnected: at.lease(lease).session.as_ref().is_some_and(|session| session.kept),
        };
        listener.hear(self, &at.name, told);
    }

    /// Remembers for a while what ended, and how.
    fn remember(
        &mut self,
        space: NamespaceIdx,
        party: Party,
        scope: Scope,
        ended: &Ended,
        ending: &Ending,
        listener: &Listener<'_>,
    ) {
        let Ended { mode, since, fence, .. } = *ended;
        let what = What::Hold { scope, mode, tokens: ended.tokens.clone(), since, last: fence };
        self.remember_what(space, party, what, ending, listener);
    }

    /// The same for a lease: a session, or a plain one that was closed.
    fn remember_lease(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        grants: usize,
        ending: &Ending,
        listener: &Listener<'_>,
    ) {
        let held = self.space(space).lease(lease);
        if held.session.is_some() || *ending == Ending::Closed {
            let party = Party { owner: held.owner, lease };
            self.remember_what(space, party, What::Lease { grants }, ending, listener);
        }
    }

    fn remember_what(
        &mut self,
        space: NamespaceIdx,
        party: Party,
        what: What,
        ending: &Ending,
        listener: &Listener<'_>,
    ) {
        match listener {
            Listener::Undoing => return,
            Listener::Step(_) | Listener::Nobody => {}
        }
        let at = &self.spaces[space.0];
        let ended = endings::Ended {
            revision: self.revision,
            namespace: at.name.clone(),
            lease: at.lease(party.lease).id,
            owner: at.owners.name(party.owner).clone(),
            what,
            at: self.now,
            ending: ending.clone(),
        };
        self.endings.remember(ended);
    }

    fn tell_session_ended(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        let at = self.space(space);
        let held = at.lease(lease);
        if let Some(session) = &held.session {
            let told = News::SessionEnded {
                number: session.terms.number,
                owner: at.owners.name(held.owner).clone(),
                ending: ending.clone(),
            };
            listener.hear(self, &at.name, told);
        }
    }
}

pub(crate) fn ranges_of(granted: &Granted) -> Vec<(u64, ByteRange)> {
    let ranges = granted.claims.iter().filter_map(|claim| match claim.scope {
        Scope::Range { inode, range } => Some((inode, range)),
        Scope::Key(_) => None,
    });
    ranges.collect()
}

/// One reclaim window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Grant(FencingToken),
    Piece(OwnerIdx, u64, ByteRange),
}

/// The event for a grant that ended.
struct Ended {
    mode: crate::mode::Mode,
    fence: FencingToken,
    tokens: Tokens,
    since: Timestamp,
    reclaim_window: Millis,
    window: Option<Millis>,
}

impl Ended {
    fn grant(grant: &Grant) -> Ended {
        let (mode, fence, since) = (grant.mode, grant.fence, grant.granted_at);
        let (tokens, reclaim_window) = (Tokens::One(fence), grant.reclaim_window);
        Ended { mode, fence, tokens, since, reclaim_window, window: None }
    }

    fn piece(piece: &Piece) -> Ended {
        let (mode, fence, since) = (piece.mode, piece.fence(), piece.granted_at);
        let (tokens, reclaim_window) = (piece.tokens.clone(), piece.reclaim_window);
        Ended { mode, fence, tokens, since, reclaim_window, window: None }
    }

    fn in_window(mut self) -> Ended {
        self.window = Some(self.reclaim_window);
        self
    }
}
