//! Quotas under random commands: never exceeded, and no command is refused below them.
//!
//! What each principal and namespace has is counted here from what the table answered, and from nothing else.

#![expect(clippy::unwrap_used, reason = "names and numbers that a test makes up are well formed")]

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    Acquire, Answer, ByteRange, CallId, Cancel, Claim, Command, Effect, Entry, Grant, LeaseId,
    Limit, Limits, LockTable, Mode, Namespace, Outcome, Owner, Principal, Quota, QuotaKind,
    QuotaOf, Quotas, Refusal, Release, Scope, Step, Timestamp, Under, Unlock, Wait, invariant,
};
use proptest::prelude::*;

const LOCKS: u64 = 3;
const WAITERS: u64 = 2;
const NAMESPACES: u64 = 2;
const BYTES: u64 = 14;

/// One thing that a client does; numbers choose among few names.
#[derive(Clone, Debug)]
enum Move {
    Acquire { who: usize, space: usize, names: Vec<usize>, shared: bool, waits: bool, meta: bool },
    Bytes { who: usize, at: u64, len: u64 },
    Unlock { pick: usize, at: u64, len: u64 },
    Release { pick: usize },
    Cancel { pick: usize },
    Later { millis: u64 },
}

fn moves() -> impl Strategy<Value = Move> {
    let acquire = (0..3usize, 0..3usize, prop::collection::btree_set(0..4usize, 1..3));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    prop_oneof![
        6 => (acquire, flags).prop_map(|((who, space, names), (shared, waits, meta))| {
            Move::Acquire { who, space, names: names.into_iter().collect(), shared, waits, meta }
        }),
        2 => (0..3usize, 0..20u64, 1..9u64).prop_map(|(who, at, len)| Move::Bytes { who, at, len }),
        2 => (any::<usize>(), 0..20u64, 1..5u64)
            .prop_map(|(pick, at, len)| Move::Unlock { pick, at, len }),
        3 => any::<usize>().prop_map(|pick| Move::Release { pick }),
        1 => any::<usize>().prop_map(|pick| Move::Cancel { pick }),
        1 => (1..400u64).prop_map(|millis| Move::Later { millis }),
    ]
}

struct World {
    table: LockTable,
    now: Timestamp,
    asked: u64,
    granted: Vec<(Namespace, Vec<Claim>, Grant)>,
    waiting: BTreeMap<CallId, Acquire>,
}

fn quotas() -> Quotas {
    let quota = Quota {
        locks: LOCKS,
        bytes: BYTES,
        waiters: WAITERS,
        namespaces: NAMESPACES,
        ..Quota::UNLIMITED
    };
    let namespace = Quota { locks: 2 * LOCKS, ..Quota::UNLIMITED };
    Quotas { principal: quota, namespace, ..Quotas::UNLIMITED }
}

fn principal(who: usize) -> Principal {
    Principal::new(["red", "blue", "green"][who]).unwrap()
}

fn namespace(space: usize) -> Namespace {
    Namespace::new(["one", "two", "three"][space]).unwrap()
}

/// What a principal has, read from a snapshot of the table and from those who wait.
#[derive(Debug, Default)]
struct Counted {
    locks: u64,
    bytes: u64,
    waiters: u64,
    wanted: u64,
    waiter_bytes: u64,
    namespaces: std::collections::BTreeSet<Namespace>,
}

fn bytes_of(scope: &Scope, metadata: usize) -> u64 {
    match scope {
        Scope::Key(key) => (key.as_str().len() + metadata) as u64,
        Scope::Range { .. } => metadata as u64,
    }
}

fn room(claims: &[Claim]) -> u64 {
    claims.iter().map(|claim| if matches!(claim.scope, Scope::Key(_)) { 1 } else { 2 }).sum()
}

impl World {
    fn new() -> World {
        World {
            table: LockTable::new(Limits::default(), 3),
            now: Timestamp::ZERO,
            asked: 0,
            granted: Vec::new(),
            waiting: BTreeMap::new(),
        }
    }

    fn counted(&self, principal: &Principal) -> Counted {
        let mut counted = Counted::default();
        for entry in self.table.entries() {
            let Entry::Lease(lease) = entry else { continue };
            if !lease.owner.is_of(principal) {
                continue;
            }
            counted.namespaces.insert(lease.namespace.clone());
            counted.locks += (lease.grants.len() + lease.pieces.len()) as u64;
            for grant in &lease.grants {
                let metadata = grant.metadata.as_ref().map_or(0, |metadata| metadata.len());
                counted.bytes += (grant.key.as_str().len() + metadata) as u64;
            }
        }
        for waiter in self.waiting.values().filter(|waiter| waiter.owner.is_of(principal)) {
            counted.namespaces.insert(waiter.namespace.clone());
            counted.waiters += 1;
            counted.wanted += room(&waiter.claims);
            counted.waiter_bytes += need_bytes(waiter);
        }
        counted
    }

    fn acquire(&mut self, acquire: Acquire) {
        let before = self.counted(&acquire.owner.principal());
        let asked = acquire.clone();
        let outcome = self.handle(Command::Acquire(acquire));
        match outcome {
            Outcome::Answered(Answer::Granted(grant)) => {
                self.granted.push((asked.namespace.clone(), asked.claims.clone(), *grant));
            }
            Outcome::Queued(_) => {
                self.waiting.insert(asked.call, asked);
            }
            Outcome::Refused(Refusal::Limit(Limit::Quota { quota, of, max })) => {
                let room = before.locks + before.wanted + room(&asked.claims);
                let bytes = before.bytes + before.waiter_bytes + need_bytes(&asked);
                let is_over = match (of, quota) {
                    (QuotaOf::Principal, QuotaKind::Locks) => room > LOCKS,
                    (QuotaOf::Principal, QuotaKind::Bytes) => bytes > BYTES,
                    (QuotaOf::Principal, QuotaKind::Waiters) => before.waiters + 1 > WAITERS,
                    (QuotaOf::Principal, QuotaKind::Namespaces) => {
                        let len = before.namespaces.len() as u64;
                        !before.namespaces.contains(&asked.namespace) && len + 1 > NAMESPACES
                    }
                    (QuotaOf::Namespace, QuotaKind::Locks) => max == 2 * LOCKS,
                    other => panic!("{other:?} has no quota here"),
                };
                assert!(is_over, "{quota:?} of {of:?} refused below {max}: {before:?} {asked:?}");
            }
            Outcome::Answered(other) => panic!("{other:?}"),
            Outcome::Refused(_) => {}
        }
    }

    fn handle(&mut self, command: Command) -> Outcome {
        let mut step = Step::new();
        let outcome = self.table.handle_within(self.now, command, &quotas(), &mut step);
        for effect in &step.effects {
            match effect {
                Effect::Granted { call, grant } => {
                    if let Some(asked) = self.waiting.remove(call) {
                        self.granted.push((asked.namespace, asked.claims, (**grant).clone()));
                    }
                }
                Effect::Refused { call, .. } => drop(self.waiting.remove(call)),
                Effect::Lost { .. } | Effect::Wanted { .. } | Effect::Event(_) => {}
            }
        }
        invariant::check_all(&self.table).unwrap();
        outcome
    }

    fn apply(&mut self, wanted: &Move) {
        self.asked += 1;
        match wanted {
            Move::Acquire { who, space, names, shared, waits, meta } => {
                let mode = if *shared { Mode::Shared } else { Mode::Exclusive };
                let scope = |name: &usize| Scope::parse(["a", "bb", "c", "dd"][*name]).unwrap();
                let claims = names.iter().map(|name| Claim { scope: scope(name), mode }).collect();
                let wait = Duration::from_millis(300);
                self.acquire(Acquire {
                    wait: if *waits { Wait::UpTo(wait) } else { Wait::Never },
                    metadata: meta.then(|| "12345".into()),
                    ..self.asking(*who, *space, claims)
                });
            }
            Move::Bytes { who, at, len } => {
                let range = ByteRange::inclusive(*at, at + len).unwrap();
                let claim = Claim { scope: Scope::range(1, range), mode: Mode::Exclusive };
                let of = principal(*who);
                let mine = self.granted.iter().find(|(namespace, claims, grant)| {
                    *namespace == Namespace::new("one").unwrap()
                        && grant.owner.is_of(&of)
                        && matches!(claims[0].scope, Scope::Range { .. })
                });
                let under =
                    mine.map(|(_, _, grant)| (Under::Session(grant.lease), grant.owner.clone()));
                let asking = self.asking(*who, 0, vec![claim]);
                let (under, owner) = under.unwrap_or((asking.under, asking.owner.clone()));
                self.acquire(Acquire { under, owner, ..asking });
            }
            Move::Unlock { pick, at, len } => {
                let bytes = self
                    .granted
                    .iter()
                    .filter(|(_, claims, _)| matches!(claims[0].scope, Scope::Range { .. }));
                let bytes: Vec<_> = bytes.cloned().collect();
                if let Some((namespace, _, grant)) = bytes.get(pick % bytes.len().max(1)).cloned() {
                    let range = ByteRange::inclusive(*at, at + len).unwrap();
                    let (owner, session) = (grant.owner, grant.lease);
                    let unlock = Unlock { namespace, session, owner, inode: 1, range };
                    self.handle(Command::Unlock(unlock));
                }
            }
            Move::Release { pick } => {
                if self.granted.is_empty() {
                    return;
                }
                let at = pick % self.granted.len();
                let (namespace, claims, grant) = self.granted.swap_remove(at);
                let Grant { lease, owner, fence, .. } = grant;
                let scope = claims[0].scope.clone();
                let release = Release { namespace, scope, owner, lease, fence };
                self.handle(Command::Release(release));
            }
            Move::Cancel { pick } => {
                let len = self.waiting.len().max(1);
                if let Some((&call, asked)) = self.waiting.iter().nth(pick % len) {
                    let namespace = asked.namespace.clone();
                    self.handle(Command::Cancel(Cancel { namespace, call, keep_place: false }));
                    self.waiting.remove(&call);
                }
            }
            Move::Later { millis } => {
                self.now = Timestamp::from_millis(self.now.as_millis() + millis);
                self.handle(Command::Tick);
            }
        }
    }

    fn asking(&self, who: usize, space: usize, claims: Vec<Claim>) -> Acquire {
        let id = LeaseId::from_u128(u128::from(self.asked));
        Acquire {
            call: CallId(self.asked),
            namespace: namespace(space),
            owner: Owner::of(&principal(who), &format!("w{}", self.asked % 3)).unwrap(),
            claims,
            under: Under::NewLease { id, ttl: Duration::from_millis(500) },
            wait: Wait::Never,
            keep_place: false,
            ticket: None,
            request_id: None,
            reclaim_window: Duration::ZERO,
            reclaim: false,
            metadata: None,
        }
    }

    fn check(&self) {
        for who in 0..3 {
            let counted = self.counted(&principal(who));
            let usage = self.table.usage_of(&principal(who));
            assert_eq!((usage.locks, usage.bytes), (counted.locks, counted.bytes));
            assert_eq!((usage.waiters, usage.wanted), (counted.waiters, counted.wanted));
            assert!(usage.locks + usage.wanted <= LOCKS, "{counted:?}");
            assert!(usage.bytes + usage.waiter_bytes <= BYTES, "{counted:?}");
            assert!(usage.waiters <= WAITERS, "{counted:?}");
            assert!(counted.namespaces.len() as u64 <= NAMESPACES, "{counted:?}");
        }
    }
}

fn need_bytes(asked: &Acquire) -> u64 {
    let metadata = asked.metadata.as_ref().map_or(0, |metadata| metadata.len());
    asked.claims.iter().map(|claim| bytes_of(&claim.scope, metadata)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn quota_is_never_exceeded_and_refuses_nothing_below_it(
        moves in prop::collection::vec(moves(), 1..60),
    ) {
        let mut world = World::new();
        for wanted in &moves {
            world.apply(wanted);
            world.check();
        }
        // A table that is restored counts the same.
        let entries: Vec<Entry> = world.table.entries().collect();
        let restored = LockTable::restore(Limits::default(), 9, entries).unwrap();
        invariant::check_lasting(&restored).unwrap();
        invariant::invariant_usage_is_counted(&restored).unwrap();
        for who in 0..3 {
            let (before, after) = (world.table.usage_of(&principal(who)), restored.usage_of(&principal(who)));
            prop_assert_eq!((before.locks, before.bytes), (after.locks, after.bytes));
        }
    }
}
