//! What a member asks of its store, and what comes back.
//!
//! The questions of one [`Lane`] come one after the other; the lanes go on beside each other. So a slow append does not
//! keep a leader from showing that it is there.

use std::future::Future;
use std::pin::Pin;

use leasehold_core::Epoch;
use leasehold_store::{
    Batch, Beat, Campaign, Candidate, Chunk, Error, Journal, Leader, Page, Pending, Position,
    Pruned, Seq,
};

/// A question to the store on its way.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Names the answer. An answer to a question that was given up is not listened to.
    pub id: u64,
    pub request: Request,
}

/// All that a member asks of a journal.
#[derive(Clone, Debug)]
pub enum Request {
    Leader,
    Campaign {
        candidate: Candidate,
        overdue: Option<Beat>,
    },
    Confirm(Epoch),
    Resign(Epoch),
    Load {
        epoch: Epoch,
        from: Position,
    },
    Append {
        batch: Batch,
        /// How many transitions it carries.
        transitions: usize,
    },
    ReadBack {
        epoch: Epoch,
        seq: Seq,
    },
    PutChunk(Chunk),
    CommitSnapshot {
        epoch: Epoch,
        as_of: Seq,
        chunks: u32,
    },
    Prune(Epoch),
}

/// What became of a request, in the same order.
#[derive(Clone, Debug)]
pub enum Response {
    Leader(Result<Option<Leader>, Error>),
    Campaigned(Result<Campaign, Error>),
    Confirmed(Result<(), Error>),
    Resigned(Result<(), Error>),
    Loaded(Result<Page, Error>),
    Appended(Result<(), Error>),
    ReadBack(Result<Option<Batch>, Error>),
    ChunkPut(Result<(), Error>),
    SnapshotCommitted(Result<(), Error>),
    Pruned(Result<Pruned, Error>),
}

/// A response to come.
pub type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A row of questions of which at most one is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Who leads.
    Leadership,
    /// The records.
    Journal,
    Snapshot,
}

impl Lane {
    pub const ALL: [Lane; 3] = [Lane::Leadership, Lane::Journal, Lane::Snapshot];
}

impl Request {
    pub fn lane(&self) -> Lane {
        match self {
            Request::Leader
            | Request::Campaign { .. }
            | Request::Confirm(_)
            | Request::Resign(_) => Lane::Leadership,
            Request::Load { .. } | Request::Append { .. } | Request::ReadBack { .. } => {
                Lane::Journal
            }
            Request::PutChunk(_) | Request::CommitSnapshot { .. } | Request::Prune(_) => {
                Lane::Snapshot
            }
        }
    }

    /// Makes the call, and gives the answer a place to come to.
    pub fn put_to(self, journal: &dyn Journal) -> Answering {
        match self {
            Request::Leader => said(journal.leader(), Response::Leader),
            Request::Campaign { candidate, overdue } => {
                said(journal.campaign(candidate, overdue), Response::Campaigned)
            }
            Request::Confirm(epoch) => said(journal.confirm(epoch), Response::Confirmed),
            Request::Resign(epoch) => said(journal.resign(epoch), Response::Resigned),
            Request::Load { epoch, from } => said(journal.load(epoch, from), Response::Loaded),
            Request::Append { batch, .. } => said(journal.append(batch), Response::Appended),
            Request::ReadBack { epoch, seq } => {
                said(journal.read_back(epoch, seq), Response::ReadBack)
            }
            Request::PutChunk(chunk) => said(journal.put_chunk(chunk), Response::ChunkPut),
            Request::CommitSnapshot { epoch, as_of, chunks } => {
                said(journal.commit_snapshot(epoch, as_of, chunks), Response::SnapshotCommitted)
            }
            Request::Prune(epoch) => said(journal.prune(epoch), Response::Pruned),
        }
    }
}

fn said<T: Send + 'static>(
    call: Pending<T>,
    response: fn(Result<T, Error>) -> Response,
) -> Answering {
    Box::pin(async move { response(call.await) })
}
