//! Promises about limits, counts and indexes: each is counted anew and compared.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checked, Fact, Facts, ensure, spaces};
use crate::fencing_token::FencingToken;
use crate::id::Principal;
use crate::inode::Party;
use crate::lease::{Held, LeaseIdx};
use crate::mode::Mode;
use crate::namespace::{NamespaceIdx, NamespaceState};
use crate::owners::OwnerIdx;
use crate::quota::{Usage, bytes_of};
use crate::registers::Made;
use crate::scope::{Key, Scope, ScopeKind};
use crate::table::LockTable;

pub fn invariant_limits_are_kept(table: &LockTable) -> Checked {
    let limits = &table.limits;
    let sessions = table.sessions.values().all(|&len| len <= limits.sessions_per_adapter_max);
    // Whoever comes back to a kept place was let in before.
    let waiters = table.waiters_len <= limits.waiters_max + limits.kept_places_max;
    let places = table.place_timers.len() <= limits.kept_places_max;
    let mut kept = sessions && waiters && places;
    kept &= table.usage.sessions <= limits.sessions_max as u64;
    kept &= table.registers.len() <= limits.registers_max;
    for (namespace, _, _) in table.registers.iter() {
        kept &= table.registers.len_in(namespace) <= limits.registers_per_namespace_max;
    }
    for (_, space) in spaces(table) {
        kept &= space.queues.values().all(|queue| queue.len() <= limits.waiters_per_scope_max);
    }
    ensure(kept, "limits are kept", || format!("{limits:?}"))
}

/// The counts for quotas equal a recount.
pub fn invariant_usage_is_counted(table: &LockTable) -> Checked {
    const PROMISE: &str = "what a quota is about is counted";
    let mut all = Usage::default();
    let mut principals: BTreeMap<Principal, (Usage, BTreeSet<NamespaceIdx>)> = BTreeMap::new();
    for (no, space) in spaces(table) {
        let mut here = Usage::default();
        for (owner, usage) in usages(space) {
            add(&mut here, usage);
            let principal = space.owners.name(owner).principal();
            let (of, namespaces) = principals.entry(principal).or_default();
            add(of, usage);
            namespaces.insert(no);
        }
        ensure(space.usage == here, PROMISE, || format!("{:?}, not {here:?}", space.usage))?;
        add(&mut all, here);
    }
    ensure(table.usage == all, PROMISE, || format!("{:?}, not {all:?}", table.usage))?;
    principals.remove(&Principal::ANONYMOUS);
    let counted: BTreeMap<&Principal, (Usage, usize)> =
        table.principals.iter().map(|(name, &usage, len)| (name, (usage, len))).collect();
    let found = principals.iter();
    let found: BTreeMap<_, _> =
        found.map(|(name, (usage, at))| (name, (*usage, at.len()))).collect();
    ensure(counted == found, PROMISE, || format!("{counted:?}, not {found:?}"))?;
    let mut made: BTreeMap<Principal, Made> = BTreeMap::new();
    for (namespace, _, register) in table.registers.iter() {
        let made = made.entry(register.principal.clone()).or_default();
        made.len += 1;
        *made.by_namespace.entry(namespace.clone()).or_insert(0) += 1;
    }
    ensure(*table.registers.made() == made, PROMISE, || format!("registers {made:?}"))
}

/// The holdings of each owner in a namespace; nothing, for one that has only a place kept.
fn usages(space: &NamespaceState) -> Vec<(OwnerIdx, Usage)> {
    let mut usages: Vec<_> =
        space.owners.iter().map(|(owner, _)| (owner, Usage::default())).collect();
    for (_, lease) in space.leases.iter() {
        for grant in lease.held.grants() {
            let bytes = grant.hold().bytes as u64;
            usages.push((grant.owner, Usage { locks: 1, bytes, ..Usage::default() }));
        }
        if let Some(session) = lease.session.as_ref().filter(|_| !lease.is_ending()) {
            let bytes = bytes_of(session);
            usages.push((lease.owner, Usage { sessions: 1, bytes, ..Usage::default() }));
        }
    }
    for (&inode, held) in &space.inodes {
        for ((party, _), piece) in &held.pieces {
            let bytes = piece.hold(inode).bytes as u64;
            usages.push((party.owner, Usage { locks: 1, bytes, ..Usage::default() }));
        }
    }
    for waiter in space.waiters.values() {
        let (wanted, waiter_bytes) = waiter.request.need().parts();
        let waiting = Usage { waiters: 1, wanted, waiter_bytes, ..Usage::default() };
        usages.push((waiter.owner, waiting));
    }
    usages
}

fn add(sum: &mut Usage, usage: Usage) {
    sum.locks += usage.locks;
    sum.wanted += usage.wanted;
    sum.bytes += usage.bytes;
    sum.waiters += usage.waiters;
    sum.waiter_bytes += usage.waiter_bytes;
    sum.sessions += usage.sessions;
}

/// Whatever is looked up quickly says the same as what is held.
pub(super) fn invariant_indexes_agree_with_what_is_held(
    table: &LockTable,
    facts: &Facts<'_>,
) -> Checked {
    const PROMISE: &str = "indexes agree with what is held";
    let mut adapters: BTreeMap<&crate::id::Adapter, usize> = BTreeMap::new();
    for (_, space, facts) in &facts.0 {
        let mut holds: BTreeMap<(OwnerIdx, LeaseIdx), u32> = BTreeMap::new();
        let mut keys: Vec<(&Key, FencingToken, LeaseIdx)> = Vec::with_capacity(facts.len());
        for fact in facts {
            *holds.entry((fact.owner, fact.lease)).or_insert(0) += 1;
            if let Scope::Key(key) = &fact.scope {
                keys.push((key, fact.fence, fact.lease));
            }
        }
        keys.sort_unstable();
        let counted = space.owners.iter().flat_map(|(owner, _)| {
            space.owners.holds(owner).map(move |(lease, count)| ((owner, lease), count))
        });
        ensure(holds.into_iter().eq(counted), PROMISE, || "holds by owner".into())?;
        ensure(facts.len() == space.grants_len, PROMISE, || "number of grants".into())?;
        for (kind, counted) in ScopeKind::ALL.iter().zip(space.kinds) {
            let len = facts.iter().filter(|fact| fact.scope.kind() == *kind).count();
            ensure(counted == len, PROMISE, || format!("number of {kind} grants"))?;
            for (no, mode) in Mode::KINDS.into_iter().enumerate() {
                let is_counted = |fact: &&Fact| {
                    !fact.over && fact.scope.kind() == *kind && fact.mode.kind() == mode
                };
                let len = facts.iter().filter(is_counted).count();
                let counted = space.standing[*kind as usize][no];
                ensure(counted == len, PROMISE, || format!("number of {mode} {kind} grants"))?;
            }
        }
        let mut held = space
            .held
            .iter()
            .flat_map(|(key, holders)| holders.iter().map(move |(f, lease)| (key, f, lease)));
        ensure(keys.into_iter().all(|key| held.next() == Some(key)), PROMISE, || {
            "holders by key".into()
        })?;
        ensure(held.next().is_none(), PROMISE, || "holders by key".into())?;
        let is_path = |key: &Key| key.kind() != ScopeKind::Named;
        let unshared =
            space.held.iter().filter(|(key, h)| is_path(key) && h.mode() != Mode::Shared);
        let unshared = unshared.map(|(key, _)| key);
        ensure(unshared.eq(&space.unshared_paths), PROMISE, || "paths not shared".into())?;
        let is_subtree = |key: &&Key| key.kind() == ScopeKind::Subtree;
        let subtrees = space.held.keys().filter(is_subtree);
        ensure(subtrees.eq(&space.subtrees_held), PROMISE, || "subtrees held".into())?;
        let queued = space.queues.keys().filter(is_subtree).count();
        ensure(queued == space.subtrees_queued, PROMISE, || "subtrees waited for".into())?;
        for fact in facts {
            let found = space.lease_of_token(fact.fence) == Some(fact.lease);
            ensure(found, PROMISE, || format!("the lease of token {}", fact.fence))?;
        }
        for (&lease, wanted) in &space.wanted_under {
            let mut counted = crate::namespace::WantedUnder::default();
            for ticket in space.waits_under(lease) {
                let request = &space.waiters[&ticket].request;
                counted.waiters += 1;
                counted.room += crate::namespace::room_for(&request.claims);
                counted.windows += usize::from(!request.reclaim_window.is_zero());
            }
            let is_right = counted == *wanted && counted.waiters > 0;
            ensure(is_right, PROMISE, || "waiters under a lease".into())?;
        }
        invariant_owners_are_mentioned(space)?;
        invariant_tokens_are_counted(space)?;
        for (number, lease) in space.leases.iter() {
            let found = space.lease_no(lease.id) == Some(LeaseIdx(number));
            ensure(found, PROMISE, || "leases by id".into())?;
            if let Some(session) = lease.session.as_ref().filter(|_| !lease.is_ending()) {
                *adapters.entry(&session.terms.adapter).or_insert(0) += 1;
                let known = space.sessions.get(&session.terms.number) == Some(&LeaseIdx(number));
                ensure(known, PROMISE, || "sessions by number".into())?;
            }
        }
    }
    let waiters: usize = spaces(table).map(|(_, space)| space.waiters.len()).sum();
    ensure(waiters == table.waiters_len, PROMISE, || "waiters in all".into())?;
    let counted = table.sessions.iter().map(|(adapter, len)| (adapter, *len));
    ensure(adapters.into_iter().eq(counted), PROMISE, || "sessions by adapter".into())
}

/// A token of a piece was issued to the lease it stands under, and requests are known as long as it is remembered.
pub(super) fn invariant_tokens_are_counted(space: &NamespaceState) -> Checked {
    let mut counts: BTreeMap<(LeaseIdx, FencingToken), usize> = BTreeMap::new();
    let mut issued: BTreeMap<FencingToken, Party> = BTreeMap::new();
    let pieces = space.inodes.values().flat_map(|inode| &inode.pieces);
    for (&(party, _), piece) in pieces {
        for &token in piece.tokens.as_slice() {
            *counts.entry((party.lease, token)).or_insert(0) += 1;
            let first = *issued.entry(token).or_insert(party);
            ensure(first == party, "a token is issued to one lease", || token.to_string())?;
        }
    }
    for (number, lease) in space.leases.iter() {
        let Held::Many(many) = &lease.held else { continue };
        for (&token, request) in &many.requests {
            let pieces = counts.get(&(LeaseIdx(number), token)).copied().unwrap_or(0);
            let kept = pieces > 0 || !lease.held.stamped(token).is_empty();
            ensure(kept && pieces == request.pieces, "a request is known by its bytes", || {
                format!("{token}: {pieces} pieces, {} counted", request.pieces)
            })?;
        }
    }
    Ok(())
}

pub(super) fn invariant_owners_are_mentioned(space: &NamespaceState) -> Checked {
    let mut mentions: BTreeMap<OwnerIdx, u32> = BTreeMap::new();
    let leases = space.leases.iter().map(|(_, lease)| lease.owner);
    let known = space.owners.iter().map(|(owner, _)| owner);
    let holds = known.flat_map(|owner| space.owners.holds(owner).map(move |_| owner));
    let waiters = space.waiters.values().map(|waiter| waiter.owner);
    let places = space.kept.values().map(|place| place.owner);
    for owner in leases.chain(holds).chain(waiters).chain(places) {
        *mentions.entry(owner).or_insert(0) += 1;
    }
    let known: BTreeMap<OwnerIdx, u32> =
        space.owners.iter().map(|(owner, _)| (owner, space.owners.mentions(owner))).collect();
    ensure(known == mentions, "an owner is known as long as it is mentioned", || {
        format!("{} known, {} mentioned", known.len(), mentions.len())
    })
}
