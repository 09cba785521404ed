//! The few things that every case does, so that a case reads as what it is about.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Claim, Entry, Epoch, FencingToken, GrantEntry, Granted, LeaseEntry, LeaseId, Millis, Mode,
    Namespace, Owner, Revision, Scope, Timestamp, Transition,
};

use super::{FaultyJournal, InjectedFault};
use crate::error::{Conflict, Error};
use crate::journal::{
    Campaign, Candidate, Heartbeat, Journal, Leader, Loaded, Position, Pruned, Seq,
};
use crate::record::{Batch, Chunk};

pub(super) type Store = Arc<dyn Journal>;

/// More pages than any load in the suite has, so that one that goes round in circles ends.
const PAGES_MAX: usize = 1000;

pub(super) fn candidate(name: &str) -> Candidate {
    Candidate {
        name: name.into(),
        address: format!("{name}.example:7420"),
        lease: Duration::from_secs(10),
    }
}

/// The last heartbeat of the leader, which has fallen silent.
pub(super) async fn silent_leader(store: &Store) -> Option<Heartbeat> {
    let leader: Option<Leader> = store.leader().await.expect("the leader can be read");
    leader.map(|leader| leader.beat)
}

/// Becomes leader, as a server whose predecessor has fallen silent.
pub(super) async fn lead(store: &Store) -> Epoch {
    let overdue = silent_leader(store).await;
    let campaign = store.campaign(candidate("node-1"), overdue).await;
    match campaign.expect("a campaign can be held") {
        Campaign::Won(leadership) => leadership.epoch,
        Campaign::Lost(leader) => panic!("lost against {leader:?}, which was overdue"),
    }
}

pub(super) fn granted(number: u64) -> Transition {
    Transition::Granted(Granted {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(number)),
        opens: Some(Millis::from_secs(30)),
        owner: Owner::new("worker-1").expect("it is a name"),
        claims: vec![Claim { scope: scope(number), mode: Mode::Exclusive }],
        fence: fence(number),
        granted_at: Timestamp::from_millis(1_700_000_000_000 + number),
        reclaim_window: Millis::ZERO,
        request: None,
        metadata: None,
    })
}

pub(super) fn fence(number: u64) -> FencingToken {
    FencingToken::new(number).expect("numbers in the suite are small")
}

fn scope(number: u64) -> Scope {
    Scope::parse(&format!("job/{number}")).expect("it is a scope")
}

pub(super) fn batch(epoch: Epoch, seq: u64) -> Batch {
    Batch::new(epoch, Seq(seq), [&granted(seq % 1000)])
}

/// A record of about so many bytes.
pub(super) fn large_batch(epoch: Epoch, seq: u64, bytes: usize) -> Batch {
    let reason = "x".repeat(bytes);
    let ended = Transition::LeaseEnded {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(seq)),
        ending: leasehold_core::Ending::Revoked(reason.into()),
    };
    Batch::new(epoch, Seq(seq), [&ended])
}

pub(super) fn counters(epoch: Epoch, as_of: u64) -> Entry {
    Entry::Counters { epoch, fence: fence(as_of), revision: Revision(as_of) }
}

pub(super) fn lease_entry(number: u64) -> Entry {
    let Scope::Key(key) = scope(number) else { unreachable!("a plain name is a key") };
    let owner = Owner::new("worker-1").expect("it is a name");
    Entry::Lease(Box::new(LeaseEntry {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(number)),
        owner: owner.clone(),
        ttl: Millis::from_secs(30),
        session: None,
        lapsed: None,
        ending: None,
        grants: vec![GrantEntry {
            key,
            owner,
            mode: Mode::Exclusive,
            fence: fence(number),
            granted_at: Timestamp::from_millis(1_700_000_000_000 + number),
            reclaim_window: Millis::ZERO,
            request: None,
            metadata: None,
        }],
        pieces: Vec::new(),
        sets: Vec::new(),
        requests: Vec::new(),
    }))
}

pub(super) fn chunk(epoch: Epoch, as_of: u64, index: u32) -> Chunk {
    let first = u64::from(index) * 10;
    let mut entries: Vec<Entry> = (first..first + 10).map(lease_entry).collect();
    entries.push(counters(epoch, as_of));
    Chunk::new(epoch, Seq(as_of), index, &entries)
}

pub(super) async fn append(store: &Store, batch: Batch) {
    let seq = batch.seq();
    let done = store.append(batch).await;
    done.unwrap_or_else(|error| panic!("record {seq} should be written: {error:?}"));
}

/// Appends through a journal that lets that go wrong.
pub(super) async fn append_with(
    store: &Store,
    fault: InjectedFault,
    batch: Batch,
) -> Result<(), Error> {
    let faulty = FaultyJournal::new(store.clone());
    faulty.fail_next(Some(fault));
    faulty.append(batch).await
}

/// Appends records `first` to `last`.
pub(super) async fn append_all(store: &Store, epoch: Epoch, first: u64, last: u64) {
    for seq in first..=last {
        append(store, batch(epoch, seq)).await;
    }
}

pub(super) async fn snapshot(store: &Store, epoch: Epoch, as_of: u64, chunks: u32) {
    for index in 0..chunks {
        let put = store.put_chunk(chunk(epoch, as_of, index)).await;
        put.expect("a chunk can be written");
    }
    let committed = store.commit_snapshot(epoch, Seq(as_of), chunks).await;
    committed.expect("a whole snapshot can be committed");
}

/// Prunes to the end; how many calls that took.
pub(super) async fn prune(store: &Store, epoch: Epoch) -> usize {
    for calls in 1..PAGES_MAX {
        if store.prune(epoch).await.expect("pruning works") == Pruned::Done {
            return calls;
        }
    }
    panic!("pruning does not end")
}

/// Everything that a load gives, and in how many pages it came.
pub(super) async fn load(store: &Store, epoch: Epoch) -> Result<(Vec<Loaded>, usize), Error> {
    let mut items = Vec::new();
    let mut position = Position::Start;
    for pages in 1..PAGES_MAX {
        let page = store.load(epoch, position).await?;
        items.extend(page.items);
        match page.next {
            Some(next) => position = next,
            None => return Ok((items, pages)),
        }
    }
    panic!("the load does not end")
}

/// The expected result of a load, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Chunk { as_of: u64, index: u32 },
    Record(u64),
    Torn(u64),
}

pub(super) fn records(first: u64, last: u64) -> Vec<Item> {
    (first..=last).map(Item::Record).collect()
}

pub(super) fn chunks(as_of: u64, count: u32) -> Vec<Item> {
    (0..count).map(|index| Item::Chunk { as_of, index }).collect()
}

pub(super) async fn loaded(store: &Store, epoch: Epoch) -> Vec<Item> {
    let (items, _) = load(store, epoch).await.expect("the load works");
    items.iter().map(item).collect()
}

fn item(loaded: &Loaded) -> Item {
    match loaded {
        Loaded::Chunk(chunk) => Item::Chunk { as_of: chunk.as_of().0, index: chunk.index() },
        Loaded::Batch(batch) => Item::Record(batch.seq().0),
        Loaded::Torn { seq, .. } => Item::Torn(seq.0),
    }
}

pub(super) async fn load_error(store: &Store, epoch: Epoch) -> String {
    match load(store, epoch).await {
        Err(error @ Error::Corrupt { .. }) => error.to_string(),
        other => panic!("the load should find corruption: {other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_deposed<T: std::fmt::Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Conflict(Conflict::Deposed { .. })) => {}
        other => panic!("it should be told that it is deposed: {other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_out_of_order(answer: Result<(), Error>, expected: u64) {
    match answer {
        Err(Error::Conflict(Conflict::OutOfOrder { next, .. })) => assert_eq!(next, Seq(expected)),
        other => panic!("it should be told which number is next: {other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_out_of_snapshot(answer: Result<(), Error>) {
    match answer {
        Err(Error::Conflict(Conflict::OutOfSnapshot { .. })) => {}
        other => panic!("it should be told that it does not follow: {other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_unavailable(answer: Result<(), Error>) {
    match answer {
        Err(Error::Unavailable { .. }) => {}
        other => panic!("it should be told that nothing was written: {other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_unknown(answer: Result<(), Error>) {
    match answer {
        Err(Error::OutcomeUnknown { .. }) => {}
        other => panic!("it should be told that nobody knows: {other:?}"),
    }
}
