//! What makes two states of the world the same.
//!
//! Hashed is everything that the further course depends on, but not how it came about:
//!
//! * Moments count from now. The table compares moments with each other and with now, and only ever adds lengths; an
//!   overdue lease or waiter is overdue, however long (as long as its reclaim window, if it has one, has passed too).
//! * Fences, leases, attempts and places in the queue are replaced by their rank among all that anybody still knows. The
//!   table compares them, and takes a new one above all others.
//! * What only people look at is left out: when something was granted, revision and epoch, since when a waiter waits.
//! * Where a lease stands among the timers is left out as well. A renewal leaves the timer behind, but the world tells
//!   the table of every moment (or, with no budget for deadlines, its timers never fire), so a lease is worked off at its
//!   deadline whatever its timer went through.
//!
//! That this is enough is not only argued: see `soundness.rs`.

use std::hash::{Hash, Hasher};

use leasehold_core::{ByteRange, HolderState};

use super::server::{Held, View};
use super::world::{Call, Client, Packet, Place, Slot, UnderWay, World};

impl Hash for World {
    fn hash<H: Hasher>(&self, into: &mut H) {
        let names = Names::of(self);
        names.hash_view(&self.server.0.view, into);
        self.behind.as_ref().map(|behind| names.stored(&behind.0.view)).hash(into);
        for client in &self.clients {
            names.hash_client(client, into);
        }
        for call in &self.calls {
            let Call { call: _, to, attempt, lease, ticket } = *call;
            let place = rank(&names.tickets, ticket);
            (to, names.attempt(attempt), names.lease(lease), place).hash(into);
        }
        // What is under way arrives in any order.
        let known = |sent: &UnderWay| (names.packet(&sent.packet), sent.repeated);
        let mut packets: Vec<(Known, bool)> = self.packets.iter().map(known).collect();
        packets.sort_unstable();
        (packets, self.calls.len()).hash(into);
        let view = &self.server.0.view;
        (view.fence < self.given, view.register == self.accepted).hash(into);
        let lower = names.fences.partition_point(|fence| *fence < self.accepted);
        (lower, names.fences.get(lower) == Some(&self.accepted)).hash(into);
        self.fault.is_some().hash(into);
    }
}

/// All numbers that still matter, each kind in order.
struct Names<'a> {
    world: &'a World,
    fences: Vec<u64>,
    /// Those that the server knows. Of any other it is enough to know that it is gone.
    leases: Vec<u64>,
    /// In the order in which they are come across: nobody compares attempts but for being the same.
    attempts: Vec<u64>,
    tickets: Vec<u64>,
}

fn rank(all: &[u64], number: u64) -> usize {
    all.binary_search(&number).expect("every number was collected")
}

/// A packet, in names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Known {
    Acquire {
        to: Place,
        attempt: usize,
        wait: bool,
    },
    /// With what the client will count from, if it still waits for the answer.
    Renew {
        of: Place,
        grant: Option<(usize, usize)>,
        raise: bool,
        age: Option<u32>,
    },
    Release {
        of: Place,
        grant: Option<(usize, usize)>,
    },
    Cancel {
        attempt: usize,
    },
    Write {
        fence: usize,
    },
    Granted {
        to: Place,
        attempt: usize,
        lease: Option<usize>,
        fence: usize,
        gained: Gained,
    },
    Renewed {
        to: Place,
        ttl: u32,
        age: u32,
    },
}

type Gained = Vec<(u64, ByteRange)>;

impl Names<'_> {
    fn of(world: &World) -> Names<'_> {
        let mut names = Names {
            world,
            fences: Vec::new(),
            leases: Vec::new(),
            attempts: Vec::new(),
            tickets: Vec::new(),
        };
        names.collect_view(&world.server.0.view);
        if let Some(behind) = &world.behind {
            names.collect_view(&behind.0.view);
        }
        for call in &world.calls {
            names.attempts.push(call.attempt);
            names.leases.push(call.lease);
            names.tickets.push(call.ticket);
        }
        names.leases.sort_unstable();
        for slot in world.clients.iter().flat_map(|client| &client.slots) {
            match *slot {
                Slot::Idle => {}
                Slot::Asking { attempt, .. } => names.attempts.push(attempt),
                Slot::Holding { fence, .. } => names.fences.push(fence),
            }
        }
        for sent in &world.packets {
            names.collect_packet(&sent.packet);
        }
        let Names { fences, leases, tickets, .. } = &mut names;
        for numbers in [fences, leases, tickets] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        names
    }

    fn collect_view(&mut self, view: &View) {
        for held in &view.held {
            self.fences.extend([held.fences.0, held.fences.1]);
            self.leases.push(held.lease);
            self.attempts.extend(held.attempt);
        }
        self.tickets.extend(view.waiters.iter().map(|&(ticket, _)| ticket));
    }

    fn collect_packet(&mut self, packet: &Packet) {
        match *packet {
            Packet::Acquire { attempt, .. } | Packet::Cancel { attempt } => {
                self.attempts.push(attempt);
            }
            Packet::Renew { lease, fence, .. } | Packet::Release { lease, fence, .. } => {
                if self.leases.binary_search(&lease).is_ok() {
                    self.fences.push(fence);
                }
            }
            Packet::Write { fence } => self.fences.push(fence),
            Packet::Granted { attempt, fence, .. } => {
                self.attempts.push(attempt);
                self.fences.push(fence);
            }
            Packet::Renewed { .. } => {}
        }
    }

    fn fence(&self, fence: u64) -> usize {
        rank(&self.fences, fence)
    }

    fn lease(&self, lease: u64) -> Option<usize> {
        self.leases.binary_search(&lease).ok()
    }

    fn attempt(&self, attempt: u64) -> usize {
        let known = self.attempts.iter().position(|known| *known == attempt);
        known.expect("every attempt was collected")
    }

    fn grant(&self, lease: u64, fence: u64) -> Option<(usize, usize)> {
        self.lease(lease).map(|lease| (lease, self.fence(fence)))
    }

    fn hash_view<H: Hasher>(&self, view: &View, into: &mut H) {
        let now = self.world.now;
        view.grace.map(|end| ahead(end, now, 0)).hash(into);
        for held in &view.held {
            let overdue_max = match held.state {
                HolderState::Held | HolderState::Recovering => held.window,
                HolderState::ReclaimWindow => 0,
            };
            (held.owner, held.state, ahead(held.deadline, now, overdue_max)).hash(into);
            self.lasting(held).hash(into);
        }
        for (ticket, deadline) in &view.waiters {
            (rank(&self.tickets, *ticket), deadline.map(|end| ahead(end, now, 0))).hash(into);
        }
        (view.held.len(), view.waiters.len()).hash(into);
    }

    /// What a crash brings back of something held.
    fn lasting<'a>(&self, held: &'a Held) -> impl Hash + use<'a> {
        let grant = (self.lease(held.lease), &held.scope, held.mode, held.window, held.ttl);
        let fences = (self.fence(held.fences.0), self.fence(held.fences.1));
        let over = held.state == HolderState::ReclaimWindow;
        (grant, fences, over, held.attempt.map(|attempt| self.attempt(attempt)))
    }

    fn stored<'a>(&self, view: &'a View) -> Vec<impl Hash + use<'a>> {
        view.held.iter().map(|held| self.lasting(held)).collect()
    }

    fn hash_client<H: Hasher>(&self, client: &Client, into: &mut H) {
        client.stopped.hash(into);
        for slot in &client.slots {
            match *slot {
                Slot::Idle => 0.hash(into),
                Slot::Asking { attempt, age, doubtful } => {
                    // Once nothing can come of it, it does not matter how old it is.
                    let counts = self.world.may_be_granted(attempt).then_some((age, doubtful));
                    (1, self.attempt(attempt), counts).hash(into);
                }
                Slot::Holding { lease, fence, ttl, age, doubtful } => {
                    (2, self.lease(lease), self.fence(fence), ttl, age, doubtful).hash(into);
                }
            }
        }
    }

    fn packet(&self, packet: &Packet) -> Known {
        match *packet {
            Packet::Acquire { to, attempt, wait } => {
                Known::Acquire { to, attempt: self.attempt(attempt), wait }
            }
            Packet::Renew { of, lease, fence, raise, age } => {
                let holding = self.world.holds(of, lease);
                let grant = self.grant(lease, fence);
                Known::Renew { of, grant, raise, age: (holding && grant.is_some()).then_some(age) }
            }
            Packet::Release { of, lease, fence } => {
                Known::Release { of, grant: self.grant(lease, fence) }
            }
            Packet::Cancel { attempt } => Known::Cancel { attempt: self.attempt(attempt) },
            Packet::Write { fence } => Known::Write { fence: self.fence(fence) },
            Packet::Granted { to, attempt, lease, fence, ref gained } => {
                let (attempt, lease) = (self.attempt(attempt), self.lease(lease));
                let (fence, gained) = (self.fence(fence), gained.clone());
                Known::Granted { to, attempt, lease, fence, gained }
            }
            // Only kept while its holder waits for it, of whom there is one in each place.
            Packet::Renewed { to, ttl, age, .. } => Known::Renewed { to, ttl, age },
        }
    }
}

/// How far off a moment is; once it has passed by more than `overdue_max`, it has just passed.
fn ahead(moment: u64, now: u64, overdue_max: u32) -> i64 {
    let ahead = moment.cast_signed() - now.cast_signed();
    ahead.max(-i64::from(overdue_max) - 1)
}
