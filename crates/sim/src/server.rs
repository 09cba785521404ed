//! One server: the real member, driven by simulated time, calls and answers of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    CallId, Cancel, Command, Disconnect, FencingToken, LeaseId, Namespace, SecretTicket, Timestamp,
};
use leasehold_engine::{
    Asking, Call, CallError, Member, Output, Plan as MemberPlan, Recovery, Reply, Response, Undo,
};
use leasehold_store::{Candidate, JournalCaps};

use crate::client::principal_of;
use crate::plan::Plan;
use crate::time::{Clock, Moment};
use crate::world::Arrival;

/// One question of a client on its way to a server and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wire {
    pub client: usize,
    /// Which life of the client asked.
    pub life: u64,
    pub number: u64,
    /// Which try it is.
    pub tries: u32,
}

#[derive(Debug)]
pub struct Server {
    pub member: Option<Member>,
    pub clock: Clock,
    /// Counts its starts.
    pub life: u64,
    pub paused: u32,
    /// How far its wall clock is ahead of true time.
    pub wall_ahead: i64,
    callers: BTreeMap<CallId, PendingCall>,
    next_call: u64,
    /// Sessions that are bound to a stream of this life of a client.
    attached: BTreeSet<(usize, u64, Namespace, LeaseId)>,
    pub wakes_at: Option<Moment>,
    /// How often it wanted to be woken at a moment that was over.
    pub spins: u32,
    /// How many calls it made to the store in this second.
    calls_in: (u64, u32),
    cancels: usize,
    /// Sessions whose opening nobody awaits any more.
    unheard: Vec<(Namespace, LeaseId)>,
    /// What came in while it was paused.
    inbox: Vec<(u64, Arrival)>,
    /// Calls that were given up, perhaps before they came in.
    gone: BTreeSet<Wire>,
}

#[derive(Debug)]
struct PendingCall {
    wire: Wire,
    call: Rc<Call>,
    asked: Moment,
}

/// An answer that goes out to a client.
#[derive(Debug)]
pub struct Told {
    pub wire: Wire,
    pub call: Rc<Call>,
    /// When it came in.
    pub asked: Moment,
    pub reply: Result<Reply, CallError>,
}

/// What a server has to say after something happened to it.
#[derive(Debug, Default)]
pub struct Said {
    pub told: Vec<Told>,
    pub asks: Vec<Asking>,
    /// Whoever stands in the queue learns how to come back.
    pub queued: Vec<(Wire, SecretTicket)>,
    pub began: bool,
    pub lost: Vec<(LeaseId, Option<FencingToken>)>,
    pub withdrawn: usize,
    /// Sessions that nobody heard of.
    pub unheard: Vec<(Namespace, LeaseId)>,
    pub cancels: usize,
}

impl Server {
    pub fn new(drift_ppm: i64) -> Server {
        Server {
            member: None,
            clock: Clock::new(Moment(0), 0, drift_ppm),
            life: 0,
            paused: 0,
            wall_ahead: 0,
            callers: BTreeMap::new(),
            next_call: 0,
            attached: BTreeSet::new(),
            wakes_at: None,
            spins: 0,
            calls_in: (0, 0),
            cancels: 0,
            unheard: Vec::new(),
            inbox: Vec::new(),
            gone: BTreeSet::new(),
        }
    }

    pub fn is_up(&self) -> bool {
        self.member.is_some()
    }

    pub fn now(&self, now: Moment) -> Timestamp {
        self.clock.timestamp(now)
    }

    /// A new process: it knows nothing, and its axis of time starts where the wall clock happens to be.
    pub fn start(
        &mut self,
        now: Moment,
        number: usize,
        plan: &Plan,
        caps: JournalCaps,
        drift: i64,
    ) {
        self.life += 1;
        let wall = i64::try_from(now.0).unwrap_or(i64::MAX) + self.wall_ahead + 1_000_000_000_000;
        self.clock = Clock::new(now, wall.unsigned_abs(), drift);
        let member_plan = MemberPlan {
            candidate: Candidate {
                name: format!("server-{number}"),
                address: format!("server-{number}"),
                lease: Duration::from_micros(plan.leader_lease),
            },
            recovery: Recovery {
                limits: plan.limits.clone(),
                seed: plan.seed ^ self.life,
                grace: plan.grace,
                grace_length: Duration::from_micros(plan.grace_length),
                // As a server does by its wall clock: microseconds are above all that were handed out.
                fence_floor: plan.store.forgets.then(|| FencingToken::new(now.0)).flatten(),
            },
            snapshot_bytes: plan.snapshot_bytes,
        };
        self.member = Some(Member::new(member_plan, caps, self.now(now)));
    }

    /// Ends at once. Gives those who were still waiting for an answer.
    pub fn crash(&mut self) -> Vec<Wire> {
        self.member = None;
        self.wakes_at = None;
        self.attached.clear();
        self.gone.clear();
        std::mem::take(&mut self.callers).into_values().map(|caller| caller.wire).collect()
    }

    /// Kept until it goes on.
    pub(crate) fn inbox(&mut self, life: u64, arrival: Arrival) {
        self.inbox.push((life, arrival));
    }

    pub(crate) fn take_inbox(&mut self) -> Vec<(u64, Arrival)> {
        std::mem::take(&mut self.inbox)
    }

    /// One call has come in.
    pub fn ask(&mut self, now: Moment, wire: Wire, call: &Rc<Call>) {
        if self.gone.contains(&wire) {
            return;
        }
        let at = self.now(now);
        let id = self.next_call();
        let Some(member) = &mut self.member else { return };
        let mut owned = Call::clone(call);
        if let Call::Command(Command::Acquire(acquire)) = &mut owned {
            acquire.call = id;
        }
        self.callers.insert(id, PendingCall { wire, call: call.clone(), asked: now });
        member.submit(at, id, owned);
    }

    fn next_call(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    /// The one who asked has gone: nobody will read the answer.
    pub fn hang_up(&mut self, now: Moment, wire: Wire) {
        self.gone.insert(wire);
        self.hang_up_all(now, |caller| caller == wire);
    }

    /// A client has gone, with everything that it had under way.
    ///
    /// Gives what it told the engine of the sessions that were bound to it.
    pub fn client_gone(&mut self, now: Moment, client: usize, life: u64) -> Vec<Disconnect> {
        self.hang_up_all(now, |wire| (wire.client, wire.life) == (client, life));
        let of_client = |(c, l, ..): &(usize, u64, Namespace, LeaseId)| (*c, *l) == (client, life);
        let gone: Vec<_> = self.attached.iter().filter(|bound| of_client(bound)).cloned().collect();
        self.attached.retain(|bound| !of_client(bound));
        let disconnect = |(_, _, namespace, session)| Disconnect {
            namespace,
            principal: principal_of(client),
            session,
        };
        let gone: Vec<Disconnect> = gone.into_iter().map(disconnect).collect();
        for gone in gone.clone() {
            self.run(now, Command::Disconnect(gone));
        }
        gone
    }

    fn hang_up_all(&mut self, now: Moment, is_gone: impl Fn(Wire) -> bool) {
        let gone = |caller: &PendingCall| is_gone(caller.wire);
        let ids: Vec<CallId> =
            self.callers.iter().filter(|(_, caller)| gone(caller)).map(|(&id, _)| id).collect();
        for id in ids {
            let caller = self.callers.remove(&id);
            if let Some(Call::Command(Command::OpenSession(open))) =
                caller.as_ref().map(|c| &*c.call)
            {
                self.unheard.push((open.namespace.clone(), open.id));
            }
            if let Some(Call::Command(Command::Acquire(acquire))) =
                caller.as_ref().map(|c| &*c.call)
            {
                let namespace = acquire.namespace.clone();
                self.cancels += 1;
                // Whoever has neither could not come back. A stream has told its waiters their tickets.
                let keep_place = acquire.ticket.is_some() || acquire.request_id.is_some();
                self.run(now, Command::Cancel(Cancel { namespace, call: id, keep_place }));
            }
        }
    }

    /// A command that nobody awaits the answer of.
    fn run(&mut self, now: Moment, command: Command) {
        let (at, id) = (self.now(now), self.next_call());
        if let Some(member) = &mut self.member {
            member.submit(at, id, Call::Command(command));
        }
    }

    pub fn answered(&mut self, now: Moment, id: u64, response: Response) {
        let at = self.now(now);
        if let Some(member) = &mut self.member {
            member.answered(at, id, response);
        }
    }

    pub fn tick(&mut self, now: Moment) {
        let at = self.now(now);
        if let Some(member) = &mut self.member {
            member.tick(at);
        }
    }

    /// Everything that may be shown, and everything that is to be asked of the store.
    pub fn say(&mut self, now: Moment) -> Said {
        let at = self.now(now);
        let mut said = Said {
            cancels: std::mem::take(&mut self.cancels),
            unheard: std::mem::take(&mut self.unheard),
            ..Said::default()
        };
        let Some(mut member) = self.member.take() else { return said };
        // Taking a grant back can free others: go on until nothing more comes of it.
        let mut outputs = Vec::new();
        loop {
            said.asks.extend(member.take_requests(at));
            member.take_outputs(&mut outputs);
            if outputs.is_empty() {
                break;
            }
            for output in outputs.drain(..) {
                self.show(at, &mut member, output, &mut said);
            }
        }
        member.draft_next();
        self.member = Some(member);
        said
    }

    fn show(&mut self, at: Timestamp, member: &mut Member, output: Output, said: &mut Said) {
        match output {
            Output::Reply { call, reply, undo } => match self.callers.remove(&call) {
                Some(PendingCall { wire, call, asked }) => {
                    self.note_attached(wire, &call, reply.is_ok());
                    said.told.push(Told { wire, call, asked, reply });
                }
                None => {
                    if let Some(undo) = undo {
                        if let Undo::Session(close) | Undo::RetryableSession(close) = &undo {
                            said.unheard.push((close.namespace.clone(), close.session));
                        }
                        said.withdrawn += usize::from(!matches!(
                            undo,
                            Undo::RetryableGrant(_) | Undo::RetryableSession(_)
                        ));
                        member.undelivered(at, undo);
                    }
                }
            },
            Output::Queued { call, queued } => {
                let wire = self.callers.get(&call).map(|caller| caller.wire);
                said.queued.extend(wire.map(|wire| (wire, queued.ticket)));
            }
            Output::Lost { lease, fence, .. } => said.lost.push((lease, fence)),
            Output::Began(_) => said.began = true,
            Output::Event(_) | Output::Wanted { .. } | Output::Ended => {}
        }
    }

    fn note_attached(&mut self, wire: Wire, call: &Call, done: bool) {
        let Call::Command(command) = call else { return };
        let place =
            |namespace: &Namespace, session| (wire.client, wire.life, namespace.clone(), session);
        if let (Command::Attach(attach), true) = (command, done) {
            self.attached.insert(place(&attach.namespace, attach.session));
        } else if let Command::Disconnect(gone) = command {
            self.attached.remove(&place(&gone.namespace, gone.session));
        }
    }

    /// Counts a call to the store; says how many it were in this second of its own.
    pub fn called_store(&mut self, now: Moment) -> u32 {
        let second = now.0 / crate::time::SECOND;
        let (counted, calls) = self.calls_in;
        self.calls_in = (second, if counted == second { calls + 1 } else { 1 });
        self.calls_in.1
    }

    pub fn callers_len(&self) -> usize {
        self.callers.len()
    }

    /// When it wants to be woken.
    pub fn wake_at(&self, now: Moment) -> Option<Moment> {
        let wake = self.member.as_ref()?.wake_at(self.now(now))?;
        Some(self.clock.when_timestamp(wake))
    }
}
