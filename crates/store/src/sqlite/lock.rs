//! Keeps a second server away from the file.
//!
//! The lock is on a file of its own beside the database, and never on the database itself: SQLite locks that with
//! `fcntl`, and a process loses all such locks on a file as soon as it closes any handle of it. The lock file stays
//! where it is when the server ends. Removing it would let one server lock the old file and another a new one of
//! the same name.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::schema::failed_to_open;
use crate::error::OpenError;

/// Held for as long as this value lives, and no longer than the process does.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

impl FileLock {
    pub(super) fn take(database: &Path) -> Result<FileLock, OpenError> {
        let path = lock_path(database);
        let fault = |error| failed_to_open(&path, "the lock file does not work", error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        private(&mut options);
        let mut file = options.open(&path).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse {
                    store: database.display().to_string(),
                    by: holder(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => return Err(fault(error)),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "process {}", std::process::id()))
            .map_err(fault)?;
        Ok(FileLock { _file: file })
    }
}

/// Permissions for the owner alone: the file has lease ids.
#[cfg(unix)]
pub(super) fn private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

#[cfg(not(unix))]
pub(super) fn private(_options: &mut OpenOptions) {}

fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_os_string();
    name.push(".lock");
    name.into()
}

/// The server that wrote itself into the lock file: a help for people, nothing relies on it.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(64).read_to_string(&mut text));
    match (read, text.trim()) {
        (Ok(_), holder) if !holder.is_empty() => format!(" ({holder})"),
        (Ok(_) | Err(_), _) => String::new(),
    }
}
