//! The rules once more, as plainly as they can be said: lists, linear scans, no indexes, no early stops.
//!
//! Nothing here is fast and nothing is shared with the real table but the words of its interface. What the model
//! answers is what the contract promises; where the two differ, one of them is wrong.
//!
//! Every command runs in three parts: work off what is due, do what was asked, and after every change grant whatever
//! waiter can be granted, in the order of arrival, until there is none.

mod acquire;
mod check;
mod conflict;
mod deadlock;
mod due;
mod ending;
mod epoch;
mod holding;
mod range;
mod session;
mod view;

use std::time::Duration;

use leasehold_core::*;

/// All there is to know about a table of locks.
#[derive(Clone, Debug)]
pub struct Model {
    pub limits: Limits,
    pub now: Timestamp,
    pub epoch: Epoch,
    pub fence: Fence,
    pub revision: Revision,
    pub tickets: u64,
    pub suspended: bool,
    pub grace: Option<Grace>,
    pub leases: Vec<Lease>,
    pub held: Vec<Held>,
    pub sets: Vec<Set>,
    pub waiters: Vec<Waiter>,
    pub registers: Vec<Register>,
    /// What came of the command in hand.
    pub step: Step,
}

/// The recovery grace, while it is on.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    pub policy: GracePolicy,
    pub ends_at: Timestamp,
}

#[derive(Clone, Debug)]
pub struct Lease {
    pub namespace: Namespace,
    pub id: LeaseId,
    pub owner: Owner,
    pub ttl: Millis,
    pub deadline: Timestamp,
    pub state: LeaseState,
    pub session: Option<Session>,
    /// The highest fence issued under it.
    pub fence_max: Fence,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Live,
    /// From the last epoch, and not heard of since.
    Recovering,
    /// Over; only reclaim windows are left of it.
    Lapsed,
}

/// What makes a lease a session.
#[derive(Clone, Debug)]
pub struct Session {
    pub terms: SessionTerms,
    pub opened_at: Timestamp,
    pub attached: bool,
}

/// One key, or one piece of a file, that an owner holds under a lease.
#[derive(Clone, Debug)]
pub struct Held {
    pub namespace: Namespace,
    pub lease: LeaseId,
    pub scope: Scope,
    pub owner: Owner,
    pub mode: Mode,
    /// The lowest and the highest fence that merged into it; the same one twice for a key.
    pub fences: (Fence, Fence),
    pub granted_at: Timestamp,
    pub window: Millis,
    /// Set in the reclaim window: when that ends.
    pub window_until: Option<Timestamp>,
    pub request: Option<(RequestId, Asked)>,
    pub metadata: Option<std::sync::Arc<str>>,
}

/// The byte ranges that were granted together with other scopes.
#[derive(Clone, Debug)]
pub struct Set {
    pub namespace: Namespace,
    pub lease: LeaseId,
    pub fence: Fence,
    pub owner: Owner,
    pub ranges: Vec<Scope>,
}

/// What a retry must ask again to be the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub claims: Vec<Claim>,
    pub session: Option<LeaseId>,
    pub ttl: Option<Duration>,
    pub reclaim_window: Duration,
    pub reclaim: bool,
    pub metadata: Option<std::sync::Arc<str>>,
}

/// A request that stands in the queue, or has a place kept there.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub ticket: Ticket,
    pub ask: Acquire,
    pub calls: Vec<CallId>,
    pub since: Timestamp,
    /// When it stops waiting by itself.
    pub until: Option<Timestamp>,
    /// Set while nobody waits: how long the place is kept.
    pub parked_until: Option<Timestamp>,
    /// Whether its caller came back with a ticket, and so may once more.
    pub returned: bool,
}

#[derive(Clone, Debug)]
pub struct Register {
    pub namespace: Namespace,
    pub name: RegisterName,
    pub high_water: Fence,
}

pub type Answered = Result<Answer, Refusal>;

impl Model {
    pub fn new(limits: Limits) -> Model {
        Model {
            limits,
            now: Timestamp::ZERO,
            epoch: Epoch::default(),
            fence: Fence::ZERO,
            revision: Revision::default(),
            tickets: 0,
            suspended: false,
            grace: None,
            leases: Vec::new(),
            held: Vec::new(),
            sets: Vec::new(),
            waiters: Vec::new(),
            registers: Vec::new(),
            step: Step::new(),
        }
    }

    /// Time never goes back; what is due comes first; then the command; waiters are served after each of them.
    pub fn handle(&mut self, now: Timestamp, command: &Command) -> (Outcome, Step) {
        self.now = self.now.max(now);
        self.step = Step::new();
        self.work_off_what_is_due();
        self.settle();
        let outcome = self.obey(command);
        self.settle();
        (outcome, std::mem::take(&mut self.step))
    }

    fn obey(&mut self, command: &Command) -> Outcome {
        let answered = match command {
            Command::Acquire(ask) => return self.acquire(ask),
            Command::Renew(ask) => self.renew(ask),
            Command::Release(ask) => self.release(ask),
            Command::Unlock(ask) => self.unlock(ask),
            Command::Cancel(ask) => Ok(self.cancel(ask)),
            Command::OpenSession(ask) => self.open_session(ask),
            Command::KeepAlive(ask) => self.keep_alive(ask),
            Command::CloseSession(ask) => self.close_session(ask),
            Command::Attach(ask) => self.attach(ask),
            Command::Disconnect(ask) => self.disconnect(ask),
            Command::AcceptFence(ask) => self.accept_fence(ask),
            Command::Break(ask) => Ok(self.break_grants(ask)),
            Command::RemoveFile(ask) => Ok(self.remove_file(ask)),
            Command::Withdraw(ask) => Ok(self.withdraw(ask)),
            Command::BeginEpoch(ask) => self.begin_epoch(ask),
            Command::Jump(ask) => self.jump(ask),
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
    pub fn settle(&mut self) {
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

    pub fn lease(&self, namespace: &Namespace, id: LeaseId) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.id == id && lease.namespace == *namespace)
    }

    /// A lease that has not lapsed.
    pub fn standing(&self, namespace: &Namespace, id: LeaseId) -> Option<&Lease> {
        self.lease(namespace, id).filter(|lease| lease.state != LeaseState::Lapsed)
    }

    pub fn lease_mut(&mut self, namespace: &Namespace, id: LeaseId) -> &mut Lease {
        self.leases
            .iter_mut()
            .find(|lease| lease.id == id && lease.namespace == *namespace)
            .expect("the lease was looked up before")
    }

    /// Writes a lasting change down: each is one revision.
    pub fn record(&mut self, transition: Transition) {
        self.revision = Revision(self.revision.0 + 1);
        self.step.transitions.push(transition);
    }

    /// Tells those who watch.
    pub fn tell(&mut self, namespace: &Namespace, news: News) {
        self.step.effects.push(Effect::Event(Box::new(Event {
            revision: self.revision,
            at: self.now,
            namespace: namespace.clone(),
            news,
        })));
    }

    pub fn refuse_waiter(&mut self, waiter: &Waiter, refusal: &Refusal) {
        for &call in &waiter.calls {
            self.step.effects.push(Effect::Refused { call, refusal: refusal.clone() });
        }
    }
}

pub fn millis(length: Duration) -> Millis {
    Millis::from_duration(length).expect("checked against the limits")
}

pub fn same<T: PartialEq>(one: &T, other: &T) -> bool {
    one == other
}
