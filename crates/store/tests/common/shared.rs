//! What the stores behind a network can suffer, told once for all of them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Epoch;
use leasehold_store::conformance::servers::{Proxy, Way};
use leasehold_store::{
    AccessChange, Batch, Campaign, Candidate, Changed, Conflict, Document, DocumentId, Documents,
    Error, Journal, Loaded, Position, Seq,
};
use tokio::sync::watch;

use super::polling::{again, again_unless, until};

pub(crate) type Store = Arc<dyn Journal>;

pub(crate) async fn lead(store: &Store, name: &str) -> Epoch {
    let leader = store.leader().await.expect("the leader can be read");
    let overdue = leader.map(|leader| leader.beat);
    let candidate = Candidate {
        name: name.into(),
        address: format!("{name}.example:7420"),
        lease: Duration::from_secs(3),
    };
    match store.campaign(candidate, overdue).await.expect("a campaign can be held") {
        Campaign::Won(leadership) => leadership.epoch,
        Campaign::Lost(leader) => panic!("lost against {leader:?}, which was overdue"),
    }
}

pub(crate) fn is_deposed<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Conflict(Conflict::Deposed { .. })))
}

/// What is changed through the journal of one group is there through that of another. There was nothing before.
pub(crate) async fn documents_are_of_all_groups(one: &Store, other: &Store) {
    let access = |store: &Store| store.clone().access().expect("it keeps access documents");
    let id = DocumentId::new("role/x").expect("it is an id");
    let document = Document::new(id, "{}").expect("it is short");
    let change = AccessChange::new(vec![document.clone()], vec![]).expect("it is a change");
    let made = access(one).change(0, change.clone()).await;
    assert_eq!(made.expect("it can be made"), Changed::To(1));
    let found = access(other).documents().await.expect("they can be read");
    assert_eq!(found, Documents { version: 1, all: vec![document] });
    let late = access(other).change(0, change).await;
    assert_eq!(late.expect("it can be asked for"), Changed::Conflict { version: 1 });
}

/// The numbers of all records.
pub(crate) async fn loaded(store: &Store, epoch: Epoch) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut next = Some(Position::Start);
    while let Some(from) = next {
        let page = store.load(epoch, from).await.expect("the load works");
        for item in page.items {
            match item {
                Loaded::Batch(batch) => numbers.push(batch.seq().0),
                Loaded::Chunk(_) | Loaded::Torn { .. } => panic!("there are only records"),
            }
        }
        next = page.next;
    }
    numbers
}

/// As the engine does: what is unknown is read back until it is known. True if it was written.
pub(crate) async fn append_for_certain(store: &Store, batch: Batch) -> Result<bool, Error> {
    match store.append(batch.clone()).await {
        Ok(()) => Ok(true),
        Err(Error::OutcomeUnknown { .. }) => {
            let read_back = || store.read_back(batch.epoch(), batch.seq());
            let is_enough = |error: &Error| matches!(error, Error::Conflict(_));
            Ok(again_unless(read_back, is_enough).await?.is_some())
        }
        Err(Error::Unavailable { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// How far the appending has come.
pub(crate) struct Progress(watch::Receiver<u64>);

impl Progress {
    /// Waits until so many more records are written.
    pub(crate) async fn more(&mut self, records: u64) {
        let until = *self.0.borrow() + records;
        self.0.wait_for(|written| *written >= until).await.expect("the appending goes on");
    }
}

/// Appends while `trouble` happens, again and again; each record is there exactly once in the end.
pub(crate) async fn appends_survive(store: &Store, trouble: impl AsyncFnOnce(Progress)) {
    let epoch = lead(store, "node-1").await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let (written, progress) = watch::channel(0);
    let appending = async {
        let mut seq = 1;
        let mut after = 0;
        while after < 20 {
            let batch = super::batch(epoch, seq);
            if append_for_certain(store, batch).await.expect("it leads") {
                written.send_replace(seq);
                seq += 1;
                after += u32::from(over.load(std::sync::atomic::Ordering::SeqCst));
            }
        }
        seq - 1
    };
    let trouble = async {
        trouble(Progress(progress)).await;
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let (last, ()) = tokio::join!(appending, trouble);
    let expected: Vec<u64> = (1..=last).collect();
    assert_eq!(loaded(store, epoch).await, expected);
    println!("{last} records");
}

/// An append whose answer is lost on the way is found by reading back; a second server takes over meanwhile, and the
/// first one can do nothing more.
pub(crate) async fn answers_are_lost(store: &Store, other: &Store, proxy: &Proxy) {
    let epoch = lead(store, "node-1").await;
    store.append(super::batch(epoch, 1)).await.expect("it can be written");
    proxy.set(Way::NoAnswers);
    let lost = store.append(super::batch(epoch, 2)).await;
    assert!(matches!(lost, Err(Error::OutcomeUnknown { .. })), "{lost:?}");
    let unread = store.read_back(epoch, Seq(2)).await;
    assert!(matches!(unread, Err(Error::Unavailable { .. })), "{unread:?}");
    proxy.set(Way::Broken);
    proxy.set(Way::Open);
    let found = again(|| store.read_back(epoch, Seq(2))).await;
    assert_eq!(found, Some(super::batch(epoch, 2)));
    store.append(super::batch(epoch, 3)).await.expect("it goes on");
    proxy.set(Way::Silent);
    let new = lead(other, "node-2").await;
    other.append(super::batch(new, 4)).await.expect("the new one can write");
    let lost = store.append(super::batch(epoch, 4)).await;
    assert!(!matches!(lost, Ok(())), "{lost:?}");
    proxy.set(Way::Broken);
    proxy.set(Way::Open);
    loop {
        match store.confirm(epoch).await {
            Err(Error::Unavailable { .. }) => {}
            answer => break assert!(is_deposed(&answer), "{answer:?}"),
        }
    }
    assert!(is_deposed(&store.append(super::batch(epoch, 5)).await));
    assert!(is_deposed(&store.read_back(epoch, Seq(4)).await));
    assert_eq!(loaded(other, new).await, [1, 2, 3, 4]);
}

/// What hangs on its way arrives after it was read back as unwritten: it must not count.
pub(crate) async fn late_append_is_refused(
    store: &Store,
    proxy: &Proxy,
    is_settled: impl Fn() -> bool,
) {
    let epoch = lead(store, "node-1").await;
    store.append(super::batch(epoch, 1)).await.expect("it can be written");
    proxy.set(Way::OldSilent);
    let lost = store.append(super::batch(epoch, 2)).await;
    assert!(matches!(lost, Err(Error::OutcomeUnknown { .. })), "{lost:?}");
    assert_eq!(again(|| store.read_back(epoch, Seq(2))).await, None);
    // Now it goes on to the server, whose answer nobody waits for.
    proxy.set(Way::Open);
    tokio::task::block_in_place(|| proxy.wait_until_late_ones_are_over());
    until("what arrived late is settled", is_settled).await;
    assert_eq!(loaded(store, epoch).await, [1]);
    let instead = Batch::new(epoch, Seq(2), []);
    store.append(instead.clone()).await.expect("its number is still free");
    assert_eq!(again(|| store.read_back(epoch, Seq(2))).await, Some(instead));
}

/// The same with what was to settle it: a `read_back` that arrives after a later one must not be in the way for ever.
pub(crate) async fn late_read_back_is_no_hindrance(
    store: &Store,
    proxy: &Proxy,
    is_settled: impl Fn() -> bool,
) {
    let epoch = lead(store, "node-1").await;
    store.append(super::batch(epoch, 1)).await.expect("it can be written");
    proxy.set(Way::OldSilent);
    let lost = store.append(super::batch(epoch, 2)).await;
    assert!(matches!(lost, Err(Error::OutcomeUnknown { .. })), "{lost:?}");
    again(|| store.read_back(epoch, Seq(2))).await;
    proxy.set(Way::OldSilent);
    // This one hangs too, and is asked again on a new connection.
    again(|| store.read_back(epoch, Seq(2))).await;
    proxy.set(Way::Open);
    tokio::task::block_in_place(|| proxy.wait_until_late_ones_are_over());
    until("what arrived late is settled", is_settled).await;
    let written = again(|| store.append(super::batch(epoch, 2))).await;
    assert_eq!(written, ());
    assert_eq!(loaded(store, epoch).await, [1, 2]);
}
