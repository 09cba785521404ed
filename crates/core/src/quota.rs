//! Quotas: how much one principal, or one namespace, may have.
//!
//! The counts of each are kept by the functions that change the table, so a replay and a snapshot lead to the same counts.
//! The quotas come with each command: the same command under the same quotas is always answered alike, and a
//! replay needs none. What a waiter waits for counts as if it held it, so a grant never exceeds a quota.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::Claim;
use crate::id::{Owner, Principal};
use crate::index::{Index, hash_bytes};
use crate::lease::{LeaseIdx, Session};
use crate::mode::Mode;
use crate::namespace::{NamespaceIdx, room_for};
use crate::owners::OwnerIdx;
use crate::refusal::{Limit, Refusal};
use crate::scope::{Scope, ScopeKind};
use crate::slab::Slab;
use crate::table::LockTable;

/// The quotas of one principal, or of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Grants and pieces of files, those that are waited for too.
    pub locks: u64,
    /// Bytes of the names of locks and of metadata.
    pub bytes: u64,
    pub waiters: u64,
    /// Bytes of the names and the metadata that waiting requests bring.
    pub waiter_bytes: u64,
    pub sessions: u64,
    pub registers: u64,
    /// Namespaces in which a principal has anything; and, counted apart, those in which it has fence registers.
    pub namespaces: u64,
}

impl Quota {
    /// No limit on anything.
    pub const UNLIMITED: Quota = Quota {
        locks: u64::MAX,
        bytes: u64::MAX,
        waiters: u64::MAX,
        waiter_bytes: u64::MAX,
        sessions: u64::MAX,
        registers: u64::MAX,
        namespaces: u64::MAX,
    };
}

/// The quotas under which a command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Of the principal that asks.
    pub principal: Quota,
    /// Of the namespace that the command is about.
    pub namespace: Quota,
    /// The longest that the principal may ask for.
    pub ttl_max: Duration,
    pub reclaim_max: Duration,
    pub wait_max: Duration,
}

impl Quotas {
    pub const UNLIMITED: Quotas = Quotas {
        principal: Quota::UNLIMITED,
        namespace: Quota::UNLIMITED,
        ttl_max: Duration::MAX,
        reclaim_max: Duration::MAX,
        wait_max: Duration::MAX,
    };
}

/// The kind of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaKind {
    Locks,
    Bytes,
    Waiters,
    WaiterBytes,
    Sessions,
    Registers,
    Namespaces,
}

impl QuotaKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            QuotaKind::Locks => "locks",
            QuotaKind::Bytes => "bytes",
            QuotaKind::Waiters => "waiters",
            QuotaKind::WaiterBytes => "waiter_bytes",
            QuotaKind::Sessions => "sessions",
            QuotaKind::Registers => "registers",
            QuotaKind::Namespaces => "namespaces",
        }
    }
}

/// The party that a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaOf {
    Principal,
    Namespace,
    /// All of them together.
    Server,
}

impl QuotaOf {
    pub const fn as_str(self) -> &'static str {
        match self {
            QuotaOf::Principal => "principal",
            QuotaOf::Namespace => "namespace",
            QuotaOf::Server => "server",
        }
    }
}

/// The counts of one principal, of one namespace, or of the whole table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Grants and pieces of files.
    pub locks: u64,
    /// The number of grants that the waiting requests may come to.
    pub wanted: u64,
    pub bytes: u64,
    pub waiters: u64,
    pub waiter_bytes: u64,
    pub sessions: u64,
}

/// Something held, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) kind: ScopeKind,
    pub(crate) mode: Mode,
    pub(crate) bytes: usize,
}

/// The cost of claims once they are granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    locks: u64,
    bytes: u64,
}

impl Need {
    pub(crate) fn of(claims: &[Claim], metadata: Option<&str>) -> Need {
        let metadata = metadata.map_or(0, str::len);
        let bytes = claims.iter().map(|claim| match &claim.scope {
            Scope::Key(key) => key.as_str().len() + metadata,
            Scope::Range { .. } => metadata,
        });
        Need { locks: room_for(claims) as u64, bytes: bytes.sum::<usize>() as u64 }
    }

    /// One piece more.
    pub(crate) fn of_piece(hold: Hold) -> Need {
        Need { locks: 1, bytes: hold.bytes as u64 }
    }

    /// Locks and bytes.
    #[cfg(any(test, feature = "invariants"))]
    pub(crate) fn parts(self) -> (u64, u64) {
        (self.locks, self.bytes)
    }

    /// The same without locks that are given back for it.
    pub(crate) fn less(self, locks: u64) -> Need {
        Need { locks: self.locks.saturating_sub(locks), ..self }
    }
}

impl Usage {
    fn add_waiter(&mut self, need: Need) {
        self.waiters += 1;
        self.wanted += need.locks;
        self.waiter_bytes += need.bytes;
    }

    fn remove_waiter(&mut self, need: Need) {
        self.waiters -= 1;
        self.wanted -= need.locks;
        self.waiter_bytes -= need.bytes;
    }

    fn check_hold(&self, of: QuotaOf, quota: &Quota, need: Need) -> Result<(), Refusal> {
        let locks = self.locks + self.wanted + need.locks;
        check(of, QuotaKind::Locks, locks, quota.locks)?;
        let bytes = self.bytes + self.waiter_bytes + need.bytes;
        check(of, QuotaKind::Bytes, bytes, quota.bytes)
    }

    fn check_wait(&self, of: QuotaOf, quota: &Quota, need: Need) -> Result<(), Refusal> {
        check(of, QuotaKind::Waiters, self.waiters + 1, quota.waiters)?;
        let bytes = self.waiter_bytes + need.bytes;
        check(of, QuotaKind::WaiterBytes, bytes, quota.waiter_bytes)
    }

    fn check_session(&self, of: QuotaOf, quota: &Quota, bytes: u64) -> Result<(), Refusal> {
        check(of, QuotaKind::Sessions, self.sessions + 1, quota.sessions)?;
        let bytes = self.bytes + self.waiter_bytes + bytes;
        check(of, QuotaKind::Bytes, bytes, quota.bytes)
    }
}

/// Refuses if there would be more than `max`.
pub(crate) fn check(of: QuotaOf, quota: QuotaKind, len: u64, max: u64) -> Result<(), Refusal> {
    if len > max { Err(Refusal::Limit(Limit::Quota { quota, of, max })) } else { Ok(()) }
}

/// A principal's number inside the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PrincipalIdx(u32);

/// The counts of each principal that has anything. The anonymous one is not counted: all clients without a credential share it.
#[derive(Clone, Debug)]
pub(crate) struct Principals {
    seed: u64,
    entries: Slab<Entry>,
    index: Index,
}

#[derive(Clone, Debug)]
struct Entry {
    principal: Principal,
    usage: Usage,
    /// The number of its owners that are known in each namespace.
    namespaces: BTreeMap<NamespaceIdx, usize>,
}

impl Principals {
    pub(crate) fn new(seed: u64) -> Principals {
        Principals { seed, entries: Slab::default(), index: Index::new() }
    }

    fn find(&self, principal: &Principal) -> Option<&Entry> {
        let hash = hash_bytes(self.seed, principal.text().as_bytes());
        let found = self.index.find(hash, |at| self.entries[at].principal == *principal);
        found.map(|at| &self.entries[at])
    }

    /// An owner is known in a namespace from now on.
    pub(crate) fn enter(&mut self, space: NamespaceIdx, owner: &Owner) -> Option<PrincipalIdx> {
        let principal = owner.principal();
        if principal.is_anonymous() {
            return None;
        }
        let hash = hash_bytes(self.seed, principal.text().as_bytes());
        let found = self.index.find(hash, |at| self.entries[at].principal == principal);
        let at = found.unwrap_or_else(|| {
            let usage = Usage::default();
            let at = self.entries.insert(Entry { principal, usage, namespaces: BTreeMap::new() });
            self.index.insert(hash, at);
            at
        });
        *self.entries[at].namespaces.entry(space).or_insert(0) += 1;
        Some(PrincipalIdx(at))
    }

    /// An owner is forgotten; with the last one its principal is.
    fn leave(&mut self, space: NamespaceIdx, PrincipalIdx(at): PrincipalIdx) {
        let entry = &mut self.entries[at];
        if let Some(owners) = entry.namespaces.get_mut(&space) {
            *owners -= 1;
            if *owners == 0 {
                entry.namespaces.remove(&space);
            }
        }
        if entry.namespaces.is_empty() {
            let gone = self.entries.remove(at);
            self.index.remove(hash_bytes(self.seed, gone.principal.text().as_bytes()), at);
        }
    }

    /// The counts of each, and the number of its namespaces.
    #[cfg(any(test, feature = "invariants"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Principal, &Usage, usize)> {
        let entries = self.entries.iter().map(|(_, entry)| entry);
        entries.map(|entry| (&entry.principal, &entry.usage, entry.namespaces.len()))
    }
}

/// Counts. Each function that adds has one that takes away.
impl LockTable {
    fn adjust(&mut self, space: NamespaceIdx, owner: OwnerIdx, change: impl Fn(&mut Usage)) {
        change(&mut self.usage);
        let at = &mut self.spaces[space.0];
        change(&mut at.usage);
        if let Some(PrincipalIdx(principal)) = at.owners.principal(owner) {
            change(&mut self.principals.entries[principal].usage);
        }
    }

    /// One mention of an owner more; it gets a number if it has none.
    pub(crate) fn mention(&mut self, space: NamespaceIdx, owner: &Owner) -> OwnerIdx {
        let principals = &mut self.principals;
        let owners = &mut self.spaces[space.0].owners;
        owners.mention(owner, || principals.enter(space, owner))
    }

    /// One mention of an owner less.
    pub(crate) fn forget_owner(&mut self, space: NamespaceIdx, owner: OwnerIdx) {
        let principal = self.spaces[space.0].owners.forget(owner);
        if let Some(principal) = principal {
            self.principals.leave(space, principal);
        }
    }

    /// Counts one grant or piece more.
    pub(crate) fn count_hold(
        &mut self,
        space: NamespaceIdx,
        owner: OwnerIdx,
        lease: LeaseIdx,
        hold: Hold,
    ) {
        self.spaces[space.0].count_hold(owner, lease, hold.kind, hold.mode);
        self.adjust(space, owner, |usage| {
            usage.locks += 1;
            usage.bytes += hold.bytes as u64;
        });
    }

    pub(crate) fn uncount_hold(
        &mut self,
        space: NamespaceIdx,
        owner: OwnerIdx,
        lease: LeaseIdx,
        hold: Hold,
    ) {
        self.adjust(space, owner, |usage| {
            usage.locks -= 1;
            usage.bytes -= hold.bytes as u64;
        });
        let at = &mut self.spaces[space.0];
        if at.uncount_hold(owner, lease, hold.kind, hold.mode) {
            self.forget_owner(space, owner);
        }
    }

    pub(crate) fn count_session(&mut self, space: NamespaceIdx, owner: OwnerIdx, opened: &Session) {
        *self.sessions.entry(opened.terms.adapter.clone()).or_insert(0) += 1;
        self.adjust(space, owner, |usage| {
            usage.sessions += 1;
            usage.bytes += bytes_of(opened);
        });
    }

    pub(crate) fn uncount_session(&mut self, space: NamespaceIdx, owner: OwnerIdx, gone: &Session) {
        self.adjust(space, owner, |usage| {
            usage.sessions -= 1;
            usage.bytes -= bytes_of(gone);
        });
        if let Some(open) = self.sessions.get_mut(&gone.terms.adapter) {
            *open -= 1;
            if *open == 0 {
                self.sessions.remove(&gone.terms.adapter);
            }
        }
    }

    pub(crate) fn count_waiter(&mut self, space: NamespaceIdx, owner: OwnerIdx, need: Need) {
        self.adjust(space, owner, |usage| usage.add_waiter(need));
    }

    pub(crate) fn uncount_waiter(&mut self, space: NamespaceIdx, owner: OwnerIdx, need: Need) {
        self.adjust(space, owner, |usage| usage.remove_waiter(need));
    }
}

/// Bytes of a session, as they are counted.
pub(crate) fn bytes_of(session: &Session) -> u64 {
    session.terms.metadata.as_ref().map_or(0, |metadata| metadata.len()) as u64
}

/// Refusals of what would be too much.
impl LockTable {
    /// The counts of a principal now.
    pub fn usage_of(&self, principal: &Principal) -> Usage {
        self.principals.find(principal).map_or_else(Usage::default, |entry| entry.usage)
    }

    /// The counts of all namespaces now.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    fn quota_in_all(&self) -> Quota {
        let limits = &self.limits;
        Quota {
            locks: limits.locks_max as u64,
            bytes: limits.bytes_max as u64,
            waiter_bytes: limits.waiter_bytes_max as u64,
            sessions: limits.sessions_max as u64,
            ..Quota::UNLIMITED
        }
    }

    /// Asks for the principal of an owner, its namespace, and all of them together.
    fn check_each(
        &self,
        space: NamespaceIdx,
        owner: &Owner,
        quotas: &Quotas,
        check: impl Fn(&Usage, QuotaOf, &Quota) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if quotas.principal != Quota::UNLIMITED {
            check(&self.usage_of(&owner.principal()), QuotaOf::Principal, &quotas.principal)?;
        }
        check(&self.space(space).usage, QuotaOf::Namespace, &quotas.namespace)?;
        check(&self.usage, QuotaOf::Server, &self.quota_in_all())
    }

    pub(crate) fn check_hold_quota(
        &self,
        space: NamespaceIdx,
        owner: &Owner,
        quotas: &Quotas,
        need: Need,
    ) -> Result<(), Refusal> {
        self.check_each(space, owner, quotas, |usage, of, quota| usage.check_hold(of, quota, need))
    }

    pub(crate) fn check_wait_quota(
        &self,
        space: NamespaceIdx,
        owner: &Owner,
        quotas: &Quotas,
        need: Need,
    ) -> Result<(), Refusal> {
        self.check_each(space, owner, quotas, |usage, of, quota| usage.check_wait(of, quota, need))
    }

    pub(crate) fn check_session_quota(
        &self,
        space: NamespaceIdx,
        owner: &Owner,
        quotas: &Quotas,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let bytes = bytes as u64;
        self.check_each(space, owner, quotas, |usage, of, quota| {
            usage.check_session(of, quota, bytes)
        })
    }

    /// A principal that has nothing in a namespace yet may have something in so many and no more.
    pub(crate) fn check_namespace_quota(
        &self,
        space: Option<NamespaceIdx>,
        principal: &Principal,
        quotas: &Quotas,
    ) -> Result<(), Refusal> {
        if quotas.principal.namespaces == u64::MAX {
            return Ok(());
        }
        let entry = self.principals.find(principal);
        let is_there =
            |entry: &Entry| space.is_some_and(|space| entry.namespaces.contains_key(&space));
        if entry.is_some_and(is_there) {
            return Ok(());
        }
        let len = entry.map_or(0, |entry| entry.namespaces.len()) as u64;
        check(QuotaOf::Principal, QuotaKind::Namespaces, len + 1, quotas.principal.namespaces)
    }
}
