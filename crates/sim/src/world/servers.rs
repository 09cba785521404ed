//! What comes to a server, and what it has to say.

use std::rc::Rc;

use leasehold_core::{Answer, FencingToken, LeaseId, Revision, SecretTicket, Timestamp};
use leasehold_engine::{CallError, Reply, Request};

use super::{Arrival, Event, World, drift_of};
use crate::coverage;
use crate::judge::{Answered, Queue, Verdict};
use crate::plan::Node;
use crate::server::{Server, Told, Wire};
use crate::store::{Links, shown};
use crate::time::{MILLI, Moment};

/// How often in a row a server may want to be woken at a time that is over before it counts as spinning.
const SPINS_MAX: u32 = 500;
/// How often a server may call the store in a second, in so small a world.
const STORE_CALLS_MAX: u32 = 1500;

impl World {
    pub(super) fn start_server(&mut self, server: usize) {
        let drift = drift_of(&self.plan, Node::Server(server));
        let caps = self.store.caps();
        self.servers[server].start(self.now, server, &self.plan, caps, drift);
        self.trace.line(self.now, Node::Server(server), format_args!("starts"));
        self.at_server(server, Arrival::Wake, self.now);
    }

    pub(super) fn at_server(&mut self, server: usize, arrival: Arrival, at: Moment) {
        let life = self.servers[server].life;
        self.agenda.add(at, Event::At(Node::Server(server), life, arrival));
    }

    pub(super) fn arrive_at_server(
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
                for gone in at.client_gone(self.now, client, life) {
                    self.judge.disconnected(self.now, &gone);
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
            | Arrival::Queued { .. }
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
    pub(super) fn after_server(&mut self, server: usize) -> Result<(), Verdict> {
        let said = self.servers[server].say(self.now);
        for (namespace, session) in &said.unheard {
            self.judge.asks.unheard(namespace, *session);
        }
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
        for (wire, ticket) in said.queued {
            self.tell_ticket(server, wire, ticket);
        }
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
            // A disk that fails at the start is not waited for: the server is started again.
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
        let engine = self.servers[server].member.as_ref().and_then(|member| member.engine());
        let revision = engine
            .map(|engine| Revision(engine.table().revision().0 + engine.in_doubt_len() as u64));
        let now = self.now;
        let answered = Answered { now, asked, revision, call: &call, reply: &reply };
        self.judge.replied(&answered)?;
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

    /// A message that may get lost, or come when the answer is long there.
    fn tell_ticket(&mut self, server: usize, wire: Wire, ticket: SecretTicket) {
        let node = Node::Client(wire.client);
        if let Some(at) = self.network.send(self.now, Node::Server(server), node).arrives {
            let arrival = Arrival::Queued { number: wire.number, ticket };
            self.agenda.add(at, Event::At(node, wire.life, arrival));
        }
    }

    /// News of a loss go to the client that holds the lease, if it is connected to this server.
    fn tell_of_loss(&mut self, server: usize, lease: LeaseId, fence: Option<FencingToken>) {
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
