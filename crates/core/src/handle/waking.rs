//! Grants to those who wait what has come free.
//!
//! Where something came free, the first waiter of each queue that it concerns is looked at, then those behind it for as
//! long as that can help. Where that would be too many queues for one step, the waiters of the namespace are looked at
//! one after the other, so many in a step. None of them is overtaken for it: whoever stands further back is blocked by
//! those who stand before it, whether they have been looked at or not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use crate::budget::{Budget, Cut};
use crate::command::{Claim, Under};
use crate::conflict::{Asker, Want};
use crate::effect::{Effect, Step};
use crate::id::Ticket;
use crate::mode::Mode;
use crate::namespace::{NamespaceIdx, NamespaceState};
use crate::queue::Waiter;
use crate::refusal::{Invalid, Refusal};
use crate::scope::{Key, Scope};
use crate::table::LockTable;
use crate::time::Timestamp;

/// The cost of granting a waiter, in looks at one.
const GRANT_STEPS: usize = 3;

/// Why a waiter is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// It is next in the queue of a scope that something came free in.
    Queue(Scope),
    /// For its own sake.
    Alone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Granted,
    /// No waiter behind it in this queue can go before it.
    BlockedHere,
    BlockedElsewhere,
}

/// Waiters that can perhaps be granted, in the order of their tickets.
pub(crate) type Candidates = BTreeSet<(Ticket, NamespaceIdx, Lane)>;

/// Namespaces in which so much came free that all who wait are looked at, the lowest ticket of any of them first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweeps {
    order: BTreeSet<(Sweep, NamespaceIdx)>,
    under_way: BTreeMap<NamespaceIdx, Sweep>,
    /// Namespaces where more came free on the way: whom the sweep has passed is to be looked at once more.
    again: BTreeSet<NamespaceIdx>,
}

/// The progress of one of them. Those that are looked at once more come after all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sweep {
    round: u64,
    next: Ticket,
}

impl Sweeps {
    fn start(&mut self, space: NamespaceIdx, next: Ticket) {
        if self.under_way.contains_key(&space) {
            self.again.insert(space);
            return;
        }
        let round = self.first().map_or(0, |(sweep, _)| sweep.round);
        self.go_on(space, Sweep { round, next });
    }

    fn first(&self) -> Option<(Sweep, NamespaceIdx)> {
        self.order.first().copied()
    }

    fn go_on(&mut self, space: NamespaceIdx, from: Sweep) {
        self.remove(space);
        self.under_way.insert(space, from);
        self.order.insert((from, space));
    }

    fn end(&mut self, space: NamespaceIdx, sweep: Sweep) {
        self.remove(space);
        if self.again.remove(&space) {
            self.go_on(space, Sweep { round: sweep.round + 1, next: Ticket(0) });
        }
    }

    fn remove(&mut self, space: NamespaceIdx) {
        if let Some(sweep) = self.under_way.remove(&space) {
            self.order.remove(&(sweep, space));
        }
    }
}

impl LockTable {
    /// Grants every waiter that what has come free allows, and no other. If they are too many for one step, the next
    /// ticks go on.
    pub(super) fn wake_waiters(&mut self, step: &mut Step) {
        debug_assert!(
            self.freed.iter().all(|(space, _)| self.spaces.get(space.0).is_some()),
            "what came free is in a namespace that is there"
        );
        self.refuse_orphans(step);
        if self.suspended || self.is_strict_grace() {
            self.freed.clear();
            self.forget_candidates();
            return;
        }
        loop {
            self.collect_candidates();
            if self.wakes_left == 0 {
                break;
            }
            let Some((ticket, space, lane)) = self.next_candidate() else {
                break;
            };
            let Some(at) = self.spaces.get(space.0) else { continue };
            let Some(waiter) = at.waiters.get(&ticket) else {
                continue;
            };
            let next = match &lane {
                Lane::Queue(scope) => at.queue(scope).and_then(|queue| queue.after(ticket)),
                Lane::Alone => None,
            };
            let verdict = at.verdict(waiter, ticket, &lane, self.now);
            self.wakes_left = self.wakes_left.saturating_sub(1);
            if verdict == Verdict::Granted {
                self.wakes_left = self.wakes_left.saturating_sub(GRANT_STEPS);
                self.grant_waiter(space, ticket, step);
            }
            let goes_on = verdict != Verdict::BlockedHere;
            if let (Some(next), true) = (next, goes_on) {
                self.to_wake.insert((next, space, lane));
            }
        }
    }

    /// Everything may have come free: looks at all waiters.
    pub(super) fn free_every_queue(&mut self) {
        let spaces: Vec<NamespaceIdx> = self.spaces_by_name().map(|(space, _)| space).collect();
        for space in spaces {
            self.look_at_all(space);
        }
    }

    /// Whether there are waiters that are still to be looked at.
    pub(crate) fn has_candidates(&self) -> bool {
        !self.to_wake.is_empty() || !self.sweeps.order.is_empty()
    }

    pub(super) fn forget_candidates(&mut self) {
        self.to_wake.clear();
        self.sweeps = Sweeps::default();
    }

    fn collect_candidates(&mut self) {
        while let Some((space, scope)) = self.freed.pop() {
            let at = &self.spaces[space.0];
            let (found, budget) = (&mut self.to_wake, &mut self.collects_left);
            if at.add_candidates(space, &scope, found, budget).is_err() {
                self.look_at_all(space);
            }
        }
    }

    fn look_at_all(&mut self, space: NamespaceIdx) {
        if let Some((&first, _)) = self.space(space).waiters.first_key_value() {
            self.sweeps.start(space, first);
        }
    }

    /// The lowest ticket of those that were found and of the sweeps; in the second half of a step the sweeps go first, so
    /// that they get on whatever else comes free.
    fn next_candidate(&mut self) -> Option<(Ticket, NamespaceIdx, Lane)> {
        let Some((sweep, space)) = self.next_of_sweeps() else {
            return self.to_wake.pop_first();
        };
        let is_first_half = self.wakes_left > self.limits.endings_per_step_max;
        let found = self.to_wake.first();
        if is_first_half && found.is_some_and(|&(found, ..)| found <= sweep.next) {
            return self.to_wake.pop_first();
        }
        self.sweeps.go_on(space, Sweep { next: Ticket(sweep.next.0 + 1), ..sweep });
        Some((sweep.next, space, Lane::Alone))
    }

    /// The first sweep, at a waiter that is there.
    fn next_of_sweeps(&mut self) -> Option<(Sweep, NamespaceIdx)> {
        while let Some((sweep, space)) = self.sweeps.first() {
            let waiters = self.spaces.get(space.0).map(|at| at.waiters.range(sweep.next..));
            match waiters.and_then(|mut waiters| waiters.next()) {
                Some((&ticket, _)) if ticket == sweep.next => return Some((sweep, space)),
                Some((&next, _)) => self.sweeps.go_on(space, Sweep { next, ..sweep }),
                None => self.sweeps.end(space, sweep),
            }
        }
        None
    }

    /// A plain lease ends with the last that stands under it, and those who wait to stand under it are told.
    fn refuse_orphans(&mut self, step: &mut Step) {
        for (space, ticket) in std::mem::take(&mut self.orphaned) {
            if self.space(space).waiters.contains_key(&ticket) {
                self.refuse_waiter(space, ticket, &Refusal::LeaseLost(None), step);
            }
        }
    }

    fn grant_waiter(&mut self, space: NamespaceIdx, ticket: Ticket, step: &mut Step) {
        if let Under::NewLease { id, .. } = self.space(space).waiters[&ticket].request.under
            && self.space(space).lease_no(id).is_some()
        {
            let refusal = Refusal::Invalid(Invalid::LeaseIdInUse);
            return self.refuse_waiter(space, ticket, &refusal, step);
        }
        if let Err(refusal) = self.check_tokens_left() {
            return self.refuse_waiter(space, ticket, &refusal, step);
        }
        let mut waiter = self.remove_waiter(space, ticket);
        let grant = self.grant(space, &mut waiter.request, waiter.digest, waiter.since, step);
        for call in waiter.calls {
            step.effects.push(Effect::Granted { call, grant: Box::new(grant.clone()) });
        }
    }
}

impl NamespaceState {
    /// The first waiter of each queue that what has come free may concern, as far as the budget goes.
    fn add_candidates(
        &self,
        space: NamespaceIdx,
        freed: &Scope,
        candidates: &mut Candidates,
        budget: &mut Budget,
    ) -> Result<(), Cut> {
        if self.waiters.is_empty() {
            return Ok(());
        }
        match freed {
            Scope::Key(key) => {
                for (other, queue) in self.queues_overlapping(key) {
                    budget.take(1)?;
                    let lane = Lane::Queue(Scope::Key(Key::clone(other)));
                    candidates.extend(queue.first().map(|ticket| (ticket, space, lane)));
                }
            }
            Scope::Range { inode, range } => {
                let Some(at) = self.inodes.get(inode) else {
                    return Ok(());
                };
                for (other, queue) in at.queues_overlapping(*range) {
                    budget.take(1)?;
                    let lane = Lane::Queue(Scope::range(*inode, other));
                    candidates.extend(queue.first().map(|ticket| (ticket, space, lane)));
                }
                for (_, ticket) in at.entangled_with(*range) {
                    budget.take(1)?;
                    candidates.insert((ticket, space, Lane::Alone));
                }
            }
        }
        Ok(())
    }

    /// Whether a waiter can be granted, and what that means for those behind it.
    fn verdict(&self, waiter: &Waiter, ticket: Ticket, lane: &Lane, now: Timestamp) -> Verdict {
        let gone = self.is_gone(waiter, now) && !planted!("grant-to-expired-waiter");
        let asker = waiter.asker(ticket);
        let mut blocked = gone;
        let claims = &waiter.request.claims;
        let looked_at = if planted!("set-granted-in-part") { 1 } else { claims.len() };
        for claim in &claims[..looked_at] {
            let blocked_here = match self.first_blocker(claim, asker) {
                ControlFlow::Continue(()) => continue,
                ControlFlow::Break(here) => here,
            };
            blocked = true;
            if blocked_here && *lane == Lane::Queue(claim.scope.clone()) {
                return Verdict::BlockedHere;
            }
        }
        if !blocked {
            return Verdict::Granted;
        }
        // Held up by another of its scopes, it still keeps out of this one all but those who share it.
        let mode_here = match lane {
            Lane::Queue(scope) => self.queue(scope).and_then(|queue| queue.mode(ticket)),
            Lane::Alone => None,
        };
        match mode_here {
            Some(Mode::Exclusive) => Verdict::BlockedHere,
            Some(Mode::Shared | Mode::Permits(_)) | None => Verdict::BlockedElsewhere,
        }
    }

    /// Whether a wait, or the session it stands under, is over, though that has not been worked off yet.
    pub(crate) fn is_gone(&self, waiter: &Waiter, now: Timestamp) -> bool {
        let session_over = match waiter.request.under {
            Under::NewLease { .. } => false,
            Under::Session(id) => {
                self.live_lease(id).is_none_or(|lease| self.lease(lease).is_due(now))
            }
        };
        waiter.is_due(now) || session_over
    }

    /// Breaks if the claim is blocked; with `true` if that holds for every waiter behind it in the same queue as well.
    fn first_blocker(&self, claim: &Claim, asker: Asker) -> ControlFlow<bool> {
        let blockers = self.blockers(claim, asker, Want::One);
        if blockers.is_empty() {
            return ControlFlow::Continue(());
        }
        // A reclaim window does not block its own owner, who may stand further back.
        let over = |lease| self.lease(lease).is_lapsed();
        let windows = blockers.iter().any(|blocker| blocker.lease().is_some_and(over));
        ControlFlow::Break(!windows)
    }
}
