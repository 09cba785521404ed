//! Errors, each with the outcome of its request.

use std::time::Duration;

use leasehold_api::{Code, Problem, RequestOutcome};

/// The reason why something could not be done. *Refused* is an answer; *unreachable* is the lack of one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server said no.
    #[error("refused: {}: {}", .0.code, .0.detail)]
    Refused(Box<Problem>),
    /// No server answered.
    #[error("no server could be reached: {detail}")]
    Unreachable {
        /// Outcome of the request: not applied, or unknown.
        outcome: RequestOutcome,
        detail: String,
    },
    /// The lease that it was about is over.
    #[error("lease lost: {by}")]
    LeaseLost {
        by: LostBy,
        /// Of the request that could not be completed: a release that came too late was not applied, an acquire whose
        /// session was closed meanwhile may have been granted.
        outcome: RequestOutcome,
    },
    /// The address cannot be used.
    #[error("{0}")]
    Address(String),
    /// A token, a certificate or another setting cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

/// Cause of the loss of a lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostBy {
    #[error("it was not renewed in time")]
    Lapse,
    #[error("the server says {code}: {detail}")]
    Server { code: Code, detail: String },
    #[error("its session was closed")]
    SessionClosed,
    #[error("it was released")]
    Released,
    /// Work was told to stop because no renewal was confirmed for half of the ttl.
    #[error("no renewal was confirmed in time, so the work was stopped")]
    Jeopardy,
}

/// Result of a request of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Outcome of the request.
    pub fn outcome(&self) -> RequestOutcome {
        match self {
            Error::Refused(problem) => problem.outcome,
            Error::Unreachable { outcome, .. } | Error::LeaseLost { outcome, .. } => *outcome,
            Error::Address(_) | Error::Settings(_) | Error::Closed => RequestOutcome::NotApplied,
        }
    }

    /// The server's code, if it gave one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Refused(problem) => Some(problem.code),
            Error::LeaseLost { by: LostBy::Server { code, .. }, .. } => Some(*code),
            Error::LeaseLost { .. } => Some(Code::LeaseLost),
            Error::Unreachable { .. } | Error::Address(_) | Error::Settings(_) | Error::Closed => {
                None
            }
        }
    }

    /// The server's whole answer.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Refused(problem) => Some(problem),
            Error::LeaseLost { .. }
            | Error::Unreachable { .. }
            | Error::Address(_)
            | Error::Settings(_)
            | Error::Closed => None,
        }
    }

    /// True if another owner holds the lock or may reclaim it.
    pub fn is_held(&self) -> bool {
        matches!(self.code(), Some(Code::LockHeld | Code::ReclaimWindow))
    }

    /// True if no server answered; then [`Error::outcome`] is `not_applied` or `unknown`.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable { .. })
    }

    /// Retry time that the server recommends.
    pub fn recommended_retry(&self) -> Option<Duration> {
        self.problem()?.recommended_retry_ms.map(Duration::from_millis)
    }

    pub(crate) fn lost(by: LostBy, outcome: RequestOutcome) -> Error {
        Error::LeaseLost { by, outcome }
    }

    pub(crate) fn unsent(detail: impl Into<String>) -> Error {
        Error::Unreachable { outcome: RequestOutcome::NotApplied, detail: detail.into() }
    }

    pub(crate) fn unanswered(detail: impl Into<String>) -> Error {
        Error::Unreachable { outcome: RequestOutcome::Unknown, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_and_unreachable_are_told_apart() {
        let refused = Error::Refused(Box::new(Problem::new(Code::LockHeld, "held by a")));
        assert!(refused.is_held() && !refused.is_unreachable());
        assert_eq!(refused.outcome(), RequestOutcome::NotApplied);
        let gone = Error::unanswered("the connection broke");
        assert!(gone.is_unreachable() && gone.code().is_none());
        assert_eq!(gone.outcome(), RequestOutcome::Unknown);
        assert_eq!(Error::unsent("refused").outcome(), RequestOutcome::NotApplied);
    }
}
