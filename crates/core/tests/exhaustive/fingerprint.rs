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

use leasehold_core::HolderState;

use super::server::View;
use super::world::{Call, Client, Packet, Slot, World};

impl Hash for World {
    fn hash<H: Hasher>(&self, into: &mut H) {
        let names = Names::of(self);
        let now = self.now;
        names.hash_view(&self.server.0.view, now, into);
        if let Some(behind) = &self.behind {
            // Of what was stored only what lasts comes back.
            for held in &behind.0.view.held {
                let over = held.state == HolderState::ReclaimWindow;
                let fences = (names.fence(held.fences.0), names.fence(held.fences.1));
                (names.lease(held.lease), fences, &held.scope, held.mode, held.ttl).hash(into);
                (over, held.attempt.map(|attempt| names.attempt(attempt))).hash(into);
            }
        }
        self.behind.is_some().hash(into);
        for client in &self.clients {
            names.hash_client(client, into);
        }
        for packet in &self.packets {
            names.hash_packet(packet, into);
        }
        for call in &self.calls {
            let Call { call: _, to, attempt, lease, ticket } = *call;
            let place = rank(&names.tickets, ticket);
            (to.client, to.slot, names.attempt(attempt), names.lease(lease), place).hash(into);
        }
        (self.packets.len(), self.calls.len()).hash(into);
        (names.fence(self.given), names.fence(self.accepted)).hash(into);
        self.fault.is_some().hash(into);
    }
}

/// All numbers that anybody still knows, in order.
#[derive(Default)]
struct Names {
    fences: Vec<u64>,
    leases: Vec<u64>,
    attempts: Vec<u64>,
    tickets: Vec<u64>,
}

fn rank(all: &[u64], number: u64) -> usize {
    all.binary_search(&number).expect("every number was collected")
}

impl Names {
    fn of(world: &World) -> Names {
        let mut names = Names::default();
        names.fences.extend([0, world.given, world.accepted]);
        names.collect_view(&world.server.0.view);
        if let Some(behind) = &world.behind {
            names.collect_view(&behind.0.view);
        }
        for slot in world.clients.iter().flat_map(|client| &client.slots) {
            match *slot {
                Slot::Idle => {}
                Slot::Asking { attempt, .. } => names.attempts.push(attempt),
                Slot::Holding { lease, fence, .. } => names.collect_grant(lease, fence),
            }
        }
        for packet in &world.packets {
            names.collect_packet(packet);
        }
        for call in &world.calls {
            names.attempts.push(call.attempt);
            names.leases.push(call.lease);
            names.tickets.push(call.ticket);
        }
        let Names { fences, leases, attempts, tickets } = &mut names;
        for numbers in [fences, leases, attempts, tickets] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        names
    }

    fn collect_view(&mut self, view: &View) {
        self.fences.extend([view.fence, view.register]);
        for held in &view.held {
            self.fences.extend([held.fences.0, held.fences.1]);
            self.leases.push(held.lease);
            self.attempts.extend(held.attempt);
        }
        self.tickets.extend(view.waiters.iter().map(|&(ticket, _)| ticket));
    }

    fn collect_grant(&mut self, lease: u64, fence: u64) {
        self.leases.push(lease);
        self.fences.push(fence);
    }

    fn collect_packet(&mut self, packet: &Packet) {
        match *packet {
            Packet::Acquire { attempt, .. } | Packet::Cancel { attempt } => {
                self.attempts.push(attempt);
            }
            Packet::Renew { lease, fence, .. }
            | Packet::Release { lease, fence, .. }
            | Packet::Renewed { lease, fence, .. } => self.collect_grant(lease, fence),
            Packet::Write { fence } => self.fences.push(fence),
            Packet::Granted { attempt, lease, fence, .. } => {
                self.attempts.push(attempt);
                self.collect_grant(lease, fence);
            }
        }
    }

    fn fence(&self, fence: u64) -> usize {
        rank(&self.fences, fence)
    }

    fn lease(&self, lease: u64) -> usize {
        rank(&self.leases, lease)
    }

    fn attempt(&self, attempt: u64) -> usize {
        rank(&self.attempts, attempt)
    }

    fn hash_view<H: Hasher>(&self, view: &View, now: u64, into: &mut H) {
        (self.fence(view.fence), self.fence(view.register)).hash(into);
        view.grace.map(|end| ahead(end, now, 0)).hash(into);
        for held in &view.held {
            let overdue_max = match held.state {
                HolderState::Held | HolderState::Recovering => held.window,
                HolderState::ReclaimWindow => 0,
            };
            (self.lease(held.lease), held.owner, &held.scope, held.mode).hash(into);
            (self.fence(held.fences.0), self.fence(held.fences.1), held.state).hash(into);
            (ahead(held.deadline, now, overdue_max), held.window, held.ttl).hash(into);
            held.attempt.map(|attempt| self.attempt(attempt)).hash(into);
        }
        for (ticket, deadline) in &view.waiters {
            (rank(&self.tickets, *ticket), deadline.map(|end| ahead(end, now, 0))).hash(into);
        }
        (view.held.len(), view.waiters.len()).hash(into);
    }

    fn hash_client<H: Hasher>(&self, client: &Client, into: &mut H) {
        client.stopped.hash(into);
        for slot in &client.slots {
            match *slot {
                Slot::Idle => 0.hash(into),
                Slot::Asking { attempt, age, doubtful } => {
                    (1, self.attempt(attempt), age, doubtful).hash(into);
                }
                Slot::Holding { lease, fence, ttl, age, doubtful } => {
                    (2, self.lease(lease), self.fence(fence), ttl, age, doubtful).hash(into);
                }
            }
        }
    }

    fn hash_packet<H: Hasher>(&self, packet: &Packet, into: &mut H) {
        match packet {
            Packet::Acquire { to, attempt, wait } => {
                (0, to.client, to.slot, self.attempt(*attempt), wait).hash(into);
            }
            Packet::Renew { of, lease, fence, raise, age } => {
                let grant = (self.lease(*lease), self.fence(*fence));
                (1, of.client, of.slot, grant, raise, age).hash(into);
            }
            Packet::Release { of, lease, fence } => {
                let grant = (self.lease(*lease), self.fence(*fence));
                (2, of.client, of.slot, grant).hash(into);
            }
            Packet::Cancel { attempt } => (3, self.attempt(*attempt)).hash(into),
            Packet::Write { fence } => (4, self.fence(*fence)).hash(into),
            Packet::Granted { to, attempt, lease, fence, gained } => {
                let grant = (self.attempt(*attempt), self.lease(*lease), self.fence(*fence));
                (5, to.client, to.slot, grant, gained).hash(into);
            }
            Packet::Renewed { to, lease, fence, ttl, age } => {
                let grant = (self.lease(*lease), self.fence(*fence));
                (6, to.client, to.slot, grant, ttl, age).hash(into);
            }
        }
    }
}

/// How far off a moment is; once it has passed by more than `overdue_max`, it has just passed.
fn ahead(moment: u64, now: u64, overdue_max: u32) -> i64 {
    let ahead = moment.cast_signed() - now.cast_signed();
    ahead.max(-i64::from(overdue_max) - 1)
}
