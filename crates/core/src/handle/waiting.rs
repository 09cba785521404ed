//! Those who wait: how they start to, and how they leave.

use crate::budget::{Budget, Cut};
use crate::command::{Acquire, Cancel, Under, Wait};
use crate::digest::{digest_of, secret_of};
use crate::effect::{Answer, Effect, News, Outcome, Queued, Step};
use crate::graph::Requester;
use crate::id::{Owner, SecretTicket, Ticket};
use crate::namespace::{Known, NamespaceIdx};
use crate::queue::{Queue, Waiter};
use crate::refusal::{Limit, Refusal};
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::{Millis, Timestamp};

use super::places::id_of;

/// The budget of the deadlock check of one request. A check that would need more refuses the wait.
const CHECK_STEPS: usize = 12_000;

impl LockTable {
    /// Puts a request into the queues, unless that would lock up or be one too many.
    pub(super) fn start_to_wait(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        digest: u64,
        place: Option<Ticket>,
        step: &mut Step,
    ) -> Result<Outcome, Refusal> {
        self.check_room(space, request, place)?;
        let ticket = place.unwrap_or(Ticket(self.last_ticket.0 + 1));
        if place.is_none() {
            self.check_deadlock(space, request, ticket, step)?;
        }
        let (since, secret) = match place {
            Some(kept) => {
                let place = self.forget_place(space, kept);
                (place.since, place.secret)
            }
            None => (self.now, secret_of(ticket, id_of(request))),
        };
        let digest = if digest == 0 { digest_of(request) } else { digest };
        self.last_ticket = self.last_ticket.max(ticket);
        self.add_waiter(space, ticket, request.clone(), (digest, secret), since);
        if place.is_some() {
            self.check_deadlock_in_place(space, ticket, step)?;
        }
        self.tell_holders(space, request, ticket, step);
        let told = News::Queued {
            scopes: request.claims.iter().map(|claim| claim.scope.clone()).collect(),
            owner: request.owner.clone(),
            ticket,
        };
        self.tell(request.namespace.clone(), told, step);
        Ok(Outcome::Queued(self.queued(space, ticket)))
    }

    fn check_room(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        place: Option<Ticket>,
    ) -> Result<(), Refusal> {
        let max = self.limits.waiters_max;
        if place.is_none() && self.waiters_len >= max {
            return Err(Refusal::Limit(Limit::Waiters { max }));
        }
        let max = self.limits.waiters_per_scope_max;
        for claim in &request.claims {
            if self.space(space).queue(&claim.scope).is_some_and(|queue| queue.len() >= max) {
                let scope = claim.scope.clone();
                return Err(Refusal::Limit(Limit::WaitersPerScope { scope, max }));
            }
        }
        Ok(())
    }

    fn check_deadlock(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        ticket: Ticket,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let Some(owner) = at.owners.find(&request.owner) else {
            return Ok(());
        };
        let lease = self.asker(space, request, ticket, false).lease;
        let requester = Requester { owner, lease, ticket, claims: &request.claims };
        let mut budget = Budget::new(CHECK_STEPS);
        match at.find_cycle(owner, Some(&requester), &mut budget) {
            Err(Cut) => Err(Refusal::Limit(Limit::TooTangled)),
            Ok(None) => Ok(()),
            Ok(Some(cycle)) => {
                let cycle = cycle.edges(at);
                let victim = request.owner.clone();
                let told = News::Deadlock { victim, cycle: cycle.clone() };
                self.tell(request.namespace.clone(), told, step);
                Err(Refusal::Deadlock { cycle })
            }
        }
    }

    /// Back at an old place, a request stands in the way of those behind it again: only there can the cycles be seen.
    fn check_deadlock_in_place(
        &mut self,
        space: NamespaceIdx,
        ticket: Ticket,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let mut budget = Budget::new(CHECK_STEPS);
        let cycle = match at.find_cycle(at.waiters[&ticket].owner, None, &mut budget) {
            Ok(None) => return Ok(()),
            Ok(Some(cycle)) => Ok(cycle.edges(at)),
            Err(Cut) => Err(Refusal::Limit(Limit::TooTangled)),
        };
        let request = self.remove_waiter(space, ticket).request;
        let cycle = cycle?;
        let told = News::Deadlock { victim: request.owner, cycle: cycle.clone() };
        self.tell(request.namespace, told, step);
        Err(Refusal::Deadlock { cycle })
    }

    /// A grant can close a cycle through another wait of the same owner: then the youngest waiter in it gives way. Where
    /// that cannot be found out in time, the owner's own last wait does.
    pub(super) fn break_late_deadlocks(
        &mut self,
        space: NamespaceIdx,
        owner: &Owner,
        step: &mut Step,
    ) {
        let mut budget = Budget::new(CHECK_STEPS);
        loop {
            let at = self.space(space);
            if at.waits.is_empty() {
                return;
            }
            let Some(owner) = at.owners.find(owner) else { return };
            let Some(last) = at.waits_of(owner).last() else { return };
            let cycle = match at.find_cycle(owner, None, &mut budget) {
                Ok(None) => return,
                Ok(Some(cycle)) => cycle,
                Err(Cut) => {
                    let refusal = Refusal::Limit(Limit::TooTangled);
                    self.refuse_waiter(space, last, &refusal, step);
                    continue;
                }
            };
            let youngest = cycle.youngest();
            let cycle = cycle.edges(at);
            let victim = at.waiters[&youngest].request.owner.clone();
            let told = News::Deadlock { victim, cycle: cycle.clone() };
            self.tell(at.name.clone(), told, step);
            self.refuse_waiter(space, youngest, &Refusal::Deadlock { cycle }, step);
        }
    }

    /// A waiter that several calls await waits as long as the most patient of them.
    pub(super) fn wait_longer(
        &mut self,
        space: NamespaceIdx,
        ticket: Ticket,
        before: Option<Timestamp>,
        wait: Wait,
    ) {
        let Some(before) = before else { return };
        let deadline = self.wait_deadline(wait).map(|deadline| deadline.max(before));
        self.wait_timers.remove(&(before, ticket, space));
        if let Some(deadline) = deadline {
            self.wait_timers.insert((deadline, ticket, space));
        }
        let waiter = self.space_mut(space).waiters.get_mut(&ticket);
        waiter.expect("it was just found").deadline = deadline;
    }

    fn wait_deadline(&self, wait: Wait) -> Option<Timestamp> {
        match wait {
            Wait::Never => Some(self.now),
            Wait::UpTo(wait) => {
                Some(self.now.plus(Millis::from_duration(wait).unwrap_or(Millis::new(u32::MAX))))
            }
            Wait::Forever => None,
        }
    }

    pub(crate) fn add_waiter(
        &mut self,
        space: NamespaceIdx,
        ticket: Ticket,
        request: Acquire,
        (digest, secret): (u64, u64),
        since: Timestamp,
    ) {
        let deadline = self.wait_deadline(request.wait);
        if let Some(deadline) = deadline {
            self.wait_timers.insert((deadline, ticket, space));
        }
        let owner = self.mention(space, &request.owner);
        self.count_waiter(space, owner, request.need());
        let at = self.space_mut(space);
        at.waits.insert((owner, ticket));
        at.calls.insert(request.call, ticket);
        if let Some(id) = &request.request_id {
            at.requests.insert((owner, id.clone()), Known::Waiting(ticket));
        }
        let lease = match request.under {
            Under::NewLease { .. } => None,
            Under::Session(id) => at.lease_no(id),
        };
        if let Some(lease) = lease {
            at.wait_under(lease, ticket, &request);
        }
        let calls = vec![request.call];
        let waiter = Waiter { owner, lease, request, digest, secret, calls, since, deadline };
        at.waiters.insert(ticket, Box::new(waiter));
        at.enqueue(ticket);
        self.waiters_len += 1;
    }

    /// Forgets a waiter; those behind it may have become free to go.
    pub(super) fn remove_waiter(&mut self, space: NamespaceIdx, ticket: Ticket) -> Box<Waiter> {
        self.leave_queues(space, ticket);
        let at = &mut self.spaces[space.0];
        let waiter = at.waiters.remove(&ticket).expect("only waiters that are there are removed");
        if let Some(deadline) = waiter.deadline {
            self.wait_timers.remove(&(deadline, ticket, space));
        }
        at.waits.remove(&(waiter.owner, ticket));
        for call in &waiter.calls {
            at.calls.remove(call);
        }
        if let Some(id) = &waiter.request.request_id
            && at.requests.get(&(waiter.owner, id.clone())) == Some(&Known::Waiting(ticket))
        {
            at.requests.remove(&(waiter.owner, id.clone()));
        }
        if let Some(lease) = waiter.lease {
            at.no_longer_waits_under(lease, ticket, &waiter.request);
        }
        self.uncount_waiter(space, waiter.owner, waiter.request.need());
        self.forget_owner(space, waiter.owner);
        self.waiters_len -= 1;
        waiter
    }

    fn leave_queues(&mut self, space: NamespaceIdx, ticket: Ticket) {
        let at = &mut self.spaces[space.0];
        at.dequeue(ticket);
        let claims = &at.waiters[&ticket].request.claims;
        if !planted!("wake-up-lost-on-cancel") {
            self.freed.extend(claims.iter().map(|claim| (space, claim.scope.clone())));
        }
    }

    pub(crate) fn refuse_waiter(
        &mut self,
        space: NamespaceIdx,
        ticket: Ticket,
        refusal: &Refusal,
        step: &mut Step,
    ) {
        self.tell_left(space, ticket, step);
        for call in self.remove_waiter(space, ticket).calls {
            step.effects.push(Effect::Refused { call, refusal: refusal.clone() });
        }
    }

    pub(super) fn tell_left(&self, space: NamespaceIdx, ticket: Ticket, step: &mut Step) {
        let request = &self.space(space).waiters[&ticket].request;
        let told = News::Left {
            scopes: request.claims.iter().map(|claim| claim.scope.clone()).collect(),
            owner: request.owner.clone(),
            ticket,
        };
        self.tell(request.namespace.clone(), told, step);
    }

    /// A wait has run out; the place may be kept for a caller that means to come back.
    pub(super) fn expire_waiter(&mut self, space: NamespaceIdx, ticket: Ticket, step: &mut Step) {
        self.tell_left(space, ticket, step);
        let waiter = &self.space(space).waiters[&ticket];
        let (request, calls, since) = (waiter.request.clone(), waiter.calls.clone(), waiter.since);
        let place = if request.keep_place {
            let position = self.position(space, &request, ticket);
            self.keep_place(space, ticket);
            self.place_shown(space, ticket, position)
        } else {
            self.remove_waiter(space, ticket);
            None
        };
        let asker = self.asker(space, &request, ticket, false);
        let refusal = self.refusal_for(space, &request, asker, place, since);
        for call in calls {
            step.effects.push(Effect::Refused { call, refusal: refusal.clone() });
        }
    }

    /// The caller of a waiting request has gone.
    pub(super) fn cancel(&mut self, cancel: &Cancel, step: &mut Step) -> super::Handled {
        let Some(space) = self.namespace_idx(&cancel.namespace) else {
            return Ok(Answer::Cancelled { waiting: false });
        };
        let at = self.space_mut(space);
        let Some(ticket) = at.calls.remove(&cancel.call) else {
            return Ok(Answer::Cancelled { waiting: false });
        };
        let waiter = at.waiters.get_mut(&ticket).expect("a call leads to its waiter");
        waiter.calls.retain(|call| *call != cancel.call);
        let stays = cancel.keep_place && planted!("kept-place-stays-in-line");
        if waiter.calls.is_empty() && !stays {
            self.tell_left(space, ticket, step);
            if cancel.keep_place {
                self.keep_place(space, ticket);
            } else {
                self.remove_waiter(space, ticket);
            }
        }
        Ok(Answer::Cancelled { waiting: true })
    }

    pub(super) fn queued(&self, space: NamespaceIdx, ticket: Ticket) -> Queued {
        let waiter = &self.space(space).waiters[&ticket];
        let position = self.position(space, &waiter.request, ticket);
        Queued { ticket: SecretTicket { ticket, secret: waiter.secret }, position }
    }

    pub(super) fn position(&self, space: NamespaceIdx, request: &Acquire, ticket: Ticket) -> usize {
        let at = self.space(space);
        let queues = request.claims.iter().filter_map(|claim| at.queue(&claim.scope));
        queues.map(|queue| queue.position(ticket)).max().unwrap_or(1)
    }

    /// The number of waiters for a scope: in its own queue, or anywhere on the bytes of a range, as far as the budget goes.
    pub(crate) fn waiters_for(
        &self,
        space: NamespaceIdx,
        scope: &Scope,
        budget: &mut Budget,
    ) -> usize {
        match scope {
            Scope::Key(key) => self.space(space).queues.get(key).map_or(0, Queue::len),
            Scope::Range { .. } => self.waiting_for(space, scope, 0, budget).len,
        }
    }
}
