//! The requests of a member to its store, and their results.
//!
//! The questions of one [`Lane`] come one after the other; the lanes go on beside each other. So a slow append does not
//! keep a leader from showing that it is there.

use std::future::Future;
use std::pin::Pin;

use leasehold_core::Epoch;
use leasehold_store::{
    Batch, Campaign, Candidate, Chunk, Error, Heartbeat, Journal, Leader, Page, Pending, Position,
    Pruned, Seq,
};
use tracing::{Instrument, Span, debug_span};

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
        overdue: Option<Heartbeat>,
    },
    Confirm(Epoch),
    Resign(Epoch),
    Load {
        epoch: Epoch,
        from: Position,
    },
    Append {
        batch: Batch,
        /// The number of its transitions.
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

/// The result of each kind of request, in the same order.
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
    /// The leader of the group, as the store has it.
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

    /// The span of the call, for whoever traces at the level `debug`.
    fn span(&self) -> Span {
        match self {
            Request::Append { batch, transitions } => {
                let (epoch, seq) = (batch.epoch().0, batch.seq().0);
                debug_span!("append", epoch, seq, transitions)
            }
            Request::ReadBack { epoch, seq } => {
                debug_span!("read_back", epoch = epoch.0, seq = seq.0)
            }
            Request::PutChunk(chunk) => {
                let (epoch, seq) = (chunk.epoch().0, chunk.as_of().0);
                debug_span!("put_chunk", epoch, seq, index = chunk.index())
            }
            Request::CommitSnapshot { epoch, as_of, chunks } => {
                debug_span!("commit_snapshot", epoch = epoch.0, seq = as_of.0, chunks)
            }
            Request::Load { epoch, .. } => debug_span!("load", epoch = epoch.0),
            Request::Confirm(epoch) => debug_span!("confirm", epoch = epoch.0),
            Request::Resign(epoch) => debug_span!("resign", epoch = epoch.0),
            Request::Prune(epoch) => debug_span!("prune", epoch = epoch.0),
            Request::Leader => debug_span!("leader"),
            Request::Campaign { .. } => debug_span!("campaign"),
        }
    }

    /// Makes the call, and gives the answer a place to come to.
    pub fn put_to(self, journal: &dyn Journal) -> Answering {
        let span = self.span();
        let answering = span.in_scope(|| self.called(journal));
        if span.is_disabled() { answering } else { Box::pin(answering.instrument(span)) }
    }

    fn called(self, journal: &dyn Journal) -> Answering {
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
