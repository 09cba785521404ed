//! The steps that every operation takes.

use std::time::Duration;

use leasehold_api::Code;
use leasehold_core::{Answer, Claim, Command, Mode, Namespace, check_line};
use leasehold_engine::{Query, View};

use super::app::App;
use super::caller::Caller;
use super::problems::Failure;
use super::simple;
use crate::telemetry::metrics::{Acquires, Op};
use crate::telemetry::readings;

const REASON_LEN_MAX: usize = 255;
/// How often a command that ends so much at a time is given again before its answer is truncated.
const TURNS_MAX: usize = 1000;

impl App {
    /// Refuses what a caller may not do.
    pub(crate) fn admit(&self, _caller: &Caller, command: &Command) -> Result<(), Failure> {
        match command {
            Command::Acquire(acquire) => not_reserved(&acquire.namespace),
            Command::OpenSession(open) => not_reserved(&open.namespace),
            Command::AcceptFence(accept) => not_reserved(&accept.namespace),
            Command::Break(asked) => check_reason(&asked.reason),
            Command::BreakSession(asked) => check_reason(&asked.reason),
            Command::DeleteFence(asked) => check_reason(&asked.reason),
            Command::Renew(_)
            | Command::Release(_)
            | Command::ByOwner(_)
            | Command::Unlock(_)
            | Command::Cancel(_)
            | Command::KeepAlive(_)
            | Command::CloseSession(_)
            | Command::Attach(_)
            | Command::Disconnect(_)
            | Command::RemoveFile(_)
            | Command::Withdraw(_)
            | Command::BeginEpoch(_)
            | Command::Jump(_)
            | Command::Suspend
            | Command::Resume
            | Command::Tick => Ok(()),
        }
    }

    /// Refuses what a caller may not read.
    pub(crate) fn admit_query(&self, _caller: &Caller, query: &Query) -> Result<(), Failure> {
        let max = self.config.limits.permits_max;
        // No request could be granted more, so none can test for more.
        if let Query::Test { claim: Claim { mode: Mode::Permits(permits), .. }, .. } = query
            && permits.get() > max
        {
            return Err(Failure::field("permits", format!("is {permits}, the limit is {max}")));
        }
        Ok(())
    }

    pub(super) async fn command(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<Answer, Failure> {
        self.admit(caller, &command)?;
        let engine = self.engine(command.namespace().unwrap_or(&Namespace::default()));
        Ok(engine.command(command).await?)
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
        let engine = self.engine(query.namespace().unwrap_or(&Namespace::default()));
        Ok(engine.query(query).await?)
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
        acquires: &mut Acquires,
        kind: &'static str,
        (took, waited): (Duration, Duration),
        outcome: Result<(), Code>,
    ) {
        self.count(Op::Acquire, took.saturating_sub(waited), outcome);
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
