//! Asking for scopes: granted at once, queued, or refused with the reason.

use std::time::Duration;

use super::conflict::View;
use super::retry::asked;
use super::{Held, Kept, Lease, LeaseState, Model, Set, Waiter, millis};
use leasehold_core::*;

impl Model {
    pub(crate) fn acquire(&mut self, ask: &Acquire) -> Outcome {
        match self.decide(ask) {
            Ok(outcome) => outcome,
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    fn decide(&mut self, ask: &Acquire) -> Result<Outcome, Refusal> {
        self.check_request(ask)?;
        self.check_namespace(&ask.namespace)?;
        if let Some(outcome) = self.replay(ask)? {
            return Ok(outcome);
        }
        self.check_lease(ask)?;
        if ask.reclaim {
            if let Some(held) = self.held_already(ask) {
                return self.hear_again(&held).map(granted);
            }
            self.check_reclaim(ask)?;
        }
        if self.suspended {
            return Err(Refusal::Suspended);
        }
        self.check_tokens_left()?;
        let waiter = self.arrival(ask)?;
        if let Under::Session(lease) = ask.under {
            for claim in &ask.claims {
                self.check_own_ranges(&ask.namespace, &ask.owner, lease, &claim.scope)?;
            }
        }
        self.check_locks(ask)?;
        self.check_limits_agree(ask)?;
        self.grant_or_wait(ask, waiter)
    }

    fn grant_or_wait(&mut self, ask: &Acquire, waiter: Waiter) -> Result<Outcome, Refusal> {
        let reclaims_unknown = ask.reclaim && self.strict_grace();
        let held_back = self.strict_grace() && !reclaims_unknown;
        if !held_back && self.is_free(ask, waiter.ticket, View::Arriving) {
            self.forget_place(&waiter);
            return Ok(granted(self.grant(ask, waiter.since)));
        }
        if ask.wait == Wait::Never || reclaims_unknown {
            return Err(self.refuse_try(ask, &waiter));
        }
        self.check_queues(ask, &waiter)?;
        self.check_deadlock(&waiter)?;
        self.forget_place(&waiter);
        Ok(Outcome::Queued(self.queue(waiter)))
    }

    /// A try is told who is in the way; one that came back for its place keeps it a while longer.
    fn refuse_try(&mut self, ask: &Acquire, waiter: &Waiter) -> Refusal {
        let refusal = self.why_not(ask, waiter, View::Arriving);
        if !waiter.returned {
            return refusal;
        }
        self.keep_place(waiter.clone());
        self.with_place(refusal, waiter)
    }

    /// The request as a waiter: at the end of the queue, or at the place that was kept for it.
    fn arrival(&mut self, ask: &Acquire) -> Result<Waiter, Refusal> {
        let fits = |waiter: &Waiter| {
            waiter.ask.namespace == ask.namespace
                && waiter.ask.owner == ask.owner
                && asked(&waiter.ask) == asked(ask)
        };
        let by_id = |kept: &&Kept| {
            ask.request_id.is_some() && kept.by_id == ask.request_id && fits(&kept.waiter)
        };
        let by_ticket = |waiter: &Waiter| Some(waiter.shown()) == ask.ticket && fits(waiter);
        if let Some(kept) = self.kept.iter().find(by_id) {
            return Ok(self.returned(kept, ask));
        }
        let Some(shown) = ask.ticket else {
            return Ok(Waiter {
                ticket: Ticket(self.tickets + 1),
                ask: ask.clone(),
                calls: vec![ask.call],
                since: self.now,
                until: self.wait_limit(ask),
                id: id_of(ask),
                returned: false,
            });
        };
        let not_found = Refusal::TicketNotFound(shown.ticket);
        if let Some(waiter) = self.waiters.iter().find(|waiter| by_ticket(waiter)) {
            // Its caller has noticed first that the connection broke.
            let waiter = self.take_waiter(waiter.ticket);
            self.tell_left(&waiter);
            self.keep_place(waiter.clone());
            self.refuse_waiter(&waiter, &not_found);
        }
        let kept = self.kept.iter().find(|kept| by_ticket(&kept.waiter)).ok_or(not_found)?;
        Ok(self.returned(kept, ask))
    }

    fn returned(&self, kept: &Kept, ask: &Acquire) -> Waiter {
        Waiter {
            ask: ask.clone(),
            calls: vec![ask.call],
            until: self.wait_limit(ask),
            returned: true,
            ..kept.waiter.clone()
        }
    }

    /// The waiter's turn has come.
    pub(crate) fn grant_waiter(&mut self, ticket: Ticket) {
        let waiter = self.take_waiter(ticket);
        if let Under::NewLease { id, .. } = waiter.ask.under
            && let Err(refusal) = self.check_new_id(&waiter.ask.namespace, id)
        {
            self.tell_left(&waiter);
            return self.refuse_waiter(&waiter, &refusal);
        }
        if let Err(refusal) = self.check_tokens_left() {
            self.tell_left(&waiter);
            return self.refuse_waiter(&waiter, &refusal);
        }
        let grant = self.grant(&waiter.ask, waiter.since);
        for &call in &waiter.calls {
            self.step.effects.push(Effect::Granted { call, grant: Box::new(grant.clone()) });
        }
    }

    fn check_tokens_left(&self) -> Result<(), Refusal> {
        if self.fence == FencingToken::MAX { Err(Refusal::Limit(Limit::Tokens)) } else { Ok(()) }
    }

    /// "A set is granted whole or not at all, in one step, under one lease with one token."
    fn grant(&mut self, ask: &Acquire, since: Timestamp) -> Grant {
        for claim in &ask.claims {
            self.end_own_windows(ask, claim);
        }
        self.fence = FencingToken::new(self.fence.get() + 1).expect("it was checked");
        let gained = self.gained(ask);
        let (lease, opens) = self.lease_for(ask);
        self.record(Transition::Granted(Granted {
            namespace: ask.namespace.clone(),
            lease,
            opens,
            owner: ask.owner.clone(),
            claims: ask.claims.clone(),
            fence: self.fence,
            granted_at: self.now,
            reclaim_window: millis(ask.reclaim_window),
            request: ask.request_id.clone().map(|id| Request { id, digest: 0 }),
            metadata: ask.metadata.clone(),
        }));
        for claim in &ask.claims {
            self.hold(ask, lease, claim, self.now.since(since));
        }
        self.remember_set(ask, lease);
        self.remember_request(ask, lease);
        self.forget_empty_leases();
        let grant = self.grant_view(ask, lease, since, gained);
        if self.still_waits(&ask.namespace, &ask.owner) {
            self.break_circles_through(&ask.namespace, &ask.owner);
        }
        grant
    }

    fn still_waits(&self, namespace: &Namespace, owner: &Owner) -> bool {
        let mut waiters = self.waiters.iter();
        waiters.any(|waiter| waiter.ask.namespace == *namespace && waiter.ask.owner == *owner)
    }

    fn grant_view(
        &self,
        ask: &Acquire,
        lease: LeaseId,
        since: Timestamp,
        gained: Vec<(u64, ByteRange)>,
    ) -> Grant {
        let lease = self.lease(&ask.namespace, lease).expect("it was opened or looked up");
        Grant {
            lease: lease.id,
            owner: ask.owner.clone(),
            fence: self.fence,
            ttl: lease.ttl,
            deadline: lease.deadline,
            granted_at: self.now,
            waited: self.now.since(since),
            replayed: false,
            gained,
        }
    }

    /// "A plain `acquire` opens a lease for that one grant."
    fn lease_for(&mut self, ask: &Acquire) -> (LeaseId, Option<Millis>) {
        match ask.under {
            Under::Session(id) => {
                self.lease_mut(&ask.namespace, id).state = LeaseState::Live;
                (id, None)
            }
            Under::NewLease { id, ttl } => {
                let ttl = millis(ttl);
                self.leases.push(Lease {
                    namespace: ask.namespace.clone(),
                    id,
                    owner: ask.owner.clone(),
                    ttl,
                    deadline: self.now.plus(ttl),
                    state: LeaseState::Live,
                    session: None,
                });
                (id, Some(ttl))
            }
        }
    }

    fn hold(&mut self, ask: &Acquire, lease: LeaseId, claim: &Claim, waited: Duration) {
        let new = Held {
            namespace: ask.namespace.clone(),
            lease,
            scope: claim.scope.clone(),
            owner: ask.owner.clone(),
            mode: claim.mode,
            fences: vec![self.fence],
            granted_at: self.now,
            window: millis(ask.reclaim_window),
            window_until: None,
            metadata: ask.metadata.clone(),
        };
        match claim.scope {
            Scope::Key(_) => self.held.push(new),
            Scope::Range { .. } => self.lock_range(&new),
        }
        let news = News::Granted {
            scope: claim.scope.clone(),
            owner: ask.owner.clone(),
            mode: claim.mode,
            fence: self.fence,
            ttl: self.lease(&ask.namespace, lease).expect("it was just opened").ttl,
            session: self.session_number(&ask.namespace, lease),
            waited,
        };
        self.tell(&ask.namespace, news);
    }

    fn remember_set(&mut self, ask: &Acquire, lease: LeaseId) {
        let ranges: Vec<Scope> =
            scopes(ask).into_iter().filter(|scope| matches!(scope, Scope::Range { .. })).collect();
        if ask.claims.len() > 1 && !ranges.is_empty() {
            self.sets.push(Set {
                namespace: ask.namespace.clone(),
                lease,
                fence: self.fence,
                owner: ask.owner.clone(),
                ranges,
            });
        }
    }
}

pub(crate) fn granted(grant: Grant) -> Outcome {
    Outcome::Answered(Answer::Granted(Box::new(grant)))
}

/// The random id that a request brings.
fn id_of(ask: &Acquire) -> LeaseId {
    match ask.under {
        Under::NewLease { id, .. } | Under::Session(id) => id,
    }
}

pub(crate) fn scopes(ask: &Acquire) -> Vec<Scope> {
    ask.claims.iter().map(|claim| claim.scope.clone()).collect()
}
