//! Promises about leases and the grants under them.

use std::collections::BTreeSet;

use super::{Checked, ensure, spaces};
use crate::command::GracePolicy;
use crate::inode::Party;
use crate::lease::{LeaseIdx, LeaseState};
use crate::scope::Scope;
use crate::table::LockTable;

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
