//! Ends what a holder gives back, and takes back what nobody will ever learn of.

use crate::command::{Release, Unlock, Withdraw};
use crate::effect::{Answer, Step};
use crate::fencing_token::FencingToken;
use crate::inode::Party;
use crate::lease::{Grant, LeaseIdx};
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerIdx;
use crate::quota::Quotas;
use crate::range::ByteRange;
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::transition::{Ending, Transition};

impl LockTable {
    /// A release of what is not held is answered as the one before, if the same owner has released it before.
    pub(super) fn release(
        &mut self,
        release: &Release,
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        if let Some(space) = self.namespace_idx(&release.namespace) {
            self.check_own_ranges(space, release.lease, &release.owner, &release.scope)?;
            self.check_split(space, release.lease, &release.owner, &release.scope, quotas)?;
        }
        let released = self.release_held(release, step)?;
        if let Some(answer) = released {
            return Ok(answer);
        }
        if let Some(held) = self.released_before(release) {
            return Ok(Answer::Released { held, replayed: true });
        }
        let why = Some(self.why_not_holder(release));
        Err(Refusal::NotHolder { scope: release.scope.clone(), why })
    }

    /// `None` if it is not held, or not with this token, by this owner, under this lease.
    fn release_held(
        &mut self,
        release: &Release,
        step: &mut Step,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(space) = self.namespace_idx(&release.namespace) else { return Ok(None) };
        let principal = release.owner.principal();
        let Some(lease) = self.own_lease(space, release.lease, &principal, step) else {
            return Ok(None);
        };
        let at = self.space(space);
        match &release.scope {
            Scope::Key(key) => {
                let grant = at.lease(lease).held.get(release.fence, key);
                let own = |grant: &&Grant| {
                    *at.owners.name(grant.owner) == release.owner
                        || planted!("release-by-name-only")
                };
                let Some(grant) = grant.filter(own) else { return Ok(None) };
                let held = self.now.since(grant.granted_at);
                self.end_fence(space, lease, release.fence, Ending::Released, step);
                Ok(Some(Answer::Released { held, replayed: false }))
            }
            Scope::Range { inode, range } => {
                let (inode, range, owner) = (*inode, *range, at.owners.find(&release.owner));
                Ok(self.release_range(space, lease, owner, inode, range, release, step))
            }
        }
    }

    /// Ends what is stamped with this fence; with the last of it a plain lease ends too.
    pub(super) fn end_fence(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
        ending: Ending,
        step: &mut Step,
    ) {
        let at = self.space(space);
        let held = at.lease(lease);
        let (namespace, id) = (at.name.clone(), held.id);
        let all = held.session.is_none() && held.held.is_all_stamped(fence);
        self.enact(
            if all {
                Transition::LeaseEnded { namespace, lease: id, ending }
            } else {
                Transition::GrantEnded { namespace, lease: id, fence, ending }
            },
            step,
        );
    }

    /// `None` if the fence is not good for some of the owner's bytes; bytes that are not held do not matter, though they
    /// may have been released before.
    #[expect(clippy::too_many_arguments, reason = "a release taken apart; it is called once")]
    fn release_range(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: Option<OwnerIdx>,
        inode: u64,
        range: ByteRange,
        release: &Release,
        step: &mut Step,
    ) -> Option<Answer> {
        let nothing = || {
            let before = self.released_before(release);
            let (held, replayed) = (before.unwrap_or_default(), before.is_some());
            Some(Answer::Released { held, replayed })
        };
        let (Some(owner), Some(at)) = (owner, self.space(space).inodes.get(&inode)) else {
            return nothing();
        };
        let mut pieces = at.own_pieces(Party { owner, lease }, range).peekable();
        if pieces.peek().is_none() {
            return nothing();
        }
        let mut since = self.now;
        for piece in pieces {
            if !piece.honours(release.fence) {
                return None;
            }
            since = since.min(piece.granted_at);
        }
        self.end_bytes(space, lease, owner, inode, range, Ending::Released, step);
        Some(Answer::Released { held: self.now.since(since), replayed: false })
    }

    #[expect(clippy::too_many_arguments, reason = "whose bytes, which, and why")]
    pub(super) fn end_bytes(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        inode: u64,
        range: ByteRange,
        ending: Ending,
        step: &mut Step,
    ) {
        let at = self.space(space);
        let ended = Transition::RangeEnded {
            namespace: at.name.clone(),
            lease: at.lease(lease).id,
            owner: at.owners.name(owner).clone(),
            inode,
            range,
            ending,
        };
        self.enact(ended, step);
    }

    /// `F_UNLCK`: what is not held does not matter.
    pub(super) fn unlock(
        &mut self,
        unlock: &Unlock,
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        let principal = unlock.owner.principal();
        let found = self.find_live(&unlock.namespace, unlock.session, &principal, step);
        let (space, lease) = match found {
            Ok(found) => found,
            Err(_) if self.is_given_back(unlock) => return Ok(Answer::Unlocked { changed: false }),
            Err(refusal) => return Err(refusal),
        };
        let scope = Scope::Range { inode: unlock.inode, range: unlock.range };
        self.check_own_ranges(space, unlock.session, &unlock.owner, &scope)?;
        let owner = self.space(space).owners.find(&unlock.owner);
        self.check_split(space, unlock.session, &unlock.owner, &scope, quotas)?;
        let at = self.space(space);
        let held = owner.filter(|&owner| {
            at.inodes.get(&unlock.inode).is_some_and(|inode| {
                !inode.own_overlapping(Party { owner, lease }, unlock.range).is_empty()
            })
        });
        if let Some(owner) = held {
            let (inode, range) = (unlock.inode, unlock.range);
            self.end_bytes(space, lease, owner, inode, range, Ending::Released, step);
        }
        Ok(Answer::Unlocked { changed: held.is_some() })
    }

    pub(super) fn withdraw(&mut self, withdraw: &Withdraw, step: &mut Step) -> super::Handled {
        let Some(space) = self.namespace_idx(&withdraw.namespace) else {
            return Ok(Answer::Withdrawn { found: false });
        };
        let lease = |table: &LockTable| table.space(space).live_lease(withdraw.lease);
        let mut found = false;
        for &(inode, range) in &withdraw.gained {
            while let Some(lease) = lease(self)
                && let Some((owner, part)) =
                    self.piece_to_withdraw(space, lease, inode, range, withdraw.fence)
            {
                self.end_bytes(space, lease, owner, inode, part, Ending::Withdrawn, step);
                found = true;
            }
        }
        if let Some(lease) = lease(self) {
            let at = self.space(space);
            let held = &at.lease(lease).held;
            let keys = !held.stamped(withdraw.fence).is_empty();
            let request = held.byte_request(withdraw.fence);
            let retried = request.is_some_and(|known| at.leads_to(known, withdraw.fence));
            // Bytes held before stay held, but a retry must not take the request for granted.
            if keys || retried {
                self.end_fence(space, lease, withdraw.fence, Ending::Withdrawn, step);
            }
            found |= keys;
        }
        Ok(Answer::Withdrawn { found })
    }

    fn piece_to_withdraw(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        inode: u64,
        range: ByteRange,
        fence: FencingToken,
    ) -> Option<(OwnerIdx, ByteRange)> {
        let at = self.space(space).inodes.get(&inode)?;
        let mut pieces = at.overlapping(range);
        let (party, piece) =
            pieces.find(|(party, piece)| party.lease == lease && piece.honours(fence))?;
        Some((party.owner, piece.range.intersection(range)?))
    }
}
