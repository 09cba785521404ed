//! What a world is to be like: drawn from the seed before it begins.

use std::time::Duration;

use leasehold_sim::plan::Store;
use leasehold_sim::rng::{Purpose, Rng};
use leasehold_sim::time::{MILLI, Micros, SECOND};

/// How far time goes in a step. No message is quicker, so that none arrives before it was sent by anybody's clock.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// A whole world before its first moment.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    /// How many threads of control each client has.
    pub(crate) workers: usize,
    pub(crate) locks: u64,
    pub(crate) ttl: Duration,
    pub(crate) latency_max: Duration,
    /// How long the SDK of each client tries again.
    pub(crate) patience: Duration,
    pub(crate) store: Store,
    pub(crate) snapshot_bytes: u64,
    /// How long workers work and things go wrong.
    pub(crate) length: Duration,
    pub(crate) faults: Vec<Fault>,
}

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The server ends at once, with everything that was on its way; it begins again when the fault is over.
    Crash,
    /// It ends in good order.
    Stop,
    /// Nothing gets through between the server and a client; what is sent is lost.
    Apart(usize),
    /// Nothing gets from the server to a client, or the other way round.
    Deaf(usize),
    Mute(usize),
    /// What is sent arrives when the fault is over.
    Held(usize),
    /// Some of what is sent is lost.
    Lossy(usize),
    /// The runtime of a client is blocked: nothing on it runs but the guard of its SDK.
    Blocked(usize),
    StoreDown,
    StoreFull,
    StoreSlow,
    StoreMute,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut rng = Rng::new(seed, Purpose::Plan, 0, 0);
        let rng = &mut rng;
        let ttl = Duration::from_micros(rng.spread(1200 * MILLI, 4 * SECOND));
        let mut plan = Plan {
            seed,
            clients: usize::try_from(rng.between(2, 4)).unwrap_or(2),
            workers: usize::try_from(rng.between(1, 3)).unwrap_or(1),
            locks: rng.between(1, 4),
            ttl,
            latency_max: Duration::from_micros(rng.spread(6 * MILLI, 60 * MILLI)),
            store: store(rng),
            snapshot_bytes: rng.spread(300, 20_000),
            length: Duration::from_secs(rng.between(12, 24)),
            faults: Vec::new(),
            patience: Duration::from_millis(rng.spread(400, 30_000)),
        };
        plan.faults = faults(&plan);
        plan
    }

    /// How long after the faults the last who waits has been answered: leases of before, and connections that are noticed
    /// to be gone.
    pub(crate) fn settling(&self) -> Duration {
        self.ttl * 4 + Duration::from_secs(25)
    }
}

fn store(rng: &mut Rng) -> Store {
    Store {
        shared: false,
        forgets: false,
        delay: rng.spread(500, 20 * MILLI),
        slow: rng.spread(50 * MILLI, 2 * SECOND),
        slow_ppm: rng.weighted(&[(5, 0), (4, 5_000), (2, 60_000)]),
        unavailable_ppm: rng.weighted(&[(4, 0), (4, 10_000), (3, 60_000)]),
        unknown_ppm: rng.weighted(&[(4, 0), (4, 10_000), (3, 60_000)]),
        double_ppm: 0,
    }
}

fn faults(plan: &Plan) -> Vec<Fault> {
    let mut rng = Rng::new(plan.seed, Purpose::Faults, 0, 0);
    let count = rng.weighted(&[(1, 0), (3, 2), (4, 4), (2, 8)]);
    let end = u64::try_from(plan.length.as_micros()).unwrap_or(0);
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let at: Micros = rng.between(SECOND, end);
            let lasts: Micros = rng.spread(50 * MILLI, 6 * SECOND);
            let kind = kind(&mut rng, plan.clients);
            let (at, lasts) = (Duration::from_micros(at), Duration::from_micros(lasts));
            Fault { at, lasts, kind }
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn kind(rng: &mut Rng, clients: usize) -> Kind {
    let client = rng.index(clients);
    rng.weighted(&[
        (5, Kind::Crash),
        (2, Kind::Stop),
        (3, Kind::Apart(client)),
        (2, Kind::Deaf(client)),
        (2, Kind::Mute(client)),
        (3, Kind::Held(client)),
        (2, Kind::Lossy(client)),
        (3, Kind::Blocked(client)),
        (2, Kind::StoreDown),
        (2, Kind::StoreFull),
        (2, Kind::StoreSlow),
        (2, Kind::StoreMute),
    ])
}
