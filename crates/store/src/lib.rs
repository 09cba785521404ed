//! The store: the journal that every change goes through before it is seen.
//!
//! - [`Journal`] is the port. The engine appends one record a batch and loads them again after a restart; the store
//!   sees to it that only the leader of the day can write. `journal.rs` tells how the calls go together.
//! - [`Batch`] and [`Chunk`] are what is written: transitions and the entries of a snapshot, as sealed bytes.
//!   `record.rs` has the format.
//! - [`Error`] is every way to fail, sorted by what can be done about it.
//! - [`MemoryJournal`] forgets when the process ends. [`SqliteJournal`](sqlite::SqliteJournal) is one file, for one
//!   server. [`PostgresJournal`](postgres::PostgresJournal) and [`EtcdJournal`](etcd::EtcdJournal) are for many servers.
//! - [`AccessStore`] is the port for documents of who may do what, beside the journal. Each of the four has it.
//! - [`Location`] is where a store is, as text; [`open`] opens it.
//! - `conformance` is the suite that every store passes, whatever it is built on. Only with the feature of that name.
//!
//! A store never looks at what a record means. Two things in `sqlite/` do, beside the journal and not in its way:
//! the table of locks for people, and the restore of a backup, which must know how far fences had come.
#![forbid(unsafe_code)]

mod access;
mod error;
mod journal;
mod record;
mod stored;

mod location;
mod open;

mod memory;
#[cfg(feature = "network")]
mod remote;
#[cfg(feature = "network")]
mod tls;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "etcd")]
pub mod etcd;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use access::{
    AccessChange, AccessStore, Changed, DOCUMENTS_MAX, Document, DocumentId, Documents, copy_access,
};
pub use error::{Cause, Conflict, Error, OpenError, with_cause};
pub use journal::{
    About, Campaign, Candidate, Heartbeat, Journal, JournalCaps, Leader, Leadership, Loaded, Page,
    Peer, Pending, Position, Pruned, Seq, ready,
};
pub use location::{EtcdLocation, Location, LocationError, PostgresLocation, Tls, TlsFiles};
pub use memory::MemoryJournal;
pub use open::open;
pub use record::{Batch, BatchWriter, CHUNK_BYTES, Chunk, ChunkWriter, Fault, VERSION};
pub use stored::{stored_batch, stored_chunk};
