//! What goes wrong, and how it ends.

use leasehold_core::Epoch;

use super::{Arrival, Event, World};
use crate::coverage::Faults;
use crate::judge::Verdict;
use crate::plan::{FAULT_NAMES, FaultKind, Node};
use crate::rng::{Purpose, Rng};
use crate::server::Server;
use crate::store::Remains;
use crate::time::MILLI;

impl World {
    pub(crate) fn faults(&self) -> Faults {
        let bits = self.faults_on.iter().enumerate().filter(|(_, on)| **on > 0);
        bits.fold(0, |bits, (fault, _)| bits | 1 << fault)
    }

    pub(super) fn fault(&mut self, number: usize, begins: bool) -> Result<(), Verdict> {
        if !begins {
            let armed_faults = self.armed_faults.len();
            self.armed_faults.retain(|(lurks, _)| *lurks != number);
            // One that never struck is not over either.
            if self.is_calm || self.armed_faults.len() < armed_faults {
                return Ok(());
            }
        } else if let Some(for_confirm) = self.lurks(number) {
            self.armed_faults.push((number, for_confirm));
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
        let mut rng = Rng::new(self.plan.seed, Purpose::Faults, 1, fault.at.0);
        (may_lurk && rng.percent(50)).then(|| rng.percent(50))
    }

    /// A server has just asked the store something.
    pub(super) fn strike(&mut self, server: usize, confirms: bool) -> Result<(), Verdict> {
        let leads = self.leader_now() == Some(server);
        let mut strikes = Vec::new();
        let faults = &self.plan.faults;
        self.armed_faults.retain(|&(number, for_confirm)| {
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
                        member.step_down(at);
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
                    let mut rng = Rng::new(self.plan.seed, Purpose::Server, number as u64, 1);
                    let by = i64::try_from(rng.below(7_200_000_000)).unwrap_or(0);
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
        let mut rng =
            Rng::new(self.plan.seed, Purpose::Server, self.servers[server].life, server as u64);
        let remains = *rng.pick(&[Remains::Nothing, Remains::Written, Remains::Torn]);
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
    pub(super) fn arrive_nowhere(&mut self, arrival: &Arrival) {
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

    /// From now on nothing goes wrong any more, and every client comes to an end.
    pub(super) fn calm_down(&mut self) -> Result<(), Verdict> {
        self.trace.line(self.now, Node::Store, format_args!("faults are over"));
        self.is_calm = true;
        self.armed_faults.clear();
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
}

fn count(counter: &mut u32, begins: bool) {
    *counter = if begins { *counter + 1 } else { counter.saturating_sub(1) };
}
