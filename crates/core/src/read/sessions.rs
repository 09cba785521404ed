//! Sessions and fence registers, one or all of a namespace.

use std::ops::Bound::{Excluded, Unbounded};

use super::view::{RegisterView, SessionView};
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Principal, RegisterName};
use crate::lease::{LeaseIdx, LeaseState};
use crate::namespace::NamespaceState;
use crate::table::LockTable;

impl LockTable {
    /// The high-water mark of a fence register.
    pub fn register(&self, namespace: &Namespace, register: &RegisterName) -> Option<FencingToken> {
        self.registers.get(namespace, register)
    }

    /// Fence registers by name, from the one after `after` on.
    pub fn registers(
        &self,
        namespace: &Namespace,
        after: Option<&RegisterName>,
        len_max: usize,
    ) -> Vec<RegisterView> {
        self.registers.page(namespace, after, len_max)
    }

    /// Whether there is such a lease, and its holder may still act on it.
    pub fn is_live(&self, namespace: &Namespace, id: LeaseId) -> bool {
        self.space_named(namespace).is_some_and(|space| space.live_lease(id).is_some())
    }

    /// A session of this principal.
    pub fn session(
        &self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
    ) -> Option<SessionView> {
        let space = self.space_named(namespace)?;
        let lease = space.live_lease(id).filter(|&lease| space.is_of(lease, principal))?;
        session_view(space, lease)
    }

    /// Sessions by number, from the one after `after` on.
    pub fn sessions(&self, namespace: &Namespace, after: u64, len_max: usize) -> Vec<SessionView> {
        let Some(space) = self.space_named(namespace) else {
            return Vec::new();
        };
        let open = space.sessions.range((Excluded(after), Unbounded));
        open.filter_map(|(_, &lease)| session_view(space, lease)).take(len_max).collect()
    }
}

fn session_view(space: &NamespaceState, number: LeaseIdx) -> Option<SessionView> {
    let lease = space.lease(number);
    let session = lease.session.as_ref()?;
    Some(SessionView {
        namespace: space.name.clone(),
        number: session.terms.number,
        owner: space.owners.name(lease.owner).clone(),
        adapter: session.terms.adapter.clone(),
        on_disconnect: session.terms.on_disconnect,
        attached: session.attached,
        recovering: lease.state == LeaseState::Recovering,
        opened_at: session.opened_at,
        ttl: lease.ttl,
        deadline: lease.deadline,
        grants: lease.held.len(),
        waiters: space.wanted_under(number).waiters,
        metadata: session.terms.metadata.clone(),
    })
}
