//! One world from its first moment to its last.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Client, HeartbeatInterval, Stall, Transport};
use leasehold_sim::rng::{Purpose, Rng};
use leasehold_sim::store::{Remains, Store};
use turmoil::Sim;

use crate::clock::{self, SimulatedClock};
use crate::journal::SimulatedJournal;
use crate::judge::{Counts, Judge};
use crate::network::Simulated;
use crate::plan::{Fault, Kind, Plan, TICK};
use crate::raw_client::RawClient;
use crate::server::{ServerControl, serve};
use crate::worker::Worker;

const SERVER: &str = "server";
/// How much of what is sent is lost on a bad link, and how often such a link heals by itself.
const LOSS: f64 = 0.02;

/// What came of a world.
#[derive(Debug)]
pub struct Run {
    /// The promise that was broken, if one was.
    pub verdict: Result<(), String>,
    pub trace: Vec<String>,
    pub counts: Counts,
}

/// Lives through the world of a seed.
pub fn run(seed: u64) -> Run {
    let plan = Plan::new(seed);
    let mut world = World::new(plan);
    world.live();
    world.end()
}

struct World<'a> {
    plan: Plan,
    sim: Sim<'a>,
    journal: SimulatedJournal,
    control: Rc<ServerControl>,
    judge: Rc<RefCell<Judge>>,
    /// Of each client's runtime.
    stalls: Vec<Stall>,
    rng: Rng,
    /// How many faults keep the server down.
    down: u32,
    began: usize,
    ended: Vec<usize>,
}

impl World<'_> {
    fn new(plan: Plan) -> World<'static> {
        let mut sim = turmoil::Builder::new()
            .rng_seed(plan.seed)
            .tick_duration(TICK)
            .min_message_latency(TICK)
            .max_message_latency(plan.latency_max)
            .tcp_capacity(4096)
            .epoch(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000))
            .simulation_duration(Duration::from_secs(3600))
            .build();
        let journal = SimulatedJournal::new(Store::new(plan.seed, plan.store));
        let (control, judge): (Rc<ServerControl>, Rc<RefCell<Judge>>) = Default::default();
        {
            let (journal, control, judge) = (journal.clone(), control.clone(), judge.clone());
            let snapshot_bytes = plan.snapshot_bytes;
            sim.host(SERVER, move || {
                serve(journal.clone(), snapshot_bytes, control.clone(), judge.clone())
            });
        }
        let address = format!("http://{}:{}", sim.lookup(SERVER), leasehold_api::PORT);
        let stalls: Vec<Stall> = (0..plan.clients).map(|_| Stall::default()).collect();
        for (client, stall) in stalls.iter().enumerate() {
            let (address, stall) = (address.clone(), stall.clone());
            sim.client(name(client), work(plan.clone(), address, client, stall, judge.clone()));
        }
        let rng = Rng::new(plan.seed, Purpose::Server, 0, 0);
        World {
            plan,
            sim,
            journal,
            control,
            judge,
            stalls,
            rng,
            down: 0,
            began: 0,
            ended: Vec::new(),
        }
    }

    /// Until all clients have come to their end, and for so long after it that nothing can be left.
    fn live(&mut self) {
        let end_max = self.plan.length + self.plan.settling() * 3;
        let mut end = None;
        loop {
            let now = self.sim.elapsed();
            self.begin_and_end_faults(now);
            let is_over = match self.sim.step() {
                Ok(is_over) => is_over,
                Err(error) => {
                    self.judge.borrow_mut().broken(format!("something ended badly: {error}"));
                    return;
                }
            };
            self.read_records();
            if self.judge.borrow().verdict().is_some() {
                return;
            }
            if is_over {
                let end = *end.get_or_insert(now + self.plan.ttl * 3);
                if now >= end {
                    return;
                }
            } else if now > end_max {
                self.judge.borrow_mut().broken("somebody still waits long after the end".into());
                return;
            }
        }
    }

    fn read_records(&self) {
        let written = self.journal.store().take_written();
        let mut judge = self.judge.borrow_mut();
        for batch in &written {
            let said = judge.log.written(self.sim.elapsed(), batch);
            judge.trace.push(line(self.sim.elapsed(), format_args!("{said}")));
        }
    }

    fn begin_and_end_faults(&mut self, now: Duration) {
        while let Some(fault) = self.plan.faults.get(self.began).filter(|fault| fault.at <= now) {
            let fault = *fault;
            self.began += 1;
            self.judge.borrow_mut().counts.faults += 1;
            self.note(now, format_args!("begins: {fault:?}"));
            self.begin(now, fault);
        }
        for number in 0..self.began {
            let fault = self.plan.faults[number];
            if fault.at + fault.lasts <= now && !self.ended.contains(&number) {
                self.ended.push(number);
                self.note(now, format_args!("is over: {:?}", fault.kind));
                self.end_fault(fault.kind);
            }
        }
    }

    fn note(&self, now: Duration, what: std::fmt::Arguments<'_>) {
        self.judge.borrow_mut().trace.push(line(now, what));
    }

    fn begin(&mut self, now: Duration, fault: Fault) {
        match fault.kind {
            Kind::Crash => {
                if self.down == 0 {
                    self.control.down.set(Some(self.control.down.get().unwrap_or(now)));
                    self.sim.crash(SERVER);
                    let remains = [Remains::Nothing, Remains::Written, Remains::Torn];
                    let remains = *self.rng.pick(&remains);
                    self.journal.store().crashed(0, remains);
                }
                self.down += 1;
            }
            Kind::Stop if self.down == 0 => {
                self.control.stopped_for.set(fault.lasts);
                self.control.stop.notify_one();
            }
            Kind::Stop => {}
            Kind::Apart(client) => self.sim.partition(SERVER, name(client)),
            Kind::Deaf(client) => self.sim.partition_oneway(SERVER, name(client)),
            Kind::Mute(client) => self.sim.partition_oneway(name(client), SERVER),
            Kind::Held(client) => self.sim.hold(SERVER, name(client)),
            Kind::Lossy(client) => self.sim.set_link_fail_rate(SERVER, name(client), LOSS),
            Kind::Blocked(client) => {
                self.judge.borrow_mut().counts.blocks += 1;
                self.stalls[client].begin();
            }
            Kind::StoreDown => self.journal.store().trouble().down += 1,
            Kind::StoreFull => self.journal.store().trouble().full += 1,
            Kind::StoreSlow => self.journal.store().trouble().slow += 1,
            Kind::StoreMute => self.journal.store().trouble().mute += 1,
        }
    }

    fn end_fault(&mut self, kind: Kind) {
        match kind {
            Kind::Crash => {
                self.down -= 1;
                if self.down == 0 {
                    self.sim.bounce(SERVER);
                }
            }
            Kind::Stop => {}
            Kind::Apart(client) => self.sim.repair(SERVER, name(client)),
            Kind::Deaf(client) => self.sim.repair_oneway(SERVER, name(client)),
            Kind::Mute(client) => self.sim.repair_oneway(name(client), SERVER),
            Kind::Held(client) => self.sim.release(SERVER, name(client)),
            Kind::Lossy(client) => {
                self.sim.set_link_fail_rate(SERVER, name(client), 0.0);
                self.sim.repair(SERVER, name(client));
            }
            Kind::Blocked(client) => self.stalls[client].end(),
            Kind::StoreDown => self.journal.store().trouble().down -= 1,
            Kind::StoreFull => self.journal.store().trouble().full -= 1,
            Kind::StoreSlow => self.journal.store().trouble().slow -= 1,
            Kind::StoreMute => self.journal.store().trouble().mute -= 1,
        }
    }

    fn end(self) -> Run {
        let World { plan, sim, judge, .. } = self;
        judge.borrow_mut().conclude(plan.ttl * 2);
        drop(sim);
        let judge = judge.take();
        let verdict = judge.verdict().map_or(Ok(()), |what| Err(what.to_owned()));
        Run { verdict, trace: judge.trace, counts: judge.counts }
    }
}

fn line(now: Duration, what: std::fmt::Arguments<'_>) -> String {
    format!("{:>10.3}  {what}", now.as_secs_f64())
}

fn name(client: usize) -> String {
    format!("client-{client}")
}

/// A client's host: its workers, and at the end somebody who has to be served.
async fn work(
    plan: Plan,
    address: String,
    number: usize,
    stall: Stall,
    judge: Rc<RefCell<Judge>>,
) -> turmoil::Result {
    let transport = if number % 3 == 2 { Transport::Http } else { Transport::Stream };
    let is_often = number % 2 == 1;
    let interval = if is_often { HeartbeatInterval::Sixth } else { HeartbeatInterval::Third };
    let client = Client::builder(&address)
        .transport(transport)
        .heartbeat(interval)
        .patience(plan.patience)
        .clock(Arc::new(SimulatedClock))
        .surroundings(Arc::new(Simulated { stall: stall.clone() }))
        .start()?;
    let workers: Vec<_> = (0..plan.workers)
        .map(|worker| {
            let worker = Worker::new(&plan, client.clone(), (number, worker), judge.clone());
            tokio::task::spawn_local(stall.clone().stop(worker.run(plan.length)))
        })
        .collect();
    let hand = RawClient::new(&plan, client.clone(), number, judge.clone());
    let hand = tokio::task::spawn_local(hand.run(plan.length));
    for worker in workers {
        worker.await?;
    }
    hand.await?;
    let last_fault = plan.faults.iter().map(|fault| fault.at + fault.lasts).max();
    let calm = last_fault.unwrap_or_default().max(plan.length) + Duration::from_secs(1);
    tokio::time::sleep(calm.saturating_sub(clock::elapsed())).await;
    judge.borrow_mut().say(format_args!("client-{number} has to be served"));
    let mut last = Worker::new(&plan, client.clone(), (number, plan.workers), judge.clone());
    for lock in 0..u32::try_from(plan.locks)? {
        last.has_to_be_served(lock, plan.settling()).await;
    }
    drop(last);
    client.close().await;
    judge.borrow_mut().say(format_args!("client-{number} is done"));
    Ok(())
}
