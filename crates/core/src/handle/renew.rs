//! Moves a lease's deadline for a holder that proves itself by owner, lease and fence.

use crate::command::Renew;
use crate::effect::{Answer, Renewed, Step};
use crate::fencing_token::FencingToken;
use crate::id::Owner;
use crate::inode::Party;
use crate::lease::LeaseIdx;
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerIdx;
use crate::quota::Quotas;
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::{Millis, Timestamp};
use crate::transition::Transition;

impl LockTable {
    pub(super) fn renew(
        &mut self,
        renew: &Renew,
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        let ttl = renew.ttl.map(|ttl| self.check_ttl(ttl, quotas)).transpose()?;
        let principal = renew.owner.principal();
        let space = self.namespace_idx(&renew.namespace);
        let lease = space.and_then(|space| {
            let lease = self.own_lease(space, renew.lease, &principal, step)?;
            Some((space, lease))
        });
        let Some((space, lease)) = lease else {
            let why = self.why_lease_is_gone(&renew.namespace, renew.lease, &principal);
            return Err(Refusal::LeaseLost(Some(why)));
        };
        if !self.proves(space, lease, &renew.owner, &renew.scope, renew.fence) {
            let why = Some(self.why_not_holder(&renew.shown()));
            return Err(Refusal::NotHolder { scope: renew.scope.clone(), why });
        }
        self.renew_lease(space, lease, ttl, step)
    }

    /// Whether the owner holds something of the scope under this lease, stamped with this fence.
    fn proves(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: &Owner,
        scope: &Scope,
        fence: FencingToken,
    ) -> bool {
        let at = self.space(space);
        match scope {
            Scope::Key(key) => {
                let grant = at.lease(lease).held.get(fence, key);
                grant.is_some_and(|grant| at.owners.name(grant.owner) == owner)
            }
            Scope::Range { inode, range } => at.owners.find(owner).is_some_and(|owner| {
                !self.honouring(space, lease, owner, *inode, *range, fence).is_empty()
            }),
        }
    }

    /// Renews a lease whose holder has proven itself. Only a changed ttl is a lasting change.
    pub(super) fn renew_lease(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ttl: Option<Millis>,
        step: &mut Step,
    ) -> super::Handled {
        if let Some(ttl) = ttl {
            let at = self.space(space);
            let held = at.lease(lease);
            if planted!("ttl-change-not-written") {
                self.space_mut(space).lease_mut(lease).ttl = ttl;
            } else if held.ttl != ttl {
                let (namespace, lease) = (at.name.clone(), held.id);
                self.enact(Transition::TtlChanged { namespace, lease, ttl }, step);
            }
        }
        self.touch_lease(space, lease, step);
        let held = self.space(space).lease(lease);
        Ok(Answer::Renewed(Renewed { ttl: held.ttl, deadline: held.deadline }))
    }

    /// When the grant with this fence was made.
    pub(super) fn granted_at(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        fence: FencingToken,
    ) -> Timestamp {
        let at = self.space(space);
        let held = &at.lease(lease).held;
        let grant = held.stamped(fence).first().and_then(|key| held.get(fence, key));
        let request = || held.byte_request(fence).map(|request| request.granted_at);
        let piece = || {
            let own = held.pieces().into_iter().flatten().filter(|piece| piece.1 == owner);
            let party = Party { owner, lease };
            let mut pieces =
                own.map(|&(inode, _, start)| &at.inodes[&inode].pieces[&(party, start)]);
            pieces.find(|piece| piece.fence() == fence).map(|piece| piece.granted_at)
        };
        let since = grant.map(|grant| grant.granted_at);
        since.or_else(request).or_else(piece).unwrap_or(self.now)
    }
}
