//! Promises about waiters, their queues and their request ids.

use super::{Checked, ensure, spaces};
use crate::budget::Budget;
use crate::conflict::Want;
use crate::id::Ticket;
use crate::lease::LeaseIdx;
use crate::mode::Mode;
use crate::namespace::Known;
use crate::scope::Scope;
use crate::table::LockTable;

/// The queue is FIFO, and no request waits longer than needed: what could be granted does not wait.
pub fn invariant_every_waiter_is_blocked(table: &LockTable) -> Checked {
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
pub fn invariant_no_waiters_are_deadlocked(table: &LockTable) -> Checked {
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
