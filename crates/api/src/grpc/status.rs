//! Problems as gRPC says them: a `Status` with details, as `google.rpc` describes them.

use prost::Message;
use prost_types::Any;

use super::json_conversions::ms;
use super::{ERROR_DOMAIN, Problem};

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const PROBLEM: &str = "type.googleapis.com/leasehold.v1.Problem";
/// Headers carry the details, and proxies cut long ones. Beyond this the list of holders is left out.
const DETAILS_BYTES_MAX: usize = 4096;

/// `google.rpc.Status`: what a status carries in its details.
#[derive(Clone, PartialEq, Message)]
pub struct RichStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.rpc.ErrorInfo`: why, for programs that know nothing of us.
#[derive(Clone, PartialEq, Message)]
pub struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(map = "string, string", tag = "3")]
    pub metadata: std::collections::HashMap<String, String>,
}

/// `google.rpc.RetryInfo`: when to try again.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<prost_types::Duration>,
}

/// A problem as the status of a call.
pub fn status(problem: &crate::Problem) -> tonic::Status {
    let code = tonic::Code::from_i32(problem.code.grpc_code() as i32);
    let mut said = Problem::from(problem);
    if said.encoded_len() > DETAILS_BYTES_MAX {
        said.holders.clear();
    }
    let mut details = vec![detail(ERROR_INFO, &error_info(problem))];
    if problem.code.is_retryable()
        && let Some(after) = problem.recommended_retry_ms
    {
        details.push(detail(RETRY_INFO, &RetryInfo { retry_delay: Some(ms(after)) }));
    }
    details.push(detail(PROBLEM, &said));
    let rich = RichStatus { code: code as i32, message: problem.detail.clone(), details };
    tonic::Status::with_details(code, problem.detail.clone(), rich.encode_to_vec().into())
}

/// The problem in a status; `None` if it is not from a Leasehold server, a broken connection for instance.
pub fn problem_of(status: &tonic::Status) -> Option<crate::Problem> {
    let rich = RichStatus::decode(status.details()).ok()?;
    let ours = rich.details.iter().find(|detail| detail.type_url == PROBLEM)?;
    let problem = Problem::decode(ours.value.as_slice()).ok()?;
    Some(crate::Problem::from(&problem))
}

fn detail(kind: &str, message: &impl Message) -> Any {
    Any { type_url: kind.into(), value: message.encode_to_vec() }
}

/// The short fields, for those who look no further.
fn error_info(problem: &crate::Problem) -> ErrorInfo {
    let outcome = match problem.outcome {
        crate::RequestOutcome::NotApplied => "not_applied",
        crate::RequestOutcome::Applied => "applied",
        crate::RequestOutcome::Unknown => "unknown",
    };
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let fields = [
        ("outcome", Some(outcome.to_string())),
        ("current_owner_id", problem.current_owner_id.clone()),
        ("waiters", number(problem.waiters)),
        ("waited_ms", number(problem.waited_ms)),
        ("ticket", problem.ticket.clone()),
        ("queue_position", number(problem.queue_position)),
        ("high_water", number(problem.high_water)),
        ("grace_ends_in_ms", number(problem.grace_ends_in_ms)),
        ("oldest_revision", number(problem.oldest_revision)),
        ("quota", problem.quota.clone()),
        ("of", problem.of.clone()),
        ("max", number(problem.max)),
        ("leader", problem.leader.clone()),
    ];
    let said = fields.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?)));
    ErrorInfo {
        reason: problem.code.as_str().into(),
        domain: ERROR_DOMAIN.into(),
        metadata: said.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn every_code_comes_through_a_status() {
        for code in Code::ALL {
            let problem = crate::Problem::new(code, "so it is");
            let status = status(&problem);
            assert_eq!(status.code() as i32, code.grpc_code() as i32, "{code}");
            let back = problem_of(&status).unwrap();
            assert_eq!((back.code, back.outcome), (code, code.outcome()));
            assert_eq!(back.detail, "so it is");
        }
        assert!(problem_of(&tonic::Status::unavailable("connection refused")).is_none());
    }
}
