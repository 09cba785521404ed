//! The rules once more, as plainly as they can be said: lists, linear scans, no indexes, no early stops.
//!
//! Nothing here is fast and nothing is shared with the real table but the words of its interface. What the model
//! answers is what the contract promises; where the two differ, one of them is wrong.
//!
//! Every command runs in three parts: work off what is due, do what was asked, and after every change grant whatever
//! waiter can be granted, in the order of arrival, until there is none.

// Asking.
mod acquire;
mod check;
mod retry;
mod conflict;
mod range;
mod queue;
mod deadlock;
mod refusal;

// Holding, and how it ends.
mod holding;
mod by_owner;
mod session;
mod ending;
mod due;
mod epoch;
mod gone;

mod view;

#[cfg(test)]
mod tests;

pub(crate) use gone::Past;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::*;

/// All there is to know about a table of locks.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) fence: FencingToken,
    pub(crate) revision: Revision,
    pub(crate) tickets: u64,
    pub(crate) suspended: bool,
    pub(crate) grace: Option<Grace>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) held: Vec<Held>,
    pub(crate) sets: Vec<Set>,
    pub(crate) known: Vec<Known>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) registers: Vec<Register>,
    /// What has ended, oldest first.
    pub(crate) past: Vec<Past>,
    /// Owners that lost bytes by the command in hand.
    pub(crate) bereft: Vec<(Namespace, Owner)>,
    /// Waiters whose lease has ended by the command in hand.
    pub(crate) orphans: Vec<Waiter>,
    /// What came of the command in hand.
    pub(crate) step: Step,
}

/// The recovery grace, while it is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grace {
    pub(crate) policy: GracePolicy,
    pub(crate) ends_at: Timestamp,
}

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) namespace: Namespace,
    pub(crate) id: LeaseId,
    pub(crate) owner: Owner,
    pub(crate) ttl: Millis,
    pub(crate) deadline: Timestamp,
    pub(crate) state: LeaseState,
    pub(crate) session: Option<Session>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Live,
    /// From the last epoch, and not heard of since.
    Recovering,
    /// Over; only reclaim windows are left of it.
    Lapsed,
}

/// What makes a lease a session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// As it was opened.
    pub(crate) asked: OpenSession,
    pub(crate) terms: SessionTerms,
    pub(crate) opened_at: Timestamp,
    pub(crate) attached: bool,
    /// Its stream broke, and it was not renewed since.
    pub(crate) kept: bool,
}

/// One key, or one piece of a file, that an owner holds under a lease.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) namespace: Namespace,
    pub(crate) lease: LeaseId,
    pub(crate) scope: Scope,
    pub(crate) owner: Owner,
    pub(crate) mode: Mode,
    /// The fences that merged into it, lowest first; one for a key.
    pub(crate) fences: Vec<FencingToken>,
    pub(crate) granted_at: Timestamp,
    pub(crate) window: Millis,
    /// Set in the reclaim window: when that ends.
    pub(crate) window_until: Option<Timestamp>,
    pub(crate) metadata: Option<Arc<str>>,
}

/// The byte ranges that were granted together with other scopes.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) namespace: Namespace,
    pub(crate) lease: LeaseId,
    pub(crate) fence: FencingToken,
    pub(crate) owner: Owner,
    pub(crate) ranges: Vec<Scope>,
}

/// A request that was granted under an id of the client's.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) namespace: Namespace,
    pub(crate) owner: Owner,
    pub(crate) id: RequestId,
    pub(crate) asked: Asked,
    pub(crate) lease: LeaseId,
    pub(crate) fence: FencingToken,
    pub(crate) granted_at: Timestamp,
}

/// What a retry must ask again to be the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) claims: Vec<Claim>,
    pub(crate) session: Option<LeaseId>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) reclaim_window: Duration,
    pub(crate) reclaim: bool,
    pub(crate) metadata: Option<Arc<str>>,
}

/// A request that stands in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) ask: Acquire,
    pub(crate) calls: Vec<CallId>,
    pub(crate) since: Timestamp,
    /// When it stops waiting by itself.
    pub(crate) until: Option<Timestamp>,
    /// The random id that came with the first request for this place: the secret of its ticket.
    pub(crate) id: LeaseId,
    /// Whether its caller came back for a place that was kept.
    pub(crate) returned: bool,
}

/// The place of a caller who is away.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// As it stood in the queue.
    pub(crate) waiter: Waiter,
    pub(crate) until: Timestamp,
    /// The request id that leads to it, unless another request has that by now.
    pub(crate) by_id: Option<RequestId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Register {
    pub(crate) namespace: Namespace,
    pub(crate) name: RegisterName,
    pub(crate) high_water: FencingToken,
}

pub(crate) type Answered = Result<Answer, Refusal>;

impl Model {
    pub(crate) fn new(limits: Limits) -> Model {
        Model {
            limits,
            now: Timestamp::ZERO,
            epoch: Epoch::default(),
            fence: FencingToken::ZERO,
            revision: Revision::default(),
            tickets: 0,
            suspended: false,
            grace: None,
            leases: Vec::new(),
            held: Vec::new(),
            sets: Vec::new(),
            known: Vec::new(),
            waiters: Vec::new(),
            kept: Vec::new(),
            registers: Vec::new(),
            past: Vec::new(),
            bereft: Vec::new(),
            orphans: Vec::new(),
            step: Step::new(),
        }
    }

    /// Time never goes back; what is due comes first; then the command; waiters are served after each of them.
    pub(crate) fn handle(&mut self, now: Timestamp, command: &Command) -> (Outcome, Step) {
        self.now = self.now.max(now);
        self.step = Step::new();
        // Before its first epoch a restored table has deadlines of another time: they are not due, they begin anew.
        if !matches!(command, Command::BeginEpoch(_) | Command::Jump(_)) {
            self.work_off_what_is_due();
        }
        let outcome = self.obey(command);
        self.settle();
        self.end_grace_if_over();
        self.settle();
        self.break_circles_of_the_bereft();
        (outcome, std::mem::take(&mut self.step))
    }

    fn obey(&mut self, command: &Command) -> Outcome {
        let answered = match command {
            Command::Acquire(ask) => return self.acquire(ask),
            Command::Renew(ask) => self.renew(ask),
            Command::Release(ask) => self.release(ask),
            Command::ByOwner(ask) => return self.by_owner(ask),
            Command::Unlock(ask) => self.unlock(ask),
            Command::Cancel(ask) => Ok(self.cancel(ask)),
            Command::OpenSession(ask) => self.open_session(ask),
            Command::KeepAlive(ask) => self.keep_alive(ask),
            Command::CloseSession(ask) => self.close_session(ask),
            Command::Attach(ask) => self.attach(ask),
            Command::Disconnect(ask) => self.disconnect(ask),
            Command::AcceptFence(ask) => self.accept_fence(ask),
            Command::DeleteFence(ask) => self.delete_fence(ask),
            Command::Break(ask) => Ok(self.break_grants(ask)),
            Command::BreakSession(ask) => self.break_session(ask),
            Command::RemoveFile(ask) => Ok(self.remove_file(ask)),
            Command::Withdraw(ask) => Ok(self.withdraw(ask)),
            Command::BeginEpoch(ask) => self.begin_epoch(ask),
            Command::Jump(ask) => Ok(self.jump(ask)),
            Command::Suspend => Ok(self.suspend(true)),
            Command::Resume => Ok(self.suspend(false)),
            Command::Tick => Ok(Answer::Done),
        };
        match answered {
            Ok(answer) => Outcome::Answered(answer),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// Grants, in the order of arrival, every waiter that nothing stands in the way of any more.
    pub(crate) fn settle(&mut self) {
        for waiter in std::mem::take(&mut self.orphans) {
            self.tell_left(&waiter);
            self.refuse_waiter(&waiter, &Refusal::LeaseLost(None));
        }
        loop {
            self.waiters.sort_by_key(|waiter| waiter.ticket);
            let free = |waiter: &&Waiter| self.may_be_granted(waiter);
            let Some(ticket) = self.waiters.iter().find(free).map(|w| w.ticket) else {
                return;
            };
            self.grant_waiter(ticket);
        }
    }

    fn suspend(&mut self, suspended: bool) -> Answer {
        self.suspended = suspended;
        Answer::Done
    }

    pub(crate) fn lease(&self, namespace: &Namespace, id: LeaseId) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.id == id && lease.namespace == *namespace)
    }

    /// A lease that has not lapsed.
    pub(crate) fn standing(&self, namespace: &Namespace, id: LeaseId) -> Option<&Lease> {
        self.lease(namespace, id).filter(|lease| lease.state != LeaseState::Lapsed)
    }

    /// The same for a client: what another principal has is not there.
    pub(crate) fn own_standing(
        &self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
    ) -> Option<&Lease> {
        self.standing(namespace, id).filter(|lease| lease.owner.principal() == *principal)
    }

    pub(crate) fn lease_mut(&mut self, namespace: &Namespace, id: LeaseId) -> &mut Lease {
        self.leases
            .iter_mut()
            .find(|lease| lease.id == id && lease.namespace == *namespace)
            .expect("the lease was looked up before")
    }

    /// Writes a lasting change down: each is one revision.
    pub(crate) fn record(&mut self, transition: Transition) {
        self.revision = Revision(self.revision.0 + 1);
        self.step.transitions.push(transition);
    }

    /// Tells those who watch.
    pub(crate) fn tell(&mut self, namespace: &Namespace, news: News) {
        self.step.effects.push(Effect::Event(Arc::new(Event {
            revision: self.revision,
            at: self.now,
            namespace: namespace.clone(),
            news,
        })));
    }

    pub(crate) fn refuse_waiter(&mut self, waiter: &Waiter, refusal: &Refusal) {
        for &call in &waiter.calls {
            self.step.effects.push(Effect::Refused { call, refusal: refusal.clone() });
        }
    }
}

pub(crate) fn millis(length: Duration) -> Millis {
    Millis::from_duration(length).expect("checked against the limits")
}
