//! The port: all that the engine asks of a store.
//!
//! A journal belongs to one group of namespaces. It is a row of records numbered from 1, a snapshot now and then, and
//! the name of the one server that may write.
//!
//! ```text
//!    campaign ──► load ──► append, append, append … ──► resign
//!       ▲           │         beside them: confirm, and now and then
//!       │           │         put_chunk … put_chunk, commit_snapshot, prune … prune
//!       └───────────┴──────── Conflict::Deposed: another one leads
//! ```
//!
//! # Who leads
//!
//! Each campaign that is won raises the epoch, and everything that is written names the epoch it is written under. The
//! store compares it in the same transaction. That alone is what makes a deposed leader harmless.
//!
//! No clock takes part. A leader shows that it is there by [`confirm`](Journal::confirm), which moves a counter,
//! the beat. A server that has seen the same beat for longer than the leader's lease, on its own monotonic clock,
//! may say so in its next campaign, and wins if the beat still is the one it saw. The leader counts its lease from
//! before it sent the confirmation, so its time is over first.
//!
//! # Why boxed futures
//!
//! The engine is one task: it starts an append and goes on to gather the next batch until the append is done. So
//! every call returns a future that borrows nothing and can be kept in a variable. It is boxed so that the store
//! can be chosen when the server starts (`Arc<dyn Journal>`): one small allocation a batch, where the batch costs a
//! disk sync or a round trip. The futures need no runtime and no thread: SQLite answers through a channel from a
//! thread of its own, PostgreSQL and etcd from a socket, the memory store and a simulated one at once, or when
//! their simulated time has come.
//!
//! A call has its effect even if its future is dropped: it may already be on its way. A dropped append is one whose
//! outcome is unknown.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Epoch;

use crate::access::AccessStore;
use crate::error::Error;
use crate::record::{Batch, Chunk};

/// The answer to a call, to come. The call has been made; awaiting it is only to learn what came of it.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// An answer that is known at once.
pub fn ready<T: Send + 'static>(answer: Result<T, Error>) -> Pending<T> {
    Box::pin(std::future::ready(answer))
}

/// An answer that whoever waits for it looks after alone, without a task between: an append, where each one costs. The
/// request is on its way when this returns, if there was a connection.
#[cfg(feature = "network")]
pub(crate) fn sent<T>(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Pending<T>
where
    T: Send + 'static,
{
    let mut work: Pending<T> = Box::pin(work);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match work.as_mut().poll(&mut context) {
        std::task::Poll::Ready(answer) => ready(answer),
        std::task::Poll::Pending => work,
    }
}

/// The number of a record; the first one has number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// The port to a store of transitions. See the top of this file for how the calls go together.
///
/// At most one append is under way at a time. One call about a snapshot may be under way beside it; no order is promised
/// between the two.
pub trait Journal: Send + Sync + fmt::Debug {
    fn caps(&self) -> JournalCaps;

    /// The leader, or the last one; `None` if there never was a leader, or the last one has resigned.
    fn leader(&self) -> Pending<Option<Leader>>;

    /// Asks to lead. Won if nobody leads, or if the leader and its beat still are those that `overdue` names. A
    /// store that only one server at a time can have open is always won: the last leader is certainly gone.
    ///
    /// After a failure it is unknown whether the epoch has risen. That does no harm: campaign again.
    fn campaign(&self, candidate: Candidate, overdue: Option<Heartbeat>) -> Pending<Campaign>;

    /// Shows that the leader is there: moves the beat, unless deposed.
    fn confirm(&self, epoch: Epoch) -> Pending<()>;

    /// Gives the leadership up, so that another one need not wait. The epoch stays and is never used again.
    fn resign(&self, epoch: Epoch) -> Pending<()>;

    /// Goes on under the epoch `to`, which must be higher. For what was copied from a store whose epochs had come
    /// further.
    fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Pending<()>;

    /// Adds the record: atomic, durable, and refused unless its epoch is the leader's and its number is the next.
    ///
    /// After [`Error::Unavailable`] it is certain that nothing was written. After [`Error::OutcomeUnknown`] call
    /// [`read_back`](Journal::read_back) before anything else.
    fn append(&self, batch: Batch) -> Pending<()>;

    /// The record with this number, if it was written, to settle an append whose outcome is unknown.
    ///
    /// A barrier: once the answer is `None`, an append of this number that was sent before never takes effect,
    /// however late it arrives. What is returned is as durable as after an append that was answered.
    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>>;

    /// Writes the next chunk of a snapshot while appends go on. Chunk 0 begins a new one; what is there of an older
    /// one that was never finished is forgotten. Nothing is visible before it is committed.
    ///
    /// Refused as long as the record that it is as of is not there: begin when its append was answered. And if the snapshot
    /// that counts is as of a later one: records may be gone.
    fn put_chunk(&self, chunk: Chunk) -> Pending<()>;

    /// Makes the snapshot with this number of chunks the one that is loaded from now on. Atomic; may be repeated
    /// when it failed, or the snapshot begun anew.
    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()>;

    /// Removes some of what the snapshot has made superfluous. Each call is short; call it until it says
    /// [`Pruned::Done`].
    fn prune(&self, epoch: Epoch) -> Pending<Pruned>;

    /// One page of what is stored, for its leader. Begin at [`Position::Start`] and go on at [`Page::next`]: first
    /// the chunks of the latest complete snapshot, then the records after it, in order.
    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page>;

    /// A hint for a store that writes in a thread of its own: for so long after each call that thread may poll for the
    /// next one instead of sleeping. The engine says so before an append; zero while it serves a lone caller.
    fn spin(&self, _length: Duration) {}

    /// The access documents of the same store, if it keeps any.
    fn access(self: Arc<Self>) -> Option<Arc<dyn AccessStore>> {
        None
    }

    /// The number of groups that the store's namespaces are spread over. The first server to ask sets it; from then on it
    /// is so, whatever others want. Asked of the journal of the first group.
    fn groups(&self, wanted: u32) -> Pending<u32> {
        ready(Ok(wanted))
    }

    /// Puts this server on the list of those around the store, as it says it is. Nothing rests on that list: it is for
    /// people who want to see the servers, and for the servers to share the groups among them. A store that only one
    /// server can have open needs none.
    fn announce(&self, _server: Peer) -> Pending<()> {
        ready(Ok(()))
    }

    /// Takes a server off the list.
    fn forget(&self, _name: String) -> Pending<()> {
        ready(Ok(()))
    }

    /// The software that keeps the journal, where it is not our own.
    fn about(&self) -> Pending<Option<About>> {
        ready(Ok(None))
    }

    /// All servers on the list, by name.
    fn servers(&self) -> Pending<Vec<Peer>> {
        ready(Ok(Vec::new()))
    }
}

/// A store's software, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name and version.
    pub version: String,
    /// Advice for those who run this version.
    pub warning: Option<String>,
}

/// The kind of the store, for the engine's choices and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalCaps {
    /// As it is spelled in the configuration: `sqlite`, `memory`.
    pub name: &'static str,
    /// Records are there after a restart.
    pub lasting: bool,
    /// Several servers can have it open, and one of them leads.
    pub shared: bool,
    /// The size a record should not exceed. A larger one may be refused as unavailable.
    pub record_bytes_max: usize,
}

/// A candidate for leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// For people: tells this server from the others.
    pub name: String,
    /// The address to which the others forward requests for the leader.
    pub address: String,
    /// The time it may lead without a heartbeat.
    pub lease: Duration,
}

/// The result of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Campaign {
    Won(Leadership),
    /// Another one leads.
    Lost(Leader),
}

/// The right to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    pub epoch: Epoch,
    /// The time it lasts without a heartbeat, counted from before the campaign or heartbeat was sent. `None`:
    /// for as long as the store is open, because nobody else can open it.
    pub lease: Option<Duration>,
}

/// The server that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub beat: Heartbeat,
    pub name: String,
    pub address: String,
    pub lease: Duration,
}

/// A moment in the life of a leader, without a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heartbeat {
    pub epoch: Epoch,
    /// Moves with each confirmation.
    pub count: u64,
}

/// A server on the list of those around a store, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub address: String,
    /// Moves as long as the server is there.
    pub count: u64,
}

/// The position of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Position {
    #[default]
    Start,
    /// At this chunk of the snapshot.
    Chunk { as_of: Seq, index: u32 },
    /// After this record.
    After(Seq),
}

/// A bounded part of what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<Loaded>,
    /// The position to go on from; `None` when this was all.
    pub next: Option<Position>,
}

/// One thing that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    Chunk(Chunk),
    Batch(Batch),
    /// The last record is there, but its bytes are not what was written: a crash or the disk has cut it off. It is left
    /// out, and the next append takes its number.
    ///
    /// The next leader has to jump the fence counter by `fence_jump` first. Each grant in the lost record took more
    /// than a byte of it, so no fence it may have handed out is higher than that.
    Torn {
        seq: Seq,
        fence_jump: u64,
    },
}

/// Whether there is more to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    Partial,
    Done,
}

impl Seq {
    #[must_use]
    pub fn next(self) -> Seq {
        Seq(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
