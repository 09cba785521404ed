//! What a world is to be like: drawn from the seed before it begins.

use std::fmt;
use std::time::Duration;

use leasehold_core::{GracePolicy, Limits};

use crate::cut::Cut;
use crate::rng::{Purpose, Rng};
use crate::time::{MILLI, Micros, Moment, SECOND};

/// One of those that send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    Store,
    Server(usize),
    Client(usize),
}

pub const SERVERS_MAX: usize = 3;

impl Node {
    /// A number for each: the store, then the servers, then the clients.
    pub fn place(self) -> usize {
        match self {
            Node::Store => 0,
            Node::Server(server) => 1 + server,
            Node::Client(client) => 1 + SERVERS_MAX + client,
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Store => f.write_str("store"),
            Node::Server(server) => write!(f, "server-{server}"),
            Node::Client(client) => write!(f, "client-{client}"),
        }
    }
}

/// A whole world before its first moment.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub servers: usize,
    pub clients: usize,
    /// The length that most leases have; other lengths are told as parts of it.
    pub ttl: Micros,
    /// How long a leader leads without a confirmation.
    pub leader_lease: Micros,
    /// How long things happen and go wrong. After that faults stop and every client comes to an end.
    pub length: Micros,
    /// Parts in a million by which clocks may be off.
    pub drift_ppm: i64,
    pub network: Network,
    pub store: Store,
    pub work: Work,
    pub limits: Limits,
    pub grace: GracePolicy,
    pub grace_length: Micros,
    pub snapshot_bytes: u64,
    pub faults: Vec<Fault>,
}

#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// The usual delay is this up to twice this.
    pub delay: Micros,
    pub slow: Micros,
    pub slow_ppm: u64,
    pub loss_ppm: u64,
    pub double_ppm: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Store {
    /// Several servers share it.
    pub shared: bool,
    /// It is gone with the server it belongs to.
    pub forgets: bool,
    pub delay: Micros,
    pub slow: Micros,
    pub slow_ppm: u64,
    /// A call fails, and nothing was done.
    pub unavailable_ppm: u64,
    /// A call's answer is lost; half of them were carried out.
    pub unknown_ppm: u64,
    /// A record arrives a second time.
    pub double_ppm: u64,
}

/// What clients are up to.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub focus: Focus,
    /// The usual pause between two things that a client does.
    pub think: Micros,
    /// How many names, paths and files there are of each kind.
    pub locks: u64,
    /// How many of a hundred requests are ready to wait.
    pub waits: u64,
    /// How many of a hundred requests are for a set.
    pub sets: u64,
    /// How many of a hundred requests go through a session.
    pub sessions: u64,
    /// How many of a hundred requests carry an id, so that they can be sent again.
    pub known: u64,
    /// Only names, taken, kept and given back: what the judge of histories knows.
    pub plain: bool,
    /// Clients also use names, leases and tokens that are not theirs alone: one owner name for the bytes of all, leases of
    /// single grants taken for sessions, tokens of others and such as were never issued, and the simple lock, which knows
    /// names only.
    pub shares: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    All,
    /// One lock that every client wants.
    Hot,
    Names,
    Paths,
    Ranges,
    Permits,
}

/// Something that goes wrong for a while.
#[derive(Clone, Debug)]
pub struct Fault {
    pub at: Moment,
    pub lasts: Micros,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A server ends at once, and is started again when the fault is over.
    CrashServer(usize),
    /// The one that leads at that moment.
    CrashLeader,
    /// As if stopped by a signal.
    PauseServer(usize),
    PauseLeader,
    /// Ends in good order, and is started again.
    StopServer(usize),
    /// The leader lets another one lead.
    HandOver,
    CrashClient(usize),
    PauseClient(usize),
    /// Nothing gets through, either way.
    Apart(Node, Node),
    /// Messages from the first to the second are lost.
    OneWay(Node, Node),
    /// Cut off from all others.
    Alone(Node),
    /// Every call of the store fails.
    StoreDown,
    /// Nothing new can be written.
    StoreFull,
    StoreSlow,
    /// The answers of the store are lost.
    StoreMute,
    /// The wall clock of a server jumps; it shows when the server is started again.
    WallJump(usize),
}

/// Faults by name, for coverage.
pub const FAULT_NAMES: [&str; 16] = [
    "crash-server",
    "crash-leader",
    "pause-server",
    "pause-leader",
    "stop-server",
    "hand-over",
    "crash-client",
    "pause-client",
    "apart",
    "one-way",
    "alone",
    "store-down",
    "store-full",
    "store-slow",
    "store-mute",
    "wall-jump",
];

impl FaultKind {
    pub fn number(self) -> usize {
        match self {
            FaultKind::CrashServer(_) => 0,
            FaultKind::CrashLeader => 1,
            FaultKind::PauseServer(_) => 2,
            FaultKind::PauseLeader => 3,
            FaultKind::StopServer(_) => 4,
            FaultKind::HandOver => 5,
            FaultKind::CrashClient(_) => 6,
            FaultKind::PauseClient(_) => 7,
            FaultKind::Apart(..) => 8,
            FaultKind::OneWay(..) => 9,
            FaultKind::Alone(_) => 10,
            FaultKind::StoreDown => 11,
            FaultKind::StoreFull => 12,
            FaultKind::StoreSlow => 13,
            FaultKind::StoreMute => 14,
            FaultKind::WallJump(_) => 15,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FAULT_NAMES[self.number()];
        match self {
            FaultKind::CrashServer(server)
            | FaultKind::PauseServer(server)
            | FaultKind::StopServer(server)
            | FaultKind::WallJump(server) => write!(f, "{name} {}", Node::Server(*server)),
            FaultKind::CrashClient(client) | FaultKind::PauseClient(client) => {
                write!(f, "{name} {}", Node::Client(*client))
            }
            FaultKind::Apart(one, other) | FaultKind::OneWay(one, other) => {
                write!(f, "{name} {one} {other}")
            }
            FaultKind::Alone(node) => write!(f, "{name} {node}"),
            FaultKind::CrashLeader
            | FaultKind::PauseLeader
            | FaultKind::HandOver
            | FaultKind::StoreDown
            | FaultKind::StoreFull
            | FaultKind::StoreSlow
            | FaultKind::StoreMute => f.write_str(name),
        }
    }
}

impl Plan {
    /// The world of a seed; `length` says how long it lasts, if the seed is not to say it.
    pub fn new(seed: u64, length: Option<Micros>) -> Plan {
        let mut rng = Rng::new(seed, Purpose::Plan, 0, 0);
        let ttl = rng.spread(800 * MILLI, 60 * SECOND) / MILLI * MILLI;
        let servers = rng.weighted(&[(25, 1), (30, 2), (45, 3)]);
        let clients = rng.weighted(&[(2, 2), (5, 3), (5, 4), (3, 5), (2, 6), (1, 8)]);
        let lasts = rng.between(20, 90);
        let mut plan = Plan {
            seed,
            servers,
            clients,
            ttl,
            leader_lease: rng.spread(ttl, ttl * 4).clamp(600 * MILLI, 60 * SECOND),
            length: length.unwrap_or(ttl * lasts),
            drift_ppm: rng.weighted(&[(5, 0), (2, 1000), (3, 50_000)]),
            network: network(&mut rng, ttl),
            store: store(&mut rng, ttl, servers > 1),
            work: Work { shares: shares(seed), ..work(&mut rng, ttl) },
            limits: limits(&mut rng, ttl),
            grace: rng.weighted(&[(5, GracePolicy::Conflicting), (1, GracePolicy::Strict)]),
            grace_length: rng.spread(ttl / 4, ttl * 4),
            snapshot_bytes: rng.spread(300, 20_000),
            faults: Vec::new(),
        };
        if plan.store.forgets {
            // Nobody knows who held what: only time tells that it is over.
            plan.grace = GracePolicy::StrictUnknown;
            plan.grace_length = plan.grace_length.max(micros(plan.limits.lease_ttl_max));
        }
        plan.faults = faults(&plan);
        plan
    }

    /// Leaves out what the cut says.
    pub fn cut(&mut self, cut: &Cut) {
        if let Some(until) = cut.until {
            self.length = self.length.min(until);
        }
        let mut number = 0;
        let end = Moment(self.length);
        self.faults.retain(|fault| {
            number += 1;
            fault.at < end && !cut.faults.contains(&(number - 1))
        });
    }

    /// How long it may take after the last fault until nobody waits any more.
    pub fn settling(&self) -> Micros {
        let ttl_max = micros(self.limits.lease_ttl_max);
        let slow = (self.network.delay + self.store.delay) * 40;
        let grace = match self.grace {
            GracePolicy::Conflicting | GracePolicy::Strict => self.grace_length.min(ttl_max),
            GracePolicy::StrictUnknown => self.grace_length + self.grace_length / 10,
        };
        2 * ttl_max + grace + 3 * self.leader_lease + slow + 10 * SECOND
    }
}

fn network(rng: &mut Rng, ttl: Micros) -> Network {
    Network {
        delay: rng.spread(100, 20 * MILLI).min(ttl / 100),
        slow: rng.spread(ttl / 50, ttl * 2),
        slow_ppm: rng.weighted(&[(4, 0), (4, 10_000), (2, 100_000)]),
        loss_ppm: rng.weighted(&[(4, 0), (4, 10_000), (2, 150_000)]),
        double_ppm: rng.weighted(&[(4, 0), (4, 10_000), (2, 200_000)]),
    }
}

fn store(rng: &mut Rng, ttl: Micros, shared: bool) -> Store {
    Store {
        shared,
        forgets: !shared && rng.percent(25),
        delay: rng.spread(100, 20 * MILLI).min(ttl / 100),
        slow: rng.spread(ttl / 50, ttl),
        slow_ppm: rng.weighted(&[(5, 0), (4, 5_000), (2, 60_000)]),
        unavailable_ppm: rng.weighted(&[(5, 0), (4, 2_000), (2, 30_000)]),
        unknown_ppm: rng.weighted(&[(5, 0), (4, 2_000), (2, 30_000)]),
        double_ppm: if shared { rng.weighted(&[(5, 0), (4, 2_000), (2, 30_000)]) } else { 0 },
    }
}

fn work(rng: &mut Rng, ttl: Micros) -> Work {
    let plain = rng.percent(20);
    let work = Work {
        focus: rng.weighted(&[
            (4, Focus::All),
            (3, Focus::Hot),
            (3, Focus::Names),
            (2, Focus::Paths),
            (3, Focus::Ranges),
            (1, Focus::Permits),
        ]),
        think: rng.spread(ttl / 20, ttl),
        locks: rng.between(1, 4),
        waits: *rng.pick(&[10, 50, 90]),
        sets: *rng.pick(&[0, 10, 40]),
        sessions: *rng.pick(&[0, 30, 80]),
        known: *rng.pick(&[0, 50, 100]),
        plain,
        shares: false,
    };
    if !plain {
        return work;
    }
    let focus = *rng.pick(&[Focus::Hot, Focus::Names]);
    Work { focus, sets: 0, sessions: 0, ..work }
}

fn shares(seed: u64) -> bool {
    Rng::new(seed, Purpose::Plan, 1, 0).percent(60)
}

fn limits(rng: &mut Rng, ttl: Micros) -> Limits {
    let ttl = Duration::from_micros(ttl);
    let room = if rng.percent(20) { 1 } else { 100 };
    let per_step = if rng.percent(30) { 1 } else { 500 };
    Limits {
        lease_ttl_min: ttl / 16,
        lease_ttl_max: ttl * 2,
        disconnect_ttl_max: ttl,
        reclaim_window_max: ttl,
        wait_max: ttl * 4,
        set_len_max: 3,
        permits_max: 4,
        metadata_bytes_max: 16,
        waiters_per_scope_max: 3 * room,
        waiters_max: 4 * room,
        waiter_bytes_max: 1 << 20,
        locks_max: 1 << 20,
        bytes_max: 1 << 20,
        sessions_max: 1 << 20,
        locks_per_session_max: 4 * room,
        sessions_per_adapter_max: 2 * room,
        registers_per_namespace_max: 2 * room,
        registers_max: 3 * room,
        namespaces_max: 2,
        ticket_kept: ttl / 4,
        kept_places_max: 2 * room,
        endings_max: 10_000,
        deadlines_per_step_max: per_step,
        endings_per_step_max: per_step,
        windowed_locks_per_session_max: 3 * room,
        own_ranges_per_step_max: 2 * room,
    }
}

fn faults(plan: &Plan) -> Vec<Fault> {
    let mut rng = Rng::new(plan.seed, Purpose::Faults, 0, 0);
    // Some worlds know only one kind of fault, some none, most a few.
    let kinds: u64 = rng.weighted(&[(1, 0), (2, 1), (6, 4), (3, 16)]);
    let enabled: Vec<u64> = (0..kinds).map(|_| rng.below(FAULT_NAMES.len() as u64)).collect();
    let every = rng.spread(plan.ttl / 2, plan.ttl * 16);
    let mut faults = Vec::new();
    let mut at = Moment(0);
    while !enabled.is_empty() {
        at = at + rng.between(1, every * 2);
        let lasts = rng.spread((plan.ttl / 10).max(1), plan.ttl * 10);
        let end = Moment(plan.length);
        if at + lasts / 2 >= end {
            break;
        }
        let lasts = lasts.min(end.since(at));
        let number = *rng.pick(&enabled);
        let kind = fault_kind(number, plan, &mut rng);
        if at + lasts < end {
            faults.push(Fault { at, lasts, kind });
        }
    }
    faults
}

fn fault_kind(number: u64, plan: &Plan, rng: &mut Rng) -> FaultKind {
    let (server, client) = (rng.index(plan.servers), rng.index(plan.clients));
    let node = match rng.below(3) {
        0 => Node::Client(client),
        1 | 2 => Node::Server(server),
        _ => Node::Store,
    };
    // Only a store that is shared lies beyond a network.
    let other = match node {
        Node::Client(_) | Node::Store => Node::Server(server),
        Node::Server(_) if plan.store.shared && rng.percent(70) => Node::Store,
        Node::Server(_) => Node::Client(client),
    };
    let (from, to) = if rng.percent(50) { (node, other) } else { (other, node) };
    match number {
        0 => FaultKind::CrashServer(server),
        1 => FaultKind::CrashLeader,
        2 => FaultKind::PauseServer(server),
        3 => FaultKind::PauseLeader,
        4 => FaultKind::StopServer(server),
        5 => FaultKind::HandOver,
        6 => FaultKind::CrashClient(client),
        7 => FaultKind::PauseClient(client),
        8 => FaultKind::Apart(from, to),
        9 => FaultKind::OneWay(from, to),
        10 => FaultKind::Alone(node),
        11 => FaultKind::StoreDown,
        12 => FaultKind::StoreFull,
        13 => FaultKind::StoreSlow,
        14 => FaultKind::StoreMute,
        _ => FaultKind::WallJump(server),
    }
}

pub fn micros(length: Duration) -> Micros {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}
