//! A state of the small world: a server, some clients, and what is under way between them.

use std::fmt;
use std::sync::Arc;

use leasehold_core::ByteRange;

use super::server::Server;

#[derive(Clone, PartialEq)]
pub(crate) struct World {
    pub(crate) server: Shared,
    /// What the store has, when a release that was answered already is not in it yet.
    pub(crate) behind: Option<Shared>,
    pub(crate) now: u64,
    pub(crate) clients: Vec<Client>,
    /// Sorted: what is under way arrives in any order.
    pub(crate) packets: Vec<UnderWay>,
    /// Calls that wait at the server, in the order they came.
    pub(crate) calls: Vec<Call>,
    /// The highest fence ever handed out.
    pub(crate) given: u64,
    /// The highest fence that the register ever took.
    pub(crate) accepted: u64,
    pub(crate) fault: Option<Fault>,
    /// Leases, calls and attempts are numbered from here.
    pub(crate) last_number: u64,
}

/// A server that several states have in common.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<Server>);

impl PartialEq for Shared {
    fn eq(&self, other: &Shared) -> bool {
        self.0.view == other.0.view
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Stands still, and its clock with it.
    pub(crate) stopped: bool,
    pub(crate) slots: Vec<Slot>,
}

/// What a client knows of one lock that it may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Idle,
    Asking {
        attempt: u64,
        /// Time by the client's clock since it first asked.
        age: u32,
        /// That clock has stood still meanwhile.
        doubtful: bool,
    },
    Holding {
        lease: u64,
        fence: u64,
        /// How long it believes to hold, and for how long already by its own clock: since it sent the request whose
        /// answer it counts from.
        ttl: u32,
        age: u32,
        doubtful: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) client: u8,
    pub(crate) slot: u8,
}

/// A packet that has been sent. The network repeats each at most once, or there would be no end of copies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnderWay {
    pub(crate) packet: Packet,
    pub(crate) repeated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Packet {
    Acquire { to: Place, attempt: u64, wait: bool },
    Renew { of: Place, lease: u64, fence: u64, raise: bool, age: u32 },
    Release { of: Place, lease: u64, fence: u64 },
    Cancel { attempt: u64 },
    Write { fence: u64 },
    Granted { to: Place, attempt: u64, lease: u64, fence: u64, gained: Vec<(u64, ByteRange)> },
    Renewed { to: Place, lease: u64, fence: u64, ttl: u32, age: u32 },
}

impl Packet {
    pub(crate) fn is_request(&self) -> bool {
        match self {
            Packet::Acquire { .. }
            | Packet::Renew { .. }
            | Packet::Release { .. }
            | Packet::Cancel { .. }
            | Packet::Write { .. } => true,
            Packet::Granted { .. } | Packet::Renewed { .. } => false,
        }
    }
}

/// A call that waits at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) call: u64,
    pub(crate) to: Place,
    pub(crate) attempt: u64,
    /// The lease that its grant would open.
    pub(crate) lease: u64,
    pub(crate) ticket: u64,
}

/// A promise about a step that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    FenceNotRising(String),
    StaleRequestCounts(String),
    GoodRequestRefused(String),
    StaleWriteAccepted(String),
    GrantToNobody(String),
    GrantedTwice(String),
    StepBreaksAPromise(String),
}

impl World {
    pub(crate) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn slot(&self, at: Place) -> Slot {
        self.clients[usize::from(at.client)].slots[usize::from(at.slot)]
    }

    pub(crate) fn slot_mut(&mut self, at: Place) -> &mut Slot {
        &mut self.clients[usize::from(at.client)].slots[usize::from(at.slot)]
    }

    /// Whether the client counts on this lease.
    pub(crate) fn holds(&self, at: Place, lease: u64) -> bool {
        matches!(self.slot(at), Slot::Holding { lease: held, .. } if held == lease)
    }

    pub(crate) fn send(&mut self, packet: Packet) {
        self.packets.push(UnderWay { packet, repeated: false });
        self.packets.sort_unstable();
    }

    pub(crate) fn repeat(&mut self, at: usize) {
        self.packets[at].repeated = true;
        self.packets.insert(at, self.packets[at].clone());
        self.packets.sort_unstable();
    }

    pub(crate) fn requests_len(&self) -> usize {
        self.packets.iter().filter(|sent| sent.packet.is_request()).count()
    }

    /// Whether the client still counts from this attempt, so that a grant is of use to it.
    fn awaits(&self, at: Place, attempt: u64, ttl: u32) -> bool {
        matches!(self.slot(at), Slot::Asking { attempt: own, age, .. } if own == attempt && age <= ttl)
    }

    fn is_held(&self, lease: u64) -> bool {
        self.server.0.view.held.iter().any(|held| held.lease == lease)
    }

    /// Whether anything can come of an attempt at the server.
    fn may_arrive(&self, attempt: u64) -> bool {
        let mut packets = self.packets.iter().map(|sent| &sent.packet);
        self.calls.iter().any(|call| call.attempt == attempt)
            || packets.any(|p| matches!(p, Packet::Acquire { attempt: a, .. } if *a == attempt))
    }

    /// Whether anybody but the client that made it knows of an attempt.
    pub(crate) fn may_be_granted(&self, attempt: u64) -> bool {
        let stored = self.behind.iter().flat_map(|behind| &behind.0.view.held);
        let mut held = self.server.0.view.held.iter().chain(stored);
        let mut packets = self.packets.iter().map(|sent| &sent.packet);
        self.may_arrive(attempt)
            || held.any(|held| held.attempt == Some(attempt))
            || packets.any(|p| matches!(p, Packet::Granted { attempt: a, .. } if *a == attempt))
    }

    /// Forgets what is under way but can make no difference any more: an answer that the client no longer counts on and
    /// the server cannot take back, a cancellation of what never waits.
    pub(crate) fn forget_idle_packets(&mut self, ttl: u32, may_take_back: bool) {
        let makes_a_difference = |sent: &UnderWay| match sent.packet {
            Packet::Granted { to, attempt, lease, .. } => {
                self.awaits(to, attempt, ttl) || (may_take_back && self.is_held(lease))
            }
            Packet::Renewed { to, lease, ttl, age, .. } => age <= ttl && self.holds(to, lease),
            Packet::Cancel { attempt } => self.may_arrive(attempt),
            Packet::Acquire { .. }
            | Packet::Renew { .. }
            | Packet::Release { .. }
            | Packet::Write { .. } => true,
        };
        let mut packets = self.packets.clone();
        packets.retain(makes_a_difference);
        // The second of two equal answers says nothing new.
        packets.dedup_by(|one, other| one == other && !one.packet.is_request());
        self.packets = packets;
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (client, slots) in (0..).zip(self.clients.iter().map(|client| client.slots.len())) {
            places.extend((0..).take(slots).map(|slot| Place { client, slot }));
        }
        places
    }

    pub(crate) fn blame(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("server", &self.server.0.view)
            .field("behind", &self.behind.as_ref().map(|behind| &behind.0.view.held))
            .field("clients", &self.clients)
            .field("packets", &self.packets)
            .field("calls", &self.calls)
            .field("given", &self.given)
            .field("accepted", &self.accepted)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}
