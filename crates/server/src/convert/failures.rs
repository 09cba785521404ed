//! Refusals and failures, as callers read them.

use std::time::Duration;

use leasehold_api::{Code, FieldError, Happened, Problem};
use leasehold_core::{Conflict, HolderState, Invalid, Limit, Refusal, Timestamp};
use leasehold_engine::CallError;

use super::outward::{count, cycle, gone, holders, millis};
use crate::convert::retry;

pub(crate) fn problem(now: Timestamp, error: &CallError) -> Problem {
    let said = error.to_string();
    match error {
        CallError::Refused(refusal) => refused(now, refusal),
        CallError::StoreUnavailable { retry_after, outcome_unknown } => {
            let mut problem = Problem::new(Code::StoreUnavailable, said);
            if *outcome_unknown {
                problem.outcome = Happened::Unknown;
            }
            retried(problem, *retry_after)
        }
        CallError::NotLeader { leader, retry_after } => {
            let problem = Problem { leader: leader.clone(), ..Problem::new(Code::NotLeader, said) };
            retried(problem, *retry_after)
        }
        CallError::Draining => retried(Problem::new(Code::Draining, said), Duration::from_secs(1)),
        CallError::Busy => retried(Problem::new(Code::Overloaded, said), Duration::from_secs(1)),
        CallError::Stopped => {
            retried(Problem::new(Code::Interrupted, said), Duration::from_secs(1))
        }
    }
}

fn retried(problem: Problem, after: Duration) -> Problem {
    Problem { recommended_retry_ms: Some(retry::jittered(after)), ..problem }
}

fn refused(now: Timestamp, refusal: &Refusal) -> Problem {
    let said = refusal.to_string();
    match refusal {
        Refusal::Held(conflict) => {
            conflicted(now, Problem::new(Code::LockHeld, held_detail(now, conflict)), conflict)
        }
        Refusal::ReclaimWindow(conflict) => {
            let said = format!(
                "{}; only that owner may take it back until then",
                held_detail(now, conflict)
            );
            conflicted(now, Problem::new(Code::ReclaimWindow, said), conflict)
        }
        Refusal::GracePeriod { ends_in, conflict } => {
            let said = format!("recovery grace active for another {}", spelled(millis(*ends_in)));
            let problem = Problem::new(Code::GracePeriod, said);
            let problem = match conflict {
                Some(conflict) => conflicted(now, problem, conflict),
                None => problem,
            };
            let problem = Problem { grace_ends_in_ms: Some(millis(*ends_in)), ..problem };
            retried(problem, *ends_in)
        }
        Refusal::Deadlock { cycle: edges } => {
            Problem { cycle: Some(cycle(edges)), ..Problem::new(Code::Deadlock, said) }
        }
        Refusal::NoGrace => Problem::new(Code::NoGrace, said),
        Refusal::LeaseLost(why) => with_reason(Problem::new(Code::LeaseLost, said), *why),
        Refusal::NotHolder { why, .. } => with_reason(Problem::new(Code::NotHolder, said), *why),
        Refusal::NothingToReclaim(_) => Problem::new(Code::NotHolder, said),
        Refusal::LimitMismatch { .. } => Problem::new(Code::LimitMismatch, said),
        Refusal::RequestIdReused => Problem::new(Code::RequestIdReused, said),
        Refusal::SessionNotFound(why) => {
            with_reason(Problem::new(Code::SessionNotFound, said), *why)
        }
        Refusal::TicketNotFound(_) => Problem::new(Code::TicketNotFound, said),
        Refusal::FileRemoved(_) => Problem::new(Code::FileRemoved, said),
        Refusal::StaleFence { high_water, .. } => {
            Problem { high_water: Some(high_water.get()), ..Problem::new(Code::StaleFence, said) }
        }
        Refusal::RegisterNotFound(_) => Problem::new(Code::NotFound, said),
        Refusal::Limit(limit) => limited(limit),
        Refusal::Invalid(invalid) => invalid_request(invalid),
        Refusal::Suspended => {
            retried(Problem::new(Code::StoreUnavailable, said), Duration::from_secs(1))
        }
        Refusal::StaleEpoch { .. } => Problem::new(Code::Internal, "the epoch is over"),
    }
}

fn with_reason(problem: Problem, why: Option<leasehold_core::Gone>) -> Problem {
    Problem { reason: why.map(gone), ..problem }
}

fn held_detail(now: Timestamp, conflict: &Conflict) -> String {
    match conflict.holders.first() {
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
        current_owner_id: conflict.holders.first().map(|holder| holder.owner.to_string()),
        recommended_retry_ms: Some(retry::after_conflict(now, conflict)),
        holders: Some(holders(now, &conflict.holders)),
        waiters: Some(count(conflict.waiters)),
        waited_ms: Some(millis(conflict.waited)),
        ticket: conflict.place.map(|place| super::ticket_text(place.ticket)),
        queue_position: conflict.place.map(|place| count(place.position)),
        ..problem
    }
}

fn limited(limit: &Limit) -> Problem {
    let code = match limit {
        Limit::WaitersPerScope { .. } | Limit::Waiters { .. } | Limit::TooTangled => {
            Code::TooManyWaiters
        }
        Limit::Sessions { .. } => Code::SessionLimit,
        Limit::LocksPerSession { .. }
        | Limit::Registers { .. }
        | Limit::RegistersInAll { .. }
        | Limit::Namespaces { .. } => Code::QuotaExceeded,
        // Only an operator can help.
        Limit::Tokens => return Problem::new(Code::QuotaExceeded, limit.to_string()),
    };
    retried(Problem::new(code, limit.to_string()), Duration::from_secs(1))
}

fn invalid_request(invalid: &Invalid) -> Problem {
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
        Invalid::LeaseIdInUse => return Problem::new(Code::Internal, "the lease id is in use"),
    };
    let message = invalid.to_string();
    let errors = vec![FieldError { field: field.into(), message: message.clone() }];
    Problem { errors, ..Problem::new(Code::InvalidRequest, message) }
}
