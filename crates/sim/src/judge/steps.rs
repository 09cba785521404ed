//! Every single step of every table: the promises of the core, and first come, first served.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::cell::RefCell;

use leasehold_core::{
    Claim, Command, Effect, Granted, GraphWait, HolderState, LockTable, Mode, Namespace, News,
    Owner, Scope, Step, Ticket, Transition, invariant,
};

use super::Verdict;
use crate::time::Moment;

thread_local! {
    /// What was seen last, until the world asks for it.
    static BROKEN: RefCell<Option<(&'static str, String)>> = const { RefCell::new(None) };
}

/// From now on every step of every engine in this thread is looked at.
pub fn watch_steps() {
    leasehold_engine::inspect::watch(Some(look));
    BROKEN.take();
}

pub(super) fn take_broken(now: Moment) -> Option<Verdict> {
    BROKEN.take().map(|(promise, seen)| Verdict::new(now, promise, seen))
}

fn look(before: &LockTable, after: &LockTable, command: &Command, step: &Step) {
    let checked = invariant::check_all(after)
        .and_then(|()| invariant::check_step(before, after, step))
        .map_err(|broken| (broken.promise, broken.seen))
        .and_then(|()| in_order(before, after, command, step))
        .and_then(|()| no_false_alarm(after, step))
        .and_then(|()| nobody_too_late(before, step));
    if let Err(broken) = checked {
        BROKEN.with_borrow_mut(|known| known.get_or_insert(broken).0);
    }
}

/// Nobody is granted what somebody else has waited for longer, who waits still.
fn in_order(
    before: &LockTable,
    after: &LockTable,
    command: &Command,
    step: &Step,
) -> Result<(), (&'static str, String)> {
    let reclaims = matches!(command, Command::Acquire(acquire) if acquire.reclaim);
    if reclaims {
        return Ok(());
    }
    for transition in &step.transitions {
        let Transition::Granted(granted) = transition else { continue };
        let waits = after.graph(&granted.namespace, usize::MAX).waits;
        if waits.is_empty() {
            continue;
        }
        // Whoever comes back for a place that was kept has stood there all the time.
        let kept = match command {
            Command::Acquire(acquire) if acquire.owner == granted.owner => acquire.ticket,
            _ => None,
        };
        let ticket = kept.or_else(|| ticket_of(before, granted, &waits));
        for wait in waits.iter().filter(|wait| wait.waiter != granted.owner) {
            let is_earlier = ticket.is_none_or(|ticket| wait.ticket < ticket);
            let overtakes = |claim: &&Claim| {
                is_contested(claim, wait)
                    && !may_overtake(before, &granted.namespace, &granted.owner, &claim.scope)
            };
            if is_earlier && let Some(claim) = granted.claims.iter().find(overtakes) {
                let seen = format!(
                    "{} got {} {}, {} has waited for {} {} for longer",
                    granted.owner, claim.scope, claim.mode, wait.waiter, wait.scope, wait.mode
                );
                return Err(("first come, first served", seen));
            }
        }
    }
    Ok(())
}

/// A circle is only told of if everybody in it waits, or holds something that does not end by itself.
fn no_false_alarm(after: &LockTable, step: &Step) -> Result<(), (&'static str, String)> {
    for effect in &step.effects {
        let Effect::Event(event) = effect else { continue };
        let News::Deadlock { cycle, .. } = &event.news else { continue };
        for edge in cycle.iter() {
            let lock = after.get(&event.namespace, &edge.scope);
            let mut holders =
                lock.holders.iter().filter(|held| held.owner == edge.blocker).peekable();
            let holds = holders.peek().is_some();
            let is_over = holders.all(|held| held.state == HolderState::ReclaimWindow);
            let waits = lock.waiters.iter().any(|waiter| waiter.owner == edge.blocker);
            if holds && is_over && !waits {
                let seen = format!("{} waits for {}, which is over", edge.waiter, edge.blocker);
                return Err(("no deadlock is told of that is none", seen));
            }
        }
    }
    Ok(())
}

/// Nobody is granted anything whose wait has run out.
fn nobody_too_late(before: &LockTable, step: &Step) -> Result<(), (&'static str, String)> {
    let granted = step.transitions.iter().filter_map(|transition| match transition {
        Transition::Granted(granted) => Some(granted),
        _ => None,
    });
    for granted in granted {
        let waits = before.graph(&granted.namespace, usize::MAX).waits;
        let its = |wait: &&GraphWait| {
            wait.waiter == granted.owner
                && granted.claims.iter().any(|claim| claim.scope == wait.scope)
        };
        let Some(wait) = waits.iter().find(its) else { continue };
        let lock = before.get(&granted.namespace, &wait.scope);
        let waiter = lock.waiters.iter().find(|waiter| waiter.ticket == wait.ticket);
        let deadline = waiter.and_then(|waiter| waiter.deadline);
        let only = waits.iter().filter(its).count() == 1;
        if let Some(deadline) = deadline.filter(|deadline| only && *deadline < granted.granted_at) {
            let seen = format!("{} waited until {deadline}", granted.owner);
            return Err(("who is gone is granted nothing", seen));
        }
    }
    Ok(())
}

/// The place in line of the one that was granted, if it stood in line.
fn ticket_of(before: &LockTable, granted: &Granted, left: &[GraphWait]) -> Option<Ticket> {
    let is_its = |wait: &&GraphWait| {
        wait.waiter == granted.owner
            && granted.claims.iter().any(|claim| claim.scope == wait.scope)
            && left.iter().all(|left| left.ticket != wait.ticket)
    };
    let waits = before.graph(&granted.namespace, usize::MAX).waits;
    waits.iter().filter(is_its).map(|wait| wait.ticket).min()
}

fn is_contested(claim: &Claim, wait: &GraphWait) -> bool {
    let permits = |mode: Mode| matches!(mode, Mode::Permits(_));
    let counted = permits(claim.mode) && permits(wait.mode) && claim.scope == wait.scope;
    claim.scope.overlaps(&wait.scope) && claim.mode.conflicts_with(wait.mode) && !counted
}

/// Whoever holds bytes of a file already, or may take a scope back, need not stand in line for it.
fn may_overtake(before: &LockTable, namespace: &Namespace, owner: &Owner, scope: &Scope) -> bool {
    let looked_at = match scope {
        Scope::Range { inode, .. } => Scope::inode(*inode),
        Scope::Key(_) => scope.clone(),
    };
    let is_range = matches!(scope, Scope::Range { .. });
    before.get(namespace, &looked_at).holders.iter().any(|holder| {
        holder.owner == *owner && (is_range || holder.state == HolderState::ReclaimWindow)
    })
}
