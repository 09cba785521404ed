//! The shape of every error: problem details (RFC 9457) with our code in it.

use serde::{Deserialize, Serialize};

use crate::code::{Code, RequestOutcome};
use crate::graph::WaitEdge;
use crate::locks::{Gone, Holder};
use crate::service::Check;

/// An error, as `application/problem+json`. `code` is what programs decide by.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub code: Code,
    pub detail: String,
    /// The id under which the server has logged it; empty inside a stream.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub request_id: String,
    pub outcome: RequestOutcome,

    /// The faults by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_owner_id: Option<String>,
    /// When to try again; jittered, and longer the more are waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommended_retry_ms: Option<u64>,
    /// Those in the way; the first few if they are many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<Holder>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiters: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// Keeps the place in the queue: repeat the request with it within 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u64>,
    /// The cycle: waiter, lock and blocker of each step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Vec<WaitEdge>>,
    /// The highest token that the register has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_water: Option<u64>,
    /// The reason why the lease or token is not good, with `lease_lost`, `not_holder` and `session_not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Gone>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ends_in_ms: Option<u64>,
    /// Events after this revision are still remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_revision: Option<u64>,
    /// The quota that was reached, with `quota_exceeded`: `locks`, `bytes`, `waiters`, `waiter_bytes`, `sessions`,
    /// `registers`, `namespaces` or `watches`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    /// The party that the quota limits: `principal`, `namespace` or `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The most that the quota allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// The server that decides, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The state of each part of the server, if it is not ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// A fault in one field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:leasehold:problem:{code}"),
            title: code.title().into(),
            status: code.http_status(),
            code,
            detail: detail.into(),
            request_id: String::new(),
            outcome: code.outcome(),
            errors: Vec::new(),
            current_owner_id: None,
            recommended_retry_ms: None,
            holders: None,
            waiters: None,
            waited_ms: None,
            ticket: None,
            queue_position: None,
            cycle: None,
            high_water: None,
            reason: None,
            grace_ends_in_ms: None,
            oldest_revision: None,
            quota: None,
            of: None,
            max: None,
            leader: None,
            checks: Vec::new(),
        }
    }

    /// A request of which one field is wrong.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Problem {
        let error = FieldError { field: field.into(), message: message.into() };
        let detail = format!("{}: {}", error.field, error.message);
        let mut problem = Problem::new(Code::InvalidRequest, detail);
        problem.errors.push(error);
        problem
    }
}
