//! Reclaims: after a restart, or in a reclaim window, a holder takes over what it had.

use crate::command::{Acquire, Claim, GracePolicy, Under};
use crate::effect::{Grant, Step};
use crate::fencing_token::FencingToken;
use crate::id::Ticket;
use crate::inode::{Party, Piece, is_covered};
use crate::lease::{LeaseIdx, LeaseState};
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerIdx;
use crate::refusal::{Invalid, Refusal};
use crate::scope::Scope;
use crate::table::LockTable;
use crate::transition::{Ending, Transition};

impl LockTable {
    /// Takes up what the owner held before a restart; `None` if the request is to go on as a plain one: inside the owner's
    /// reclaim windows, and where the store forgets and it is unknown what was held.
    pub(super) fn reclaim(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        step: &mut Step,
    ) -> Result<Option<Grant>, Refusal> {
        if let Some((lease, owner, fence)) = self.held_already(space, request)? {
            self.touch_lease(space, lease, step);
            return Ok(Some(self.grant_again(space, lease, owner, fence)));
        }
        if self.may_take_all_back(space, request) {
            return Ok(None);
        }
        match self.grace.map(|grace| grace.policy) {
            None => Err(Refusal::NoGrace),
            Some(GracePolicy::StrictUnknown) => Ok(None),
            Some(_) if planted!("reclaim-of-what-was-never-held") => Ok(None),
            Some(GracePolicy::Conflicting | GracePolicy::Strict) => {
                Err(Refusal::NothingToReclaim(self.first_not_held(space, request)))
            }
        }
    }

    /// The first of the claimed scopes that the owner does not hold as claimed under the lease that is named.
    fn first_not_held(&self, space: NamespaceIdx, request: &Acquire) -> Scope {
        let party = self.asker(space, request, Ticket(0), false).party();
        let is_held = |claim: &&Claim| {
            party.is_some_and(|Party { owner, lease }| {
                !self.fences_borne(space, lease, owner, claim).is_empty()
            })
        };
        let missing = request.claims.iter().find(|claim| !is_held(claim));
        missing.unwrap_or(&request.claims[0]).scope.clone()
    }

    fn may_take_all_back(&self, space: NamespaceIdx, request: &Acquire) -> bool {
        let at = self.space(space);
        let Some(owner) = at.owners.find(&request.owner) else {
            return false;
        };
        request.claims.iter().all(|claim| match &claim.scope {
            Scope::Key(key) => !at.windows_of(key, owner).is_empty(),
            Scope::Range { inode, range } => at.inodes.get(inode).is_some_and(|inode| {
                let lapsed = at.lapsed_bytes(inode, *range, owner).map(|(_, piece)| piece.range);
                is_covered(*range, lapsed.collect())
            }),
        })
    }

    /// The lease under which the owner has everything that is claimed, and the fence that all of it bears. One of its
    /// grants may have brought the whole session back already.
    fn held_already(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
    ) -> Result<Option<(LeaseIdx, OwnerIdx, FencingToken)>, Refusal> {
        let Under::Session(id) = request.under else {
            return Ok(None);
        };
        let at = self.space(space);
        let (Some(lease), Some(owner)) = (at.live_lease(id), at.owners.find(&request.owner)) else {
            return Ok(None);
        };
        // What is still in doubt can only be claimed while the grace is on; what is not, is simply held.
        if at.lease(lease).state == LeaseState::Recovering && self.grace.is_none() {
            return Ok(None);
        }
        let mut fences = Vec::new();
        for claim in &request.claims {
            let borne = self.fences_borne(space, lease, owner, claim);
            if borne.is_empty() {
                return Ok(None);
            }
            fences.extend(borne);
        }
        let by_all = |fence: &FencingToken| {
            request.claims.iter().all(|claim| self.bears(space, lease, owner, claim, *fence))
        };
        match fences.into_iter().filter(by_all).max() {
            Some(fence) => Ok(Some((lease, owner, fence))),
            None => Err(Refusal::Invalid(Invalid::NotOneGrant)),
        }
    }

    /// The fences under which the owner holds all of a claim under this lease, in that mode. Of bytes that merged only
    /// the highest, though they honour others.
    fn fences_borne(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        claim: &Claim,
    ) -> Vec<FencingToken> {
        let at = self.space(space);
        let fences: Vec<FencingToken> = match &claim.scope {
            Scope::Key(key) => at.held.get(key).map_or_else(Vec::new, |held| {
                held.iter().filter(|&(_, l)| l == lease).map(|(fence, _)| fence).collect()
            }),
            Scope::Range { inode, range } => at.inodes.get(inode).map_or_else(Vec::new, |inode| {
                inode.own_pieces(Party { owner, lease }, *range).map(Piece::fence).collect()
            }),
        };
        fences.into_iter().filter(|&fence| self.bears(space, lease, owner, claim, fence)).collect()
    }

    /// Whether the owner holds all of a claim under this lease, in that mode and with this fence.
    fn bears(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        claim: &Claim,
        fence: FencingToken,
    ) -> bool {
        let at = self.space(space);
        match &claim.scope {
            Scope::Key(key) => {
                let grant = at.lease(lease).held.get(fence, key);
                grant.is_some_and(|grant| grant.owner == owner && grant.mode == claim.mode)
            }
            Scope::Range { inode, range } => at.inodes.get(inode).is_some_and(|inode| {
                let own = || inode.own_pieces(Party { owner, lease }, *range);
                own().all(|piece| piece.mode == claim.mode && piece.honours(fence))
                    && is_covered(*range, own().map(|piece| piece.range).collect())
            }),
        }
    }

    pub(super) fn is_reclaim_in_strict_grace(&self, request: &Acquire) -> bool {
        request.reclaim && self.is_strict_grace()
    }

    /// The number of the owner's own windows that the grant would end: they are counted as held until then.
    pub(super) fn windows_taken_back(&self, space: NamespaceIdx, request: &Acquire) -> u64 {
        let at = self.space(space);
        if at.lapsed_len == 0 {
            return 0;
        }
        let Some(owner) = at.owners.find(&request.owner) else { return 0 };
        let has_window = |claim: &&Claim| match &claim.scope {
            Scope::Key(key) => !at.windows_of(key, owner).is_empty(),
            Scope::Range { .. } => false,
        };
        request.claims.iter().filter(has_window).count() as u64
    }

    /// Ends the reclaim window that the owner has used: the oldest hold in the same mode, or all in another.
    pub(super) fn end_own_windows(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        step: &mut Step,
    ) {
        if self.space(space).lapsed_len == 0 {
            return;
        }
        let Some(owner) = self.space(space).owners.find(&request.owner) else { return };
        for claim in &request.claims {
            let Scope::Key(key) = &claim.scope else { continue };
            let mut windows = self.space(space).windows_of(key, owner);
            if self.space(space).mode_in_use(key) == Some(claim.mode) {
                windows.truncate(1);
            }
            for (lease, fence) in windows {
                let ended = Transition::KeyEnded {
                    namespace: request.namespace.clone(),
                    lease: self.space(space).lease(lease).id,
                    fence,
                    key: key.clone(),
                    ending: Ending::Reclaimed,
                };
                self.enact(ended, step);
            }
        }
    }
}
