//! Every promise, as a function you can call.
//!
//! Each looks at the whole table by brute force and trusts none of the indexes it is there to check. They run after
//! every step of the property tests and of the simulator; nothing in the service calls them.
//!
//! A simulator makes millions of steps. For its sake what is held is gathered once for all promises about it, a step can
//! be judged from a [`Sketch`] of the table before it, and a step that has changed nothing but the time is judged by
//! [`check_time`] alone.

mod grants;
mod leases;
mod waiters;
mod counts;
mod steps;
mod sketch;

use crate::effect::Step;
use crate::fencing_token::FencingToken;
use crate::inode::{Party, Piece};
use crate::lease::{Grant, LeaseIdx};
use crate::mode::Mode;
use crate::namespace::{NamespaceIdx, NamespaceState};
use crate::owners::OwnerIdx;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::transition::Transition;

pub use counts::*;
pub use grants::*;
pub use leases::*;
pub use sketch::{Earlier, HoldSketch, LeaseSketch, Sketch, WaitSketch};
pub use steps::*;
pub use waiters::*;

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
    invariant_every_waiter_is_blocked(table)?;
    invariant_waiters_stand_in_the_queue_of_each_claim(table)?;
    invariant_a_waiter_has_a_live_session_and_caller(table)?;
    invariant_a_kept_place_is_no_waiter(table)?;
    invariant_no_waiters_are_deadlocked(table)?;
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
