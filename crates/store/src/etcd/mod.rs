//! etcd: many servers, one of which leads each group.
//!
//! ```text
//!  PREFIX/schema                  which layout this is
//!  PREFIX/access-version          moved by each change of an access document
//!  PREFIX/access/ID               one key an access document
//!  PREFIX/GROUP/leader            who leads, under which epoch
//!  PREFIX/GROUP/beat              moved by each confirmation
//!  PREFIX/GROUP/record/SEQ        one key a record
//!  PREFIX/GROUP/begun             the snapshot that was begun last
//!  PREFIX/GROUP/chunk/ID/INDEX/PART   its pieces, none above a megabyte
//!  PREFIX/GROUP/snapshot          the one that counts
//! ```
//!
//! Every change is one `Txn` that compares. What is compared is all that correctness rests on: no lease of etcd, no
//! lock, and no read. A read that is out of date leads to a comparison that fails, or names the revision it has to be
//! as of, which a member that has fallen behind cannot serve.
//!
//! - `client.rs`: requests, members that fail, credentials. `connection.rs`: HTTP/2. `keys.rs`: the keys.
//! - `version.rs`: versions of etcd with known bugs.
//! - `leadership.rs`, `append.rs`, `snapshot.rs`, `load.rs`, `access.rs`: the calls.

mod access;
mod append;
mod client;
mod connection;
mod keys;
mod leadership;
mod servers;
mod load;
mod snapshot;
mod version;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::Epoch;
use tokio::runtime::Handle;

use crate::access::AccessStore;
use crate::error::{Error, OpenError};
use crate::journal::{
    Announced, Beat, Campaign, Candidate, Journal, Leader, Page, Pending, Position, Pruned, Seq,
    Traits, sent,
};
use crate::location::EtcdLocation;
use crate::record::{Batch, Chunk};

use client::Client;
use keys::Keys;
use leadership::Mandate;
use snapshot::OpenSnapshot;

/// The messages of etcd, made from `proto/etcd.proto`.
#[allow(
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::wildcard_enum_match_arm,
    reason = "it is generated"
)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

/// The layout that this build writes, and the highest it can read.
pub const SCHEMA: u32 = 1;

/// A request may have 1.5 MiB unless etcd was told otherwise.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// A journal in etcd.
pub struct EtcdJournal {
    inner: Arc<Inner>,
    runtime: Handle,
}

struct Inner {
    name: String,
    group: u32,
    keys: Keys,
    client: Client,
    compact: bool,
    /// The highest revision that any answer has told of.
    seen: AtomicI64,
    known: Mutex<Known>,
}

/// What this server knows of the journal it leads.
#[derive(Clone, Debug, Default)]
struct Known {
    mandate: Option<Mandate>,
    /// How far the records have come, as far as is known.
    written: Seq,
    /// The first record that was not removed, if some were.
    oldest: Option<Seq>,
    /// The last record, if its bytes do not hold, and the revision it was written at: the next append replaces it.
    torn: Option<(Seq, i64)>,
    open: Option<OpenSnapshot>,
    /// How many snapshots were begun under this mandate.
    begun: u32,
    /// The revision that a load reads at, from its first page to its last.
    loading_at: i64,
    /// How many keys a page of the load has.
    page_len: i64,
    /// Up to this revision etcd may forget, when the next snapshot has been pruned for.
    forget_to: i64,
}

impl EtcdJournal {
    /// Connects to the first member that answers. Needs a tokio runtime, which it goes on to use.
    pub async fn open(location: &EtcdLocation, group: u32) -> Result<EtcdJournal, OpenError> {
        let name = location.to_string();
        let group = location.group.checked_add(group).ok_or_else(|| OpenError::Failed {
            store: name.clone(),
            what: "the number of its group is too large".into(),
            cause: None,
        })?;
        let client = Client::new(location)?;
        let inner = Inner {
            keys: Keys::new(&location.prefix, group),
            name,
            group,
            client,
            compact: location.compact,
            seen: AtomicI64::new(0),
            known: Mutex::default(),
        };
        inner.prepare().await?;
        Ok(EtcdJournal { inner: Arc::new(inner), runtime: Handle::current() })
    }

    /// Starts the work, which goes on whether or not anybody waits for it.
    fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Pending<T> {
        let task = self.runtime.spawn(work);
        Box::pin(async move { task.await.unwrap_or_else(|_| Err(gone())) })
    }
}

impl Inner {
    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn saw(&self, revision: i64) {
        self.seen.fetch_max(revision, Ordering::AcqRel);
    }
}

/// The runtime has ended.
fn gone() -> Error {
    Error::unavailable("the runtime that it needs has ended")
}

impl Journal for EtcdJournal {
    fn traits(&self) -> Traits {
        Traits { name: "etcd", lasting: true, shared: true, record_bytes_max: RECORD_BYTES_MAX }
    }

    fn access(self: Arc<Self>) -> Option<Arc<dyn AccessStore>> {
        Some(self)
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        let inner = self.inner.clone();
        self.start(async move { inner.leader().await })
    }

    fn campaign(&self, candidate: Candidate, overdue: Option<Beat>) -> Pending<Campaign> {
        let inner = self.inner.clone();
        self.start(async move { inner.campaign(candidate, overdue).await })
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        let inner = self.inner.clone();
        self.start(async move { inner.confirm(epoch).await })
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        let inner = self.inner.clone();
        self.start(async move { inner.resign(epoch).await })
    }

    fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Pending<()> {
        let inner = self.inner.clone();
        self.start(async move { inner.jump_epoch(epoch, to).await })
    }

    // What it is made under is settled now: should it only be sent after a `read_back`, it is refused.
    fn append(&self, batch: Batch) -> Pending<()> {
        let inner = self.inner.clone();
        let known = inner.known(|known| known.clone());
        sent(async move { inner.append(batch, known).await })
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        let inner = self.inner.clone();
        self.start(async move { inner.read_back(epoch, seq).await })
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        let inner = self.inner.clone();
        self.start(async move { inner.put_chunk(&chunk).await })
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        let inner = self.inner.clone();
        self.start(async move { inner.commit_snapshot(epoch, as_of, chunks).await })
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        let inner = self.inner.clone();
        self.start(async move { inner.prune(epoch).await })
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        let inner = self.inner.clone();
        self.start(async move { inner.load(epoch, from).await })
    }

    fn groups(&self, wanted: u32) -> Pending<u32> {
        let inner = self.inner.clone();
        self.start(async move { inner.groups(wanted).await })
    }

    fn announce(&self, server: Announced) -> Pending<()> {
        let inner = self.inner.clone();
        self.start(async move { inner.announce(&server).await })
    }

    fn forget(&self, name: String) -> Pending<()> {
        let inner = self.inner.clone();
        self.start(async move { inner.forget_server(&name).await })
    }

    fn servers(&self) -> Pending<Vec<Announced>> {
        let inner = self.inner.clone();
        self.start(async move { inner.servers().await })
    }
}

#[cfg(feature = "conformance")]
impl EtcdJournal {
    /// Harms what is stored.
    pub async fn harm(&self, harm: crate::conformance::Harm) {
        self.inner.harm(harm).await;
    }

    /// Lets etcd say that it is full, or no longer.
    pub async fn set_full(&self, full: bool) {
        self.inner.client.set_full(full).await.expect("an alarm can be set");
    }
}

impl fmt::Debug for EtcdJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdJournal")
            .field("store", &self.inner.name)
            .field("group", &self.inner.group)
            .finish_non_exhaustive()
    }
}
