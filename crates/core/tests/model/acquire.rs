//! Asking for scopes: granted at once, queued, or refused with the reason.

use std::time::Duration;

use super::conflict::{Blockers, View};
use super::view::covers;
use super::{Asked, Held, Known, Lease, LeaseState, Model, Set, Waiter, millis};
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
                return Ok(granted(self.hear_again(&held)));
            }
            self.check_reclaim(ask)?;
        }
        if self.suspended {
            return Err(Refusal::Suspended);
        }
        self.check_locks(ask)?;
        let waiter = self.arrival(ask)?;
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
            return Err(self.refuse_try(ask, waiter));
        }
        self.check_queues(ask, &waiter)?;
        self.check_deadlock(&waiter)?;
        self.forget_place(&waiter);
        Ok(Outcome::Queued(self.queue(waiter)))
    }

    /// A try is told who is in the way; one that came back for its place keeps it a while longer.
    fn refuse_try(&mut self, ask: &Acquire, waiter: Waiter) -> Refusal {
        let mut refusal = self.why_not(ask, &waiter, View::Arriving);
        if waiter.returned {
            refusal = self.with_place(refusal, &waiter);
            self.forget_place(&waiter);
            self.park(waiter);
        }
        refusal
    }

    /// The request as a waiter: at the end of the queue, or at the place that was kept for it.
    fn arrival(&self, ask: &Acquire) -> Result<Waiter, Refusal> {
        let Some(ticket) = ask.ticket else {
            return Ok(Waiter {
                ticket: Ticket(self.tickets + 1),
                ask: ask.clone(),
                calls: vec![ask.call],
                since: self.now,
                until: self.wait_limit(ask),
                parked_until: None,
                returned: false,
            });
        };
        let kept = self.waiters.iter().find(|waiter| {
            waiter.ticket == ticket
                && waiter.parked_until.is_some()
                && waiter.ask.namespace == ask.namespace
                && waiter.ask.owner == ask.owner
                && asked(&waiter.ask) == asked(ask)
        });
        let kept = kept.ok_or(Refusal::TicketNotFound(ticket))?;
        Ok(Waiter {
            ask: ask.clone(),
            calls: vec![ask.call],
            until: self.wait_limit(ask),
            parked_until: None,
            returned: true,
            ..kept.clone()
        })
    }

    fn forget_place(&mut self, waiter: &Waiter) {
        self.waiters.retain(|other| other.ticket != waiter.ticket);
    }

    fn wait_limit(&self, ask: &Acquire) -> Option<Timestamp> {
        match ask.wait {
            Wait::Never => Some(self.now),
            Wait::UpTo(length) => Some(self.now.plus(millis(length))),
            Wait::Forever => None,
        }
    }

    fn queue(&mut self, waiter: Waiter) -> Queued {
        self.tell_holders(&waiter);
        let queued = Queued { ticket: waiter.ticket, position: self.position(&waiter) };
        self.tickets = self.tickets.max(waiter.ticket.0);
        let news = News::Queued {
            scopes: scopes(&waiter.ask),
            owner: waiter.ask.owner.clone(),
            ticket: waiter.ticket,
        };
        self.tell(&waiter.ask.namespace, news);
        self.waiters.push(waiter);
        queued
    }

    /// Sessions on a live stream hear that somebody has begun to wait for what they hold.
    fn tell_holders(&mut self, waiter: &Waiter) {
        for claim in &waiter.ask.claims {
            let blockers = self.queued_blockers(waiter, claim);
            for held in blockers.holders {
                let lease = self.lease_of(&held);
                if lease.session.as_ref().is_some_and(|session| session.attached) {
                    self.step.effects.push(Effect::Wanted {
                        namespace: waiter.ask.namespace.clone(),
                        session: lease.id,
                        scope: claim.scope.clone(),
                        waiter: waiter.ask.owner.clone(),
                    });
                }
            }
        }
    }

    /// "How many waiters stand before it in its longest queue, plus one." Each scope is a queue.
    pub(crate) fn position(&self, waiter: &Waiter) -> usize {
        let in_front = |scope: &Scope| {
            self.queue_of(&waiter.ask.namespace, scope)
                .filter(|other| other.ticket < waiter.ticket)
                .count()
        };
        waiter.ask.claims.iter().map(|claim| in_front(&claim.scope)).max().unwrap_or(0) + 1
    }

    pub(crate) fn place(&self, waiter: &Waiter) -> Place {
        Place { ticket: waiter.ticket, position: self.position(waiter) }
    }

    /// Those that wait for exactly this scope.
    pub(crate) fn queue_of(
        &self,
        namespace: &Namespace,
        scope: &Scope,
    ) -> impl Iterator<Item = &Waiter> {
        self.waiting(namespace)
            .filter(move |waiter| waiter.ask.claims.iter().any(|claim| claim.scope == *scope))
    }

    pub(crate) fn waiting(&self, namespace: &Namespace) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(move |waiter| {
            waiter.parked_until.is_none() && waiter.ask.namespace == *namespace
        })
    }

    /// "How many requests wait for that scope": for the key, or for any of the bytes.
    pub(crate) fn waiting_for(
        &self,
        namespace: &Namespace,
        scope: &Scope,
    ) -> impl Iterator<Item = &Waiter> {
        let wants = move |wanted: &Scope| match scope {
            Scope::Key(_) => wanted == scope,
            Scope::Range { .. } => wanted.overlaps(scope),
        };
        self.waiting(namespace)
            .filter(move |waiter| waiter.ask.claims.iter().any(|claim| wants(&claim.scope)))
    }

    /// "If that leads back to the requester, the request is refused."
    fn check_deadlock(&mut self, waiter: &Waiter) -> Result<(), Refusal> {
        self.waiters.push(waiter.clone());
        let cycle = self.cycle_from(&waiter.ask.namespace, &waiter.ask.owner);
        self.waiters.pop();
        match cycle {
            Some(cycle) => {
                if waiter.returned {
                    self.forget_place(waiter);
                    self.tell_left(waiter);
                }
                Err(self.deadlock(&waiter.ask, &cycle))
            }
            None => Ok(()),
        }
    }

    /// The waiter's turn has come.
    pub(crate) fn grant_waiter(&mut self, ticket: Ticket) {
        let waiter = self.take_waiter(ticket);
        let grant = self.grant(&waiter.ask, waiter.since);
        for &call in &waiter.calls {
            self.step.effects.push(Effect::Granted { call, grant: Box::new(grant.clone()) });
        }
    }

    pub(crate) fn take_waiter(&mut self, ticket: Ticket) -> Waiter {
        let place = self.waiters.iter().position(|waiter| waiter.ticket == ticket);
        self.waiters.remove(place.expect("the waiter was just found"))
    }

    /// "A set is granted whole or not at all, in one step, under one lease with one token."
    fn grant(&mut self, ask: &Acquire, since: Timestamp) -> Grant {
        for claim in &ask.claims {
            self.end_own_windows(ask, claim);
        }
        self.fence = Fence::new(self.fence.get() + 1).expect("tests do not run that long");
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
            self.hold(ask, lease, claim);
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
        self.waiters.iter().any(|waiter| {
            waiter.parked_until.is_none()
                && waiter.ask.namespace == *namespace
                && waiter.ask.owner == *owner
        })
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
        let fence_max = self.fence;
        match ask.under {
            Under::Session(id) => {
                let lease = self.lease_mut(&ask.namespace, id);
                lease.fence_max = fence_max;
                lease.state = LeaseState::Live;
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
                    fence_max,
                });
                (id, Some(ttl))
            }
        }
    }

    fn hold(&mut self, ask: &Acquire, lease: LeaseId, claim: &Claim) {
        let new = Held {
            namespace: ask.namespace.clone(),
            lease,
            scope: claim.scope.clone(),
            owner: ask.owner.clone(),
            mode: claim.mode,
            fences: (self.fence, self.fence),
            granted_at: self.now,
            window: millis(ask.reclaim_window),
            window_until: None,
            metadata: ask.metadata.clone(),
        };
        match claim.scope {
            Scope::Key(_) => self.held.push(new),
            Scope::Range { .. } => self.lock_range(new),
        }
        let news = News::Granted {
            scope: claim.scope.clone(),
            owner: ask.owner.clone(),
            mode: claim.mode,
            fence: self.fence,
            ttl: self.lease(&ask.namespace, lease).expect("it was just opened").ttl,
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

    /// Why a request is not granted: "a refused try says who holds it, since when, until when, how many wait".
    pub(crate) fn why_not(&self, ask: &Acquire, waiter: &Waiter, view: View) -> Refusal {
        let blocked = ask.claims.iter().find_map(|claim| {
            let blockers = self.blockers(&ask.namespace, &ask.owner, claim, waiter.ticket, view);
            (!blockers.none()).then(|| (claim.scope.clone(), blockers))
        });
        let ends_in = self.grace.map(|grace| Timestamp::since(grace.ends_at, self.now));
        let Some((scope, blockers)) = blocked else {
            // Only its time is over, or nobody is granted anything.
            let nobody = self.conflict(ask.claims[0].scope.clone(), &Blockers::default(), waiter);
            return match ends_in {
                Some(ends_in) if self.strict_grace() => {
                    Refusal::GracePeriod { ends_in, conflict: None }
                }
                _ if self.suspended => Refusal::Suspended,
                _ => Refusal::Held(Box::new(nobody)),
            };
        };
        let all = self.all_blockers(ask, waiter.ticket, view);
        let state_is = |state| move |held: &Held| self.state_of(held) == state;
        let recovering = all.holders.iter().any(state_is(HolderState::Recovering));
        let only_windows =
            all.waiters.is_empty() && all.holders.iter().all(state_is(HolderState::ReclaimWindow));
        let conflict = Box::new(self.conflict(scope, &blockers, waiter));
        match ends_in {
            Some(ends_in) if self.strict_grace() && !ask.reclaim => {
                Refusal::GracePeriod { ends_in, conflict: None }
            }
            Some(ends_in) if recovering => {
                Refusal::GracePeriod { ends_in, conflict: Some(conflict) }
            }
            _ if only_windows => Refusal::ReclaimWindow(conflict),
            _ => Refusal::Held(conflict),
        }
    }

    /// Those in the way of any claim.
    fn all_blockers(&self, ask: &Acquire, ticket: Ticket, view: View) -> Blockers {
        let mut all = Blockers::default();
        for claim in &ask.claims {
            let more = self.blockers(&ask.namespace, &ask.owner, claim, ticket, view);
            all.holders.extend(more.holders);
            all.waiters.extend(more.waiters);
        }
        all
    }

    /// A refusal that tells of a kept place always names a conflict to tell it with.
    pub(crate) fn with_place(&self, mut refusal: Refusal, waiter: &Waiter) -> Refusal {
        let first = waiter.ask.claims[0].scope.clone();
        let nobody = Box::new(self.conflict(first, &Blockers::default(), waiter));
        if let Refusal::GracePeriod { conflict: conflict @ None, .. } = &mut refusal {
            *conflict = Some(nobody);
        } else if refusal == Refusal::Suspended {
            refusal = Refusal::Held(nobody);
        }
        if let Refusal::Held(conflict)
        | Refusal::ReclaimWindow(conflict)
        | Refusal::GracePeriod { conflict: Some(conflict), .. } = &mut refusal
        {
            conflict.place = Some(self.place(waiter));
        }
        refusal
    }

    fn conflict(&self, scope: Scope, blockers: &Blockers, waiter: &Waiter) -> Conflict {
        let mut holders: Vec<Holder> =
            blockers.holders.iter().map(|held| self.holder(held)).collect();
        holders.sort_by(|one, other| (one.fence, &one.scope).cmp(&(other.fence, &other.scope)));
        holders.truncate(Conflict::HOLDERS_MAX);
        Conflict {
            waiters: self.waiting_for(&waiter.ask.namespace, &scope).count(),
            scope,
            holders,
            waited: self.now.since(waiter.since),
            place: None,
        }
    }

    /// "`acquire` with the same `request_id` by the same owner returns the same grant, not a conflict."
    fn replay(&mut self, ask: &Acquire) -> Result<Option<Outcome>, Refusal> {
        let Some(id) = &ask.request_id else {
            return Ok(None);
        };
        if let Some(before) = self.granted_before(ask, id) {
            let same = before.asked == asked(ask);
            return if same {
                Ok(Some(self.replayed(before)))
            } else {
                Err(Refusal::RequestIdReused)
            };
        }
        let (now, latest) = (self.now, self.wait_limit(ask));
        // A kept place is known by its ticket alone.
        let Some(waiter) = self.waiters.iter_mut().find(|waiter| {
            waiter.parked_until.is_none()
                && waiter.ask.namespace == ask.namespace
                && waiter.ask.owner == ask.owner
                && waiter.ask.request_id == ask.request_id
        }) else {
            return Ok(None);
        };
        if asked(&waiter.ask) != asked(ask) {
            return Err(Refusal::RequestIdReused);
        }
        if ask.wait == Wait::Never {
            let as_a_try = Waiter { since: now, ..Waiter::clone(waiter) };
            return Err(self.why_not(ask, &as_a_try, View::Queued));
        }
        waiter.calls.push(ask.call);
        waiter.until = waiter.until.and_then(|until| Some(until.max(latest?)));
        let waiter = waiter.clone();
        let position = self.position(&waiter);
        Ok(Some(Outcome::Queued(Queued { ticket: waiter.ticket, position })))
    }

    /// The grant of an earlier request with the same id, as long as all of it is still held as it was granted.
    fn granted_before(&self, ask: &Acquire, id: &RequestId) -> Option<&Known> {
        self.known.iter().find(|known| {
            known.namespace == ask.namespace
                && known.owner == ask.owner
                && known.id == *id
                && known.asked.claims.iter().all(|claim| self.holds_as_granted(known, claim))
        })
    }

    fn holds_as_granted(&self, known: &Known, claim: &Claim) -> bool {
        self.held.iter().any(|held| {
            held.namespace == known.namespace
                && held.lease == known.lease
                && held.owner == known.owner
                && held.mode == claim.mode
                && held.fences.1 == known.fence
                && held.window_until.is_none()
                && covers(&held.scope, &claim.scope)
        })
    }

    fn remember_request(&mut self, ask: &Acquire, lease: LeaseId) {
        let Some(id) = ask.request_id.clone() else {
            return;
        };
        self.known.retain(|known| {
            known.namespace != ask.namespace || known.owner != ask.owner || known.id != id
        });
        self.known.push(Known {
            namespace: ask.namespace.clone(),
            owner: ask.owner.clone(),
            id,
            asked: asked(ask),
            lease,
            fence: self.fence,
            granted_at: self.now,
        });
    }

    fn replayed(&self, known: &Known) -> Outcome {
        let lease = self.lease(&known.namespace, known.lease).expect("it holds something");
        granted(Grant {
            lease: lease.id,
            owner: known.owner.clone(),
            fence: known.fence,
            ttl: lease.ttl,
            deadline: lease.deadline,
            granted_at: known.granted_at,
            waited: Duration::ZERO,
            replayed: true,
            gained: Vec::new(),
        })
    }
}

pub(crate) fn granted(grant: Grant) -> Outcome {
    Outcome::Answered(Answer::Granted(Box::new(grant)))
}

pub(crate) fn scopes(ask: &Acquire) -> Vec<Scope> {
    ask.claims.iter().map(|claim| claim.scope.clone()).collect()
}

/// What makes a request the same request: everything but how long it waits and where its answer goes.
pub(crate) fn asked(ask: &Acquire) -> Asked {
    let (session, ttl) = match ask.under {
        Under::Session(id) => (Some(id), None),
        Under::NewLease { ttl, .. } => (None, Some(ttl)),
    };
    Asked {
        claims: ask.claims.clone(),
        session,
        ttl,
        reclaim_window: ask.reclaim_window,
        reclaim: ask.reclaim,
        metadata: ask.metadata.clone(),
    }
}
