//! The world: one thread, one agenda, one true time.
//!
//! Everything that happens is an `Event` on the agenda. Nodes that are paused get theirs when they go on; nodes that
//! died never do. After every event the judges look.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

mod faults;
mod servers;

use std::panic;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    Command, Ending, Epoch, FencingToken, LeaseId, SecretTicket, Transition, Under,
};
use leasehold_engine::{Call, CallError, Reply};

use crate::agenda::Agenda;
use crate::client::Client;
use crate::coverage::Coverage;
use crate::cut::Cut;
use crate::judge::{Judge, Peaks, Queue, Verdict};
use crate::network::Network;
use crate::plan::{FAULT_NAMES, Node, Plan, SERVERS_MAX};
use crate::rng::{Purpose, Rng};
use crate::server::{Server, Wire};
use crate::store::Store;
use crate::time::{MILLI, Micros, Moment};
use crate::trace::Trace;

#[derive(Debug)]
pub struct World {
    pub plan: Plan,
    pub cut: Cut,
    pub now: Moment,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) network: Network,
    store: Store,
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Client>,
    pub trace: Trace,
    pub coverage: Coverage,
    pub judge: Judge,
    peaks: Peaks,
    faults_on: [u32; FAULT_NAMES.len()],
    /// Who is hit by each fault of the plan that is on.
    victims: Vec<Option<usize>>,
    /// Faults that wait until their victim has asked the store something, and whether it must be about its leadership.
    armed_faults: Vec<(usize, bool)>,
    pub(crate) is_calm: bool,
    leader: Option<String>,
    epoch: Epoch,
    /// When the last leader lost its right to write to the present one.
    epoch_won: Moment,
}

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// At a node, in that life of it; later if it is paused.
    At(Node, u64, Arrival),
    /// A call arrives at the store.
    Store(u64),
    Fault(usize),
    FaultOver(usize),
    /// Connections that got nothing through for so long break.
    Stale {
        client: usize,
        server: usize,
    },
    Calm,
}

#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    Ask(Wire, Rc<Call>),
    HangUp(Wire),
    ClientGone {
        client: usize,
        life: u64,
    },
    StoreAnswer(u64),
    Wake,
    Told {
        number: u64,
        tries: u32,
        left: Duration,
        reply: Rc<Result<Reply, CallError>>,
    },
    /// A request stands in the queue.
    Queued {
        number: u64,
        ticket: SecretTicket,
    },
    /// A server says, unasked, that a lease or one grant of it is gone.
    Lost {
        lease: LeaseId,
        fence: Option<FencingToken>,
    },
    /// The connection that this was asked over has broken.
    Broken {
        number: u64,
        tries: u32,
    },
    /// Something that a client meant to do then.
    Due(crate::client::Due),
}

/// A world that has come to its end.
#[derive(Debug)]
pub struct Run {
    pub seed: u64,
    pub verdict: Result<(), Verdict>,
    pub hash: u64,
    pub events: u64,
    pub simulated: Micros,
    pub coverage: Coverage,
    pub lines: Vec<String>,
    /// How many actions each client, and each client's SDK, has done.
    pub actions: Vec<(usize, u64)>,
    pub faults: usize,
    /// How long each queue was at most.
    pub peaks: Peaks,
}

impl World {
    pub fn new(plan: Plan, cut: Cut, with_lines: bool) -> World {
        let mut plan = plan;
        plan.cut(&cut);
        let nodes = 1 + SERVERS_MAX + plan.clients;
        let drift = |node: Node| drift_of(&plan, node);
        World {
            network: Network::new(plan.seed, plan.network, nodes),
            store: Store::new(plan.seed, plan.store),
            servers: (0..plan.servers).map(|s| Server::new(drift(Node::Server(s)))).collect(),
            clients: (0..plan.clients)
                .map(|c| Client::new(&plan, c, drift(Node::Client(c))))
                .collect(),
            judge: Judge::new(&plan),
            peaks: Peaks::default(),
            victims: vec![None; plan.faults.len()],
            armed_faults: Vec::new(),
            plan,
            cut,
            now: Moment(0),
            agenda: Agenda::default(),
            trace: Trace::new(with_lines),
            coverage: Coverage::default(),
            faults_on: [0; FAULT_NAMES.len()],
            is_calm: false,
            leader: None,
            epoch: Epoch(0),
            epoch_won: Moment(0),
        }
    }

    /// Lives through the whole of it.
    pub fn run(mut self) -> Run {
        let lived = panic::catch_unwind(panic::AssertUnwindSafe(|| self.live()));
        let verdict = lived.unwrap_or_else(|panicked| {
            let text = panicked.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panicked.downcast_ref::<&str>().copied());
            Err(Verdict::new(self.now, "nothing panics", text.unwrap_or("something panicked")))
        });
        let actions = self.clients.iter().enumerate().flat_map(|(client, at)| at.actions(client));
        let actions = actions.collect();
        Run {
            seed: self.plan.seed,
            verdict,
            hash: self.trace.hash(),
            events: self.trace.events,
            simulated: self.now.0,
            coverage: self.coverage,
            lines: self.trace.take_lines(),
            actions,
            faults: self.plan.faults.len(),
            peaks: self.peaks,
        }
    }

    fn live(&mut self) -> Result<(), Verdict> {
        self.begin();
        let end = Moment(self.plan.length) + self.plan.settling();
        while let Some((at, event)) = self.agenda.take_next() {
            if at > end {
                break;
            }
            self.now = at;
            self.trace.events += 1;
            self.trace.note(at.0);
            self.happen(event)?;
            self.judge.take_verdict(self.now)?;
            self.see(Queue::Agenda, self.agenda.len())?;
        }
        self.now = end;
        self.last_judgement()
    }

    /// Something is so long now.
    pub(crate) fn see(&mut self, queue: Queue, len: usize) -> Result<(), Verdict> {
        self.peaks.see(self.now, &self.plan, queue, len)
    }

    fn begin(&mut self) {
        for server in 0..self.plan.servers {
            self.start_server(server);
        }
        for client in 0..self.plan.clients {
            self.start_client(client);
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            self.agenda.add(fault.at, Event::Fault(number));
            self.agenda.add(fault.at + fault.lasts, Event::FaultOver(number));
        }
        self.agenda.add(Moment(self.plan.length), Event::Calm);
    }

    fn happen(&mut self, event: Event) -> Result<(), Verdict> {
        match event {
            Event::At(node, life, arrival) => self.arrive(node, life, arrival)?,
            Event::Store(call) => self.store_arrive(call)?,
            Event::Fault(number) => self.fault(number, true)?,
            Event::FaultOver(number) => self.fault(number, false)?,
            Event::Stale { client, server } => self.go_stale(client, server),
            Event::Calm => self.calm_down()?,
        }
        Ok(())
    }

    fn arrive(&mut self, node: Node, life: u64, arrival: Arrival) -> Result<(), Verdict> {
        match node {
            Node::Server(server) => self.arrive_at_server(server, life, arrival),
            Node::Client(client) => self.arrive_at_client(client, life, arrival),
            Node::Store => Ok(()),
        }
    }

    // The store.

    fn store_arrive(&mut self, call: u64) -> Result<(), Verdict> {
        if let Some((server, name)) = self.store.arrive(call) {
            self.trace.note(call);
            self.trace.line(self.now, Node::Store, format_args!("{name} from server-{server}"));
        }
        for batch in self.store.take_written() {
            self.trace.note(batch.seq().0);
            if self.trace.is_read() {
                let transitions: Vec<String> =
                    batch.transitions().flatten().map(|t| crate::shown::transition(&t)).collect();
                let (seq, epoch) = (batch.seq(), batch.epoch().0);
                self.trace.line(
                    self.now,
                    Node::Store,
                    format_args!("record {seq} of epoch {epoch}: {}", transitions.join("; ")),
                );
            }
            let reclaims = |transition: &Transition| match transition {
                Transition::GrantEnded { ending, .. }
                | Transition::KeyEnded { ending, .. }
                | Transition::LeaseEnded { ending, .. }
                | Transition::RangeEnded { ending, .. } => *ending == Ending::Reclaimed,
                _ => false,
            };
            if batch.transitions().flatten().any(|transition| reclaims(&transition)) {
                self.coverage.mark("lease reclaimed");
            }
            self.judge.written(self.now, &batch)?;
        }
        for (as_of, items) in self.store.take_snapshots() {
            self.judge.snapshotted(self.now, as_of, &items)?;
        }
        self.note_leader();
        Ok(())
    }

    fn note_leader(&mut self) {
        let leader = self.store.leader();
        if leader.as_ref().is_some_and(|leader| leader.beat.epoch > self.epoch) {
            self.epoch = leader.as_ref().map_or(self.epoch, |leader| leader.beat.epoch);
            self.epoch_won = self.now;
        }
        let leader = leader.map(|leader| leader.name);
        if leader.is_some() && leader != self.leader {
            if self.leader.is_some() {
                self.coverage.mark("leader changed");
            }
            self.leader = leader;
        }
    }

    // Connections.

    /// A client asks a server something.
    pub(crate) fn ask(&mut self, server: usize, wire: Wire, call: Rc<Call>) {
        let client = Node::Client(wire.client);
        if self.trace.is_read() {
            let what = crate::shown::call(&call);
            self.trace.line(
                self.now,
                client,
                format_args!("asks server-{server} #{}: {what}", wire.number),
            );
        }
        let fate = self.network.send(self.now, client, Node::Server(server));
        let Some(at) = fate.arrives else { return self.break_wire(wire) };
        let life = self.servers[server].life;
        let node = Node::Server(server);
        if let Some(again) = fate.again.filter(|_| may_be_doubled(&call)) {
            let arrival = Arrival::Ask(wire, Rc::new(doubled(&call)));
            self.agenda.add(again, Event::At(node, life, arrival));
        }
        self.agenda.add(at, Event::At(node, life, Arrival::Ask(wire, call)));
    }

    /// The connection is broken: both sides find out, each in its time.
    pub(crate) fn break_wire(&mut self, wire: Wire) {
        let at = self.now + self.detection(wire);
        let broken = Arrival::Broken { number: wire.number, tries: wire.tries };
        self.agenda.add(at, Event::At(Node::Client(wire.client), wire.life, broken));
        self.hang_up(wire);
    }

    /// The servers find out that nobody waits for an answer any more.
    pub(crate) fn hang_up(&mut self, wire: Wire) {
        let at = self.now + self.detection(wire);
        for server in 0..self.plan.servers {
            self.at_server(server, Arrival::HangUp(wire), at);
        }
    }

    /// How long it takes to find out that a connection is dead.
    fn detection(&self, wire: Wire) -> Micros {
        let mut rng = Rng::new(self.plan.seed, Purpose::Client, wire.client as u64, wire.number);
        let ttl = self.plan.ttl;
        if self.is_calm { rng.between(MILLI, ttl / 20) } else { rng.spread(MILLI, ttl / 4) }
    }

    /// Nothing got through between these two for so long that their connections are given up.
    fn go_stale(&mut self, client: usize, server: usize) {
        let (one, other) = (Node::Client(client), Node::Server(server));
        if self.network.is_cut(one, other) || self.network.is_cut(other, one) {
            for wire in self.clients[client].wires_to(client, server) {
                self.break_wire(wire);
            }
        }
    }

    // The end.

    fn last_judgement(&mut self) -> Result<(), Verdict> {
        let at = self.now;
        for (number, client) in self.clients.iter().enumerate() {
            if let Some(what) = client.unfinished() {
                let what = format!("client-{number} still waits for an answer to {what}");
                return Err(Verdict::new(at, "everybody is served or refused", what));
            }
        }
        for (number, server) in self.servers.iter().enumerate() {
            if server.callers_len() > 0 {
                let what = format!("server-{number} owes {} answers", server.callers_len());
                return Err(Verdict::new(at, "everybody is served or refused", what));
            }
        }
        let leading = self.servers.iter().filter_map(|server| server.member.as_ref()?.engine());
        let engines: Vec<_> = leading.collect();
        if engines.len() != 1 {
            return Err(Verdict::new(
                at,
                "somebody leads",
                format!("{} servers lead", engines.len()),
            ));
        }
        let stats = engines[0].table().stats();
        if stats.waiters > 0 || stats.leases > 0 || engines[0].unwritten_len() > 0 {
            return Err(Verdict::new(at, "nothing is left behind", format!("{stats:?}")));
        }
        self.judge.fold(at, engines[0])?;
        let behind = self.judge.bytes_behind();
        self.see(Queue::Journal, behind)?;
        self.judge.last(at, &mut self.coverage)
    }
}

/// The speed of a node's clock.
pub(crate) fn drift_of(plan: &Plan, node: Node) -> i64 {
    let mut rng = Rng::new(plan.seed, Purpose::Plan, 1, node.place() as u64);
    let most = plan.drift_ppm.unsigned_abs();
    // Often as bad as it gets: that is where two clocks differ most.
    match rng.below(4) {
        0 => plan.drift_ppm,
        1 => -plan.drift_ppm,
        _ => i64::try_from(rng.below(2 * most + 1)).unwrap_or(0) - plan.drift_ppm,
    }
}

/// The same request come a second time. A server draws an id for the lease of each that comes in.
fn doubled(call: &Call) -> Call {
    let mut call = call.clone();
    if let Call::Command(Command::Acquire(acquire)) = &mut call
        && let Under::NewLease { id, .. } = &mut acquire.under
    {
        *id = LeaseId::from_u128(!id.as_u128());
    }
    call
}

/// A proxy may send again what is safe to send again.
fn may_be_doubled(call: &Call) -> bool {
    match call {
        Call::Query(_) => true,
        Call::Command(Command::Acquire(acquire)) => acquire.request_id.is_some(),
        Call::Command(command) => matches!(
            command,
            Command::Renew(_)
                | Command::Release(_)
                | Command::KeepAlive(_)
                | Command::AcceptFence(_)
        ),
    }
}
