//! What it reads in an answer, and what became of a lease in a few words.

use leasehold_api::{Code, Problem, RequestOutcome};
use leasehold_client::machine::{Ended, Loss};
use leasehold_core::{Refusal, SecretTicket, Ticket};
use leasehold_engine::CallError;

use crate::coverage;

pub(super) fn word_for(how: &Ended) -> String {
    match how {
        Ended::Refused(problem) => format!("refused with {}", problem.code),
        Ended::Unreachable => "unreachable".into(),
        Ended::Lost(Loss::Told(problem)) => format!("lost, told {}", problem.code),
        Ended::Lost(Loss::Lapsed) => "lost, lapsed".into(),
        Ended::NeverAsked(_) => "never asked".into(),
        Ended::Lost(_) => "lost with its session".into(),
        Ended::Released => "released".into(),
        Ended::NotReleased(problem) => format!("not released, {}", problem.code),
        Ended::ReleaseUnanswered => "release unanswered".into(),
        Ended::Forgotten => "forgotten".into(),
    }
}

pub(super) fn ticket_text(ticket: SecretTicket) -> String {
    format!("{}-{}", ticket.ticket.0, ticket.secret)
}

pub(super) fn read_ticket(text: &str) -> Option<SecretTicket> {
    let (number, secret) = text.split_once('-')?;
    let ticket = Ticket(number.parse().ok()?);
    Some(SecretTicket { ticket, secret: secret.parse().ok()? })
}

/// The problem that a client reads when a server says no.
pub(super) fn problem_of(error: &CallError) -> Problem {
    let code = match error {
        CallError::Refused(refusal) => code_for(refusal),
        CallError::StoreUnavailable { .. } => Code::StoreUnavailable,
        CallError::NotLeader { .. } => Code::NotLeader,
        CallError::Draining => Code::Draining,
        CallError::Busy => Code::Overloaded,
        CallError::Stopped => Code::Interrupted,
    };
    let mut problem = Problem::new(code, coverage::word_for(error));
    match error {
        CallError::Refused(Refusal::Held(conflict) | Refusal::ReclaimWindow(conflict)) => {
            problem.ticket = conflict.place.map(|place| ticket_text(place.ticket));
        }
        CallError::NotLeader { leader, retry_after } => {
            problem.leader.clone_from(leader);
            problem.recommended_retry_ms = u64::try_from(retry_after.as_millis()).ok();
        }
        CallError::StoreUnavailable { outcome_unknown: true, .. } => {
            problem.outcome = RequestOutcome::Unknown;
        }
        CallError::Refused(_)
        | CallError::StoreUnavailable { .. }
        | CallError::Draining
        | CallError::Busy
        | CallError::Stopped => {}
    }
    problem
}

pub(super) fn code_for(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Held(_) => Code::LockHeld,
        Refusal::ReclaimWindow(_) => Code::ReclaimWindow,
        Refusal::GracePeriod { .. } | Refusal::GracePeriodPlaceKept { .. } => Code::GracePeriod,
        Refusal::NoGrace => Code::NoGrace,
        Refusal::Deadlock { .. } => Code::Deadlock,
        Refusal::LeaseLost(_) => Code::LeaseLost,
        Refusal::NotHolder { .. } | Refusal::NothingToReclaim(_) => Code::NotHolder,
        Refusal::LimitMismatch { .. } => Code::LimitMismatch,
        Refusal::RequestIdReused => Code::RequestIdReused,
        Refusal::SessionNotFound(_) => Code::SessionNotFound,
        Refusal::TicketNotFound(_) => Code::TicketNotFound,
        Refusal::StaleFence { .. } => Code::StaleFence,
        Refusal::RegisterNotFound(_) => Code::NotFound,
        Refusal::Limit(_) => Code::QuotaExceeded,
        Refusal::Invalid(_) => Code::InvalidRequest,
        Refusal::FileRemoved(_) => Code::FileRemoved,
        Refusal::Suspended => Code::StoreUnavailable,
        Refusal::StaleEpoch { .. } => Code::NotLeader,
    }
}
