//! A journal that can be told to wait or fail, and requests to try an engine with.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{
    Acquire, CallId, Claim, Command, Epoch, FencingToken, Grant, LeaseId, Mode, Namespace, Owner,
    Release, Renew, Scope, Timestamp, Under, Wait,
};
use leasehold_store::{
    Batch, Beat, Campaign, Candidate, Chunk, Error, Journal, Leader, MemoryJournal, Page, Pending,
    Position, Pruned, Seq, Traits,
};
use tokio::sync::Notify;

/// What the clock shows when a test begins; any moment would do.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// What becomes of the next appends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Works,
    /// Nothing is written.
    Full,
    /// Nothing is written, and the caller does not learn that.
    LostBefore,
    /// It is written, and the caller does not learn that.
    LostAfter,
    /// Nothing comes back before it works again.
    Hangs,
}

/// A memory journal with moods.
#[derive(Debug)]
pub(crate) struct MoodyJournal {
    inner: Arc<MemoryJournal>,
    mood: Arc<Mutex<Mood>>,
    changed: Arc<Notify>,
    pub(crate) appends: Arc<Mutex<Vec<usize>>>,
}

impl MoodyJournal {
    pub(crate) fn new() -> Arc<MoodyJournal> {
        Arc::new(MoodyJournal {
            inner: Arc::new(MemoryJournal::new()),
            mood: Arc::default(),
            changed: Arc::default(),
            appends: Arc::default(),
        })
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.mood.lock().expect("not poisoned") = mood;
        self.changed.notify_waiters();
    }
}

fn mood_of(mood: &Mutex<Mood>) -> Mood {
    *mood.lock().expect("not poisoned")
}

impl Journal for MoodyJournal {
    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        self.inner.leader()
    }

    fn campaign(&self, candidate: Candidate, overdue: Option<Beat>) -> Pending<Campaign> {
        self.inner.campaign(candidate, overdue)
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        self.inner.confirm(epoch)
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        self.inner.resign(epoch)
    }

    fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Pending<()> {
        self.inner.jump_epoch(epoch, to)
    }

    fn append(&self, batch: Batch) -> Pending<()> {
        let (inner, mood) = (self.inner.clone(), self.mood.clone());
        let (changed, appends) = (self.changed.clone(), self.appends.clone());
        let unknown = || Error::OutcomeUnknown { what: "no answer".into(), cause: None };
        Box::pin(async move {
            loop {
                let wait = changed.notified();
                match mood_of(&mood) {
                    Mood::Hangs => wait.await,
                    Mood::Works => {
                        appends.lock().expect("not poisoned").push(batch.transitions().count());
                        return inner.append(batch).await;
                    }
                    Mood::Full => {
                        return Err(Error::Unavailable { what: "disk full".into(), cause: None });
                    }
                    Mood::LostBefore => return Err(unknown()),
                    Mood::LostAfter => {
                        inner.append(batch).await?;
                        return Err(unknown());
                    }
                }
            }
        })
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        self.inner.read_back(epoch, seq)
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.inner.put_chunk(chunk)
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        self.inner.commit_snapshot(epoch, as_of, chunks)
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        self.inner.prune(epoch)
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        self.inner.load(epoch, from)
    }
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
