//! Refusals and failures, as callers read them.

use std::time::Duration;

use leasehold_api::{FieldError, Problem, RequestOutcome};
use leasehold_core::{Conflict, HolderState, Invalid, Limit, Refusal, Timestamp};
use leasehold_engine::CallError;

use super::outward::{count, cycle, gone, holders, millis};
use super::retry;
use crate::service::problems::{Cause, Early, Failure, RETRY_SOON};

pub(crate) fn problem(now: Timestamp, failure: &Failure) -> Problem {
    let problem = |said: String| Problem::new(failure.code(), said);
    match failure.cause() {
        Cause::Engine(error) => {
            let said = error.to_string();
            of_engine(now, error, problem(said))
        }
        Cause::Early(early) => {
            let Early { detail, field, retry_after, oldest_revision, quota, .. } = early.clone();
            let error = field.map(|(field, message)| FieldError { field, message });
            let problem = problem(detail);
            let problem = match quota {
                Some((quota, of, max)) => of_quota(quota, of, max, problem),
                None => problem,
            };
            Problem {
                errors: error.into_iter().collect(),
                recommended_retry_ms: retry_after.map(retry::not_before),
                oldest_revision: oldest_revision.map(|revision| revision.0),
                ..problem
            }
        }
    }
}

fn of_engine(now: Timestamp, error: &CallError, problem: Problem) -> Problem {
    match error {
        CallError::Refused(refusal) => refused(now, refusal, problem),
        CallError::StoreUnavailable { retry_after, outcome_unknown } => {
            let mut problem = problem;
            if *outcome_unknown {
                problem.outcome = RequestOutcome::Unknown;
            }
            retried(problem, *retry_after)
        }
        CallError::NotLeader { leader, retry_after } => {
            retried(Problem { leader: leader.clone(), ..problem }, *retry_after)
        }
        CallError::Draining | CallError::Busy | CallError::Stopped => retried(problem, RETRY_SOON),
    }
}

fn retried(problem: Problem, after: Duration) -> Problem {
    Problem { recommended_retry_ms: Some(retry::jittered(after)), ..problem }
}

fn in_grace(problem: Problem, ends_in: Duration) -> Problem {
    let detail = format!("recovery grace active for another {}", spelled(millis(ends_in)));
    let problem = Problem { detail, grace_ends_in_ms: Some(millis(ends_in)), ..problem };
    retried(problem, ends_in)
}

fn refused(now: Timestamp, refusal: &Refusal, problem: Problem) -> Problem {
    match refusal {
        Refusal::Held(conflict) => {
            let detail = held_detail(now, conflict);
            conflicted(now, Problem { detail, ..problem }, conflict)
        }
        Refusal::ReclaimWindow(conflict) => {
            let held = held_detail(now, conflict);
            let detail = format!("{held}; only that owner may take it back until then");
            conflicted(now, Problem { detail, ..problem }, conflict)
        }
        Refusal::GracePeriod { ends_in } => in_grace(problem, *ends_in),
        Refusal::GracePeriodPlaceKept { ends_in, conflict } => {
            in_grace(conflicted(now, problem, conflict), *ends_in)
        }
        Refusal::Deadlock { cycle: edges } => Problem { cycle: Some(cycle(edges)), ..problem },
        Refusal::LeaseLost(why)
        | Refusal::NotHolder { why, .. }
        | Refusal::SessionNotFound(why) => Problem { reason: why.map(gone), ..problem },
        Refusal::StaleFence { high_water, .. } => {
            Problem { high_water: Some(high_water.get()), ..problem }
        }
        Refusal::NoGrace
        | Refusal::NothingToReclaim(_)
        | Refusal::LimitMismatch { .. }
        | Refusal::RequestIdReused
        | Refusal::TicketNotFound(_)
        | Refusal::FileRemoved(_)
        | Refusal::RegisterNotFound(_)
        // Only an operator can help.
        | Refusal::Limit(Limit::Tokens) => problem,
        Refusal::Limit(Limit::Quota { quota, of, max }) => {
            let problem = retried(problem, RETRY_SOON);
            of_quota(quota.as_str(), of.as_str(), *max, problem)
        }
        Refusal::Limit(_) | Refusal::Suspended => retried(problem, RETRY_SOON),
        Refusal::Invalid(invalid) => invalid_request(invalid, problem),
        Refusal::StaleEpoch { .. } => Problem { detail: "the epoch is over".into(), ..problem },
    }
}

fn of_quota(quota: &str, of: &str, max: u64, problem: Problem) -> Problem {
    Problem { quota: Some(quota.into()), of: Some(of.into()), max: Some(max), ..problem }
}

fn held_detail(now: Timestamp, conflict: &Conflict) -> String {
    match conflict.holders.first() {
        Some(holder) if holder.owner.is_hidden() => {
            format!("{} is held by somebody else", conflict.scope)
        }
        Some(holder) => format!(
            "{} is held by {}{} (lease expires in {} unless renewed)",
            holder.scope,
            holder.owner,
            match holder.state {
                HolderState::Recovering => ", not heard of since the server restarted",
                HolderState::Held | HolderState::ReclaimWindow => "",
            },
            spelled(millis(holder.deadline.since(now)))
        ),
        None => format!("{} already has waiters", conflict.scope),
    }
}

/// A duration in a sentence.
pub(crate) fn spelled(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

fn conflicted(now: Timestamp, problem: Problem, conflict: &Conflict) -> Problem {
    Problem {
        current_owner_id: conflict
            .holders
            .first()
            .filter(|holder| !holder.owner.is_hidden())
            .map(|holder| holder.owner.to_string()),
        recommended_retry_ms: Some(retry::after_conflict(now, conflict)),
        holders: Some(holders(now, &conflict.holders)),
        waiters: Some(count(conflict.waiters)),
        waited_ms: Some(millis(conflict.waited)),
        ticket: conflict.place.map(|place| super::ticket_text(place.ticket)),
        queue_position: conflict.place.map(|place| count(place.position)),
        ..problem
    }
}

fn invalid_request(invalid: &Invalid, problem: Problem) -> Problem {
    let field = match invalid {
        Invalid::Ttl { .. } => "ttl_ms",
        Invalid::DisconnectTtl { .. } => "disconnect_ttl_ms",
        Invalid::ReclaimWindow { .. } => "reclaim_ms",
        Invalid::Wait { .. } => "wait_ms",
        Invalid::SetSize { .. } | Invalid::SetOverlap { .. } => "locks",
        Invalid::RangePermits(_) | Invalid::Permits { .. } => "permits",
        Invalid::MetadataSize { .. } => "metadata",
        Invalid::NotOneGrant => "reclaim",
        Invalid::FenceNotIssued { .. } => "fencing_token",
        Invalid::LeaseIdInUse => {
            return Problem { detail: "the lease id is in use".into(), ..problem };
        }
    };
    let message = problem.detail.clone();
    Problem { errors: vec![FieldError { field: field.into(), message }], ..problem }
}
