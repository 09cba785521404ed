//! The tables of the file, and the settings without which it would not be durable.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::busy;
use super::lock::private;
use crate::error::{Error, OpenError};

/// The schema that this build writes, and the highest it can read.
pub const SCHEMA: u32 = 1;

/// A file that is ours, but whose tables were not made yet.
const UNFINISHED: u32 = 0;

/// Marks the file as ours: "LHLD".
const APPLICATION_ID: u32 = 0x4c48_4c44;

/// Free pages are kept for reuse; after a large drop they are given back in small steps. A page has room for the records
/// of two commits under load, so that every other one writes one page and not four.
const BEFORE_THE_FIRST_TABLE: &str = "PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL;";

const TABLES: &str = "
CREATE TABLE leadership (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,
    leads INTEGER NOT NULL,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    lease_ms INTEGER NOT NULL,
    -- By the wall clock: when a leader, a snapshot or a backup last wrote to this file.
    written_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    record BLOB NOT NULL
) STRICT;

CREATE TABLE snapshots (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    as_of INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    complete INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    lock_rows INTEGER NOT NULL,
    locks_left_out INTEGER NOT NULL,
    taken_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE chunks (
    snapshot INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (snapshot, chunk)
) STRICT;

CREATE TABLE lock_rows (
    snapshot INTEGER NOT NULL,
    number INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    lock TEXT NOT NULL,
    owner TEXT NOT NULL,
    principal TEXT NOT NULL,
    mode TEXT NOT NULL,
    fence INTEGER NOT NULL,
    granted_at_ms INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    reclaim_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    session INTEGER,
    metadata TEXT,
    PRIMARY KEY (snapshot, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE access (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE access_version (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
) STRICT;

CREATE VIEW locks AS
    SELECT namespace, lock, owner, principal, mode, fence, granted_at_ms, ttl_ms, reclaim_ms, state, session, metadata
    FROM lock_rows WHERE snapshot = (SELECT max(id) FROM snapshots WHERE complete);

-- What the rows of `locks` are as of; `left_out` locks did not fit in.
CREATE VIEW locks_as_of AS
    SELECT revision, as_of AS record, lock_rows AS rows, locks_left_out AS left_out, taken_at_ms
    FROM snapshots WHERE complete ORDER BY id DESC LIMIT 1;

INSERT INTO leadership VALUES (1, 0, 0, '', '', 0, 0);
INSERT INTO access_version VALUES (1, 0);
";

/// The path with every link and dot in it resolved: two names of one file must come to the same lock.
///
/// For that the file has to be there, so an empty one is made if there is none. One that is there is not even
/// opened: see `lock.rs`.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    if let Ok(found) = path.canonicalize() {
        return Ok(found);
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private(&mut options);
    options
        .open(path)
        .and_then(|_| path.canonicalize())
        .map_err(|error| failed_to_open(path, "it cannot be made", error))
}

/// The same for a file that is to be made later, when it is whole.
pub(super) fn resolve_new(path: &Path) -> Result<PathBuf, OpenError> {
    let folder = folder_of(path)
        .canonicalize()
        .map_err(|error| failed_to_open(path, "its folder cannot be found", error))?;
    Ok(folder.join(path.file_name().unwrap_or_default()))
}

/// Looks at the file before SQLite does, so that what is not ours is left exactly as it is.
///
/// True if there is nothing in it yet. It must not be open in this process: see `lock.rs`.
pub(super) fn is_new(path: &Path) -> Result<bool, OpenError> {
    let mut header = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut header));
    match read {
        Ok(0) => Ok(true),
        Ok(_) => check_header(path, &header).map(|schema| schema == UNFINISHED),
        Err(error) => Err(failed_to_open(path, "it cannot be read", error)),
    }
}

const HEADER_BYTES: usize = 100;

/// The schema that the header tells.
fn check_header(path: &Path, header: &[u8]) -> Result<u32, OpenError> {
    if header.len() < HEADER_BYTES || !header.starts_with(b"SQLite format 3\0") {
        return Err(foreign(path, "it is not an SQLite file"));
    }
    let number = |at: usize| {
        let bytes = header[at..].first_chunk().copied().unwrap_or_default();
        u32::from_be_bytes(bytes)
    };
    let schema = number(60);
    check_identity(path, number(68), schema)?;
    Ok(schema)
}

fn check_identity(path: &Path, application_id: u32, schema: u32) -> Result<(), OpenError> {
    if application_id != APPLICATION_ID {
        return Err(foreign(path, "it is the SQLite file of another program"));
    }
    if schema > SCHEMA {
        return Err(OpenError::NewerSchema {
            store: path.display().to_string(),
            found: schema,
            known: SCHEMA,
        });
    }
    Ok(())
}

/// Makes the tables. A crash leaves an empty file, one that is marked as ours and has none, or a whole one.
pub(super) fn create(path: &Path) -> Result<(), OpenError> {
    let fault = |error| failed_to_open(path, "its tables cannot be made", error);
    let connection = connect(path)?;
    // The log may know of tables that the header does not show yet.
    if number(&connection, path, "user_version")? != UNFINISHED {
        return Ok(());
    }
    connection
        .execute_batch(&format!(
            "{BEFORE_THE_FIRST_TABLE} PRAGMA application_id = {APPLICATION_ID};"
        ))
        .map_err(fault)?;
    make_durable(&connection, path)?;
    connection
        .execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;"
        ))
        .map_err(fault)?;
    empty_wal(&connection).map_err(|error| failed_to_open(path, "it cannot be written", error))?;
    sync_folder(path).map_err(|error| failed_to_open(path, "its folder cannot be synced", error))
}

/// Opens a file that has been made. What the last server wrote and did not finish is settled when this returns.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    // Until it is known to be ours and in order, not even closing it may change the file.
    let connection = open_to_read(path)?;
    make_durable(&connection, path)?;
    empty_wal(&connection)
        .map_err(|error| failed_to_open(path, "its write-ahead log cannot be worked off", error))?;
    keep_wal_on_close(&connection, false)
        .map_err(|error| failed_to_open(path, "it cannot be configured", error))?;
    Ok(connection)
}

/// Opens a file that another connection may be writing to, without changing anything in it.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    let connection = connect(path)?;
    keep_wal_on_close(&connection, true)
        .map_err(|error| failed_to_open(path, "it cannot be configured", error))?;
    let schema = number(&connection, path, "user_version")?;
    check_identity(path, number(&connection, path, "application_id")?, schema)?;
    Ok(connection)
}

fn number(connection: &Connection, path: &Path, pragma: &str) -> Result<u32, OpenError> {
    connection
        .pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
        .map(|value| u32::try_from(value).unwrap_or(u32::MAX))
        .map_err(|error| failed_to_open(path, "it cannot be read", error))
}

fn connect(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let fault = |error| failed_to_open(path, "SQLite refuses it", error);
    let mut connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    connection.busy_handler(Some(busy::wait)).map_err(fault)?;
    Ok(connection)
}

pub(super) fn keep_wal_on_close(connection: &Connection, keep: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

/// Asks for what makes a commit durable, and believes only what is read back.
fn make_durable(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let fault = |error| failed_to_open(path, "it cannot be configured", error);
    // The two about fullfsync matter on macOS, where a plain fsync leaves data in the drive's cache.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;
             PRAGMA checkpoint_fullfsync = ON; PRAGMA wal_autocheckpoint = 0;
             PRAGMA journal_size_limit = 67108864; PRAGMA cell_size_check = ON;",
        )
        .map_err(fault)?;
    check_durable(connection, path)?;
    #[cfg(feature = "planted")]
    plant(connection).map_err(fault)?;
    Ok(())
}

/// A bug put in on purpose: the setting that a power cut must be seen to lose grants with.
#[cfg(feature = "planted")]
fn plant(connection: &Connection) -> rusqlite::Result<()> {
    if std::env::var("LEASEHOLD_PLANTED").is_ok_and(|name| name == "synchronous_normal") {
        connection.execute_batch("PRAGMA synchronous = NORMAL")?;
    }
    Ok(())
}

/// With `synchronous = NORMAL` a power cut loses commits that were answered.
pub(super) fn check_durable(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let fault = |error| failed_to_open(path, "its settings cannot be read", error);
    for (setting, wanted) in [("journal_mode", "wal"), ("synchronous", "2")] {
        let found = connection
            .pragma_query_value(None, setting, |row| row.get::<_, Value>(0))
            .map_err(fault)?;
        let found = match found {
            Value::Text(text) => text,
            Value::Integer(number) => number.to_string(),
            other @ (Value::Null | Value::Real(_) | Value::Blob(_)) => format!("{other:?}"),
        };
        if found != wanted {
            return Err(OpenError::NotDurable {
                store: path.display().to_string(),
                setting,
                found,
                wanted,
            });
        }
    }
    Ok(())
}

/// Moves everything from the write-ahead log into the file, with a sync of the file, and starts the log anew.
///
/// After a failed sync this is what makes it safe to go on. The kernel may have marked pages of the log as clean
/// that never reached the disk, and a later sync of the log would not say so. So nothing may be written behind
/// them: their content is written a second time, to another place, and the log begins at its start again.
pub(super) fn empty_wal(connection: &Connection) -> Result<(), Error> {
    let busy = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .map_err(|error| failed("its write-ahead log cannot be worked off", error))?;
    if busy != 0 {
        return Err(Error::unavailable(
            "another program reads the file and keeps its write-ahead log in use",
        ));
    }
    Ok(())
}

/// Makes the folder remember the file's name.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder_of(path))?.sync_all() } else { Ok(()) }
}

/// A bare name lies where we are.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    }
}

fn foreign(path: &Path, what: &str) -> OpenError {
    OpenError::Foreign { store: path.display().to_string(), what: what.into() }
}

pub(super) fn failed_to_open(
    path: &Path,
    what: &str,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> OpenError {
    OpenError::Failed {
        store: path.display().to_string(),
        what: what.into(),
        cause: Some(Arc::new(cause)),
    }
}

/// The meaning of an SQLite error when it is certain that nothing was written.
pub(super) fn failed(what: &str, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::corrupt(what).because(error)
        }
        Some(ErrorCode::DiskFull) => Error::unavailable("the disk is full").because(error),
        Some(_) | None => Error::unavailable(what).because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(settings).unwrap();
        check_durable(&connection, Path::new("locks.db")).unwrap_err().to_string()
    }

    #[test]
    fn folder_of_a_bare_name_can_be_synced() {
        assert_eq!(folder_of(Path::new("backup.db")), Path::new("."));
        assert_eq!(folder_of(Path::new("copies/backup.db")), Path::new("copies"));
        sync_folder(Path::new("backup.db")).unwrap();
    }

    #[test]
    fn commits_that_a_power_cut_could_lose_are_refused() {
        assert_eq!(
            refusal("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL"),
            "locks.db would not be durable: synchronous is 1, it must be 2"
        );
        assert_eq!(
            refusal("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = FULL"),
            "locks.db would not be durable: journal_mode is memory, it must be wal"
        );
    }
}
