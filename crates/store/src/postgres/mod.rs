//! PostgreSQL: many servers, one of which leads each group.
//!
//! ```text
//!  PostgresJournal ──► lane for appends ─────► leadership   one row a group: who leads, and what comes next
//!                 ├──► lane for what is rare ► journal      one row a record
//!                 └──► lane for long work ───► chunks       the pieces of snapshots
//! ```
//!
//! Everything that decides is in the one row of the group: epoch, beat, number of the last record, attempt, which
//! snapshot counts. Each call is one statement that compares and moves that row, and writes what goes with it. So each
//! call is one round trip, and what it compares cannot change before it is committed: a deposed leader's statement
//! waits for the row, looks again, and finds nothing to move.
//!
//! No session state, no prepared statements, no advisory locks, no LISTEN: it works behind a transaction pooler.
//!
//! - `connection.rs`: a connection that comes back, and what its failures mean. `tls.rs` protects it.
//! - `schema.rs`: the tables.
//! - `leadership.rs`, `append.rs`, `snapshot.rs`, `load.rs`, `servers.rs`, `access.rs`: the calls.

mod access;
mod append;
mod connection;
mod leadership;
mod load;
mod schema;
mod servers;
mod snapshot;
mod tls;

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
use crate::location::PostgresLocation;
use crate::record::{Batch, Chunk};
use crate::remote::{self, Remote};

use connection::{Connector, Lane};
use schema::Tables;
use snapshot::OpenSnapshot;

pub use schema::SCHEMA;

/// A value may be up to a gigabyte, and travels as text of twice its size.
const RECORD_BYTES_MAX: usize = 16 << 20;

/// A journal in a PostgreSQL database.
pub struct PostgresJournal(Remote<Inner>);

struct Inner {
    name: String,
    group: i32,
    tables: Tables,
    /// The longest time an append may wait for others.
    wait_ms: i32,
    /// So that a long load or a large chunk never stands before an append.
    appends: Lane,
    others: Lane,
    /// The attempt that appends are made under; see `append.rs`.
    attempt: AtomicI64,
    known: Mutex<Known>,
}

/// The state of the journal that this server leads.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The last record, if its bytes do not hold: the next append replaces it.
    torn: Option<Seq>,
    open: Option<OpenSnapshot>,
}

impl PostgresJournal {
    /// Connects, and makes the tables if there are none. Needs a tokio runtime, which it goes on to use.
    pub async fn open(
        location: &PostgresLocation,
        group: u32,
    ) -> Result<PostgresJournal, OpenError> {
        let name = location.to_string();
        let group = location.group.checked_add(group).and_then(|group| i32::try_from(group).ok());
        let group = group.ok_or_else(|| OpenError::Failed {
            store: name.clone(),
            what: "the number of its group is too large".into(),
            cause: None,
        })?;
        let connector = Arc::new(Connector::new(location)?);
        let tables = Tables::new(&location.schema);
        let others = Lane::new(connector.clone());
        schema::prepare(&others, &tables, &name, group).await?;
        let inner = Inner {
            wait_ms: connector.lock_timeout_ms(),
            name,
            group,
            tables,
            appends: Lane::new(connector),
            others,
            attempt: AtomicI64::new(0),
            known: Mutex::default(),
        };
        Ok(PostgresJournal(Remote::new(inner)))
    }
}

impl Inner {
    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock())
    }
}

/// Our numbers are far below; what is not matches nothing.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

impl Journal for PostgresJournal {
    fn caps(&self) -> JournalCaps {
        JournalCaps {
            name: "postgres",
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
        let attempt = inner.attempt.load(Ordering::Acquire);
        let known = inner.known(|known| *known);
        sent(async move { inner.append(batch, attempt, known).await })
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.0.call(|backend| async move { backend.put_chunk(&chunk).await })
    }

    fn announce(&self, server: Peer) -> Pending<()> {
        self.0.call(|backend| async move { backend.announce(&server).await })
    }

    fn forget(&self, name: String) -> Pending<()> {
        self.0.call(|backend| async move { backend.forget(&name).await })
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

impl fmt::Debug for PostgresJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresJournal")
            .field("store", &self.0.backend.name)
            .field("group", &self.0.backend.group)
            .finish_non_exhaustive()
    }
}
