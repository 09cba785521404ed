//! One client: a process with a thread of its own that asks for this and that by hand, and leases that the real SDK keeps.

mod actions;
mod raw_client;
pub(crate) mod scopes;
mod sdk;

use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::{
    Acquire, Claim, FencingToken, LeaseId, Namespace, Owner, Principal, SecretTicket,
};
use leasehold_engine::Call;

use crate::judge::{Attempt, Queue, Verdict};
use crate::plan::{Node, Plan};
use crate::rng::{Purpose, Rng};
use crate::server::Wire;
use crate::time::{Clock, Micros, Moment};
use crate::world::{Arrival, Event, World};
use sdk::Sdk;

/// Something that a client meant to do at a moment.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// The next action of its thread.
    Think,
    Renew(u64),
    /// Nobody waits for the answer to this any longer.
    GiveUp(u64),
    /// Sends it again.
    Retry(u64),
    /// The SDK's machine wants to be woken.
    SdkWake,
    SdkThink,
    SdkRelease(u64),
    LinkUp(u64),
    LinkDown(u64),
    Cancelled(u64),
}

#[derive(Debug)]
pub struct Client {
    pub clock: Clock,
    pub life: u64,
    pub is_up: bool,
    pub paused: u32,
    inbox: Vec<(u64, Arrival)>,
    owner: Owner,
    /// The server that it talks to.
    server: usize,
    next_number: u64,
    pending: BTreeMap<u64, Pending>,
    holds: BTreeMap<u64, Hold>,
    sessions: BTreeMap<u64, Session>,
    /// When each hold or session is to be renewed next: one timer each, which every answer sets anew.
    renewals: BTreeMap<u64, Moment>,
    /// Requests that can be sent again, or misused.
    recent: Vec<Acquire>,
    /// Places that were kept.
    places: Vec<(SecretTicket, Acquire)>,
    actions: u64,
    sdk_actions: u64,
    /// It comes to an end: gives back what it holds and asks for nothing more.
    draining: bool,
    /// While it is up.
    pub(crate) sdk: Option<Sdk>,
}

/// A question that was sent and not answered yet.
#[derive(Debug)]
pub(crate) struct Pending {
    client: usize,
    call: Rc<Call>,
    server: usize,
    /// True time of the first try.
    invoked: Moment,
    /// Its own time, before the last try.
    sent: Micros,
    tries: u32,
    /// Something was sent of which it does not know what came.
    is_in_doubt: bool,
    /// Whether the thread waits for it.
    is_deed: bool,
    attempt: Option<Attempt>,
    /// What it gives back: from the moment it asks, it holds that no longer.
    taken: Vec<Hold>,
}

/// Something that it holds, as far as it knows.
#[derive(Clone, Debug)]
struct Hold {
    namespace: Namespace,
    owner: Owner,
    claims: Vec<Claim>,
    lease: LeaseId,
    fence: FencingToken,
    /// When it was told of it.
    since: Moment,
    ttl: Micros,
    session: Option<u64>,
    keep: Keep,
}

#[derive(Clone, Debug)]
struct Session {
    namespace: Namespace,
    id: LeaseId,
    ttl: Micros,
    keep: Keep,
}

/// When a holder renews: after so many thousandths of its ttl; `None`: never.
type Keep = Option<u64>;

/// One of two, so that there are clients with the same owner id and different principals.
pub(crate) fn principal_of(client: usize) -> Principal {
    if client.is_multiple_of(2) {
        return Principal::ANONYMOUS;
    }
    Principal::new("team").expect("a plain name")
}

/// The owner ids of two clients each are the same.
fn owner_of(client: usize, kind: &str) -> Owner {
    let id = format!("{kind}-{}", client / 2);
    Owner::of(&principal_of(client), &id).expect("a plain name")
}

impl Client {
    pub fn new(plan: &Plan, number: usize, drift_ppm: i64) -> Client {
        let mut rng = Rng::new(plan.seed, Purpose::Client, number as u64, 0);
        Client {
            clock: Clock::new(Moment(0), rng.below(1 << 40), drift_ppm),
            life: 0,
            is_up: false,
            paused: 0,
            inbox: Vec::new(),
            owner: owner_of(number, "client"),
            server: rng.index(plan.servers),
            next_number: 0,
            pending: BTreeMap::new(),
            holds: BTreeMap::new(),
            sessions: BTreeMap::new(),
            renewals: BTreeMap::new(),
            recent: Vec::new(),
            places: Vec::new(),
            actions: 0,
            sdk_actions: 0,
            draining: false,
            sdk: None,
        }
    }

    /// How much it has done by hand and through its SDK.
    pub(crate) fn actions(&self, client: usize) -> [(usize, u64); 2] {
        [(client, self.actions), (client + sdk::SDK_ACTIONS, self.sdk_actions)]
    }

    /// What it still waits for.
    pub fn unfinished(&self) -> Option<String> {
        match self.pending.first_key_value() {
            Some((number, pending)) => {
                Some(format!("#{number}: {}", crate::shown::call(&pending.call)))
            }
            None => self.sdk.as_ref()?.unfinished(),
        }
    }

    pub(crate) fn wires_to(&self, client: usize, server: usize) -> Vec<Wire> {
        let to_server = self.pending.iter().filter(|(_, pending)| pending.server == server);
        to_server
            .map(|(&number, pending)| Wire {
                client,
                life: self.life,
                number,
                tries: pending.tries,
            })
            .chain(self.sdk.iter().flat_map(|sdk| sdk.wires(client, self.life, server)))
            .collect()
    }

    /// Whether it is connected to that server and holds the lease.
    pub(crate) fn follows(&self, server: usize, lease: LeaseId) -> bool {
        self.sdk.as_ref().is_some_and(|sdk| sdk.follows(server, lease))
    }

    /// What its clock shows; `None` while it cannot look.
    pub(crate) fn shows(&self, now: Moment) -> Option<Micros> {
        (self.is_up && self.paused == 0).then(|| self.clock.at(now))
    }
}

impl World {
    pub(crate) fn start_client(&mut self, client: usize) {
        let at = &mut self.clients[client];
        if at.is_up {
            return;
        }
        at.life += 1;
        at.is_up = true;
        let own = sdk::own(at.clock.at(self.now));
        at.sdk = Some(Sdk::new(&self.plan, client, at.life, own));
        self.trace.line(self.now, Node::Client(client), format_args!("starts"));
        if self.is_calm {
            self.clients[client].draining = true;
        } else if !self.cut.clients.contains(&client) {
            let mut rng =
                Rng::new(self.plan.seed, Purpose::Client, client as u64, self.clients[client].life);
            let pause = rng.below(self.plan.work.think);
            self.client_due(client, Due::Think, self.now + pause);
            self.client_due(client, Due::SdkThink, self.now + pause * 2);
        }
        self.client_due(client, Due::SdkWake, self.now);
    }

    pub(crate) fn crash_client(&mut self, client: usize) {
        let at = &mut self.clients[client];
        if !at.is_up {
            return;
        }
        self.trace.line(self.now, Node::Client(client), format_args!("crashes"));
        at.is_up = false;
        let life = at.life;
        let pending = std::mem::take(&mut at.pending);
        at.holds.clear();
        at.sessions.clear();
        at.renewals.clear();
        at.recent.clear();
        at.places.clear();
        at.inbox.clear();
        let sdk = at.sdk.take().map(Sdk::unfinished_business);
        let (exchanges, attempts) = sdk.unwrap_or_default();
        for exchange in &exchanges {
            self.sdk_unanswered(client, exchange);
        }
        for attempt in attempts {
            self.judge.history.attempt(attempt);
        }
        for pending in pending.into_values() {
            self.given_up(&pending);
        }
        self.judge.beliefs.forget(client);
        let mut rng = Rng::new(self.plan.seed, Purpose::Client, client as u64, life + (1 << 32));
        let found_out = self.now + rng.spread(1000, self.plan.ttl / 2);
        for server in 0..self.plan.servers {
            let life_there = self.servers[server].life;
            let arrival = Arrival::ClientGone { client, life };
            self.agenda.add(found_out, Event::At(Node::Server(server), life_there, arrival));
        }
    }

    pub(crate) fn pause_client(&mut self, client: usize, begins: bool) {
        let at = &mut self.clients[client];
        at.paused = if begins { at.paused + 1 } else { at.paused.saturating_sub(1) };
        let what = if begins { "stands still" } else { "goes on" };
        self.trace.line(self.now, Node::Client(client), format_args!("{what}"));
        if self.clients[client].paused == 0 {
            for (life, arrival) in std::mem::take(&mut self.clients[client].inbox) {
                self.agenda.add(self.now, Event::At(Node::Client(client), life, arrival));
            }
            // Whoever wakes up looks at the clock first.
            self.forget_what_is_given_back();
            let shown = self.clocks();
            if let Err(verdict) = self.judge.believes_still(self.now, client, &shown) {
                self.judge.accuse(verdict);
            }
        }
    }

    pub(crate) fn client_due(&mut self, client: usize, due: Due, at: Moment) {
        let life = self.clients[client].life;
        self.agenda.add(at, Event::At(Node::Client(client), life, Arrival::Due(due)));
    }

    pub(crate) fn arrive_at_client(
        &mut self,
        client: usize,
        life: u64,
        arrival: Arrival,
    ) -> Result<(), Verdict> {
        let at = &mut self.clients[client];
        if !at.is_up || at.life != life {
            return Ok(());
        }
        if at.paused > 0 {
            at.inbox.push((life, arrival));
            return Ok(());
        }
        let (asked, sdk) = (at.pending.len(), at.sdk.as_ref().map_or((0, 0), Sdk::lens));
        self.see(Queue::Asked, asked)?;
        self.see(Queue::Exchanges, sdk.0)?;
        self.see(Queue::Kept, sdk.1)?;
        match arrival {
            Arrival::Told { number, tries, left, reply } => {
                if self.sdk_told(client, number, left, &reply)? {
                    return Ok(());
                }
                self.told(client, number, tries, &reply)
            }
            Arrival::Broken { number, tries } => {
                self.sdk_broken(client, number)?;
                self.broken(client, number, tries)
            }
            Arrival::Queued { number, ticket } => self.sdk_queued(client, number, ticket),
            Arrival::Lost { lease, fence } => self.sdk_notice(client, lease, fence),
            Arrival::Due(due) => self.due(client, due),
            Arrival::Ask(..)
            | Arrival::HangUp(_)
            | Arrival::ClientGone { .. }
            | Arrival::StoreAnswer(_)
            | Arrival::Wake => Ok(()),
        }
    }

    fn due(&mut self, client: usize, due: Due) -> Result<(), Verdict> {
        match due {
            Due::Think => self.think(client),
            Due::Renew(hold) => self.renew_in_time(client, hold),
            Due::GiveUp(number) => self.lose_patience(client, number),
            Due::Retry(number) => self.send(client, number),
            Due::SdkWake => return self.sdk_wake(client),
            Due::SdkThink => return self.sdk_think(client),
            Due::SdkRelease(key) => return self.sdk_release(client, key),
            Due::LinkUp(link) => return self.link_up(client, link),
            Due::LinkDown(link) => return self.link_down(client, link),
            Due::Cancelled(call) => return self.cancelled(client, call),
        }
        Ok(())
    }

    /// Faults are over: it gives back what it has and lets what it waits for come.
    pub(crate) fn wind_down(&mut self, client: usize) -> Result<(), Verdict> {
        if self.clients[client].paused > 0 {
            self.clients[client].paused = 1;
            self.pause_client(client, false);
        }
        self.start_client(client);
        self.clients[client].draining = true;
        self.give_everything_back(client);
        self.sdk_drains(client)
    }
}
