//! The world: one thread, one agenda, one true time.
//!
//! Everything that happens is an `Event` on the agenda. Nodes that are paused get theirs when they go on; nodes that
//! died never do. After every event the judges look.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::panic;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    Answer, Command, Ending, Epoch, Fence, LeaseId, Timestamp, Transition, Under,
};
use leasehold_engine::{Call, CallError, Reply, Request};

use crate::agenda::Agenda;
use crate::client::Client;
use crate::coverage::{self, Coverage, Faults};
use crate::dice::{Dice, Purpose};
use crate::judge::{Judge, Peaks, Queue, Verdict};
use crate::network::Network;
use crate::plan::{Cut, FAULT_NAMES, FaultKind, Node, Plan, SERVERS_MAX};
use crate::server::{Server, Told, Wire};
use crate::store::{Links, Remains, Store, shown};
use crate::time::{MILLI, Micros, Moment};
use crate::trace::Trace;

/// How often in a row a server may want to be woken at a time that is over before it counts as spinning.
const SPINS_MAX: u32 = 500;
/// How often a server may call the store in a second, in so small a world.
const STORE_CALLS_MAX: u32 = 1500;

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
    lurking: Vec<(usize, bool)>,
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
    /// A server says, unasked, that a lease or one grant of it is gone.
    Lost {
        lease: LeaseId,
        fence: Option<Fence>,
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
    /// How many deeds each client, and each client's SDK, has done.
    pub deeds: Vec<(usize, u64)>,
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
            lurking: Vec::new(),
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
        let deeds = self.clients.iter().enumerate().flat_map(|(client, at)| at.deeds(client));
        let deeds = deeds.collect();
        Run {
            seed: self.plan.seed,
            verdict,
            hash: self.trace.hash(),
            events: self.trace.events,
            simulated: self.now.0,
            coverage: self.coverage,
            lines: self.trace.take_lines(),
            deeds,
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

    // Servers.

    fn start_server(&mut self, server: usize) {
        let drift = drift_of(&self.plan, Node::Server(server));
        let traits = self.store.traits();
        self.servers[server].start(self.now, server, &self.plan, traits, drift);
        self.trace.line(self.now, Node::Server(server), format_args!("starts"));
        self.at_server(server, Arrival::Wake, self.now);
    }

    fn at_server(&mut self, server: usize, arrival: Arrival, at: Moment) {
        let life = self.servers[server].life;
        self.agenda.add(at, Event::At(Node::Server(server), life, arrival));
    }

    fn arrive_at_server(
        &mut self,
        server: usize,
        life: u64,
        arrival: Arrival,
    ) -> Result<(), Verdict> {
        let at = &mut self.servers[server];
        let is_old = life != at.life;
        if !at.is_up() || (is_old && !matches!(arrival, Arrival::Ask(..))) {
            self.arrive_nowhere(&arrival);
            return Ok(());
        }
        if at.paused > 0 {
            at.inbox(life, arrival);
            return Ok(());
        }
        let is_wake = matches!(arrival, Arrival::Wake);
        match arrival {
            Arrival::Ask(wire, call) => {
                self.judge.asked(self.now, &call);
                at.ask(self.now, wire, &call);
            }
            Arrival::HangUp(wire) => at.hang_up(self.now, wire),
            Arrival::ClientGone { client, life } => {
                for (namespace, session) in at.client_gone(self.now, client, life) {
                    self.judge.disconnected(self.now, &namespace, session);
                }
            }
            Arrival::StoreAnswer(number) => {
                let Some((call, response)) = self.store.answer(number) else { return Ok(()) };
                self.trace.line(
                    self.now,
                    Node::Server(server),
                    format_args!("store: {}", shown(&response)),
                );
                let is_read_back = matches!(response, leasehold_engine::Response::ReadBack(Ok(_)));
                if is_read_back {
                    self.coverage.mark("unknown append settled");
                }
                if matches!(response, leasehold_engine::Response::SnapshotCommitted(Ok(()))) {
                    self.coverage.mark("snapshot committed");
                }
                at.answered(self.now, call.id, response);
            }
            Arrival::Wake => {
                if at.wakes_at.is_some_and(|wakes_at| wakes_at > self.now) {
                    return Ok(());
                }
                at.wakes_at = None;
                at.tick(self.now);
            }
            Arrival::Told { .. }
            | Arrival::Lost { .. }
            | Arrival::Broken { .. }
            | Arrival::Due(_) => {}
        }
        self.after_server(server)?;
        self.check_spin(server, is_wake)
    }

    /// Whoever was woken must not want to be woken at a moment that is over, again and again.
    fn check_spin(&mut self, server: usize, is_wake: bool) -> Result<(), Verdict> {
        let now = self.now;
        let at = &mut self.servers[server];
        let is_over = at.wake_at(now).is_some_and(|wake| wake <= now);
        at.spins = if is_over { at.spins + u32::from(is_wake) } else { 0 };
        if at.spins > SPINS_MAX {
            let what = format!("server-{server} wants to be woken at a moment that is over");
            return Err(Verdict::new(now, "nobody spins", what));
        }
        Ok(())
    }

    /// Lets a server say what it has to say.
    fn after_server(&mut self, server: usize) -> Result<(), Verdict> {
        let said = self.servers[server].say(self.now);
        for told in said.told {
            self.reply(server, told)?;
        }
        let life = self.servers[server].life;
        let asks = !said.asks.is_empty();
        let confirms = said.asks.iter().any(|asking| matches!(asking.request, Request::Confirm(_)));
        for asking in said.asks {
            if self.servers[server].called_store(self.now) > STORE_CALLS_MAX {
                let what = format!("server-{server} calls the store again and again");
                return Err(Verdict::new(self.now, "nobody spins", what));
            }
            let links = Links {
                to_store_cut: self.network.is_cut(Node::Server(server), Node::Store),
                from_store_cut: self.network.is_cut(Node::Store, Node::Server(server)),
            };
            let schedule =
                self.store.call(self.now, (server, life, asking.id), asking.request, links);
            self.agenda.add(schedule.arrives, Event::Store(schedule.call));
            if let Some((again, at)) = schedule.again {
                self.coverage.mark("record doubled");
                self.agenda.add(at, Event::Store(again));
            }
            let answer = Arrival::StoreAnswer(schedule.call);
            self.agenda.add(schedule.answered, Event::At(Node::Server(server), life, answer));
        }
        if said.began {
            self.coverage.mark("epoch began");
            self.judge.history.restarted(self.epoch_won, self.now);
        }
        let faults = self.faults();
        (0..said.cancels).for_each(|_| self.coverage.answered("cancel", "ok", faults));
        for (lease, fence) in said.lost {
            self.coverage.mark("holder told of loss");
            self.tell_of_loss(server, lease, fence);
        }
        (0..said.withdrawn).for_each(|_| self.coverage.mark("grant withdrawn"));
        self.judge_server(server)?;
        self.wake_server(server);
        if asks {
            self.strike(server, confirms)?;
        }
        Ok(())
    }

    fn judge_server(&mut self, server: usize) -> Result<(), Verdict> {
        let Some(member) = &self.servers[server].member else { return Ok(()) };
        if let Some(fault) = member.fault() {
            let shared = self.plan.store.shared;
            // A disk that fails at the start is not waited for: somebody starts the server again.
            if shared
                || !matches!(
                    fault,
                    leasehold_engine::StartError::Store(
                        leasehold_store::Error::Unavailable { .. }
                            | leasehold_store::Error::OutcomeUnknown { .. }
                    )
                )
            {
                return Err(Verdict::new(self.now, "a server goes on", fault.to_string()));
            }
        }
        if let Some(engine) = member.engine() {
            self.judge.table(self.now, engine)?;
            let (unwritten, waiting) = (engine.unwritten_len(), engine.table().stats().waiters);
            self.see(Queue::Unwritten, unwritten)?;
            self.see(Queue::Waiting, waiting)?;
        }
        self.see(Queue::Owed, self.servers[server].callers_len())?;
        self.see(Queue::StoreCalls, self.store.calls_len())?;
        self.judge_leadership(server)
    }

    /// What a leader answers without writing it down is safe only if nobody else can decide meanwhile.
    fn judge_leadership(&self, server: usize) -> Result<(), Verdict> {
        let leads = |server: &Server| {
            let at = server.now(self.now);
            server.member.as_ref().is_some_and(|member| member.leads(at))
        };
        if !leads(&self.servers[server]) {
            return Ok(());
        }
        match (0..self.plan.servers).find(|&o| o != server && leads(&self.servers[o])) {
            Some(other) => {
                let what = format!("server-{server} and server-{other}");
                Err(Verdict::new(self.now, "no two servers lead at once", what))
            }
            None => Ok(()),
        }
    }

    fn wake_server(&mut self, server: usize) {
        let at = &mut self.servers[server];
        let Some(wake) = at.wake_at(self.now) else { return };
        let wake = if wake <= self.now { self.now + MILLI / 4 } else { wake };
        if at.wakes_at.is_none_or(|wakes_at| wake < wakes_at) {
            at.wakes_at = Some(wake);
            self.at_server(server, Arrival::Wake, wake);
        }
    }

    fn reply(&mut self, server: usize, told: Told) -> Result<(), Verdict> {
        let Told { wire, call, asked, reply } = told;
        let word = match &reply {
            Ok(_) => "ok",
            Err(error) => coverage::word_for(error),
        };
        let faults = self.faults();
        self.coverage.answered(coverage::name_of(&call), word, faults);
        self.judge.replied(self.now, asked, &call, &reply)?;
        self.trace.note(wire.number ^ (wire.client as u64) << 48);
        if self.trace.is_read() {
            let (to, what) = (Node::Client(wire.client), crate::shown::reply(&call, &reply));
            self.trace.line(
                self.now,
                Node::Server(server),
                format_args!("tells {to} #{}: {what}", wire.number),
            );
        }
        let fate = self.network.send(self.now, Node::Server(server), Node::Client(wire.client));
        let left = deadline_of(&reply).since(self.servers[server].now(self.now));
        let reply = Rc::new(reply);
        let life = wire.life;
        let (node, number) = (Node::Client(wire.client), wire.number);
        match fate.arrives {
            Some(at) => {
                for at in [Some(at), fate.again].into_iter().flatten() {
                    let arrival =
                        Arrival::Told { number, tries: wire.tries, left, reply: reply.clone() };
                    self.agenda.add(at, Event::At(node, life, arrival));
                }
            }
            None => self.break_wire(wire),
        }
        Ok(())
    }

    /// News of a loss go to the client that holds the lease, if it is connected to this server.
    fn tell_of_loss(&mut self, server: usize, lease: LeaseId, fence: Option<Fence>) {
        for client in 0..self.plan.clients {
            let at = &self.clients[client];
            if !at.follows(server, lease) {
                continue;
            }
            let (node, life) = (Node::Client(client), at.life);
            if let Some(at) = self.network.send(self.now, Node::Server(server), node).arrives {
                self.agenda.add(at, Event::At(node, life, Arrival::Lost { lease, fence }));
            }
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
        let mut dice = Dice::new(self.plan.seed, Purpose::Client, wire.client as u64, wire.number);
        let ttl = self.plan.ttl;
        if self.is_calm { dice.between(MILLI, ttl / 20) } else { dice.spread(MILLI, ttl / 4) }
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

    // What goes wrong.

    pub(crate) fn faults(&self) -> Faults {
        let bits = self.faults_on.iter().enumerate().filter(|(_, on)| **on > 0);
        bits.fold(0, |bits, (fault, _)| bits | 1 << fault)
    }

    fn fault(&mut self, number: usize, begins: bool) -> Result<(), Verdict> {
        if !begins {
            let lurking = self.lurking.len();
            self.lurking.retain(|(lurks, _)| *lurks != number);
            // One that never struck is not over either.
            if self.is_calm || self.lurking.len() < lurking {
                return Ok(());
            }
        } else if let Some(for_confirm) = self.lurks(number) {
            self.lurking.push((number, for_confirm));
            return Ok(());
        }
        self.fault_now(number, begins)
    }

    /// Some faults strike just when their victim has asked the store something and has no answer yet.
    fn lurks(&self, number: usize) -> Option<bool> {
        let fault = &self.plan.faults[number];
        let may_lurk = matches!(
            fault.kind,
            FaultKind::CrashServer(_)
                | FaultKind::CrashLeader
                | FaultKind::PauseServer(_)
                | FaultKind::PauseLeader
        );
        let mut dice = Dice::new(self.plan.seed, Purpose::Faults, 1, fault.at.0);
        (may_lurk && dice.percent(50)).then(|| dice.percent(50))
    }

    /// A server has just asked the store something.
    fn strike(&mut self, server: usize, confirms: bool) -> Result<(), Verdict> {
        let leads = self.leader_now() == Some(server);
        let mut strikes = Vec::new();
        let faults = &self.plan.faults;
        self.lurking.retain(|&(number, for_confirm)| {
            let is_victim = match faults[number].kind {
                FaultKind::CrashServer(victim) | FaultKind::PauseServer(victim) => victim == server,
                _ => leads,
            };
            let hits = is_victim && (confirms || !for_confirm);
            strikes.extend(hits.then_some(number));
            !hits
        });
        strikes.into_iter().try_for_each(|number| self.fault_now(number, true))
    }

    /// The first server that has a table to decide by.
    fn leader_now(&self) -> Option<usize> {
        let leading =
            |server: &Server| server.member.as_ref().is_some_and(|m| m.engine().is_some());
        self.servers.iter().position(leading)
    }

    fn fault_now(&mut self, number: usize, begins: bool) -> Result<(), Verdict> {
        let fault = self.plan.faults[number].clone();
        let kind = fault.kind;
        if begins {
            self.trace.line(
                self.now,
                Node::Store,
                format_args!("FAULT {number}: {kind} for {} ms", fault.lasts / MILLI),
            );
            self.faults_on[kind.number()] += 1;
        } else {
            self.trace.line(self.now, Node::Store, format_args!("fault {number} is over: {kind}"));
            self.faults_on[kind.number()] -= 1;
        }
        match kind {
            FaultKind::CrashServer(_) | FaultKind::CrashLeader => {
                if let Some(server) = self.victim(number, begins) {
                    if begins { self.crash_server(server) } else { self.revive_server(server) }
                }
            }
            FaultKind::PauseServer(_) | FaultKind::PauseLeader => {
                if let Some(server) = self.victim(number, begins) {
                    self.pause_server(server, begins);
                }
            }
            FaultKind::StopServer(_) => {
                if let Some(server) = self.victim(number, begins) {
                    if begins { self.stop_server(server)? } else { self.revive_server(server) }
                }
            }
            FaultKind::HandOver => {
                if begins && let Some(server) = self.victim(number, begins) {
                    let at = self.servers[server].now(self.now);
                    if let Some(member) = &mut self.servers[server].member {
                        member.hand_over(at);
                    }
                    self.after_server(server)?;
                }
            }
            FaultKind::CrashClient(client) => {
                if begins {
                    self.crash_client(client)
                } else {
                    self.start_client(client)
                }
            }
            FaultKind::PauseClient(client) => self.pause_client(client, begins),
            FaultKind::Apart(one, other) => {
                self.cut_link(one, other, begins);
                self.cut_link(other, one, begins);
            }
            FaultKind::OneWay(from, to) => self.cut_link(from, to, begins),
            FaultKind::Alone(node) => self.cut_off(node, begins),
            FaultKind::StoreDown => count(&mut self.store.trouble().down, begins),
            FaultKind::StoreFull => count(&mut self.store.trouble().full, begins),
            FaultKind::StoreSlow => count(&mut self.store.trouble().slow, begins),
            FaultKind::StoreMute => count(&mut self.store.trouble().mute, begins),
            FaultKind::WallJump(server) => {
                if begins {
                    let mut dice = Dice::new(self.plan.seed, Purpose::Server, number as u64, 1);
                    let by = i64::try_from(dice.below(7_200_000_000)).unwrap_or(0);
                    self.servers[server].wall_ahead += by - 3_600_000_000;
                }
            }
        }
        Ok(())
    }

    /// The server that a fault hits: named by the plan, or the one that leads when it begins.
    fn victim(&mut self, number: usize, begins: bool) -> Option<usize> {
        if begins {
            let leader = self.leader_now();
            self.victims[number] = match self.plan.faults[number].kind {
                FaultKind::CrashServer(server)
                | FaultKind::PauseServer(server)
                | FaultKind::StopServer(server) => Some(server),
                FaultKind::CrashLeader | FaultKind::PauseLeader | FaultKind::HandOver => leader,
                _ => None,
            };
        }
        self.victims[number]
    }

    fn crash_server(&mut self, server: usize) {
        if !self.servers[server].is_up() {
            return;
        }
        self.trace.line(self.now, Node::Server(server), format_args!("crashes"));
        let mut dice =
            Dice::new(self.plan.seed, Purpose::Server, self.servers[server].life, server as u64);
        let remains = *dice.pick(&[Remains::Nothing, Remains::Written, Remains::Torn]);
        if let Some(seq) = self.store.crashed(server, remains) {
            self.coverage.mark("record torn");
            self.trace.line(self.now, Node::Store, format_args!("record {seq} is torn"));
        }
        for batch in self.store.take_written() {
            if let Err(verdict) = self.judge.written(self.now, &batch) {
                self.judge.accuse(verdict);
            }
        }
        if self.plan.store.forgets {
            self.coverage.mark("everything forgotten");
            self.judge.forgotten(self.now);
            self.epoch = Epoch(0);
        }
        let wires = self.servers[server].crash();
        for wire in wires {
            self.break_wire(wire);
        }
        self.servers_inbox_breaks(server);
    }

    /// What had come in while it was paused dies with it.
    fn servers_inbox_breaks(&mut self, server: usize) {
        for (_, arrival) in self.servers[server].take_inbox() {
            self.arrive_nowhere(&arrival);
        }
    }

    /// Nobody is there any more to take it.
    fn arrive_nowhere(&mut self, arrival: &Arrival) {
        match arrival {
            Arrival::Ask(wire, _) => self.break_wire(*wire),
            Arrival::StoreAnswer(number) => drop(self.store.answer(*number)),
            _ => {}
        }
    }

    fn stop_server(&mut self, server: usize) -> Result<(), Verdict> {
        let at = self.servers[server].now(self.now);
        if self.servers[server].paused == 0
            && let Some(member) = &mut self.servers[server].member
        {
            member.stop(at);
            self.trace.line(self.now, Node::Server(server), format_args!("is told to stop"));
            self.after_server(server)?;
        }
        Ok(())
    }

    fn revive_server(&mut self, server: usize) {
        // One that was told to stop and has not managed to is killed.
        self.crash_server(server);
        self.start_server(server);
    }

    fn pause_server(&mut self, server: usize, begins: bool) {
        count(&mut self.servers[server].paused, begins);
        let what = if begins { "stands still" } else { "goes on" };
        self.trace.line(self.now, Node::Server(server), format_args!("{what}"));
        if self.servers[server].paused == 0 {
            for (life, arrival) in self.servers[server].take_inbox() {
                self.agenda.add(self.now, Event::At(Node::Server(server), life, arrival));
            }
        }
    }

    fn cut_link(&mut self, from: Node, to: Node, begins: bool) {
        self.network.cut(from, to, begins);
        if let (
            true,
            (Node::Client(client), Node::Server(server))
            | (Node::Server(server), Node::Client(client)),
        ) = (begins, (from, to))
        {
            let at = self.now + self.plan.ttl / 2;
            self.agenda.add(at, Event::Stale { client, server });
        }
    }

    fn cut_off(&mut self, node: Node, begins: bool) {
        let servers = (0..self.plan.servers).map(Node::Server);
        let clients = (0..self.plan.clients).map(Node::Client);
        let store = self.plan.store.shared.then_some(Node::Store);
        let others: Vec<Node> =
            servers.chain(clients).chain(store).filter(|other| *other != node).collect();
        for other in others {
            self.cut_link(node, other, begins);
            self.cut_link(other, node, begins);
        }
    }

    /// From now on nothing goes wrong any more, and everybody comes to an end.
    fn calm_down(&mut self) -> Result<(), Verdict> {
        self.trace.line(self.now, Node::Store, format_args!("faults are over"));
        self.is_calm = true;
        self.lurking.clear();
        self.network.calm_down();
        self.store.calm_down();
        self.faults_on = [0; FAULT_NAMES.len()];
        for server in 0..self.plan.servers {
            self.servers[server].paused = 1;
            self.pause_server(server, false);
            let is_down = self.servers[server].member.as_ref().is_none_or(|m| m.is_stopped());
            if is_down {
                self.revive_server(server);
            }
        }
        for client in 0..self.plan.clients {
            self.wind_down(client)?;
        }
        Ok(())
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

fn count(counter: &mut u32, begins: bool) {
    *counter = if begins { *counter + 1 } else { counter.saturating_sub(1) };
}

/// When what was answered lapses.
fn deadline_of(reply: &Result<Reply, CallError>) -> Timestamp {
    match reply {
        Ok(Reply::Answer(Answer::Granted(grant))) => grant.deadline,
        Ok(Reply::Answer(Answer::Renewed(renewed))) => renewed.deadline,
        Ok(Reply::Answer(Answer::SessionOpened(opened))) => opened.deadline,
        Ok(_) | Err(_) => Timestamp::ZERO,
    }
}

/// The speed of a node's clock.
pub(crate) fn drift_of(plan: &Plan, node: Node) -> i64 {
    let mut dice = Dice::new(plan.seed, Purpose::Plan, 1, node.place() as u64);
    let most = plan.drift_ppm.unsigned_abs();
    // Often as bad as it gets: that is where two clocks differ most.
    match dice.below(4) {
        0 => plan.drift_ppm,
        1 => -plan.drift_ppm,
        _ => i64::try_from(dice.below(2 * most + 1)).unwrap_or(0) - plan.drift_ppm,
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
