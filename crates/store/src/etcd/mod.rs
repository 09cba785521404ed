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
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_core::Epoch;
use parking_lot::Mutex;

use crate::access::AccessStore;
use crate::error::OpenError;
use crate::journal::{
    About, Campaign, Candidate, Heartbeat, Journal, JournalCaps, Leader, Page, Peer, Pending,
    Position, Pruned, Seq, sent,
};
use crate::location::EtcdLocation;
use crate::record::{Batch, Chunk};
use crate::remote::{self, Remote};

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
pub struct EtcdJournal(Remote<Inner>);

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

/// The state of the journal that this server leads.
#[derive(Clone, Debug, Default)]
struct Known {
    mandate: Option<Mandate>,
    /// The position of the records, as far as is known.
    written: Seq,
    /// The first record that was not removed, if some were.
    oldest: Option<Seq>,
    /// The last record, if its bytes do not hold, and the revision it was written at: the next append replaces it.
    torn: Option<(Seq, i64)>,
    open: Option<OpenSnapshot>,
    /// The number of snapshots that were begun under this mandate.
    begun: u32,
    /// The revision that a load reads at, from its first page to its last.
    loading_at: i64,
    /// The number of keys in a page of the load.
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
        Ok(EtcdJournal(Remote::new(inner)))
    }
}

impl Inner {
    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock())
    }

    fn saw(&self, revision: i64) {
        self.seen.fetch_max(revision, Ordering::AcqRel);
    }
}

impl Journal for EtcdJournal {
    fn caps(&self) -> JournalCaps {
        JournalCaps {
            name: "etcd",
            lasting: true,
            shared: true,
            record_bytes_max: RECORD_BYTES_MAX,
        }
    }

    fn access(self: Arc<Self>) -> Option<Arc<dyn AccessStore>> {
        Some(self)
    }

    // What it is made under is settled now: should it only be sent after a `read_back`, it is refused.
    fn append(&self, batch: Batch) -> Pending<()> {
        let inner = self.0.backend.clone();
        let known = inner.known(|known| known.clone());
        sent(async move { inner.append(batch, known).await })
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.0.call(|backend| async move { backend.put_chunk(&chunk).await })
    }

    fn announce(&self, server: Peer) -> Pending<()> {
        self.0.call(|backend| async move { backend.announce(&server).await })
    }

    fn forget(&self, name: String) -> Pending<()> {
        self.0.call(|backend| async move { backend.forget_server(&name).await })
    }

    remote::calls! {
        leader() -> Option<Leader>;
        campaign(candidate: Candidate, overdue: Option<Heartbeat>) -> Campaign;
        confirm(epoch: Epoch) -> ();
        resign(epoch: Epoch) -> ();
        jump_epoch(epoch: Epoch, to: Epoch) -> ();
        read_back(epoch: Epoch, seq: Seq) -> Option<Batch>;
        commit_snapshot(epoch: Epoch, as_of: Seq, chunks: u32) -> ();
        prune(epoch: Epoch) -> Pruned;
        load(epoch: Epoch, from: Position) -> Page;
        groups(wanted: u32) -> u32;
        about() -> Option<About>;
        servers() -> Vec<Peer>;
    }
}

#[cfg(feature = "conformance")]
impl EtcdJournal {
    /// Harms what is stored.
    pub async fn corrupt(&self, harm: crate::conformance::Corruption) {
        self.0.backend.corrupt(harm).await;
    }

    /// Lets etcd say that it is full, or no longer.
    pub async fn set_full(&self, full: bool) {
        self.0.backend.client.set_full(full).await.expect("an alarm can be set");
    }
}

impl fmt::Debug for EtcdJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdJournal")
            .field("store", &self.0.backend.name)
            .field("group", &self.0.backend.group)
            .finish_non_exhaustive()
    }
}
