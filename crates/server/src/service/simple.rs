//! The simple interface: one lock for everyone, and nothing for the client to keep.
//!
//! It is a named lock in a namespace of its own, held by an owner with the client's name. The client shows neither lease
//! nor token: the rules find the client's grant by its name and act on it in the same step, also after a restart with
//! other settings. Nothing else may take what is in that namespace.

use std::time::Duration;

use leasehold_api::Code;
use leasehold_core::{
    Answer, ByOwner, Command, Conflict, Holder, Key, Namespace, Owner, OwnerAction, Refusal, Scope,
    Timestamp,
};
use leasehold_engine::{CallError, Query, View};

use super::app::App;
use super::caller::Caller;
use super::operation::outcome;
use super::problems::{Cause, Failure, unexpected};
use super::random;
use crate::telemetry::metrics::{Acquires, Op};
use crate::telemetry::readings;

pub(crate) const NAMESPACE: &str = "leasehold.simple";
const LOCK: &str = "lock";

/// A result of asking for the lock.
#[derive(Debug)]
pub(crate) enum Held {
    /// The client holds it until then, and did not before.
    Anew(Timestamp),
    Renewed(Timestamp),
    Refused(Refused),
}

/// Another client is in the way.
#[derive(Debug)]
pub(crate) enum Refused {
    Held(Box<Conflict>),
    /// Inside its last holder's reclaim window.
    ReclaimWindow(Box<Conflict>),
    /// The client that gives it back does not hold it, nor does another.
    NotHeld,
}

impl App {
    /// Acquires the lock, or renews it if the same client holds it.
    pub(crate) async fn hold_simple(
        &self,
        caller: &Caller,
        client: Owner,
        ttl: Duration,
    ) -> Result<Held, Failure> {
        let reclaim_window = self.config.simple_grace;
        let hold = OwnerAction::Hold { lease: random::lease_id(), ttl, reclaim_window };
        let held = match self.by_owner(caller, client, hold).await {
            Ok(Answer::Granted(grant)) if grant.replayed => Ok(Held::Renewed(grant.deadline)),
            Ok(Answer::Granted(grant)) => Ok(Held::Anew(grant.deadline)),
            Ok(_) => Err(unexpected()),
            Err(failure) => refused(failure).map(Held::Refused),
        };
        let took = caller.since.took();
        let counted = match &held {
            Ok(Held::Renewed(_)) => {
                self.count(Op::Renew, took, Ok(()));
                return held;
            }
            Ok(Held::Anew(_)) => Ok(()),
            Ok(Held::Refused(_)) => Err(Code::LockHeld),
            Err(failure) => Err(failure.code()),
        };
        let kind = readings::kind(Scope::Key(key()).kind());
        let mut acquires = Acquires::new(&namespace());
        self.count_acquire(caller, &mut acquires, kind, (took, Duration::ZERO), counted);
        held
    }

    /// Releases the lock. Returns what is in the way, if the client does not hold it.
    pub(crate) async fn release_simple(
        &self,
        caller: &Caller,
        client: Owner,
    ) -> Result<Option<Refused>, Failure> {
        let released = match self.by_owner(caller, client, OwnerAction::Release).await {
            Ok(Answer::Released { .. }) => Ok(None),
            Ok(_) => Err(unexpected()),
            Err(failure) => refused(failure).map(Some),
        };
        let counted = match &released {
            Ok(Some(_)) => Err(Code::NotHolder),
            Ok(None) | Err(_) => outcome(&released),
        };
        self.count(Op::Release, caller.since.took(), counted);
        released
    }

    /// The lock's holder, if it has one.
    pub(crate) async fn simple_holder(&self, caller: &Caller) -> Result<Option<Holder>, Failure> {
        let query = Query::Get { namespace: namespace(), scope: Scope::Key(key()) };
        let View::Lock(view) = self.query(caller, query).await? else {
            return Err(unexpected());
        };
        Ok(view.holders.into_iter().next())
    }

    async fn by_owner(
        &self,
        caller: &Caller,
        owner: Owner,
        action: OwnerAction,
    ) -> Result<Answer, Failure> {
        let ask = ByOwner { namespace: namespace(), key: key(), owner, action };
        self.command(caller, Command::ByOwner(ask)).await
    }
}

/// A refusal that has an answer of its own.
fn refused(failure: Failure) -> Result<Refused, Failure> {
    match failure.cause() {
        Cause::Engine(CallError::Refused(Refusal::Held(conflict))) => {
            Ok(Refused::Held(conflict.clone()))
        }
        Cause::Engine(CallError::Refused(Refusal::ReclaimWindow(conflict))) => {
            Ok(Refused::ReclaimWindow(conflict.clone()))
        }
        Cause::Engine(CallError::Refused(Refusal::NotHolder { .. })) => Ok(Refused::NotHeld),
        Cause::Engine(_) | Cause::Early(_) => Err(failure),
    }
}

pub(crate) fn namespace() -> Namespace {
    Namespace::new(NAMESPACE).expect("the namespace is a name")
}

fn key() -> Key {
    match Scope::parse(LOCK) {
        Ok(Scope::Key(key)) => key,
        Ok(Scope::Range { .. }) | Err(_) => unreachable!("the lock is a name"),
    }
}
