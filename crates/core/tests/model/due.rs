//! What time alone brings about.

use super::conflict::View;
use super::{Held, Lease, LeaseState, Model};
use leasehold_core::*;

/// Something whose moment has passed.
enum Due {
    Wait(Ticket),
    /// A place that was kept long enough.
    Place(Ticket),
    Lease(Namespace, LeaseId),
    Windows(Namespace, LeaseId),
    Grace,
}

impl Model {
    /// "The deadline moment itself still belongs to the holder": due is what lies before now. Waits and
    /// kept places come first, then leases, windows and the grace, each in the order of their moments; only so many
    /// in one step.
    pub(crate) fn work_off_what_is_due(&mut self) {
        for _ in 0..self.limits.deadlines_per_step_max {
            match self.first_due() {
                Some(Due::Wait(ticket)) => self.end_wait(ticket),
                Some(Due::Place(ticket)) => {
                    self.kept.retain(|kept| kept.waiter.ticket != ticket);
                }
                Some(Due::Lease(namespace, id)) => self.lapse(&namespace, id),
                Some(Due::Windows(namespace, id)) => self.end_windows(&namespace, id),
                Some(Due::Grace) => self.end_grace(),
                None => break,
            }
            self.settle();
        }
        self.end_grace_if_over();
        self.settle();
    }

    fn first_due(&self) -> Option<Due> {
        let now = self.now;
        let wait = self
            .waiters
            .iter()
            .filter(|waiter| waiter.until.is_some_and(|until| until < now))
            .min_by_key(|waiter| (waiter.until, waiter.ticket))
            .map(|waiter| Due::Wait(waiter.ticket));
        let kept = self.kept.iter().filter(|kept| kept.until < now);
        let place = kept
            .min_by_key(|kept| (kept.until, kept.waiter.ticket))
            .map(|kept| Due::Place(kept.waiter.ticket));
        let lease = self
            .leases
            .iter()
            .filter(|lease| lease.state != LeaseState::Lapsed && lease.deadline < now)
            .min_by_key(|lease| (lease.deadline, lease.id))
            .map(|lease| Due::Lease(lease.namespace.clone(), lease.id));
        let window = self
            .held
            .iter()
            .filter(|held| held.window_until.is_some_and(|until| until < now))
            .min_by_key(|held| (held.window_until, held.lease))
            .map(|held| Due::Windows(held.namespace.clone(), held.lease));
        let grace = self.grace.filter(|grace| grace.ends_at < now).map(|_| Due::Grace);
        wait.or(place).or(lease).or(window).or(grace)
    }

    /// A wait has run out; the place may be kept for a caller that means to come back.
    fn end_wait(&mut self, ticket: Ticket) {
        let waiter = self.take_waiter(ticket);
        self.tell_left(&waiter);
        let mut refusal = self.why_not(&waiter.ask, &waiter, View::Queued);
        if waiter.ask.keep_place {
            self.keep_place(waiter.clone());
            refusal = self.with_place(refusal, &waiter);
        }
        self.refuse_waiter(&waiter, &refusal);
    }

    /// "When the lease lapses, for that long only the last owner may take the scope back."
    fn lapse(&mut self, namespace: &Namespace, id: LeaseId) {
        let lease = self.lease(namespace, id).expect("it is due").clone();
        let ending = match lease.state {
            LeaseState::Recovering => Ending::GraceExpired,
            LeaseState::Live | LeaseState::Lapsed => Ending::Expired,
        };
        self.fail_waiters_of(namespace, id);
        self.tell_lost(namespace, id, None, &ending);
        let under = |held: &Held| held.namespace == *namespace && held.lease == id;
        if !self.held.iter().any(|held| under(held) && held.window > Millis::ZERO) {
            self.end_lease(namespace, id, &ending);
        } else {
            self.record(Transition::LeaseLapsed {
                namespace: namespace.clone(),
                lease: id,
                ending: ending.clone(),
            });
            let grants = self.grants_under(namespace, id).count();
            self.open_windows(&lease, &ending);
            self.remember_lease(namespace, id, grants, &ending);
            self.tell_session_ended(namespace, id, &ending);
            let lapsed = self.lease_mut(namespace, id);
            lapsed.state = LeaseState::Lapsed;
            lapsed.session = None;
        }
    }

    fn open_windows(&mut self, lease: &Lease, ending: &Ending) {
        for held in self.held.clone() {
            if held.namespace == lease.namespace && held.lease == lease.id {
                let window = (held.window > Millis::ZERO).then_some(held.window);
                self.tell_ended(&held, ending, window);
                if window.is_none() {
                    self.lose(&held);
                }
            }
        }
        self.held.retain(|held| {
            held.namespace != lease.namespace
                || held.lease != lease.id
                || held.window > Millis::ZERO
        });
        for held in &mut self.held {
            if held.namespace == lease.namespace && held.lease == lease.id {
                held.window_until = Some(lease.deadline.plus(held.window));
            }
        }
    }

    /// All windows of a lapsed lease that are over: keys first, which take the bytes of their set along.
    fn end_windows(&mut self, namespace: &Namespace, id: LeaseId) {
        let of_lease = |held: &Held| held.namespace == *namespace && held.lease == id;
        let over = |held: &&Held| {
            of_lease(held) && held.window_until.is_some_and(|until| until < self.now)
        };
        let mut over: Vec<Held> = self.held.iter().filter(over).cloned().collect();
        over.sort_by_key(|held| held.scope.clone());
        for gone in over {
            let left = |held: &Held| {
                of_lease(held) && held.owner == gone.owner && held.scope.overlaps(&gone.scope)
            };
            match gone.scope {
                Scope::Key(_) if self.is_held(&gone) => {
                    self.end_fence(namespace, id, gone.fence(), &Ending::WindowOver);
                }
                Scope::Range { range, .. } if self.held.iter().any(left) => {
                    self.end_range(&gone, range, &Ending::WindowOver);
                }
                Scope::Key(_) | Scope::Range { .. } => {}
            }
        }
    }
}
