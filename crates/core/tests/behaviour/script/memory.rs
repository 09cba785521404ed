//! What a script knows things by: owners and scopes for grants, names for leases, sessions and calls.

use std::collections::BTreeMap;

use leasehold_core::{
    ByteRange, CallId, FencingToken, Grant, LeaseId, ListCursor, Namespace, Owner, Scope,
    SecretTicket,
};

use super::step::Wanted;

#[derive(Default)]
pub(super) struct Memory {
    next_lease: u128,
    next_call: u64,
    /// Sessions, and leases named by `as=`.
    leases: BTreeMap<String, LeaseId>,
    names: BTreeMap<LeaseId, String>,
    session_numbers: BTreeMap<u64, String>,
    calls: BTreeMap<CallId, Call>,
    /// What each owner was granted last on a scope.
    grants: BTreeMap<(Namespace, Owner, Scope), Proof>,
    named_grants: BTreeMap<String, Proof>,
    tickets: BTreeMap<(Namespace, Owner, Scope), SecretTicket>,
    pub(super) cursor: Option<ListCursor>,
    pub(super) snapshot: Option<super::reading::Snapshot>,
}

/// What a holder shows to prove that it is one.
#[derive(Clone)]
pub(super) struct Proof {
    pub(super) lease: LeaseId,
    pub(super) fence: FencingToken,
    pub(super) gained: Vec<(u64, ByteRange)>,
}

/// A call to `acquire`.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) namespace: Namespace,
    pub(super) owner: Owner,
    pub(super) scopes: Vec<Scope>,
    /// The name given by `call=`.
    pub(super) name: Option<String>,
    /// The name that the grant will have.
    pub(super) grant_name: Option<String>,
}

impl Memory {
    pub(super) fn new_lease(&mut self, name: Option<&str>) -> LeaseId {
        self.next_lease += 1;
        let id = LeaseId::from_u128(self.next_lease);
        if let Some(name) = name {
            self.leases.insert(name.into(), id);
            self.names.insert(id, name.into());
        }
        id
    }

    /// The lease of that name; `unknown` is one that never was.
    pub(super) fn lease(&self, wanted: &Wanted<'_>, name: &str) -> LeaseId {
        match self.leases.get(name) {
            Some(id) => *id,
            None if name == "unknown" => LeaseId::from_u128(u128::MAX),
            None => wanted.fail(&format!("there is no lease named `{name}`")),
        }
    }

    pub(super) fn lease_name(&self, id: LeaseId) -> &str {
        self.names.get(&id).map_or("lease", String::as_str)
    }

    pub(super) fn number_session(&mut self, number: u64, id: LeaseId) {
        let name = self.lease_name(id).to_owned();
        self.session_numbers.insert(number, name);
    }

    pub(super) fn session_name(&self, number: u64) -> &str {
        self.session_numbers.get(&number).map_or("session", String::as_str)
    }

    pub(super) fn session_number(&self, wanted: &Wanted<'_>, name: &str) -> u64 {
        let found = self.session_numbers.iter().find(|(_, known)| *known == name);
        match found {
            Some((number, _)) => *number,
            None => wanted.fail(&format!("there is no session named `{name}`")),
        }
    }

    pub(super) fn new_call(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    pub(super) fn remember_call(&mut self, call: Call) {
        self.calls.insert(call.id, call);
    }

    pub(super) fn call(&self, id: CallId) -> &Call {
        self.calls.get(&id).expect("only calls of the script are answered")
    }

    /// The call of that name, or the owner's last one for that scope.
    pub(super) fn find_call(&self, wanted: &Wanted<'_>) -> CallId {
        let mut calls = self.calls.values();
        let found = if let Some(name) = wanted.option("call") {
            calls.rfind(|call| call.name.as_deref() == Some(name))
        } else {
            let (namespace, owner, scope) = (wanted.namespace(), wanted.owner(), wanted.scope());
            calls.rfind(|call| {
                call.namespace == namespace && call.owner == owner && call.scopes.contains(&scope)
            })
        };
        match found {
            Some(call) => call.id,
            None => wanted.fail("there was no such call"),
        }
    }

    pub(super) fn remember_grant(&mut self, call: CallId, grant: &Grant) {
        let call = self.call(call).clone();
        let proof = Proof { lease: grant.lease, fence: grant.fence, gained: grant.gained.clone() };
        if let Some(name) = call.grant_name {
            self.leases.insert(name.clone(), grant.lease);
            self.names.insert(grant.lease, name.clone());
            self.named_grants.insert(name, proof.clone());
        }
        for scope in call.scopes {
            let key = (call.namespace.clone(), call.owner.clone(), scope);
            self.grants.insert(key, proof.clone());
        }
    }

    /// What the step shows as proof: what its owner was granted, as far as it does not say otherwise.
    pub(super) fn proof(&self, wanted: &Wanted<'_>, scope: &Scope) -> Proof {
        let mut proof = match wanted.option("grant") {
            Some(name) => match self.named_grants.get(name) {
                Some(proof) => proof.clone(),
                None => wanted.fail(&format!("there is no grant named `{name}`")),
            },
            None => self.last_grant(wanted, scope),
        };
        if let Some(name) = wanted.option("lease") {
            proof.lease = self.lease(wanted, name);
        }
        if let Some(fence) = wanted.number("fence") {
            let fence = FencingToken::new(fence);
            proof.fence = fence.unwrap_or_else(|| wanted.fail("a fence has 53 bits"));
        }
        proof
    }

    /// The last grant on exactly that scope, or else on any bytes of that file.
    fn last_grant(&self, wanted: &Wanted<'_>, scope: &Scope) -> Proof {
        let owner = wanted.owner_shown();
        let namespace = wanted.namespace();
        let key = (namespace.clone(), owner.clone(), scope.clone());
        let same_file = |other: &Scope| match (scope, other) {
            (Scope::Range { inode, .. }, Scope::Range { inode: other, .. }) => inode == other,
            (Scope::Key(_) | Scope::Range { .. }, _) => false,
        };
        let in_file = || {
            let grants = self.grants.iter().filter(|((at, by, other), _)| {
                *at == namespace && *by == owner && same_file(other)
            });
            grants.map(|(_, proof)| proof).max_by_key(|proof| proof.fence)
        };
        match self.grants.get(&key).or_else(in_file) {
            Some(proof) => proof.clone(),
            None => wanted.fail(&format!("{owner} was never granted {scope}")),
        }
    }

    pub(super) fn remember_ticket(&mut self, call: CallId, ticket: SecretTicket) {
        let call = self.call(call);
        let key = (call.namespace.clone(), call.owner.clone(), call.scopes[0].clone());
        self.tickets.insert(key, ticket);
    }

    /// The ticket that the owner was given last for that scope.
    pub(super) fn ticket(&self, wanted: &Wanted<'_>, scope: &Scope) -> SecretTicket {
        let key = (wanted.namespace(), wanted.owner_shown(), scope.clone());
        match self.tickets.get(&key) {
            Some(ticket) => *ticket,
            None => wanted.fail("there is no ticket"),
        }
    }
}
