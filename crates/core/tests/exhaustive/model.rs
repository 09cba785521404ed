//! What can happen in the small world.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Mode, Scope};
use stateright::{Model, Property};

use super::properties;
use super::server::Server;
use super::world::{Client, Packet, Place, Shared, Slot, World};

/// How large the world is, and what may happen in it.
#[derive(Debug)]
pub(crate) struct Config {
    /// For each client the locks it may want, each at most once at a time.
    pub(crate) locks: Vec<Vec<(Scope, Mode)>>,
    pub(crate) ttl: u32,
    /// A longer ttl that a renewal may ask for.
    pub(crate) ttl_raised: Option<u32>,
    /// How long requests wait that wait at all.
    pub(crate) wait: u32,
    pub(crate) reclaim_window: u32,
    /// Requests have an id, so that a retry gets the same grant. Otherwise a grant whose answer is known to be lost is
    /// withdrawn.
    pub(crate) request_ids: bool,
    /// The table works off no deadline by itself: as if a million others were due first.
    pub(crate) late: bool,
    /// The clock of the first client may stand still.
    pub(crate) stops: bool,
    pub(crate) crashes: bool,
    /// Holders show their fence to a register.
    pub(crate) writes: bool,
    /// How many requests are under way at most.
    pub(crate) requests_max: usize,
    pub(crate) seen: Seen,
}

/// How often what was seen: a search in which nothing happens proves nothing.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) grants: AtomicU64,
    pub(crate) replays: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) wakes: AtomicU64,
    pub(crate) cancels: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
    pub(crate) lapses: AtomicU64,
    pub(crate) recoveries: AtomicU64,
    pub(crate) releases_undone: AtomicU64,
    pub(crate) renewals: AtomicU64,
    pub(crate) stale_renewals: AtomicU64,
    pub(crate) stale_releases: AtomicU64,
    pub(crate) stale_writes: AtomicU64,
    pub(crate) withdrawals: AtomicU64,
}

pub(crate) fn count(what: &AtomicU64) {
    what.fetch_add(1, Ordering::Relaxed);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Time passes, and the server notices.
    Tick,
    /// The server loses all that does not last, and starts again; perhaps without a release it had answered.
    Crash {
        forget_release: bool,
    },
    Ask {
        at: Place,
        wait: bool,
    },
    GiveUp(Place),
    Renew {
        at: Place,
        raise: bool,
    },
    Release(Place),
    Write(Place),
    /// The client's clock stands still, and the client with it.
    Stop(u8),
    Go(u8),
    /// A packet arrives, is lost, or is there twice.
    Deliver(usize),
    Drop(usize),
    Repeat(usize),
    /// An answer is lost, and the server knows it.
    Withdraw(usize),
}

impl Config {
    pub(crate) fn lock(&self, at: Place) -> &(Scope, Mode) {
        &self.locks[usize::from(at.client)][usize::from(at.slot)]
    }

    pub(crate) fn ttl_max(&self) -> u32 {
        self.ttl.max(self.ttl_raised.unwrap_or(0))
    }

    fn client_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let room = world.requests_len() < self.requests_max;
        for at in world.places() {
            let stopped = world.clients[usize::from(at.client)].stopped;
            match world.slot(at) {
                _ if stopped || !room => {}
                Slot::Idle => actions.extend([false, true].map(|wait| Action::Ask { at, wait })),
                Slot::Asking { .. } => actions.push(Action::GiveUp(at)),
                Slot::Holding { lease, fence, ttl, .. } => {
                    self.holder_actions(world, at, (lease, fence, ttl), actions);
                }
            }
        }
    }

    fn holder_actions(
        &self,
        world: &World,
        at: Place,
        (lease, fence, ttl): (u64, u64, u32),
        actions: &mut Vec<Action>,
    ) {
        let under_way = |wanted: &dyn Fn(&Packet) -> bool| {
            world.packets.iter().any(|sent| wanted(&sent.packet))
        };
        let renews =
            |packet: &Packet| matches!(packet, Packet::Renew { lease: l, .. } if *l == lease);
        if !under_way(&renews) {
            actions.push(Action::Renew { at, raise: false });
            if self.ttl_raised.is_some_and(|raised| raised > ttl) {
                actions.push(Action::Renew { at, raise: true });
            }
        }
        actions.push(Action::Release(at));
        if self.writes && !under_way(&|packet| *packet == Packet::Write { fence }) {
            actions.push(Action::Write(at));
        }
    }

    fn packet_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let room = world.requests_len() < self.requests_max;
        for (at, sent) in world.packets.iter().enumerate() {
            if at > 0 && world.packets[at - 1] == *sent {
                continue;
            }
            actions.extend([Action::Deliver(at), Action::Drop(at)]);
            if sent.packet.is_request() && room && !sent.repeated {
                actions.push(Action::Repeat(at));
            }
            if matches!(sent.packet, Packet::Granted { .. }) && !self.request_ids {
                actions.push(Action::Withdraw(at));
            }
        }
    }
}

impl Model for Config {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let budget = if self.late { 0 } else { 1000 };
        let client =
            |locks: &Vec<_>| Client { stopped: false, slots: vec![Slot::Idle; locks.len()] };
        vec![World {
            server: Shared(Arc::new(Server::new(budget))),
            behind: None,
            now: 1,
            clients: self.locks.iter().map(client).collect(),
            packets: Vec::new(),
            calls: Vec::new(),
            given: 0,
            accepted: 0,
            fault: None,
            last_number: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.fault.is_some() {
            return;
        }
        actions.push(Action::Tick);
        if self.crashes {
            actions.push(Action::Crash { forget_release: false });
            if world.behind.is_some() {
                actions.push(Action::Crash { forget_release: true });
            }
        }
        if self.stops {
            let stopped = world.clients[0].stopped;
            let holds = world.clients[0].slots.iter().any(|slot| *slot != Slot::Idle);
            if stopped {
                actions.push(Action::Go(0));
            } else if holds {
                actions.push(Action::Stop(0));
            }
        }
        self.client_actions(world, actions);
        self.packet_actions(world, actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => self.tick(&mut world),
            Action::Crash { forget_release } => self.crash(&mut world, forget_release),
            Action::Ask { at, wait } => {
                let attempt = world.number();
                *world.slot_mut(at) = Slot::Asking { attempt, age: 0, doubtful: false };
                world.send(Packet::Acquire { to: at, attempt, wait });
            }
            Action::GiveUp(at) => {
                let Slot::Asking { attempt, .. } = world.slot(at) else { return None };
                *world.slot_mut(at) = Slot::Idle;
                world.send(Packet::Cancel { attempt });
            }
            Action::Renew { at, raise } => {
                let Slot::Holding { lease, fence, .. } = world.slot(at) else { return None };
                world.send(Packet::Renew { of: at, lease, fence, raise, age: 0 });
            }
            Action::Release(at) => {
                let Slot::Holding { lease, fence, .. } = world.slot(at) else { return None };
                *world.slot_mut(at) = Slot::Idle;
                world.send(Packet::Release { of: at, lease, fence });
            }
            Action::Write(at) => {
                let Slot::Holding { fence, .. } = world.slot(at) else { return None };
                world.send(Packet::Write { fence });
            }
            Action::Stop(client) => stop(&mut world.clients[usize::from(client)]),
            Action::Go(client) => world.clients[usize::from(client)].stopped = false,
            Action::Deliver(at) => {
                let packet = world.packets.remove(at).packet;
                self.deliver(&mut world, &packet);
            }
            Action::Drop(at) => {
                world.packets.remove(at);
            }
            Action::Repeat(at) => world.repeat(at),
            Action::Withdraw(at) => {
                let packet = world.packets.remove(at).packet;
                self.withdraw(&mut world, &packet);
            }
        }
        world.forget_idle_packets(self.ttl, !self.request_ids);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Config>> {
        properties::all()
    }
}

/// What the client knows from now on rests on a clock that stood still.
fn stop(client: &mut Client) {
    client.stopped = true;
    for slot in &mut client.slots {
        match slot {
            Slot::Idle => {}
            Slot::Asking { doubtful, .. } | Slot::Holding { doubtful, .. } => *doubtful = true,
        }
    }
}
