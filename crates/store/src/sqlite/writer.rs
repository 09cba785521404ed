//! The one connection, and what becomes of it when the disk fails.
//!
//! An error while something is written may leave SQLite, the kernel and the disk of different minds about what is
//! there. So after anything but a plain refusal (disk full, busy) the connection is thrown away. The next call
//! opens the file anew, which reads what is really there and writes it to the disk once more: see `empty_wal`. No
//! sync is ever tried again on the same handle.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Epoch;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};

use super::lock::FileLock;
use super::snapshot::OpenSnapshot;
use super::{Options, schema};
use crate::error::{Conflict, Error, OpenError};
use crate::journal::Seq;

/// Does the work of the journal, one call at a time.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` after a failure, until the next call opens the file again.
    connection: Option<Connection>,
    path: PathBuf,
    /// The file that the path led to when it was opened first.
    file: FileId,
    pub(super) options: Options,
    /// The last record, if its bytes do not hold: the next append replaces it.
    pub(super) torn: Option<Seq>,
    /// The number after the last record that this connection has written.
    pub(super) next: Option<Seq>,
    pub(super) open_snapshot: Option<OpenSnapshot>,
    /// The number of pages in the write-ahead log, as the last commit told.
    wal_pages: Arc<AtomicU32>,
    wal_pages_due: u32,
    /// Last, so that the file is closed before another server may open it.
    _lock: FileLock,
}

impl Writer {
    pub(super) fn open(path: &Path, options: Options) -> Result<Writer, OpenError> {
        let path = schema::resolve(path)?;
        let lock = FileLock::take(&path)?;
        if schema::is_new(&path)? {
            schema::create(&path)?;
        }
        let mut writer = Writer {
            connection: None,
            file: FileId::of(&path),
            path,
            options,
            torn: None,
            next: None,
            open_snapshot: None,
            wal_pages: Arc::default(),
            wal_pages_due: 0,
            _lock: lock,
        };
        writer.wal_pages_due = writer.options.log_pages;
        writer.connection = Some(writer.connect()?);
        Ok(writer)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn connect(&self) -> Result<Connection, OpenError> {
        let mut connection = schema::open(&self.path)?;
        let fault = |error| schema::failed_to_open(&self.path, "it cannot be configured", error);
        let pages = self.wal_pages.clone();
        pages.store(0, Ordering::Relaxed);
        connection
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, now: i32| {
                pages.store(u32::try_from(now).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }))
            .map_err(fault)?;
        limit_size(&connection, self.options.size_max).map_err(fault)?;
        Ok(connection)
    }

    /// The connection, opened again if it had to be thrown away.
    ///
    /// A file that was moved or replaced takes no more records: SQLite would go on to write to it, and the next start would
    /// not find them.
    pub(super) fn connection(&mut self) -> Result<&mut Connection, Error> {
        if FileId::of(&self.path) != self.file {
            return Err(Error::unavailable(format!(
                "{} was moved away or replaced while it was in use",
                self.path.display()
            )));
        }
        if self.connection.is_none() {
            let connection = self.connect().map_err(|error| {
                Error::unavailable("the file cannot be opened again").because(error)
            })?;
            self.connection = Some(connection);
        }
        Ok(self.connection.as_mut().expect("it was opened just now"))
    }

    /// Throws the connection away, without another word to the disk.
    pub(super) fn disconnect(&mut self) {
        (self.open_snapshot, self.next) = (None, None);
        if let Some(connection) = self.connection.take() {
            // If that fails, closing tries to work off the log: its content is good, only superfluous work.
            let _ = schema::keep_wal_on_close(&connection, true);
        }
    }

    /// Runs a transaction for the leader of this epoch. If the work fails or this is not the leader, nothing is
    /// written.
    ///
    /// If the commit itself fails it is unknown whether it took place. That is told as unavailable, so this is only for
    /// what may be done twice.
    pub(super) fn transaction<T>(
        &mut self,
        epoch: Epoch,
        what: &str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let done =
            self.transaction_of_anybody(what, |transaction| match deposed(transaction, epoch)? {
                Some(deposed) => Ok(Err(deposed)),
                None => work(transaction).map(Ok),
            })?;
        Ok(done?)
    }

    /// The same for a caller that need not lead.
    pub(super) fn transaction_of_anybody<T>(
        &mut self,
        what: &str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let connection = self.connection()?;
        let done = connection.transaction_with_behavior(TransactionBehavior::Immediate).and_then(
            |transaction| {
                let done = work(&transaction)?;
                transaction.commit()?;
                Ok(done)
            },
        );
        done.map_err(|error| self.failed(what, error))
    }

    /// Reads for the leader of this epoch.
    pub(super) fn read<T>(
        &mut self,
        epoch: Epoch,
        what: &str,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, Error> {
        let connection = self.connection()?;
        let done = match deposed(connection, epoch) {
            Ok(None) => work(connection),
            Ok(Some(deposed)) => return Err(deposed.into()),
            Err(error) => Err(error),
        };
        done.map_err(|error| self.failed(what, error))
    }

    /// The meaning of an error for work that was not committed, or may be done twice.
    pub(super) fn failed(&mut self, what: &str, error: rusqlite::Error) -> Error {
        if !is_refusal(&error) {
            self.disconnect();
        }
        schema::failed(what, error)
    }

    pub(super) fn set_size_max(&mut self, bytes: Option<u64>) -> Result<(), Error> {
        self.options.size_max = bytes;
        limit_size(self.connection()?, bytes)
            .map_err(|error| self.failed("its size cannot be limited", error))
    }

    /// Works the write-ahead log off when it has grown. If a reader keeps an old state of the file, it grows on
    /// until they have done.
    pub(super) fn checkpoint_if_due(&mut self) {
        let pages = self.wal_pages.load(Ordering::Relaxed);
        let Some(connection) = &self.connection else {
            return;
        };
        if pages < self.wal_pages_due {
            return;
        }
        let checkpoint = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
        });
        match checkpoint {
            Ok(true) => self.wal_pages_due = self.options.log_pages,
            Ok(false) => self.wal_pages_due = pages.saturating_add(self.options.log_pages),
            // The log still has everything. Opening the file again works it off, or tells why not.
            Err(_) => self.disconnect(),
        }
        self.wal_pages.store(0, Ordering::Relaxed);
    }
}

/// The identity of a file: tells it from another that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(Option<(u64, u64)>);

impl FileId {
    #[cfg(unix)]
    fn of(path: &Path) -> FileId {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path);
        FileId(metadata.ok().map(|found| (found.dev(), found.ino())))
    }

    /// Elsewhere a file that is open cannot be moved.
    #[cfg(not(unix))]
    fn of(_path: &Path) -> FileId {
        FileId(None)
    }
}

fn limit_size(connection: &Connection, bytes_max: Option<u64>) -> rusqlite::Result<()> {
    let page_bytes =
        connection.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))?;
    let page_bytes = u64::try_from(page_bytes).unwrap_or(1).max(1);
    // The highest number of pages that SQLite knows.
    let pages = bytes_max.map_or(0xffff_fffe, |bytes| (bytes / page_bytes).clamp(1, 0xffff_fffe));
    let query = format!("PRAGMA max_page_count = {pages}");
    connection.query_row(&query, [], |_| Ok(()))
}

/// SQLite said no, in an orderly way: nothing was written and the connection is as good as before.
pub(super) fn is_refusal(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(
            code,
            ErrorCode::DiskFull
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::TooBig
                | ErrorCode::ConstraintViolation
        ),
        // Not of SQLite but of a conversion around it.
        None => false,
    }
}

/// The conflict, if this epoch does not lead.
pub(super) fn deposed(connection: &Connection, epoch: Epoch) -> rusqlite::Result<Option<Conflict>> {
    let (current, leads) = connection
        .prepare_cached("SELECT epoch, leads FROM leadership")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)))?;
    let conflict = Conflict::Deposed { epoch, current: Epoch(unsigned(current)) };
    Ok((!leads || current != signed(epoch.0)).then_some(conflict))
}

/// The number of the last record; 0 if there is none.
pub(super) fn last_seq(connection: &Connection) -> rusqlite::Result<Seq> {
    let last = connection
        .prepare_cached("SELECT max(seq) FROM journal")?
        .query_row([], |row| row.get::<_, Option<i64>>(0))
        .optional()?;
    Ok(Seq(unsigned(last.flatten().unwrap_or(0))))
}

/// SQLite has no unsigned numbers. One that does not fit is none that was ever stored, and compares as such.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// For people, and for the restore of a backup; nothing else looks at it.
pub(super) fn wall_clock_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
