//! Every problem the service can answer with. A code is never renamed: programs decide by it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason of an error, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A field is unknown, of the wrong type, or out of range: `errors` says which.
    InvalidRequest,
    /// The text is not the name of a lock.
    InvalidLockName,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    SessionNotFound,
    /// The place in the queue is no longer kept.
    TicketNotFound,
    MethodNotAllowed,
    /// The body did not arrive in time.
    RequestTimeout,
    /// Another owner holds it, or waits ahead in the queue.
    LockHeld,
    /// Its last holder may still take it back.
    ReclaimWindow,
    /// Waiting would close a cycle: `cycle` shows it.
    Deadlock,
    /// The file was removed while the request waited.
    FileRemoved,
    /// The lease is over. It does not come back.
    LeaseLost,
    /// Owner, lease and token do not belong to a grant on this lock.
    NotHolder,
    /// The others use this lock with another number of permits.
    LimitMismatch,
    /// The request id was used before, for something else.
    RequestIdReused,
    /// There is no recovery grace to reclaim in.
    NoGrace,
    /// Events from so far back are no longer remembered.
    RevisionCompacted,
    /// The register has seen a higher token.
    StaleFence,
    TooLarge,
    UriTooLong,
    /// The headers of the request are too many or too long.
    HeaderTooLarge,
    UnsupportedMediaType,
    /// The request is meant for another host.
    MisdirectedRequest,
    TooManyWaiters,
    SessionLimit,
    QuotaExceeded,
    RateLimited,
    /// The server has just started; holders of before may still come back.
    GracePeriod,
    StoreUnavailable,
    NotLeader,
    /// The server is about to stop.
    Draining,
    /// Too much is waiting to be looked at.
    Overloaded,
    /// The audit log cannot be written, and this must not be done without it.
    AuditUnavailable,
    /// The server stopped before it could answer: the outcome is unknown.
    Interrupted,
    Internal,
}

/// Whether anything came of a request that was answered with a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RequestOutcome {
    NotApplied,
    Applied,
    Unknown,
}

/// The status codes of gRPC that are in use, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum GrpcCode {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    /// All of them, in the order of their HTTP status.
    pub const ALL: [Code; 37] = [
        Code::InvalidRequest,
        Code::InvalidLockName,
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::NotFound,
        Code::SessionNotFound,
        Code::TicketNotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::LockHeld,
        Code::ReclaimWindow,
        Code::Deadlock,
        Code::FileRemoved,
        Code::LeaseLost,
        Code::NotHolder,
        Code::LimitMismatch,
        Code::RequestIdReused,
        Code::NoGrace,
        Code::RevisionCompacted,
        Code::StaleFence,
        Code::TooLarge,
        Code::UriTooLong,
        Code::UnsupportedMediaType,
        Code::MisdirectedRequest,
        Code::TooManyWaiters,
        Code::SessionLimit,
        Code::QuotaExceeded,
        Code::RateLimited,
        Code::HeaderTooLarge,
        Code::Internal,
        Code::GracePeriod,
        Code::StoreUnavailable,
        Code::NotLeader,
        Code::Draining,
        Code::Overloaded,
        Code::AuditUnavailable,
        Code::Interrupted,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Code::InvalidRequest => "invalid_request",
            Code::InvalidLockName => "invalid_lock_name",
            Code::Unauthenticated => "unauthenticated",
            Code::PermissionDenied => "permission_denied",
            Code::NotFound => "not_found",
            Code::SessionNotFound => "session_not_found",
            Code::TicketNotFound => "ticket_not_found",
            Code::MethodNotAllowed => "method_not_allowed",
            Code::RequestTimeout => "request_timeout",
            Code::LockHeld => "lock_held",
            Code::ReclaimWindow => "reclaim_window",
            Code::Deadlock => "deadlock",
            Code::FileRemoved => "file_removed",
            Code::LeaseLost => "lease_lost",
            Code::NotHolder => "not_holder",
            Code::LimitMismatch => "limit_mismatch",
            Code::RequestIdReused => "request_id_reused",
            Code::NoGrace => "no_grace",
            Code::RevisionCompacted => "revision_compacted",
            Code::StaleFence => "stale_fence",
            Code::TooLarge => "too_large",
            Code::UriTooLong => "uri_too_long",
            Code::HeaderTooLarge => "header_too_large",
            Code::UnsupportedMediaType => "unsupported_media_type",
            Code::MisdirectedRequest => "misdirected_request",
            Code::TooManyWaiters => "too_many_waiters",
            Code::SessionLimit => "session_limit",
            Code::QuotaExceeded => "quota_exceeded",
            Code::RateLimited => "rate_limited",
            Code::GracePeriod => "grace_period",
            Code::StoreUnavailable => "store_unavailable",
            Code::NotLeader => "not_leader",
            Code::Draining => "draining",
            Code::Overloaded => "overloaded",
            Code::AuditUnavailable => "audit_unavailable",
            Code::Interrupted => "interrupted",
            Code::Internal => "internal",
        }
    }

    /// A few words for people; the detail says more.
    pub const fn title(self) -> &'static str {
        match self {
            Code::InvalidRequest => "the request is not valid",
            Code::InvalidLockName => "invalid lock name",
            Code::Unauthenticated => "authentication required",
            Code::PermissionDenied => "permission denied",
            Code::NotFound => "not found",
            Code::SessionNotFound => "session not found",
            Code::TicketNotFound => "ticket not found or expired",
            Code::MethodNotAllowed => "method not allowed",
            Code::RequestTimeout => "the request took too long to arrive",
            Code::LockHeld => "the lock is held",
            Code::ReclaimWindow => "the last holder may still take the lock back",
            Code::Deadlock => "waiting would deadlock",
            Code::FileRemoved => "the file was removed",
            Code::LeaseLost => "the lease is over",
            Code::NotHolder => "not the holder of the lock",
            Code::LimitMismatch => "the lock is used with another limit",
            Code::RequestIdReused => "the request id was used for another request",
            Code::NoGrace => "no recovery grace is active",
            Code::RevisionCompacted => "events before this revision are no longer kept",
            Code::StaleFence => "the fencing token is stale",
            Code::TooLarge => "the request is too large",
            Code::UriTooLong => "the address is too long",
            Code::HeaderTooLarge => "the headers are too large",
            Code::UnsupportedMediaType => "the body must be JSON",
            Code::MisdirectedRequest => "the request is for another host",
            Code::TooManyWaiters => "too many requests wait already",
            Code::SessionLimit => "there are too many sessions",
            Code::QuotaExceeded => "quota exceeded",
            Code::RateLimited => "rate limit exceeded",
            Code::GracePeriod => "recovery grace active",
            Code::StoreUnavailable => "the store is unavailable",
            Code::NotLeader => "this server is not the leader",
            Code::Draining => "the server is stopping",
            Code::Overloaded => "the server is overloaded",
            Code::AuditUnavailable => "the audit log cannot be written",
            Code::Interrupted => "the server stopped before it could answer",
            Code::Internal => "internal error",
        }
    }

    pub const fn http_status(self) -> u16 {
        match self {
            Code::InvalidRequest | Code::InvalidLockName => 400,
            Code::Unauthenticated => 401,
            Code::PermissionDenied => 403,
            Code::NotFound | Code::SessionNotFound | Code::TicketNotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::RequestTimeout => 408,
            Code::LockHeld
            | Code::ReclaimWindow
            | Code::Deadlock
            | Code::FileRemoved
            | Code::LeaseLost
            | Code::NotHolder
            | Code::LimitMismatch
            | Code::RequestIdReused
            | Code::NoGrace => 409,
            Code::RevisionCompacted => 410,
            Code::StaleFence => 412,
            Code::TooLarge => 413,
            Code::UriTooLong => 414,
            Code::HeaderTooLarge => 431,
            Code::UnsupportedMediaType => 415,
            Code::MisdirectedRequest => 421,
            Code::TooManyWaiters | Code::SessionLimit | Code::QuotaExceeded | Code::RateLimited => {
                429
            }
            Code::Internal => 500,
            Code::GracePeriod
            | Code::StoreUnavailable
            | Code::NotLeader
            | Code::Draining
            | Code::Overloaded
            | Code::AuditUnavailable
            | Code::Interrupted => 503,
        }
    }

    pub const fn grpc_code(self) -> GrpcCode {
        match self {
            Code::InvalidRequest
            | Code::InvalidLockName
            | Code::UriTooLong
            | Code::HeaderTooLarge
            | Code::UnsupportedMediaType
            | Code::MisdirectedRequest => GrpcCode::InvalidArgument,
            Code::Unauthenticated => GrpcCode::Unauthenticated,
            Code::PermissionDenied => GrpcCode::PermissionDenied,
            Code::NotFound | Code::SessionNotFound | Code::TicketNotFound => GrpcCode::NotFound,
            Code::MethodNotAllowed => GrpcCode::Unimplemented,
            Code::RequestTimeout => GrpcCode::DeadlineExceeded,
            Code::LockHeld | Code::ReclaimWindow | Code::Deadlock | Code::FileRemoved => {
                GrpcCode::Aborted
            }
            Code::LeaseLost
            | Code::NotHolder
            | Code::LimitMismatch
            | Code::RequestIdReused
            | Code::NoGrace
            | Code::StaleFence => GrpcCode::FailedPrecondition,
            Code::RevisionCompacted => GrpcCode::OutOfRange,
            Code::TooLarge
            | Code::TooManyWaiters
            | Code::SessionLimit
            | Code::QuotaExceeded
            | Code::RateLimited => GrpcCode::ResourceExhausted,
            Code::Internal => GrpcCode::Internal,
            Code::GracePeriod
            | Code::StoreUnavailable
            | Code::NotLeader
            | Code::Draining
            | Code::Overloaded
            | Code::AuditUnavailable
            | Code::Interrupted => GrpcCode::Unavailable,
        }
    }

    /// Whether the same request may well succeed a little later. A deadlock is not: first something must be released.
    pub const fn is_retryable(self) -> bool {
        match self {
            Code::LockHeld
            | Code::ReclaimWindow
            | Code::RequestTimeout
            | Code::TooManyWaiters
            | Code::SessionLimit
            | Code::QuotaExceeded
            | Code::RateLimited
            | Code::GracePeriod
            | Code::StoreUnavailable
            | Code::NotLeader
            | Code::Draining
            | Code::Overloaded
            | Code::AuditUnavailable
            | Code::Interrupted => true,
            Code::InvalidRequest
            | Code::InvalidLockName
            | Code::Unauthenticated
            | Code::PermissionDenied
            | Code::NotFound
            | Code::SessionNotFound
            | Code::TicketNotFound
            | Code::MethodNotAllowed
            | Code::Deadlock
            | Code::FileRemoved
            | Code::LeaseLost
            | Code::NotHolder
            | Code::LimitMismatch
            | Code::RequestIdReused
            | Code::NoGrace
            | Code::RevisionCompacted
            | Code::StaleFence
            | Code::TooLarge
            | Code::UriTooLong
            | Code::HeaderTooLarge
            | Code::UnsupportedMediaType
            | Code::MisdirectedRequest
            | Code::Internal => false,
        }
    }

    /// Whether anything came of the request.
    pub const fn outcome(self) -> RequestOutcome {
        match self {
            Code::Interrupted | Code::Internal => RequestOutcome::Unknown,
            Code::InvalidRequest
            | Code::InvalidLockName
            | Code::Unauthenticated
            | Code::PermissionDenied
            | Code::NotFound
            | Code::SessionNotFound
            | Code::TicketNotFound
            | Code::MethodNotAllowed
            | Code::RequestTimeout
            | Code::LockHeld
            | Code::ReclaimWindow
            | Code::Deadlock
            | Code::FileRemoved
            | Code::LeaseLost
            | Code::NotHolder
            | Code::LimitMismatch
            | Code::RequestIdReused
            | Code::NoGrace
            | Code::RevisionCompacted
            | Code::StaleFence
            | Code::TooLarge
            | Code::UriTooLong
            | Code::HeaderTooLarge
            | Code::UnsupportedMediaType
            | Code::MisdirectedRequest
            | Code::TooManyWaiters
            | Code::SessionLimit
            | Code::QuotaExceeded
            | Code::RateLimited
            | Code::GracePeriod
            | Code::StoreUnavailable
            | Code::NotLeader
            | Code::Draining
            | Code::Overloaded
            | Code::AuditUnavailable => RequestOutcome::NotApplied,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_written_and_read_by_its_name() {
        for code in Code::ALL {
            let json = serde_json::to_string(&code).unwrap();
            assert_eq!(json, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<Code>(&json).unwrap(), code);
        }
    }

    #[test]
    fn codes_are_listed_once_in_the_order_of_their_status() {
        let statuses: Vec<u16> = Code::ALL.iter().map(|code| code.http_status()).collect();
        assert!(statuses.is_sorted());
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn what_is_unknown_is_never_called_not_applied() {
        assert_eq!(Code::Interrupted.outcome(), RequestOutcome::Unknown);
        assert_eq!(Code::Internal.outcome(), RequestOutcome::Unknown);
        assert_eq!(Code::StoreUnavailable.outcome(), RequestOutcome::NotApplied);
    }
}
