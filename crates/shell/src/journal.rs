//! The simulated store of `leasehold-sim` as a journal that a real engine can use.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Epoch;
use leasehold_engine::{Request, Response};
use leasehold_sim::store::{Links, Schedule, Store};
use leasehold_sim::time::Moment;
use leasehold_store::{
    Batch, Campaign, Candidate, Chunk, Error, Heartbeat, Journal, JournalCaps, Leader, Page,
    Pending, Position, Pruned, Seq, ready,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::clock;

/// What is stored outlives the server.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedJournal(Arc<Mutex<Store>>);

impl SimulatedJournal {
    pub(crate) fn new(store: Store) -> SimulatedJournal {
        SimulatedJournal(Arc::new(Mutex::new(store)))
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.0.lock()
    }

    /// Makes the call. It has its effect when it arrives, whether or not anybody waits for the answer.
    fn put<T: Send + 'static>(
        &self,
        request: Request,
        read: fn(Response) -> Result<T, Error>,
    ) -> Pending<T> {
        let now = Moment(clock::micros());
        let schedule = self.store().call(now, (0, 0, 0), request, Links::default());
        let (answer, answered) = oneshot::channel();
        drop(tokio::spawn(self.clone().carry(schedule, answer)));
        Box::pin(async move {
            match answered.await {
                Ok(response) => read(response),
                Err(_) => Err(Error::OutcomeUnknown { what: "no answer came".into(), cause: None }),
            }
        })
    }

    async fn carry(self, schedule: Schedule, answer: oneshot::Sender<Response>) {
        let Schedule { call, arrives, answered, .. } = schedule;
        if arrives <= answered {
            until(arrives).await;
            self.store().arrive(call);
        }
        until(answered).await;
        let response = self.store().answer(call);
        if let Some((_, response)) = response {
            let _ = answer.send(response);
        }
        if arrives > answered {
            until(arrives).await;
            self.store().arrive(call);
        }
    }
}

async fn until(moment: Moment) {
    let left = moment.since(Moment(clock::micros()));
    tokio::time::sleep(Duration::from_micros(left)).await;
}

macro_rules! read {
    ($variant:ident) => {
        |response| match response {
            Response::$variant(answer) => answer,
            other => unreachable!("asked for another thing: {other:?}"),
        }
    };
}

impl Journal for SimulatedJournal {
    fn caps(&self) -> JournalCaps {
        self.store().caps()
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        self.put(Request::Leader, read!(Leader))
    }

    fn campaign(&self, candidate: Candidate, overdue: Option<Heartbeat>) -> Pending<Campaign> {
        self.put(Request::Campaign { candidate, overdue }, read!(Campaigned))
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        self.put(Request::Confirm(epoch), read!(Confirmed))
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        self.put(Request::Resign(epoch), read!(Resigned))
    }

    fn jump_epoch(&self, _: Epoch, _: Epoch) -> Pending<()> {
        ready(Err(Error::Unavailable { what: "nothing is migrated here".into(), cause: None }))
    }

    fn append(&self, batch: Batch) -> Pending<()> {
        let transitions = batch.transitions().count();
        self.put(Request::Append { batch, transitions }, read!(Appended))
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        self.put(Request::ReadBack { epoch, seq }, read!(ReadBack))
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.put(Request::PutChunk(chunk), read!(ChunkPut))
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        self.put(Request::CommitSnapshot { epoch, as_of, chunks }, read!(SnapshotCommitted))
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        self.put(Request::Prune(epoch), read!(Pruned))
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        self.put(Request::Load { epoch, from }, read!(Loaded))
    }
}
