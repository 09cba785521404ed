//! A copy of everything for whoever administers the server, as `leasehold backup` makes it on its machine.
//!
//! The copy is made beside the store by a thread of its own while the engine goes on. It is whole, read in full, and without a
//! name before the first byte of it goes out: whatever happens then, nothing is left behind.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_access::{Object, Operation};
use leasehold_api::Code;
use leasehold_store::sqlite;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::app::App;
use super::caller::Caller;
use super::problems::Failure;
use crate::audit::Line;
use crate::config::Store;

/// The end of a copy's name, after the name of the store. There is one such copy at a time, so one that a server left
/// behind when it was killed is replaced.
const SUFFIX: &str = ".sent";
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Lets one backup at a time be made and sent.
#[derive(Debug)]
pub(crate) struct BackupTurn(Arc<Semaphore>);

impl Default for BackupTurn {
    fn default() -> BackupTurn {
        BackupTurn(Arc::new(Semaphore::new(1)))
    }
}

/// A whole copy, which is gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) file: File,
    pub(crate) byte_len: u64,
    _turn: OwnedSemaphorePermit,
}

impl App {
    pub(crate) async fn backup(&self, caller: &Caller) -> Result<Copied, Failure> {
        caller.may(Operation::Administer, Object::Server)?;
        if !self.authenticator.is_on() && !caller.peer.ip().is_loopback() {
            let said = "authentication is off: only this machine may have a copy of everything";
            return Err(Failure::new(Code::PermissionDenied, said));
        }
        let store = match &self.config.store {
            Store::Sqlite(file) => file.clone(),
            Store::Memory | Store::Postgres(_) | Store::Etcd(_) => {
                let said = "only a SQLite store is backed up by its server: \
                    PostgreSQL and etcd have tools of their own, memory keeps nothing";
                return Err(Failure::new(Code::InvalidRequest, said));
            }
        };
        let turn = self.backup_turn.0.clone().try_acquire_owned().map_err(|_| {
            let said = "another backup is being made or sent";
            Failure::new(Code::Overloaded, said).retried_after(RETRY_AFTER)
        })?;
        let copying = async {
            let copied = tokio::task::spawn_blocking(move || copy(&store, turn)).await;
            copied.unwrap_or_else(|_| Err("its thread has ended".into())).map_err(|error| {
                tracing::warn!("a backup cannot be made: {error}");
                let said = "no backup could be made; the server's log has the cause";
                Failure::new(Code::StoreUnavailable, said)
            })
        };
        let line = Line::new("backup", "asked");
        self.audited(caller, line, copying, |line, copied| line.with("bytes", copied.byte_len))
            .await
    }
}

fn copy(store: &Path, turn: OwnedSemaphorePermit) -> Result<Copied, String> {
    let mut name = store.as_os_str().to_os_string();
    name.push(SUFFIX);
    let to = Path::new(&name);
    let _ = fs::remove_file(to);
    let made = sqlite::backup(store, to).map_err(|error| error.to_string())?;
    let opened = File::open(to);
    // Who reads it has it open: it needs no name.
    let _ = fs::remove_file(to);
    let file = opened.map_err(|error| error.to_string())?;
    Ok(Copied { file, byte_len: made.byte_len, _turn: turn })
}
