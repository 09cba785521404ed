//! Problems, there and back.

use super::locks::holders;
use super::ms;
use super::views::cycle;
use crate::grpc::millis;
use crate::{Code, FieldError, RequestOutcome, grpc as wire};

impl From<&crate::Problem> for wire::Problem {
    fn from(problem: &crate::Problem) -> wire::Problem {
        let outcome = match problem.outcome {
            RequestOutcome::NotApplied => wire::Outcome::NotApplied,
            RequestOutcome::Applied => wire::Outcome::Applied,
            RequestOutcome::Unknown => wire::Outcome::Unknown,
        };
        let error = |error: &FieldError| wire::FieldError {
            field: error.field.clone(),
            message: error.message.clone(),
        };
        wire::Problem {
            code: problem.code.as_str().into(),
            detail: problem.detail.clone(),
            outcome: outcome.into(),
            errors: problem.errors.iter().map(error).collect(),
            current_owner_id: problem.current_owner_id.clone(),
            recommended_retry: problem.recommended_retry_ms.map(ms),
            holders: problem.holders.as_deref().map(holders).unwrap_or_default(),
            waiters: problem.waiters,
            waited: problem.waited_ms.map(ms),
            ticket: problem.ticket.clone(),
            queue_position: problem.queue_position,
            cycle: problem.cycle.as_deref().map(cycle).unwrap_or_default(),
            high_water: problem.high_water,
            grace_ends_in: problem.grace_ends_in_ms.map(ms),
            oldest_revision: problem.oldest_revision,
            leader: problem.leader.clone(),
            request_id: problem.request_id.clone(),
            reason: problem.reason.map(|reason| reason.as_str().into()),
            quota: problem.quota.clone(),
            of: problem.of.clone(),
            max: problem.max,
        }
    }
}

impl From<&wire::Problem> for crate::Problem {
    /// A code that is not known here, of a newer server, is an internal one.
    fn from(problem: &wire::Problem) -> crate::Problem {
        let code = Code::ALL.into_iter().find(|code| code.as_str() == problem.code);
        let some_ms = |length: &Option<prost_types::Duration>| length.and_then(millis);
        crate::Problem {
            outcome: match problem.outcome() {
                wire::Outcome::NotApplied => RequestOutcome::NotApplied,
                wire::Outcome::Applied => RequestOutcome::Applied,
                wire::Outcome::Unspecified | wire::Outcome::Unknown => RequestOutcome::Unknown,
            },
            errors: problem
                .errors
                .iter()
                .map(|error| FieldError {
                    field: error.field.clone(),
                    message: error.message.clone(),
                })
                .collect(),
            current_owner_id: problem.current_owner_id.clone(),
            recommended_retry_ms: some_ms(&problem.recommended_retry),
            holders: (!problem.holders.is_empty())
                .then(|| problem.holders.iter().map(crate::Holder::from).collect()),
            waiters: problem.waiters,
            waited_ms: some_ms(&problem.waited),
            ticket: problem.ticket.clone(),
            queue_position: problem.queue_position,
            cycle: (!problem.cycle.is_empty())
                .then(|| problem.cycle.iter().map(crate::WaitEdge::from).collect()),
            high_water: problem.high_water,
            grace_ends_in_ms: some_ms(&problem.grace_ends_in),
            oldest_revision: problem.oldest_revision,
            leader: problem.leader.clone(),
            request_id: problem.request_id.clone(),
            reason: problem.reason.as_deref().and_then(crate::Gone::of),
            quota: problem.quota.clone(),
            of: problem.of.clone(),
            max: problem.max,
            ..crate::Problem::new(code.unwrap_or(Code::Internal), problem.detail.clone())
        }
    }
}
