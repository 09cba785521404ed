//! One file, one server: the store that needs nothing else.
//!
//! ```text
//!  SqliteJournal ──jobs──► writer thread: the one connection ──► locks.db  locks.db-wal
//!       ▲                         │                              locks.db.lock: who has it
//!       └──────answers────────────┘
//! ```
//!
//! - `lock.rs`: a lock file keeps a second server out.
//! - `schema.rs`: what is in the file, and the settings without which it would not be durable.
//! - `writer.rs`: the connection and what becomes of it when the disk fails. `append.rs`, `load.rs`, `snapshot.rs`,
//!   `leadership.rs` are its work.
//! - `access.rs`: the documents of who may do what.
//! - `locks_table.rs`: the locks as of the latest snapshot, for plain SQL.
//! - `backup.rs`, `restore.rs`: a copy while the server runs, and the way back. `audit.rs` reads all of a file
//!   before either is trusted.

mod access;
mod append;
mod audit;
mod backup;
mod busy;
mod leadership;
mod load;
mod lock;
mod locks_table;
mod restore;
mod schema;
mod snapshot;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leasehold_core::Epoch;
use tokio::sync::oneshot;

use crate::access::AccessStore;
use crate::error::{Error, OpenError};
use crate::journal::{
    Campaign, Candidate, Heartbeat, Journal, JournalCaps, Leader, Page, Pending, Position, Pruned,
    Seq,
};
use crate::record::{Batch, Chunk};

pub use backup::{Backup, backup, check};
pub use busy::busy_total;
pub use restore::{OldTokens, Restored, restore, tokens_in};
pub use schema::SCHEMA;

use writer::Writer;

/// SQLite takes blobs up to a gigabyte; this leaves room for everything around them.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// A journal in an SQLite file. The file is this server's alone until the journal is dropped.
pub struct SqliteJournal {
    path: PathBuf,
    /// `None` only while dropping.
    jobs: Option<mpsc::Sender<Job>>,
    /// The number of microseconds the writer polls for the next job before it sleeps.
    spin_micros: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

/// The settings of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The file grows no larger than that; beyond it the store is unavailable, as when the disk is full.
    pub size_max: Option<u64>,
    /// The most rows of the table of locks for plain SQL; 0 for none. It costs about as much to write as the
    /// snapshot that it comes from.
    pub locks_rows_max: u32,
    /// The write-ahead log is worked off into the file when it has so many pages; the default is 4 MiB.
    pub log_pages: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { size_max: None, locks_rows_max: 100_000, log_pages: 500 }
    }
}

type Job = Box<dyn FnOnce(&mut Writer) + Send>;

impl SqliteJournal {
    /// Opens the file, and makes it if there is none. Waits for the disk: not for use inside an async task.
    pub fn open(path: &Path, options: Options) -> Result<SqliteJournal, OpenError> {
        let writer = Writer::open(path, options)?;
        let path = writer.path().to_path_buf();
        let (jobs, inbox) = mpsc::channel();
        let spin_micros = Arc::new(AtomicU32::new(0));
        let spins = spin_micros.clone();
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || work(writer, &inbox, &spins))
            .map_err(|error| {
                schema::failed_to_open(&path, "no thread could be started for it", error)
            })?;
        Ok(SqliteJournal { path, jobs: Some(jobs), spin_micros, thread: Some(thread) })
    }

    /// The file, with nothing left to resolve.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes how large the file may become, from now on.
    pub fn set_size_max(&self, bytes: Option<u64>) -> Pending<()> {
        self.ask(gone, move |writer| writer.set_size_max(bytes))
    }

    /// Copies the file to `to` while the server goes on. See [`backup`].
    pub fn backup(&self, to: &Path) -> Pending<Backup> {
        let (from, to) = (self.path.clone(), to.to_path_buf());
        let (answer, pending) = oneshot::channel();
        let started = std::thread::Builder::new()
            .name("sqlite-backup".into())
            .spawn(move || answer.send(backup(&from, &to)));
        Box::pin(async move {
            started
                .map_err(|error| Error::unavailable("no thread for the backup").because(error))?;
            pending.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    /// Gives the writer something to do. If it is gone and can never answer, `lost` is the answer.
    fn ask<T: Send + 'static>(
        &self,
        lost: fn() -> Error,
        work: impl FnOnce(&mut Writer) -> Result<T, Error> + Send + 'static,
    ) -> Pending<T> {
        let (answer, pending) = oneshot::channel();
        let job: Job = Box::new(move |writer| {
            // Nobody may be waiting any more: the work is done all the same.
            let _ = answer.send(work(writer));
        });
        // If the writer is gone the job is dropped here, and its answer with it.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
        Box::pin(async move { pending.await.unwrap_or_else(|_| Err(lost())) })
    }
}

fn work(mut writer: Writer, inbox: &mpsc::Receiver<Job>, spin_micros: &AtomicU32) {
    while let Ok(job) = next_job(inbox, spin_micros) {
        job(&mut writer);
        // After the answer, so that nobody waits for it who need not.
        writer.checkpoint_if_due();
    }
}

/// Polls for the next job for as long as the engine has said, and sleeps until it comes after that.
fn next_job(inbox: &mpsc::Receiver<Job>, spin_micros: &AtomicU32) -> Result<Job, mpsc::RecvError> {
    let length = Duration::from_micros(spin_micros.load(Ordering::Relaxed).into());
    let until = Instant::now() + length;
    while Instant::now() < until {
        match inbox.try_recv() {
            Ok(job) => return Ok(job),
            Err(mpsc::TryRecvError::Empty) => std::thread::yield_now(),
            Err(mpsc::TryRecvError::Disconnected) => return Err(mpsc::RecvError),
        }
    }
    inbox.recv()
}

/// The writer has ended, which only a bug can bring about.
fn gone() -> Error {
    Error::unavailable("its writer has ended")
}

fn gone_with_an_append() -> Error {
    Error::OutcomeUnknown { what: "its writer has ended".into(), cause: None }
}

impl Journal for SqliteJournal {
    fn caps(&self) -> JournalCaps {
        JournalCaps {
            name: "sqlite",
            lasting: true,
            shared: false,
            record_bytes_max: RECORD_BYTES_MAX,
        }
    }

    fn access(self: Arc<Self>) -> Option<Arc<dyn AccessStore>> {
        Some(self)
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        self.ask(gone, Writer::leader)
    }

    // Whoever led before has closed the file: no beat has to be compared.
    fn campaign(&self, candidate: Candidate, _overdue: Option<Heartbeat>) -> Pending<Campaign> {
        self.ask(gone, move |writer| writer.campaign(&candidate))
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        self.ask(gone, move |writer| writer.confirm(epoch))
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        self.ask(gone, move |writer| writer.resign(epoch))
    }

    fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Pending<()> {
        self.ask(gone, move |writer| writer.jump_epoch(epoch, to))
    }

    fn append(&self, batch: Batch) -> Pending<()> {
        self.ask(gone_with_an_append, move |writer| writer.append(&batch))
    }

    fn spin(&self, length: Duration) {
        let micros = u32::try_from(length.as_micros()).unwrap_or(u32::MAX);
        self.spin_micros.store(micros, Ordering::Relaxed);
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        self.ask(gone, move |writer| writer.read_back(epoch, seq))
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.ask(gone, move |writer| writer.put_chunk(&chunk))
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        self.ask(gone, move |writer| writer.commit_snapshot(epoch, as_of, chunks))
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        self.ask(gone, move |writer| writer.prune(epoch))
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        self.ask(gone, move |writer| writer.load(epoch, from))
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Waits for what was asked before; the file is closed and its lock is free when this returns.
impl Drop for SqliteJournal {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
