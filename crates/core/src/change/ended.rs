//! Endings: the events for watchers, and the memory of what has ended lately.

use super::Listener;
use crate::effect::News;
use crate::endings::{self, What};
use crate::fencing_token::FencingToken;
use crate::inode::{Party, Piece};
use crate::lease::{Grant, LeaseIdx};
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerIdx;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::{Millis, Timestamp};
use crate::tokens::Tokens;
use crate::transition::Ending;

impl LockTable {
    #[expect(clippy::too_many_arguments, reason = "all of it is told")]
    pub(super) fn tell_ended(
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
    pub(super) fn remember(
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
    pub(super) fn remember_lease(
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

    pub(super) fn remember_what(
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

    pub(super) fn tell_session_ended(
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

/// The event for a grant that ended.
pub(super) struct Ended {
    mode: crate::mode::Mode,
    fence: FencingToken,
    tokens: Tokens,
    since: Timestamp,
    reclaim_window: Millis,
    window: Option<Millis>,
}

impl Ended {
    pub(super) fn grant(grant: &Grant) -> Ended {
        let (mode, fence, since) = (grant.mode, grant.fence, grant.granted_at);
        let (tokens, reclaim_window) = (Tokens::One(fence), grant.reclaim_window);
        Ended { mode, fence, tokens, since, reclaim_window, window: None }
    }

    pub(super) fn piece(piece: &Piece) -> Ended {
        let (mode, fence, since) = (piece.mode, piece.fence(), piece.granted_at);
        let (tokens, reclaim_window) = (piece.tokens.clone(), piece.reclaim_window);
        Ended { mode, fence, tokens, since, reclaim_window, window: None }
    }

    pub(super) fn in_window(mut self) -> Ended {
        self.window = Some(self.reclaim_window);
        self
    }
}
