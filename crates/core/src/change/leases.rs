//! Leases and sessions: how they begin, expire and end with all that stands under them.

use super::Listener;
use super::ended::Ended;
use crate::effect::News;
use crate::endings::What;
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Owner};
use crate::inode::Party;
use crate::lease::{Held, Lapse, Lease, LeaseIdx, LeaseState, Session};
use crate::namespace::{Known, NamespaceIdx, UnderWay};
use crate::owners::OwnerIdx;
use crate::range::ByteRange;
use crate::scope::Scope;
use crate::table::{LockTable, Unfit};
use crate::time::{Millis, Timestamp};
use crate::transition::{Ending, SessionOpened};

impl LockTable {
    pub(super) fn open_session(
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

    /// A plain lease with nothing left under it is over; a session stays. Of a lapsed one, the next window counts.
    pub(super) fn drop_if_bare(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
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
    pub(super) fn begin_to_end(
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
    pub(super) fn lapse(
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
}

/// One reclaim window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Grant(FencingToken),
    Piece(OwnerIdx, u64, ByteRange),
}
