//! The steps that every operation takes.

use std::time::Duration;

use leasehold_access::{Object, Operation};
use leasehold_api::Code;
use leasehold_core::{
    Answer, Attach, ByteRange, Claim, CloseSession, Command, KeepAlive, Mode, Namespace,
    OwnerAction, Release, Renew, Scope, check_line,
};
use leasehold_engine::{Query, View};

use super::app::App;
use super::caller::Caller;
use super::problems::Failure;
use super::simple;
use crate::audit::{Class, Line};
use crate::telemetry::metrics::{Acquires, Op};
use crate::telemetry::readings;

const REASON_LEN_MAX: usize = 255;
/// The number of times a command that ends so much at a time is given again before its answer is truncated.
const TURNS_MAX: usize = 1000;

impl App {
    /// Refuses what a caller may not do.
    pub(crate) fn admit(&self, caller: &Caller, command: &Command) -> Result<(), Failure> {
        match command {
            Command::Acquire(acquire) => {
                caller.may_acquire(&acquire.namespace, &acquire.claims)?;
                not_reserved(&acquire.namespace)
            }
            Command::OpenSession(open) => {
                caller.may(Operation::OpenSession, Object::Namespace(&open.namespace))?;
                not_reserved(&open.namespace)
            }
            Command::AcceptFence(accept) => {
                let register = Object::Register(&accept.namespace, &accept.register);
                caller.may(Operation::AcceptFence, register)?;
                not_reserved(&accept.namespace)
            }
            Command::Break(asked) => {
                let scope = Object::Scopes(&asked.namespace, &[&asked.scope]);
                caller.may(Operation::BreakLock, scope)?;
                check_reason(&asked.reason)
            }
            Command::BreakSession(asked) => {
                caller.may(Operation::BreakSession, Object::Namespace(&asked.namespace))?;
                check_reason(&asked.reason)
            }
            Command::DeleteFence(asked) => {
                caller.may(Operation::DeleteFence, Object::Server)?;
                check_reason(&asked.reason)
            }
            Command::Unlock(unlock) => {
                let scope = Scope::range(unlock.inode, unlock.range);
                caller.may(Operation::Unlock, Object::Scopes(&unlock.namespace, &[&scope]))
            }
            Command::RemoveFile(file) => {
                let scope = Scope::range(file.inode, ByteRange::ALL);
                caller.may(Operation::RemoveInode, Object::Scopes(&file.namespace, &[&scope]))
            }
            Command::ByOwner(ask) => match ask.action {
                OwnerAction::Hold { .. } => {
                    let scope = Scope::Key(ask.key.clone());
                    caller.may(Operation::Acquire, Object::Scopes(&ask.namespace, &[&scope]))
                }
                OwnerAction::Release => {
                    caller.may(Operation::UseLease, Object::Namespace(&ask.namespace))
                }
            },
            // The lease or session is the principal's own, or not there.
            Command::Renew(Renew { namespace, .. })
            | Command::Release(Release { namespace, .. })
            | Command::KeepAlive(KeepAlive { namespace, .. })
            | Command::CloseSession(CloseSession { namespace, .. })
            | Command::Attach(Attach { namespace, .. }) => {
                caller.may(Operation::UseLease, Object::Namespace(namespace))
            }
            // What no request stands for: the server's own doing.
            Command::Cancel(_)
            | Command::Disconnect(_)
            | Command::Withdraw(_)
            | Command::BeginEpoch(_)
            | Command::Jump(_)
            | Command::Suspend
            | Command::Resume
            | Command::Tick => Ok(()),
        }
    }

    /// Refuses what a caller may not read.
    pub(crate) fn admit_query(&self, caller: &Caller, query: &Query) -> Result<(), Failure> {
        match query {
            Query::Get { namespace, scope } => {
                caller.may(Operation::GetLock, Object::Scopes(namespace, &[scope]))
            }
            Query::Test { namespace, claim, .. } => {
                caller.may(Operation::TestLock, Object::Scopes(namespace, &[&claim.scope]))?;
                self.check_permits(claim)
            }
            Query::Check { namespace, scope, .. } => {
                caller.may(Operation::CheckLock, Object::Scopes(namespace, &[scope]))
            }
            Query::List(list) => {
                caller.may(Operation::ListLocks, Object::Namespace(&list.namespace))
            }
            Query::Session { namespace, .. } => {
                caller.may(Operation::UseLease, Object::Namespace(namespace))
            }
            Query::Sessions { namespace, .. } => {
                caller.may(Operation::ListSessions, Object::Namespace(namespace))
            }
            Query::Register { namespace, register } => {
                caller.may(Operation::GetFence, Object::Register(namespace, register))
            }
            Query::Registers { namespace, .. } => {
                caller.may(Operation::ListFences, Object::Namespace(namespace))
            }
            // Whose scope it is is known when it is found.
            Query::Token { namespace, .. } => {
                caller.may(Operation::UseLease, Object::Namespace(namespace))
            }
            Query::Graph { namespace, .. } => {
                caller.may(Operation::Graph, Object::Namespace(namespace))
            }
            Query::Overview { namespace, .. } => {
                caller.may(Operation::Overview, Object::Namespace(namespace))
            }
            Query::Tree(tree) => caller.may(Operation::Tree, Object::Namespace(&tree.namespace)),
            Query::Stats => caller.may(Operation::Cluster, Object::Server),
        }
    }

    /// No request could be granted more permits, so none can test for more.
    fn check_permits(&self, claim: &Claim) -> Result<(), Failure> {
        let max = self.config.limits.permits_max;
        match claim.mode {
            Mode::Permits(permits) if permits.get() > max => {
                Err(Failure::field("permits", format!("is {permits}, the limit is {max}")))
            }
            Mode::Permits(_) | Mode::Exclusive | Mode::Shared => Ok(()),
        }
    }

    pub(super) async fn command(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<Answer, Failure> {
        self.admit(caller, &command)?;
        let namespace = command.namespace().cloned().unwrap_or_default();
        let answered = self.engine_for(caller, &namespace).command(command).await;
        answered.map_err(|error| caller.sight(&namespace).failure(error))
    }

    /// Gives a command that ends so much at a time again and again, until all of it has ended. An answer that is truncated
    /// still tells of what has ended by then.
    pub(super) async fn command_in_turns(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<Answer, Failure> {
        let mut all = self.command(caller, command.clone()).await?;
        for _ in 0..TURNS_MAX {
            if !all.is_truncated() {
                break;
            }
            match self.command(caller, command.clone()).await {
                Ok(more) => all = all.and(more),
                Err(_) => break,
            }
        }
        Ok(all)
    }

    pub(super) async fn query(&self, caller: &Caller, query: Query) -> Result<View, Failure> {
        self.admit_query(caller, &query)?;
        let namespace = query.namespace().cloned().unwrap_or_default();
        Ok(caller.sight(&namespace).view(self.look(caller, query).await?))
    }

    /// Asks as part of an operation that was admitted.
    pub(super) async fn look(&self, caller: &Caller, query: Query) -> Result<View, Failure> {
        let namespace = query.namespace().cloned().unwrap_or_default();
        let engine = self.engine_for(caller, &namespace);
        Ok(engine.query(query).await?)
    }

    /// Waits until the caller may not do any more what it waits for.
    pub(super) async fn may_no_more(
        &self,
        caller: &Caller,
        may: impl Fn(&Caller) -> Result<(), Failure>,
    ) -> Failure {
        let Some(mut changes) = self.authenticator.changes_for(caller) else {
            return std::future::pending().await;
        };
        let mut caller = caller.clone();
        // At once for the first time: something may have changed since the request came in.
        loop {
            let looked = self.authenticator.again(self.now(), &mut caller);
            if let Err(failure) = looked.and_then(|()| may(&caller)) {
                return failure;
            }
            std::future::poll_fn(|cx| changes.poll(cx)).await;
        }
    }

    /// Carries an operation out and counts what came of it.
    pub(crate) async fn counted<T>(
        &self,
        caller: &Caller,
        op: Op,
        operation: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let answered = operation.await;
        self.count(op, caller.since.took(), outcome(&answered));
        answered
    }

    /// Counts one operation.
    pub(crate) fn count(&self, op: Op, took: Duration, outcome: Result<(), Code>) {
        self.metrics.answered(op, took, outcome);
    }

    /// Counts a request for locks that came to the engine. The time that it waited is no latency.
    pub(crate) fn count_acquire(
        &self,
        caller: &Caller,
        acquires: &mut Acquires,
        kind: &'static str,
        (took, waited): (Duration, Duration),
        outcome: Result<(), Code>,
    ) {
        self.count(Op::Acquire, took.saturating_sub(waited), outcome);
        if let Err(code) = outcome {
            caller.audit.note(Class::Grant, || {
                let line = Line::new("grant.refused", "failed").by(caller);
                let line = line.with("code", code.as_str()).with("kind", kind);
                line.with("namespace", acquires.namespace().as_str())
            });
        }
        acquires.count(&self.metrics, kind, waited, outcome);
    }
}

/// The result of an operation, as it is counted.
pub(crate) fn outcome<T>(answered: &Result<T, Failure>) -> Result<(), Code> {
    match answered {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.code()),
    }
}

/// The kind of lock that was asked for, as it is counted.
pub(crate) fn kind(claims: &[Claim]) -> &'static str {
    match claims {
        [claim] => readings::kind(claim.scope.kind()),
        _ => "set",
    }
}

/// Refuses to take anything in a namespace that has an interface of its own. It can be read, watched and broken.
pub(crate) fn not_reserved(namespace: &Namespace) -> Result<(), Failure> {
    if namespace.as_str() == simple::NAMESPACE {
        let said = format!("namespace {} is reserved for /lock", simple::NAMESPACE);
        return Err(Failure::new(Code::PermissionDenied, said));
    }
    Ok(())
}

fn check_reason(reason: &str) -> Result<(), Failure> {
    check_line(reason, REASON_LEN_MAX)
        .map_err(|fault| Failure::field("reason", format!("{fault} (1 to {REASON_LEN_MAX} bytes)")))
}
