//! Requests: the ids by which a retry finds its grant again, for as long as anything of it is held.

use super::ranges::ranges_of;
use crate::fencing_token::FencingToken;
use crate::lease::{ByteRequest, LeaseIdx, SetRanges};
use crate::namespace::{Known, NamespaceIdx};
use crate::owners::OwnerIdx;
use crate::table::LockTable;
use crate::tokens::Tokens;
use crate::transition::Granted;

impl LockTable {
    /// Remembers the id and the digest by which a retry of the request is recognised.
    pub(super) fn remember_request(
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
    pub(super) fn forget_spent_requests(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        tokens: &Tokens,
    ) {
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
    pub(super) fn remember_set(&mut self, space: NamespaceIdx, lease: LeaseIdx, granted: &Granted) {
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
}
