//! A copy of the file while the server goes on.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::Epoch;
use rusqlite::Connection;

use super::audit::{Audit, audit};
use super::lock::private;
use super::schema;
use super::writer::wall_clock_ms;
use crate::error::Error;
use crate::journal::Seq;

/// The summary of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The last record in it.
    pub last: Seq,
    pub epoch: Epoch,
    pub byte_len: u64,
}

/// Copies the file `from`, as it is at one moment, to the new file `to`. A server may have it open, and goes on
/// meanwhile.
///
/// The copy is one plain file. It is read in full, every checksum compared, before it gets its name: a backup that
/// is there is a good one.
pub fn backup(from: &Path, to: &Path) -> Result<Backup, Error> {
    refuse_existing(to)?;
    // Whatever is handed out after this moment may be missing from the copy.
    let taken_at_ms = wall_clock_ms();
    let copy = Copy::of(from, to)?;
    copy.connection
        .execute("UPDATE leadership SET written_at_ms = ?1", [taken_at_ms])
        .map_err(|error| schema::failed("the copy cannot be written", error))?;
    let audit = audit(&copy.connection)?;
    copy.finish(audit)
}

/// Reads a backup in full, every checksum compared, and changes nothing.
pub fn check(backup: &Path) -> Result<Backup, Error> {
    let unreadable = |error| Error::unavailable("the backup cannot be read").because(error);
    let connection = schema::open_to_read(backup)
        .map_err(|error| Error::unavailable("the backup cannot be opened").because(error))?;
    let audit = audit(&connection)?;
    let byte_len = fs::metadata(backup).map_err(unreadable)?.len();
    Ok(Backup { last: audit.last, epoch: audit.epoch, byte_len })
}

/// A copy that has no name yet. Dropped before it is finished, it leaves nothing behind.
pub(super) struct Copy {
    pub(super) connection: Connection,
    partial: Partial,
    to: PathBuf,
}

/// The file under the name it has until it is whole.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // After it got its name there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

impl Copy {
    pub(super) fn of(from: &Path, to: &Path) -> Result<Copy, Error> {
        let source = schema::open_to_read(from).map_err(|error| {
            Error::unavailable("the file to copy cannot be opened").because(error)
        })?;
        let partial = Partial(with_suffix(to, ".partial"));
        let mut connection = create(&partial.0)?;
        copy(&source, &mut connection)
            .map_err(|error| schema::failed("the file cannot be copied", error))?;
        Ok(Copy { connection, partial, to: to.to_path_buf() })
    }

    /// Makes the copy durable and gives it its name.
    pub(super) fn finish(self, audit: Audit) -> Result<Backup, Error> {
        let Copy { connection, partial, to } = self;
        connection
            .close()
            .map_err(|(_, error)| schema::failed("the copy cannot be closed", error))?;
        let named = File::open(&partial.0)
            .and_then(|file| file.sync_all().and_then(|()| file.metadata()))
            .and_then(|metadata| {
                fs::rename(&partial.0, &to)?;
                schema::sync_folder(&to)?;
                Ok(metadata.len())
            });
        let byte_len =
            named.map_err(|error| Error::unavailable("the copy cannot be kept").because(error))?;
        Ok(Backup { last: audit.last, epoch: audit.epoch, byte_len })
    }
}

pub(super) fn refuse_existing(to: &Path) -> Result<(), Error> {
    match fs::metadata(to) {
        Ok(metadata) if metadata.len() > 0 => {
            let what = format!("{} is there already", to.display());
            Err(Error::unavailable(what))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn create(path: &Path) -> Result<Connection, Error> {
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private(&mut options);
    options.open(path).map_err(|error| {
        Error::unavailable(format!("{} cannot be made", path.display())).because(error)
    })?;
    Connection::open(path).map_err(|error| schema::failed("the copy cannot be opened", error))
}

// All pages in one step: the step is one read transaction, so it sees one moment and never has to begin again. The copy
// has no write-ahead log beside it: it is one file.
fn copy(from: &Connection, to: &mut Connection) -> rusqlite::Result<()> {
    let backup = rusqlite::backup::Backup::new(from, to)?;
    backup.run_to_completion(i32::MAX, Duration::from_millis(50), None)?;
    drop(backup);
    to.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}
