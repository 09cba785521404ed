//! Every promise, as a function you can call.
//!
//! Each looks at the whole table by brute force and trusts none of the indexes it is there to check. They run after
//! every step of the property tests and of the simulator; nothing in the service calls them.
//!
//! A simulator makes millions of steps. For its sake what is held is gathered once for all promises about it, a step can
//! be judged from a [`Sketch`] of the table before it, and a step that has changed nothing but the time is judged by
//! [`check_time`] alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::budget::Budget;
use crate::command::GracePolicy;
use crate::conflict::Want;
use crate::effect::Step;
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Principal, Ticket};
use crate::inode::{Party, Piece};
use crate::lease::{Grant, Held, LeaseIdx, LeaseState};
use crate::mode::Mode;
use crate::namespace::{Known, NamespaceIdx, NamespaceState};
use crate::owners::OwnerIdx;
use crate::quota::{Usage, bytes_of};
use crate::registers::Made;
use crate::scope::{Key, Scope, ScopeKind};
use crate::sketch::{Earlier, Sketch};
use crate::table::LockTable;
use crate::transition::Transition;

/// A broken promise: which, and how it was seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{promise}: {seen}")]
pub struct Broken {
    pub promise: &'static str,
    pub seen: String,
}

type Checked = Result<(), Broken>;

fn ensure(kept: bool, promise: &'static str, seen: impl FnOnce() -> String) -> Checked {
    if kept { Ok(()) } else { Err(Broken { promise, seen: seen() }) }
}

/// Every promise about a table as it stands.
pub fn check_all(table: &LockTable) -> Checked {
    let facts = Facts::of(table);
    facts.all().try_for_each(|fact| invariant_scope_prints_and_parses_back(&fact.scope))?;
    check_facts(table, &facts)
}

/// Every promise about a table after a step that changed it: as [`check_all`], but of the spelling of scopes only those
/// that the step has granted are looked at.
pub fn check_change(table: &LockTable, step: &Step) -> Checked {
    for transition in &step.transitions {
        if let Transition::Granted(granted) = transition {
            let mut scopes = granted.claims.iter().map(|claim| &claim.scope);
            scopes.try_for_each(invariant_scope_prints_and_parses_back)?;
        }
    }
    check_facts(table, &Facts::of(table))
}

/// The promises that can be broken by the passing of time, or by a renewal, alone.
pub fn check_time(table: &LockTable) -> Checked {
    invariant_no_lease_is_past_its_deadline_unnoticed(table)?;
    invariant_every_deadline_has_its_timer(table)?;
    invariant_recovering_leases_are_counted(table)
}

/// The promises about what lasts, for a table that nobody decides by.
pub fn check_lasting(table: &LockTable) -> Checked {
    let facts = Facts::of(table);
    invariant_conflicting_grants_never_coexist(&facts)?;
    invariant_permits_stay_within_their_limit(&facts)
}

fn check_facts(table: &LockTable, facts: &Facts<'_>) -> Checked {
    invariant_conflicting_grants_never_coexist(facts)?;
    invariant_permits_stay_within_their_limit(facts)?;
    invariant_contenders_of_a_semaphore_agree_on_its_limit(facts)?;
    invariant_what_ends_in_turns_counts_no_more(table)?;
    invariant_every_grant_stands_under_one_lease(table)?;
    invariant_no_lease_is_past_its_deadline_unnoticed(table)?;
    invariant_every_deadline_has_its_timer(table)?;
    invariant_a_plain_lease_holds_something(table)?;
    invariant_no_fence_is_above_the_counter(table, facts)?;
    invariant_no_fence_is_used_by_two_grants(facts)?;
    invariant_registers_hold_issued_tokens(table)?;
    invariant_every_waiter_waits_for_somebody(table)?;
    invariant_waiters_stand_in_the_queue_of_each_claim(table)?;
    invariant_a_waiter_has_a_live_session_and_caller(table)?;
    invariant_a_kept_place_is_no_waiter(table)?;
    invariant_nobody_is_deadlocked(table)?;
    invariant_sets_hold_nothing_while_they_wait(table)?;
    invariant_ranges_are_canonical(table)?;
    invariant_reclaim_windows_are_of_lapsed_leases(table)?;
    invariant_recovering_leases_are_counted(table)?;
    invariant_request_ids_lead_to_their_grant_or_waiter(table)?;
    invariant_limits_are_kept(table)?;
    invariant_usage_is_counted(table)?;
    invariant_indexes_agree_with_what_is_held(table, facts)
}

/// Every promise about the way from one table to the next.
pub fn check_step(before: &LockTable, after: &LockTable, step: &Step) -> Checked {
    check_way(before, after, step)?;
    invariant_replay_gives_the_same_table(before, after, step)
}

/// As [`check_step`] without the replay, from no more than a sketch of the table before.
pub fn check_step_from(before: &Sketch, after: &LockTable, step: &Step) -> Checked {
    check_way(before, after, step)
}

fn check_way(before: &impl Earlier, after: &LockTable, step: &Step) -> Checked {
    invariant_fences_only_rise(before, after, step)?;
    invariant_epochs_only_rise(before, after)?;
    invariant_registers_only_rise(before, after, step)?;
    invariant_revision_counts_transitions(before, after, step)?;
    invariant_leases_never_end_early(before, after, step)
}

fn spaces(table: &LockTable) -> impl Iterator<Item = (NamespaceIdx, &NamespaceState)> {
    table.spaces_by_name()
}

/// All that is held in one namespace, as plain facts.
struct Fact {
    scope: Scope,
    mode: Mode,
    owner: OwnerIdx,
    lease: LeaseIdx,
    fence: FencingToken,
    /// Only its owner may take it back.
    over: bool,
}

/// Everything that is held, by namespace.
struct Facts<'a>(Vec<(NamespaceIdx, &'a NamespaceState, Vec<Fact>)>);

impl<'a> Facts<'a> {
    fn of(table: &'a LockTable) -> Facts<'a> {
        Facts(spaces(table).map(|(no, space)| (no, space, facts(space))).collect())
    }

    fn all(&self) -> impl Iterator<Item = &Fact> {
        self.0.iter().flat_map(|(_, _, facts)| facts)
    }
}

fn facts(space: &NamespaceState) -> Vec<Fact> {
    let mut facts = Vec::with_capacity(space.grants_len);
    for (number, lease) in space.leases.iter() {
        let over = lease.is_lapsed();
        let lease_no = LeaseIdx(number);
        for grant in lease.held.grants() {
            let Grant { key, fence, mode, owner, .. } = grant;
            let scope = Scope::Key(key.clone());
            let (mode, owner, fence) = (*mode, *owner, *fence);
            facts.push(Fact { scope, mode, owner, lease: lease_no, fence, over });
        }
    }
    for (&inode, held) in &space.inodes {
        for (&(Party { owner, lease }, _), piece) in &held.pieces {
            let Piece { range, mode, .. } = piece;
            let over = space.lease(lease).is_lapsed();
            let scope = Scope::range(inode, *range);
            facts.push(Fact { scope, mode: *mode, owner, lease, fence: piece.fence(), over });
        }
    }
    facts
}

/// Overlapping scopes conflict unless both are shared, or both take permits of the same scope, or one of them is what its
/// own owner may take back.
fn invariant_conflicting_grants_never_coexist(facts: &Facts<'_>) -> Checked {
    for (_, _, facts) in &facts.0 {
        for (at, one) in facts.iter().enumerate() {
            for other in &facts[..at] {
                if !one.mode.conflicts_with(other.mode) || !one.scope.overlaps(&other.scope) {
                    continue;
                }
                let one_owner = one.owner == other.owner;
                let counted = one.scope == other.scope && one.mode.permits().is_some();
                let excused = one_owner && (one.over || other.over) || counted;
                ensure(excused, "conflicting grants never coexist", || {
                    format!("{} {} and {} {}", one.scope, one.mode, other.scope, other.mode)
                })?;
            }
        }
    }
    Ok(())
}

fn invariant_permits_stay_within_their_limit(facts: &Facts<'_>) -> Checked {
    for (_, _, facts) in &facts.0 {
        let mut used: BTreeMap<&Scope, u32> = BTreeMap::new();
        for fact in facts {
            if let Some(limit) = fact.mode.permits() {
                let count = used.entry(&fact.scope).or_insert(0);
                *count += 1;
                ensure(*count <= limit.get(), "permits stay within their limit", || {
                    format!("{count} hold {} of {limit}", fact.scope)
                })?;
            }
        }
    }
    Ok(())
}

fn invariant_contenders_of_a_semaphore_agree_on_its_limit(facts: &Facts<'_>) -> Checked {
    for (_, space, facts) in &facts.0 {
        let mut limits: BTreeMap<&Scope, Option<u32>> = BTreeMap::new();
        let held = facts.iter().map(|fact| (&fact.scope, fact.mode));
        let waiting = space.waiters.values();
        let wanted = waiting.flat_map(|w| w.request.claims.iter().map(|c| (&c.scope, c.mode)));
        for (scope, mode) in held.chain(wanted) {
            if matches!(scope, Scope::Range { .. }) {
                continue;
            }
            let limit = mode.permits().map(std::num::NonZeroU32::get);
            let first = *limits.entry(scope).or_insert(limit);
            ensure(first == limit, "contenders of a semaphore agree on its limit", || {
                format!("{scope} with {first:?} and {limit:?}")
            })?;
        }
    }
    Ok(())
}

fn invariant_scope_prints_and_parses_back(scope: &Scope) -> Checked {
    let text = scope.to_string();
    let is_same = Scope::parse(&text).as_ref() == Ok(scope);
    ensure(is_same, "canonical text parses back to the same scope", || text)
}

pub fn invariant_every_grant_stands_under_one_lease(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        let mut seen = BTreeSet::new();
        for (number, lease) in space.leases.iter() {
            for &piece in lease.held.pieces().into_iter().flatten() {
                let party = Party { owner: piece.1, lease: LeaseIdx(number) };
                let there =
                    space.inodes.get(&piece.0).and_then(|i| i.pieces.get(&(party, piece.2)));
                ensure(
                    there.is_some() && seen.insert((party, piece.0, piece.2)),
                    "every grant stands under exactly one lease",
                    || format!("piece of inode {} at {}", piece.0, piece.2),
                )?;
            }
        }
        let pieces: usize = space.inodes.values().map(|inode| inode.pieces.len()).sum();
        ensure(pieces == seen.len(), "every grant stands under exactly one lease", || {
            format!("{pieces} pieces, {} of them under a lease", seen.len())
        })?;
    }
    Ok(())
}

/// Unless there is more to work off than one step may, nothing is kept past its deadline.
pub fn invariant_no_lease_is_past_its_deadline_unnoticed(table: &LockTable) -> Checked {
    let behind = |moment| moment < table.now;
    let timers_left = table.lease_timers.first().is_some_and(|&(moment, ..)| behind(moment));
    for (_, space) in spaces(table) {
        for (_, lease) in space.leases.iter() {
            let lapsed = lease.is_over() || !lease.is_due(table.now);
            ensure(lapsed || timers_left, "a lapsed lease is worked off", || {
                format!("deadline {} at {}", lease.deadline, table.now)
            })?;
        }
    }
    Ok(())
}

pub fn invariant_every_deadline_has_its_timer(table: &LockTable) -> Checked {
    let (mut timers, mut places) = (0, 0);
    for (no, space) in spaces(table) {
        for (number, lease) in space.leases.iter() {
            let is_queued = table.ending.contains(&(no, LeaseIdx(number)));
            let is_known = space.ending.contains_key(&LeaseIdx(number));
            let same = is_queued == lease.is_ending() && is_known == is_queued;
            ensure(same, "a lease that is over is cleared in its turn", || {
                format!("over since {}", lease.deadline)
            })?;
            if lease.is_ending() {
                continue;
            }
            timers += 1;
            let there = table.lease_timers.contains(&(lease.timer, no, LeaseIdx(number)));
            let in_time = lease.is_over() || lease.timer <= lease.deadline;
            ensure(there && in_time, "every deadline has its timer", || {
                format!("lease due at {}, timer at {}", lease.deadline, lease.timer)
            })?;
        }
        for (&ticket, waiter) in &space.waiters {
            if let Some(timer) = waiter.deadline {
                let there = table.wait_timers.contains(&(timer, ticket, no));
                ensure(there, "every deadline has its timer", || format!("ticket {}", ticket.0))?;
            }
        }
        for (&ticket, place) in &space.kept {
            places += 1;
            let there = table.place_timers.contains(&(place.until, ticket, no));
            ensure(there, "every kept place has its timer", || format!("ticket {}", ticket.0))?;
        }
    }
    ensure(timers == table.lease_timers.len(), "every timer has its lease", || {
        format!("{} timers for {timers} leases", table.lease_timers.len())
    })?;
    ensure(places == table.place_timers.len(), "every timer has its place", || {
        format!("{} timers for {places} places", table.place_timers.len())
    })
}

pub fn invariant_a_plain_lease_holds_something(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        for (_, lease) in space.leases.iter() {
            let something = lease.session.is_some() || !lease.held.is_empty();
            ensure(something, "a plain lease that holds nothing is over", || {
                format!("deadline {}", lease.deadline)
            })?;
        }
    }
    Ok(())
}

fn invariant_no_fence_is_above_the_counter(table: &LockTable, facts: &Facts<'_>) -> Checked {
    facts.all().try_for_each(|fact| {
        ensure(fact.fence <= table.fence, "no fence is above the counter", || {
            format!("{} on {}, counter {}", fact.fence, fact.scope, table.fence)
        })
    })
}

/// A fence belongs to one grant, or to one set under one lease; parts of a split range share theirs.
fn invariant_no_fence_is_used_by_two_grants(facts: &Facts<'_>) -> Checked {
    let mut by_fence: BTreeMap<FencingToken, (NamespaceIdx, LeaseIdx, OwnerIdx)> = BTreeMap::new();
    for (no, _, facts) in &facts.0 {
        for fact in facts {
            let whose = (*no, fact.lease, fact.owner);
            let first = *by_fence.entry(fact.fence).or_insert(whose);
            ensure(first == whose, "no fence is used by two grants", || {
                format!("{} on {}", fact.fence, fact.scope)
            })?;
        }
    }
    Ok(())
}

/// FIFO, and no longer than needed: who could be granted does not wait.
/// A mark above them would turn every rightful holder away.
pub fn invariant_registers_hold_issued_tokens(table: &LockTable) -> Checked {
    for (_, name, register) in table.registers.iter() {
        let mark = register.high_water;
        ensure(mark <= table.fence, "a fence register has seen issued tokens only", || {
            format!("{name}: {mark}, the last one issued is {}", table.fence)
        })?;
    }
    Ok(())
}

pub fn invariant_every_waiter_waits_for_somebody(table: &LockTable) -> Checked {
    // Those who are still to be woken can be granted in their turn.
    let withheld = table.suspended || table.is_strict_grace() || table.has_candidates();
    for (_, space) in spaces(table) {
        for (&ticket, waiter) in &space.waiters {
            let mut claims = waiter.request.claims.iter();
            let blocked = claims
                .any(|claim| !space.blockers(claim, waiter.asker(ticket), Want::One).is_empty());
            ensure(
                blocked || withheld || space.is_gone(waiter, table.now),
                "who could be granted does not wait",
                || format!("{} with ticket {}", waiter.request.owner, ticket.0),
            )?;
        }
    }
    Ok(())
}

pub fn invariant_waiters_stand_in_the_queue_of_each_claim(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        let mut expected: Vec<(Scope, Ticket, Mode)> = Vec::new();
        for (&ticket, waiter) in &space.waiters {
            let claims = waiter.request.claims.iter();
            expected.extend(claims.map(|claim| (claim.scope.clone(), ticket, claim.mode)));
        }
        // A scope that is claimed twice is one place.
        expected.sort_unstable();
        expected.dedup();
        let mut found = Vec::with_capacity(expected.len());
        for (key, queue) in &space.queues {
            let scope = Scope::Key(key.clone());
            found.extend(queue.iter().map(|(ticket, mode)| (scope.clone(), ticket, mode)));
        }
        for (&inode, held) in &space.inodes {
            for (&range, queue) in &held.queues {
                let scope = Scope::range(inode, range);
                found.extend(queue.iter().map(|(ticket, mode)| (scope.clone(), ticket, mode)));
            }
        }
        found.sort_unstable();
        ensure(expected == found, "a waiter keeps its place in every queue", || {
            format!("{} places, {} in queues", expected.len(), found.len())
        })?;
    }
    Ok(())
}

/// A waiter that has nobody left to answer is forgotten.
pub fn invariant_a_waiter_has_a_live_session_and_caller(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        for (&ticket, waiter) in &space.waiters {
            let session = match waiter.request.under {
                crate::command::Under::Session(id) => {
                    let ends = |no: &LeaseIdx| space.lease(*no).is_ending();
                    space.live_lease(id).is_some() || space.lease_no(id).as_ref().is_some_and(ends)
                }
                crate::command::Under::NewLease { .. } => true,
            };
            let calls = waiter.calls.iter().all(|call| space.calls.get(call) == Some(&ticket));
            let caller = calls && !waiter.calls.is_empty();
            ensure(session && caller, "a waiter is still there", || {
                format!("{} with ticket {}", waiter.request.owner, ticket.0)
            })?;
        }
        for (call, ticket) in &space.calls {
            let there = space.waiters.get(ticket).is_some_and(|w| w.calls.contains(call));
            ensure(there, "a call leads to its waiter", || format!("call {}", call.0))?;
        }
    }
    Ok(())
}

/// The queues hold all waiters, and nothing else: that is another invariant.
pub fn invariant_a_kept_place_is_no_waiter(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        for ticket in space.kept.keys() {
            let is_waiter = space.waiters.contains_key(ticket);
            ensure(!is_waiter, "a kept place blocks nobody", || format!("ticket {}", ticket.0))?;
        }
    }
    Ok(())
}

/// No cycle of waiters stands. Changes made again after an undo can close one: the next command, at once, breaks it.
pub fn invariant_nobody_is_deadlocked(table: &LockTable) -> Checked {
    if !table.weakened.is_empty() {
        return Ok(());
    }
    for (_, space) in spaces(table) {
        let mut budget = Budget::new(usize::MAX);
        let stuck = space.stuck_owners(&mut budget).expect("the budget has no end");
        for owner in stuck {
            let cycle = space.find_cycle(owner, None, &mut budget).expect("nor has it here");
            ensure(cycle.is_none(), "nobody is deadlocked", || {
                format!("{:?}", cycle.as_ref().map(|cycle| cycle.edges(space)))
            })?;
        }
    }
    Ok(())
}

/// A set that waits under its own lease has no lease yet, so there is nothing it could hold.
pub fn invariant_sets_hold_nothing_while_they_wait(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        for waiter in space.waiters.values() {
            if let crate::command::Under::NewLease { id, .. } = waiter.request.under {
                ensure(space.lease_no(id).is_none(), "a waiting set holds nothing", || {
                    waiter.request.owner.to_string()
                })?;
            }
        }
    }
    Ok(())
}

/// Per owner and lease the pieces of a file are disjoint, and those that touch differ in mode.
pub fn invariant_ranges_are_canonical(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        for (inode, held) in &space.inodes {
            let pieces: Vec<(&(Party, u64), &Piece)> = held.pieces.iter().collect();
            for pair in pieces.windows(2) {
                let ((one_party, _), one) = pair[0];
                let ((other_party, _), other) = pair[1];
                let touching = one.range.touches(other.range) && one.mode == other.mode;
                let wrong =
                    one_party == other_party && (one.range.overlaps(other.range) || touching);
                ensure(!wrong, "ranges are in canonical form", || {
                    format!("{} and {} of inode {inode}", one.range, other.range)
                })?;
            }
            for (&(party, _), piece) in &held.pieces {
                let ordered = piece.tokens.as_slice().is_sorted() && piece.mode.permits().is_none();
                ensure(ordered, "a merged range carries the highest of its fences", || {
                    format!("{:?} on {} of inode {inode}", piece.tokens, piece.range)
                })?;
                ensure(party.lease == piece.lease, "a piece is its holder's", || {
                    format!("{} of inode {inode}", piece.range)
                })?;
            }
        }
    }
    Ok(())
}

pub fn invariant_reclaim_windows_are_of_lapsed_leases(table: &LockTable) -> Checked {
    for (no, space) in spaces(table) {
        for (number, lease) in space.leases.iter().filter(|(_, lease)| lease.is_lapsed()) {
            let lease_no = LeaseIdx(number);
            let windows = table.windows(no, lease_no);
            let open = windows.iter().all(|(end, _)| *end > lease.deadline);
            let kept = !windows.is_empty() && open && lease.session.is_none();
            ensure(kept, "only what may be taken back outlives its lease", || {
                format!("lapsed at {}", lease.deadline)
            })?;
        }
    }
    Ok(())
}

pub fn invariant_what_ends_in_turns_counts_no_more(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        for &lease in space.ending.keys() {
            for grant in space.lease(lease).held.grants() {
                let view = table.get(&space.name, &Scope::Key(grant.key.clone()));
                let shown = view.holders.iter().any(|holder| holder.fence == grant.fence);
                ensure(!shown, "what ends in turns counts no more", || {
                    format!("{} with {}", grant.key.as_str(), grant.fence)
                })?;
            }
        }
    }
    Ok(())
}

pub fn invariant_recovering_leases_are_counted(table: &LockTable) -> Checked {
    let leases = spaces(table).flat_map(|(_, space)| space.leases.iter());
    let recovering = leases.filter(|(_, lease)| lease.state == LeaseState::Recovering).count();
    ensure(recovering == table.recovering, "the grace knows whom it waits for", || {
        format!("{recovering} recovering, {} counted", table.recovering)
    })?;
    let over = table.grace.is_some_and(|grace| {
        let all_back = grace.policy != GracePolicy::StrictUnknown && recovering == 0;
        all_back || grace.ends_at < table.now
    });
    ensure(!over, "a grace ends when all are back, and at the latest with its timer", || {
        format!("{:?} at {}", table.grace, table.now)
    })
}

pub fn invariant_request_ids_lead_to_their_grant_or_waiter(table: &LockTable) -> Checked {
    for (_, space) in spaces(table) {
        for ((owner, id), known) in &space.requests {
            let there = match known {
                Known::Waiting(ticket) => space.waiters.get(ticket).is_some_and(|waiter| {
                    waiter.owner == *owner && waiter.request.request_id.as_ref() == Some(id)
                }),
                Known::Kept(ticket) => space.kept.get(ticket).is_some_and(|place| {
                    place.owner == *owner && place.request_id.as_ref() == Some(id)
                }),
                Known::Opened { lease, .. } => space.leases.get(lease.0).is_some_and(|lease| {
                    let request = lease.session.as_ref().map(|session| &session.terms.request);
                    lease.owner == *owner
                        && request.is_some_and(|r| r.as_ref().is_some_and(|r| r.id == *id))
                }),
                Known::Granted { lease, fence, .. } => {
                    let lease = space.leases.get(lease.0);
                    lease.is_some_and(|lease| {
                        let bytes = lease.held.byte_request(*fence).is_some();
                        !lease.held.stamped(*fence).is_empty() || bytes
                    })
                }
            };
            ensure(there, "a request id leads to its grant or waiter", || id.to_string())?;
        }
    }
    Ok(())
}

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
fn invariant_indexes_agree_with_what_is_held(table: &LockTable, facts: &Facts<'_>) -> Checked {
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
fn invariant_tokens_are_counted(space: &NamespaceState) -> Checked {
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

fn invariant_owners_are_mentioned(space: &NamespaceState) -> Checked {
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

pub fn invariant_fences_only_rise(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let mut last = before.last_fence();
    for transition in &step.transitions {
        if let Transition::Granted(granted) = transition {
            ensure(granted.fence > last, "every fence is above all before it", || {
                format!("{} after {last}", granted.fence)
            })?;
            last = granted.fence;
        }
    }
    ensure(after.fence >= last, "every fence is above all before it", || {
        format!("counter {} after {last}", after.fence)
    })
}

pub fn invariant_epochs_only_rise(before: &impl Earlier, after: &LockTable) -> Checked {
    ensure(after.epoch >= before.last_epoch(), "the epoch only rises", || {
        format!("{:?} after {:?}", after.epoch, before.last_epoch())
    })
}

/// Unless an operator has deleted it.
pub fn invariant_registers_only_rise(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    for (namespace, register, mark) in before.marks() {
        let now = after.register(namespace, register);
        let deleted = step.transitions.iter().any(|transition| {
            matches!(transition, Transition::FenceDeleted { namespace: n, register: r, .. }
                if (n, r) == (namespace, register))
        });
        ensure(
            deleted || now.is_some_and(|now| now >= mark),
            "a fence register only rises",
            || format!("{register}: {now:?} after {mark}"),
        )?;
    }
    Ok(())
}

pub fn invariant_revision_counts_transitions(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let expected = before.last_revision().0 + step.transitions.len() as u64;
    // After a restore it goes on well above anything seen since the backup.
    let jumped = step.transitions.iter().any(|t| matches!(t, Transition::Jumped { .. }));
    let counted = after.revision.0 == expected || (jumped && after.revision.0 > expected);
    ensure(counted, "the revision counts every change", || {
        format!("{} instead of {expected}", after.revision.0)
    })
}

/// A lease that lapsed had a deadline, and it had passed.
pub fn invariant_leases_never_end_early(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let lapsed = |ending: &crate::transition::Ending| {
        use crate::transition::Ending::{Expired, GraceExpired};
        matches!(ending, Expired | GraceExpired)
    };
    for transition in &step.transitions {
        let (namespace, lease): (_, LeaseId) = match transition {
            Transition::LeaseLapsed { namespace, lease, .. } => (namespace, *lease),
            Transition::LeaseEnding { namespace, lease, ending }
            | Transition::LeaseEnded { namespace, lease, ending }
                if lapsed(ending) =>
            {
                (namespace, *lease)
            }
            Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::SessionOpened(_)
            | Transition::Granted(_)
            | Transition::TtlChanged { .. }
            | Transition::LeaseEnding { .. }
            | Transition::LeaseEnded { .. }
            | Transition::GrantEnded { .. }
            | Transition::KeyEnded { .. }
            | Transition::RangeEnded { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => continue,
        };
        let due = before.deadline_of(namespace, lease);
        ensure(due.is_some_and(|due| due < after.now), "a lease never lapses early", || {
            format!("at {}, due at {due:?}", after.now)
        })?;
    }
    Ok(())
}

/// The transitions of the step, replayed onto the table before it, give the table after it.
pub fn invariant_replay_gives_the_same_table(
    before: &LockTable,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let mut replayed = before.clone();
    for transition in &step.transitions {
        if let Err(unfit) = replayed.apply(transition) {
            return ensure(false, "transitions replay", || unfit.to_string());
        }
    }
    ensure(replayed.digest() == after.digest(), "transitions replay to the same table", || {
        format!("{:?}", step.transitions)
    })
}
