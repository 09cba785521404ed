//! A journal that fails when it is told to, and requests to try an engine with.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{
    Acquire, CallId, Claim, Command, FencingToken, Grant, LeaseId, Mode, Namespace, Owner, Release,
    Renew, Scope, Timestamp, Under, Wait,
};
use leasehold_store::MemoryJournal;
use leasehold_store::conformance::{FaultyJournal, JournalEffect};

/// What the clock shows when a test begins; any moment would do.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// An empty journal in memory that fails when it is told to.
pub(crate) fn faulty_journal() -> Arc<FaultyJournal> {
    Arc::new(FaultyJournal::new(Arc::new(MemoryJournal::new())))
}

/// How many transitions each record has that was appended since the last time.
pub(crate) fn appended(journal: &FaultyJournal) -> Vec<usize> {
    let effects = journal.take_effects().into_iter();
    let records = effects.filter_map(|effect| match effect {
        JournalEffect::Appended(batch) => Some(batch.transitions().count()),
        JournalEffect::ReadBack { .. } | JournalEffect::SnapshotCommitted { .. } => None,
    });
    records.collect()
}

pub(crate) fn scope(text: &str) -> Scope {
    Scope::parse(text).expect("a good scope")
}

pub(crate) fn owner(text: &str) -> Owner {
    Owner::new(text).expect("a good owner")
}

/// A fresh lease id each time.
pub(crate) fn lease_id() -> LeaseId {
    static NEXT: Mutex<u128> = Mutex::new(1);
    let mut next = NEXT.lock().expect("not poisoned");
    *next += 1;
    LeaseId::from_u128(*next)
}

pub(crate) fn acquire(who: &str, what: &str, wait: Wait) -> Acquire {
    Acquire {
        call: CallId(0),
        namespace: Namespace::default(),
        owner: owner(who),
        claims: vec![Claim { scope: scope(what), mode: Mode::Exclusive }],
        under: Under::NewLease { id: lease_id(), ttl: Duration::from_secs(30) },
        wait,
        keep_place: false,
        ticket: None,
        request_id: None,
        reclaim_window: Duration::ZERO,
        reclaim: false,
        metadata: None,
    }
}

pub(crate) fn renew(what: &str, grant: &Grant) -> Command {
    Command::Renew(Renew {
        namespace: Namespace::default(),
        scope: scope(what),
        owner: grant.owner.clone(),
        lease: grant.lease,
        fence: grant.fence,
        ttl: None,
    })
}

pub(crate) fn release(what: &str, grant: &Grant) -> Command {
    release_with(what, grant, grant.fence)
}

pub(crate) fn release_with(what: &str, grant: &Grant, fence: FencingToken) -> Command {
    Command::Release(Release {
        namespace: Namespace::default(),
        scope: scope(what),
        owner: grant.owner.clone(),
        lease: grant.lease,
        fence,
    })
}
