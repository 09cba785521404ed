//! Every single step of every table: the promises of the core, and FIFO.
//!
//! A step that has changed nothing but the time can only have broken promises about time, so only those are looked at
//! then, and all of them now and then. What was replayed is compared lease by lease with what the step has touched, and as
//! a whole now and then: the replayed table is never set right, so nothing that was once missed is missed for good.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::cell::RefCell;
use std::collections::VecDeque;

use leasehold_core::{
    Claim, Command, Earlier, Effect, Granted, HolderState, LeaseId, LockTable, Mode, Namespace,
    News, Owner, RequestId, Scope, Sketch, Step, Ticket, Transition, WaitSketch, invariant,
};
use leasehold_engine::inspect::Watch;

use super::Verdict;
use crate::time::Moment;

/// So often everything is looked at, whatever a step has done.
const ALL_EVERY: u64 = 32;

type Checked = Result<(), (&'static str, String)>;

thread_local! {
    /// What was seen last, until the world asks for it.
    static BROKEN: RefCell<Option<(&'static str, String)>> = const { RefCell::new(None) };
}

/// From now on every step of every engine in this thread is looked at.
pub fn watch_steps() {
    leasehold_engine::inspect::watch(Some(|table| Box::new(Onlooker::new(table))));
    BROKEN.take();
}

pub(super) fn take_broken(now: Moment) -> Option<Verdict> {
    BROKEN.take().map(|(promise, seen)| Verdict::new(now, promise, seen))
}

/// Looks at the steps of one engine.
#[derive(Debug)]
struct Onlooker {
    /// The table before the step.
    before: Sketch,
    /// Every transition of this engine, replayed.
    replayed: LockTable,
    /// The table at a moment that was certainly durable when something was undone last, and every transition since.
    base: LockTable,
    since: VecDeque<Transition>,
    asked: Asked,
    steps: u64,
}

/// What matters of the command of a step.
#[derive(Debug, Default)]
struct Asked {
    reclaims: bool,
    /// A client comes back for a place that was kept.
    place: Option<(Owner, Ticket)>,
    /// The same by the id of its request.
    request: Option<(Owner, RequestId)>,
}

impl Watch for Onlooker {
    fn before(&mut self, command: &Command) {
        self.asked = match command {
            Command::Acquire(acquire) => Asked {
                reclaims: acquire.reclaim,
                place: acquire.ticket.map(|shown| (acquire.owner.clone(), shown.ticket)),
                request: acquire.request_id.clone().map(|id| (acquire.owner.clone(), id)),
            },
            _ => Asked::default(),
        };
    }

    fn after(&mut self, table: &LockTable, step: &Step) {
        self.steps += 1;
        let after = Sketch::of(table);
        if let Err(broken) = self.look(&after, table, step) {
            BROKEN.with_borrow_mut(|known| known.get_or_insert(broken).0);
        }
        self.before = after;
        self.since.extend(step.transitions.iter().cloned());
    }

    fn rolled_back(&mut self, table: &LockTable) {
        if let Err(broken) = self.go_back(table) {
            BROKEN.with_borrow_mut(|known| known.get_or_insert(broken).0);
        }
        self.before = Sketch::of(table);
    }

    fn applied(&mut self, table: &LockTable, transition: &Transition) {
        if let Err(unfit) = self.replayed.apply(transition) {
            let broken = ("transitions replay", unfit.to_string());
            BROKEN.with_borrow_mut(|known| known.get_or_insert(broken).0);
        }
        self.since.push_back(transition.clone());
        self.before = Sketch::of(table);
    }
}

impl Onlooker {
    /// What was undone has left nothing behind: the table is what the transitions before it give.
    fn go_back(&mut self, table: &LockTable) -> Checked {
        while self.base.revision() < table.revision()
            && let Some(transition) = self.since.pop_front()
        {
            let unfit = |unfit: leasehold_core::Unfit| {
                ("transitions replay", format!("{unfit}: {transition:?}"))
            };
            self.base.apply(&transition).map_err(unfit)?;
        }
        self.since.clear();
        self.replayed = self.base.clone();
        if self.base.digest() != table.digest() {
            let seen = format!("at revision {}", table.revision().0);
            return Err(("what is undone leaves nothing behind", seen));
        }
        Ok(())
    }

    fn new(table: &LockTable) -> Onlooker {
        Onlooker {
            before: Sketch::of(table),
            replayed: table.clone(),
            base: table.clone(),
            since: VecDeque::new(),
            asked: Asked::default(),
            steps: 0,
        }
    }

    fn look(&mut self, after: &Sketch, table: &LockTable, step: &Step) -> Checked {
        let is_quiet = step.transitions.is_empty() && self.before.differs_in_time_only(after);
        let checked = if self.steps.is_multiple_of(ALL_EVERY) {
            invariant::check_all(table)
        } else if is_quiet {
            invariant::check_time(table)
        } else {
            invariant::check_change(table, step)
        };
        checked
            .and_then(|()| invariant::check_step_from(&self.before, table, step))
            .map_err(|broken| (broken.promise, broken.seen))?;
        self.replay(table, step)?;
        self.in_order(after, step)?;
        self.reclaimed_is_own(table, step)?;
        self.ticket_leads_back(after)?;
        self.nobody_too_late(after, step)?;
        no_false_alarm(table, step)
    }

    /// The transitions of all steps, replayed, give the same table.
    fn replay(&mut self, table: &LockTable, step: &Step) -> Checked {
        const PROMISE: &str = "transitions replay to the same table";
        for transition in &step.transitions {
            let unfit = |unfit: leasehold_core::Unfit| {
                ("transitions replay", format!("{unfit}, in {:?}", step.transitions))
            };
            self.replayed.apply(transition).map_err(unfit)?;
        }
        for (namespace, lease) in step.transitions.iter().filter_map(touched) {
            let digest = |table: &LockTable| table.lease_digest(namespace, lease);
            if digest(&self.replayed) != digest(table) {
                return Err((PROMISE, format!("{:?}", step.transitions)));
            }
        }
        let counters = |table: &LockTable| (table.revision(), table.epoch(), table.fence());
        let is_same = counters(&self.replayed) == counters(table)
            && (!self.steps.is_multiple_of(ALL_EVERY) || self.replayed.digest() == table.digest());
        if is_same { Ok(()) } else { Err((PROMISE, format!("{:?}", step.transitions))) }
    }

    /// No owner is granted what another has waited for longer, and waits for still.
    fn in_order(&self, after: &Sketch, step: &Step) -> Checked {
        if self.asked.reclaims || after.waits.is_empty() {
            return Ok(());
        }
        for granted in step.transitions.iter().filter_map(granted) {
            let ticket = self.place_of(after, granted);
            let others = after.waiting(&granted.namespace);
            for wait in others.filter(|wait| wait.owner != granted.owner) {
                let is_earlier = ticket.is_none_or(|ticket| wait.ticket < ticket);
                let overtakes = |claim: &&Claim| {
                    is_contested(claim, wait) && !self.may_overtake(granted, claim, step)
                };
                if is_earlier && let Some(claim) = granted.claims.iter().find(overtakes) {
                    let seen = format!(
                        "{} got {} {}, {} has waited for {} {} for longer",
                        granted.owner, claim.scope, claim.mode, wait.owner, wait.scope, wait.mode
                    );
                    return Err(("first come, first served", seen));
                }
            }
        }
        Ok(())
    }

    /// A reclaim brings a new grant only of what its owner may take back in a reclaim window. Where it is unknown who held
    /// what, it is believed.
    fn reclaimed_is_own(&self, table: &LockTable, step: &Step) -> Checked {
        let is_believed = table.grace().is_some_and(|grace| !grace.is_known);
        if !self.asked.reclaims || is_believed {
            return Ok(());
        }
        let has_waited = |granted: &&Granted| {
            step.effects.iter().any(|effect| match effect {
                Effect::Granted { grant, .. } => grant.fence == granted.fence,
                _ => false,
            })
        };
        let fresh = step.transitions.iter().filter_map(granted).filter(|one| !has_waited(one));
        for granted in fresh {
            let is_own = |claim: &Claim| {
                self.before.holds.iter().any(|hold| {
                    (&hold.owner, &hold.namespace) == (&granted.owner, &granted.namespace)
                        && (hold.is_over || lapses(step, hold.lease))
                        && hold.scope.overlaps(&claim.scope)
                })
            };
            if let Some(claim) = granted.claims.iter().find(|claim| !is_own(claim)) {
                let seen = format!("{} reclaimed {}", granted.owner, claim.scope);
                return Err(("nobody reclaims what was never held", seen));
            }
        }
        Ok(())
    }

    /// A ticket leads back to its place or nowhere: nobody who shows one is put at the end of the line.
    fn ticket_leads_back(&self, after: &Sketch) -> Checked {
        let Some((owner, shown)) = &self.asked.place else { return Ok(()) };
        match after.waits.iter().find(|wait| !self.is_place(wait.ticket)) {
            Some(new) => {
                let seen = format!("{owner} showed {} and stands at {}", shown.0, new.ticket.0);
                Err(("a ticket leads back to its place", seen))
            }
            None => Ok(()),
        }
    }

    /// Whether a waiter stood at this place before the step, or the place was kept.
    fn is_place(&self, ticket: Ticket) -> bool {
        self.before.waits.iter().any(|wait| wait.ticket == ticket)
            || self.before.kept.iter().any(|kept| kept.ticket == ticket)
    }

    /// The place in the queue of the one that was granted, if it stood in the queue.
    fn place_of(&self, after: &Sketch, granted: &Granted) -> Option<Ticket> {
        // Whoever comes back for a place that was kept has stood there all the time.
        // A ticket that was never issued leads nowhere; the request id may still lead to the place.
        if let Some((owner, ticket)) = &self.asked.place
            && *owner == granted.owner
            && self.is_place(*ticket)
        {
            return Some(*ticket);
        }
        if let Some((owner, id)) = &self.asked.request
            && *owner == granted.owner
            && let Some(kept) = self.before.kept.iter().find(|kept| {
                kept.owner == *owner
                    && kept.namespace == granted.namespace
                    && kept.request_id.as_ref() == Some(id)
            })
        {
            return Some(kept.ticket);
        }
        self.left_line(after, granted).map(|wait| wait.ticket).min()
    }

    /// What the one that was granted waited for before, and waits for no longer.
    fn left_line<'a>(
        &'a self,
        after: &'a Sketch,
        granted: &'a Granted,
    ) -> impl Iterator<Item = &'a WaitSketch> + 'a {
        self.before.waiting(&granted.namespace).filter(|wait| {
            wait.owner == granted.owner
                && granted.claims.iter().any(|claim| claim.scope == wait.scope)
                && after.waits.iter().all(|left| left.ticket != wait.ticket)
        })
    }

    /// Whoever holds bytes of a file already, or may take a scope back, need not stand in the queue for it.
    fn may_overtake(&self, granted: &Granted, claim: &Claim, step: &Step) -> bool {
        let (looked_at, is_range) = match &claim.scope {
            Scope::Range { inode, .. } => (Scope::inode(*inode), true),
            Scope::Key(_) => (claim.scope.clone(), false),
        };
        let held = self.before.holds.iter().any(|hold| {
            hold.owner == granted.owner
                && (is_range || hold.is_over || lapses(step, hold.lease))
                && hold.namespace == granted.namespace
                && hold.scope.overlaps(&looked_at)
        });
        // The same step may have granted it some of the bytes first.
        let earlier = step.transitions.iter().filter_map(self::granted);
        let mut earlier = earlier.take_while(|earlier| earlier.fence != granted.fence);
        held || is_range
            && earlier.any(|earlier| {
                (&earlier.owner, &earlier.namespace) == (&granted.owner, &granted.namespace)
                    && earlier.claims.iter().any(|claim| claim.scope.overlaps(&looked_at))
            })
    }

    /// Nobody who stood in the queue is granted anything when its wait has run out, or its session is over.
    fn nobody_too_late(&self, after: &Sketch, step: &Step) -> Checked {
        const PROMISE: &str = "who is gone is granted nothing";
        for effect in &step.effects {
            let Effect::Granted { grant, .. } = effect else { continue };
            let stamped = |granted: &&Granted| granted.fence == grant.fence;
            let Some(granted) = step.transitions.iter().filter_map(granted).find(stamped) else {
                continue;
            };
            let session = self.before.deadline_of(&granted.namespace, granted.lease);
            if let Some(over) = session.filter(|over| *over < granted.granted_at) {
                let seen = format!("{}, whose session was over at {over}", granted.owner);
                return Err((PROMISE, seen));
            }
            let mut deadlines = self.left_line(after, granted).map(|wait| wait.deadline).peekable();
            let waited = deadlines.peek().is_some();
            let is_late = |deadline: Option<_>| deadline.is_some_and(|d| d < granted.granted_at);
            if waited && deadlines.all(is_late) {
                return Err((PROMISE, format!("{}, whose wait had run out", granted.owner)));
            }
        }
        Ok(())
    }
}

/// Whether the lease lapses into its reclaim windows in this step.
fn lapses(step: &Step, lease: LeaseId) -> bool {
    step.transitions.iter().any(|transition| match transition {
        Transition::LeaseLapsed { lease: lapsed, .. } => *lapsed == lease,
        _ => false,
    })
}

fn granted(transition: &Transition) -> Option<&Granted> {
    match transition {
        Transition::Granted(granted) => Some(granted),
        _ => None,
    }
}

/// The lease that a transition is about.
fn touched(transition: &Transition) -> Option<(&Namespace, LeaseId)> {
    match transition {
        Transition::SessionOpened(opened) => Some((&opened.namespace, opened.lease)),
        Transition::Granted(granted) => Some((&granted.namespace, granted.lease)),
        Transition::TtlChanged { namespace, lease, .. }
        | Transition::LeaseLapsed { namespace, lease, .. }
        | Transition::LeaseEnding { namespace, lease, .. }
        | Transition::LeaseEnded { namespace, lease, .. }
        | Transition::GrantEnded { namespace, lease, .. }
        | Transition::KeyEnded { namespace, lease, .. }
        | Transition::RangeEnded { namespace, lease, .. } => Some((namespace, *lease)),
        Transition::EpochBegan { .. }
        | Transition::Jumped { .. }
        | Transition::FenceAccepted { .. }
        | Transition::FenceDeleted { .. } => None,
    }
}

/// A cycle is only told of if every owner in it waits, or holds something that does not end by itself.
fn no_false_alarm(after: &LockTable, step: &Step) -> Checked {
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

fn is_contested(claim: &Claim, wait: &WaitSketch) -> bool {
    let permits = |mode: Mode| matches!(mode, Mode::Permits(_));
    let counted = permits(claim.mode) && permits(wait.mode) && claim.scope == wait.scope;
    claim.mode.conflicts_with(wait.mode) && !counted && claim.scope.overlaps(&wait.scope)
}
