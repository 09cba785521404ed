//! Failures of operations, in the core's words. Each transport writes them in its own.

use std::time::Duration;

use leasehold_api::Code;
use leasehold_core::{Limit, Refusal, Revision};
use leasehold_engine::CallError;

/// The time after which to repeat a request that was refused because of what others do at this moment.
pub(crate) const RETRY_SOON: Duration = Duration::from_secs(1);

/// The reason why an operation failed. Boxed: failures are rare, and every result would carry their size around.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Box<Cause>);

#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// The engine refused it, or could not answer.
    Engine(CallError),
    /// Refused before it came to the engine.
    Early(Early),
}

#[derive(Clone, Debug)]
pub(crate) struct Early {
    pub(crate) code: Code,
    pub(crate) detail: String,
    /// The field that is wrong, and what is wrong with it.
    pub(crate) field: Option<(String, String)>,
    pub(crate) retry_after: Option<Duration>,
    /// Events after this revision can still be watched.
    pub(crate) oldest_revision: Option<Revision>,
    /// The quota that was reached, whose it is, and how much it allows.
    pub(crate) quota: Option<(&'static str, &'static str, u64)>,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure(Box::new(Cause::Engine(error)))
    }
}

impl From<Early> for Failure {
    fn from(early: Early) -> Failure {
        Failure(Box::new(Cause::Early(early)))
    }
}

impl Failure {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Failure {
        let detail = detail.into();
        let (field, retry_after, oldest_revision, quota) = (None, None, None, None);
        Early { code, detail, field, retry_after, oldest_revision, quota }.into()
    }

    /// A request of which one field is wrong.
    pub(crate) fn field(field: impl Into<String>, message: impl Into<String>) -> Failure {
        let (field, message) = (field.into(), message.into());
        let failure = Failure::new(Code::InvalidRequest, format!("{field}: {message}"));
        failure.changed(|early| early.field = Some((field, message)))
    }

    /// The same, of a request that may be repeated after about [`RETRY_SOON`].
    pub(crate) fn retried_soon(self) -> Failure {
        self.retried_after(RETRY_SOON)
    }

    /// The same, of a request that may be repeated after about this time. Answers name a longer one, by chance, so that
    /// clients which were refused together do not come back together.
    pub(crate) fn retried_after(self, length: Duration) -> Failure {
        self.changed(|early| early.retry_after = Some(length))
    }

    pub(crate) fn with_quota(self, quota: &'static str, of: &'static str, max: u64) -> Failure {
        self.changed(|early| early.quota = Some((quota, of, max)))
    }

    pub(crate) fn with_oldest(self, revision: Revision) -> Failure {
        self.changed(|early| early.oldest_revision = Some(revision))
    }

    /// The same, of a field that is part of another.
    pub(crate) fn within(self, whole: &str) -> Failure {
        self.changed(|early| {
            if let Some((field, _)) = &mut early.field {
                *field = format!("{whole}.{field}");
            }
        })
    }

    fn changed(mut self, change: impl FnOnce(&mut Early)) -> Failure {
        if let Cause::Early(early) = &mut *self.0 {
            change(early);
        }
        self
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.0
    }

    pub(crate) fn code(&self) -> Code {
        match self.cause() {
            Cause::Engine(error) => code_of(error),
            Cause::Early(early) => early.code,
        }
    }

    /// The time the request had waited for a lock.
    pub(crate) fn waited(&self) -> Duration {
        match self.cause() {
            Cause::Engine(CallError::Refused(
                Refusal::Held(conflict)
                | Refusal::ReclaimWindow(conflict)
                | Refusal::GracePeriodPlaceKept { conflict, .. },
            )) => conflict.waited,
            Cause::Engine(_) | Cause::Early(_) => Duration::ZERO,
        }
    }
}

/// The engine answered something else than it was asked.
pub(crate) fn unexpected() -> Failure {
    tracing::error!("an answer does not fit what was asked");
    Failure::new(Code::Internal, "internal error; the server's log has the cause")
}

fn code_of(error: &CallError) -> Code {
    match error {
        CallError::Refused(refusal) => code_of_refusal(refusal),
        CallError::StoreUnavailable { .. } => Code::StoreUnavailable,
        CallError::NotLeader { .. } => Code::NotLeader,
        CallError::Draining => Code::Draining,
        CallError::Busy => Code::Overloaded,
        CallError::Stopped => Code::Interrupted,
    }
}

fn code_of_refusal(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Held(_) => Code::LockHeld,
        Refusal::ReclaimWindow(_) => Code::ReclaimWindow,
        Refusal::GracePeriod { .. } | Refusal::GracePeriodPlaceKept { .. } => Code::GracePeriod,
        Refusal::NoGrace => Code::NoGrace,
        Refusal::Deadlock { .. } => Code::Deadlock,
        Refusal::LeaseLost(_) => Code::LeaseLost,
        Refusal::NothingToReclaim(_) | Refusal::NotHolder { .. } => Code::NotHolder,
        Refusal::LimitMismatch { .. } => Code::LimitMismatch,
        Refusal::RequestIdReused => Code::RequestIdReused,
        Refusal::SessionNotFound(_) => Code::SessionNotFound,
        Refusal::TicketNotFound(_) => Code::TicketNotFound,
        Refusal::StaleFence { .. } => Code::StaleFence,
        Refusal::RegisterNotFound(_) => Code::NotFound,
        Refusal::Limit(limit) => code_of_limit(limit),
        Refusal::Invalid(leasehold_core::Invalid::LeaseIdInUse) | Refusal::StaleEpoch { .. } => {
            Code::Internal
        }
        Refusal::Invalid(_) => Code::InvalidRequest,
        Refusal::FileRemoved(_) => Code::FileRemoved,
        Refusal::Suspended => Code::StoreUnavailable,
    }
}

fn code_of_limit(limit: &Limit) -> Code {
    match limit {
        Limit::WaitersPerScope { .. } | Limit::Waiters { .. } | Limit::TooTangled => {
            Code::TooManyWaiters
        }
        Limit::Sessions { .. } => Code::SessionLimit,
        Limit::Quota { .. }
        | Limit::OwnRanges { .. }
        | Limit::LocksPerSession { .. }
        | Limit::WindowedLocksPerSession { .. }
        | Limit::Registers { .. }
        | Limit::RegistersInAll { .. }
        | Limit::Namespaces { .. }
        | Limit::Tokens => Code::QuotaExceeded,
    }
}
