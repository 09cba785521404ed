//! Promises about what is held: conflicts, permits, byte ranges, fencing tokens.

use std::collections::BTreeMap;

use super::{Checked, Facts, ensure, spaces};
use crate::fencing_token::FencingToken;
use crate::inode::{Party, Piece};
use crate::lease::LeaseIdx;
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerIdx;
use crate::scope::Scope;
use crate::table::LockTable;

/// Overlapping scopes conflict unless both are shared, or both take permits of the same scope, or one of them is what its
/// own owner may take back.
pub(super) fn invariant_conflicting_grants_never_coexist(facts: &Facts<'_>) -> Checked {
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

pub(super) fn invariant_permits_stay_within_their_limit(facts: &Facts<'_>) -> Checked {
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

pub(super) fn invariant_contenders_of_a_semaphore_agree_on_its_limit(facts: &Facts<'_>) -> Checked {
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

pub(super) fn invariant_scope_prints_and_parses_back(scope: &Scope) -> Checked {
    let text = scope.to_string();
    let is_same = Scope::parse(&text).as_ref() == Ok(scope);
    ensure(is_same, "canonical text parses back to the same scope", || text)
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

pub(super) fn invariant_no_fence_is_above_the_counter(
    table: &LockTable,
    facts: &Facts<'_>,
) -> Checked {
    facts.all().try_for_each(|fact| {
        ensure(fact.fence <= table.fence, "no fence is above the counter", || {
            format!("{} on {}, counter {}", fact.fence, fact.scope, table.fence)
        })
    })
}

/// A fence belongs to one grant, or to one set under one lease; parts of a split range share theirs.
pub(super) fn invariant_no_fence_is_used_by_two_grants(facts: &Facts<'_>) -> Checked {
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

/// A mark above the last token issued would reject every rightful holder.
pub fn invariant_registers_hold_issued_tokens(table: &LockTable) -> Checked {
    for (_, name, register) in table.registers.iter() {
        let mark = register.high_water;
        ensure(mark <= table.fence, "a fence register has seen issued tokens only", || {
            format!("{name}: {mark}, the last one issued is {}", table.fence)
        })?;
    }
    Ok(())
}
