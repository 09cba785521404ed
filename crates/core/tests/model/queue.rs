//! Those who wait: how they start to, and where they stand.

use super::acquire::scopes;
use super::{Kept, LeaseState, Model, Waiter, millis};
use leasehold_core::*;

impl Model {
    pub(crate) fn wait_limit(&self, ask: &Acquire) -> Option<Timestamp> {
        match ask.wait {
            Wait::Never => Some(self.now),
            Wait::UpTo(length) => Some(self.now.plus(millis(length))),
            Wait::Forever => None,
        }
    }

    pub(crate) fn queue(&mut self, waiter: Waiter) -> Queued {
        self.tell_holders(&waiter);
        let queued = Queued { ticket: waiter.shown(), position: self.position(&waiter) };
        self.forget_id(&waiter.ask);
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

    /// Holders hear that somebody has begun to wait for what they hold.
    fn tell_holders(&mut self, waiter: &Waiter) {
        for claim in &waiter.ask.claims {
            let blockers = self.queued_blockers(waiter, claim);
            for held in blockers.holders {
                let lease = self.lease_of(&held);
                if lease.state != LeaseState::Lapsed {
                    self.step.effects.push(Effect::Wanted {
                        namespace: waiter.ask.namespace.clone(),
                        lease: lease.id,
                        fence: held.fence(),
                        scope: claim.scope.clone(),
                        waiter: waiter.ask.owner.clone(),
                    });
                }
            }
        }
    }

    /// "If that leads back to the requester, the request is refused."
    pub(crate) fn check_deadlock(&mut self, waiter: &Waiter) -> Result<(), Refusal> {
        self.waiters.push(waiter.clone());
        let cycle = self.cycle_from(&waiter.ask.namespace, &waiter.ask.owner);
        self.waiters.pop();
        match cycle {
            Some(cycle) => {
                self.forget_place(waiter);
                Err(self.deadlock(&waiter.ask, &cycle))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn forget_place(&mut self, waiter: &Waiter) {
        self.kept.retain(|kept| kept.waiter.ticket != waiter.ticket);
    }

    /// A caller is away: for a while it may come back to where it stood, by its ticket or its request id. Only so many
    /// places are kept, the newest.
    pub(crate) fn keep_place(&mut self, waiter: Waiter) {
        self.forget_place(&waiter);
        self.forget_id(&waiter.ask);
        let until = self.now.plus(millis(self.limits.ticket_kept));
        let by_id = waiter.ask.request_id.clone();
        self.kept.push(Kept { waiter: Waiter { calls: Vec::new(), ..waiter }, until, by_id });
        if self.kept.len() > self.limits.kept_places_max {
            self.kept.sort_by_key(|kept| (kept.until, kept.waiter.ticket));
            self.kept.remove(0);
        }
    }

    /// The request id leads elsewhere from here on.
    pub(crate) fn forget_id(&mut self, ask: &Acquire) {
        for kept in &mut self.kept {
            let of = &kept.waiter.ask;
            let same = of.namespace == ask.namespace && of.owner == ask.owner;
            if same && kept.by_id == ask.request_id {
                kept.by_id = None;
            }
        }
    }

    pub(crate) fn take_waiter(&mut self, ticket: Ticket) -> Waiter {
        let place = self.waiters.iter().position(|waiter| waiter.ticket == ticket);
        self.waiters.remove(place.expect("the waiter was just found"))
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
        Place { ticket: waiter.shown(), position: self.position(waiter) }
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
        self.waiters.iter().filter(move |waiter| waiter.ask.namespace == *namespace)
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
}

impl Waiter {
    pub(crate) fn shown(&self) -> SecretTicket {
        SecretTicket::new(self.ticket, self.id)
    }
}
