//! Releasing locks: by their holder, by an operator, and because a file is gone.

use std::time::Duration;

use leasehold_core::{Answer, Break, ByteRange, Command, Release, RemoveFile, Scope, Unlock};

use super::app::App;
use super::audit;
use super::caller::Caller;
use super::operation::outcome;
use super::problems::{Failure, unexpected};
use crate::audit::Line;
use crate::telemetry::metrics::Op;

/// The time a lock was held, and whether it had been released before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    pub(crate) held: Duration,
    pub(crate) replayed: bool,
}

/// Grants that were ended for their holders.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// The lock's canonical name.
    pub(crate) lock: String,
    pub(crate) grants: usize,
    /// Not all of them have ended.
    pub(crate) truncated: bool,
}

/// The grants that ended with a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRemoved {
    pub(crate) grants: usize,
    pub(crate) waiters: usize,
    /// Not all of it has ended.
    pub(crate) truncated: bool,
}

impl App {
    pub(crate) async fn release(
        &self,
        caller: &Caller,
        asked: Result<Release, Failure>,
    ) -> Result<Released, Failure> {
        let traced = asked
            .as_ref()
            .ok()
            .and_then(|asked| self.tracer.releasing(caller.trace, &asked.namespace, &asked.scope));
        let releasing = async {
            let Answer::Released { held, replayed } =
                self.command(caller, Command::Release(asked?)).await?
            else {
                return Err(unexpected());
            };
            Ok(Released { held, replayed })
        };
        let released = self.counted(caller, Op::Release, releasing).await;
        if let Some(traced) = traced {
            self.tracer.released(caller, traced, caller.since.took(), outcome(&released));
        }
        released
    }

    /// Whether any of the bytes was held.
    pub(crate) async fn unlock(
        &self,
        caller: &Caller,
        asked: Result<Unlock, Failure>,
    ) -> Result<bool, Failure> {
        let unlocking = async {
            let Answer::Unlocked { changed } =
                self.command(caller, Command::Unlock(asked?)).await?
            else {
                return Err(unexpected());
            };
            Ok(changed)
        };
        self.counted(caller, Op::Release, unlocking).await
    }

    /// Ends grants of other owners.
    pub(crate) async fn break_lock(
        &self,
        caller: &Caller,
        asked: Result<Break, Failure>,
    ) -> Result<Broken, Failure> {
        let breaking = async {
            let asked = asked?;
            let command = Command::Break(asked.clone());
            self.admit(caller, &command)?;
            let line = Line::new("lock.break", "asked").with("lock", asked.scope.to_string());
            self.audited_endings(
                caller,
                (&asked.namespace, line.with("reason", &*asked.reason)),
                |event| audit::is_broken(event, &asked.scope, &asked.reason),
                self.broken(caller, &asked, command),
                |line, broken| line.with("grants", broken.grants),
            )
            .await
        };
        // What is audited keeps a good deal until it is done: too much for the future of every request.
        self.counted(caller, Op::Break, Box::pin(breaking)).await
    }

    async fn broken(
        &self,
        caller: &Caller,
        asked: &Break,
        command: Command,
    ) -> Result<Broken, Failure> {
        let Answer::Broken { grants, truncated } = self.command_in_turns(caller, command).await?
        else {
            return Err(unexpected());
        };
        let (lock, namespace) = (asked.scope.to_string(), asked.namespace.as_str());
        audit::lock_broken(self, caller, (&lock, namespace), &asked.reason, grants);
        Ok(Broken { lock, grants, truncated })
    }

    /// Ends all grants and refuses all waiters of a file.
    pub(crate) async fn remove_file(
        &self,
        caller: &Caller,
        asked: Result<RemoveFile, Failure>,
    ) -> Result<FileRemoved, Failure> {
        let asked = asked?;
        let command = Command::RemoveFile(asked.clone());
        self.admit(caller, &command)?;
        let file = Scope::range(asked.inode, ByteRange::ALL);
        let removing = async {
            let Answer::FileRemoved { grants, waiters, truncated } =
                self.command_in_turns(caller, command).await?
            else {
                return Err(unexpected());
            };
            let of = (asked.inode, asked.namespace.as_str());
            audit::file_removed(self, caller, of, grants, waiters);
            Ok(FileRemoved { grants, waiters, truncated })
        };
        self.audited_endings(
            caller,
            (&asked.namespace, Line::new("inode.remove", "asked").with("inode", asked.inode)),
            |event| audit::is_removed(event, &file),
            removing,
            |line, removed| line.with("grants", removed.grants).with("waiters", removed.waiters),
        )
        .await
    }
}
