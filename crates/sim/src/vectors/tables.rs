//! Small tables beside the machine: names, durations, codes, problems.

use leasehold_api::{
    Code, Gone, Holder, LockState, Mode, Problem, RequestOutcome, WaitEdge, parse_duration,
};
use leasehold_client::machine::{is_denied, is_undecided, says_nothing_of_the_lease};
use leasehold_client::path_part;
use leasehold_core::Scope;
use serde::Serialize;

use super::lines::line;

/// What requests of workers are answered with: what has to be in the audit log first is asked by operators alone.
pub(super) fn codes_for_workers() -> Vec<Code> {
    Code::ALL.into_iter().filter(|code| *code != Code::AuditUnavailable).collect()
}

const NAMES: [&str; 52] = [
    "a",
    "job/nightly",
    "db/migrate",
    "shop/till/check",
    "shop/till/acquire/x",
    "renew",
    "a b",
    "ä/ö",
    "日本",
    "x?y#z",
    "100%",
    "a+b=c&d",
    "it's",
    "a,b;c",
    "~tilde",
    "UPPER/lower",
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/./b",
    "a/../b",
    "a\nb",
    "a\u{0}b",
    "path:/srv/a",
    "path:/srv/a/",
    "path:/srv//a",
    "path:/srv/./a",
    "path:/srv/../a",
    "path:/srv/a/**",
    "path:/",
    "path:/**",
    "path:srv",
    "path:/a/**/b",
    "path:/a/*",
    "a/**",
    "Path:/a",
    "inode:42",
    "inode:0",
    "inode:18446744073709551615",
    "inode:18446744073709551616",
    "inode:x",
    "inode:42@100..200",
    "inode:42@100..",
    "inode:42@0..",
    "inode:42@200..100",
    "inode:42@5..5",
    "inode:42@",
    "flock:42",
];

#[derive(Debug, Serialize)]
struct Name {
    name: &'static str,
    /// Nothing if it is refused.
    canonical: Option<String>,
    /// As it stands in the path of a request, before `/acquire`.
    path: String,
}

pub(super) fn names() -> String {
    let row = |name: &'static str| Name {
        name,
        canonical: Scope::parse(name).ok().map(|scope| scope.to_string()),
        path: path_part(name),
    };
    let long = "x".repeat(513);
    assert!(Scope::parse(&long).is_err() && Scope::parse(&long[1..]).is_ok());
    NAMES.into_iter().map(|name| line(&row(name))).collect()
}

const DURATIONS: [&str; 40] = [
    "30s",
    "1m30s",
    "1500ms",
    "1.5h",
    "0.5s",
    ".5s",
    "1.s",
    "2d",
    "1d2h3m4s",
    "100us",
    "100µs",
    "100μs",
    "7ns",
    "30",
    "0.25",
    "0",
    "0s",
    "+5s",
    "-0s",
    "-5s",
    "",
    " ",
    "s",
    "5 s",
    " 5s",
    "5s ",
    "1h-5m",
    "5x",
    "1e3s",
    "0x10s",
    "∞",
    "--5s",
    "1..5s",
    ".",
    ".s",
    "300000000000d",
    "99999999999999999999",
    "1.0000000001s",
    "2h45m",
    "1m1m",
];

#[derive(Debug, Serialize)]
struct Length {
    text: &'static str,
    /// Nothing if it is refused. As text: it may be more than a number of JSON keeps.
    nanos: Option<String>,
}

pub(super) fn durations() -> String {
    let row = |text: &'static str| Length {
        text,
        nanos: parse_duration(text).ok().map(|length| length.as_nanos().to_string()),
    };
    DURATIONS.into_iter().map(|text| line(&row(text))).collect()
}

#[derive(Debug, Serialize)]
struct CodeRow {
    code: &'static str,
    http: u16,
    retryable: bool,
    outcome: RequestOutcome,
    says_nothing_of_the_lock: bool,
    says_nothing_of_the_lease: bool,
    is_denied: bool,
}

pub(super) fn codes() -> String {
    let row = |code: Code| {
        let problem = Problem::new(code, "");
        CodeRow {
            code: code.as_str(),
            http: code.http_status(),
            retryable: code.is_retryable(),
            outcome: code.outcome(),
            says_nothing_of_the_lock: is_undecided(&problem),
            says_nothing_of_the_lease: says_nothing_of_the_lease(&problem),
            is_denied: is_denied(&problem),
        }
    };
    Code::ALL.into_iter().map(|code| line(&row(code))).collect()
}

/// An answer that is none of what was asked for, and the error that it is.
#[derive(Debug, Serialize)]
struct Answer {
    status: u16,
    body: String,
    error: Expected,
}

#[derive(Debug, Serialize)]
struct Expected {
    kind: &'static str,
    code: Option<&'static str>,
    outcome: RequestOutcome,
    retry_after_ms: Option<u64>,
    reason: Option<Gone>,
}

pub(super) fn problems() -> String {
    let mut text = String::new();
    for problem in Code::ALL.into_iter().map(said_by_a_server) {
        let error = Expected {
            kind: kind(problem.code),
            code: Some(problem.code.as_str()),
            outcome: problem.outcome,
            retry_after_ms: problem.recommended_retry_ms,
            reason: problem.reason,
        };
        let body = serde_json::to_string(&problem).expect("all keys are text");
        text += &line(&Answer { status: problem.code.http_status(), body, error });
    }
    // Whoever stands between us and the server speaks otherwise.
    for (status, body) in OF_OTHERS {
        let code = match status {
            401 => Some("unauthenticated"),
            403 => Some("permission_denied"),
            _ => None,
        };
        let (kind, outcome) = match code {
            Some(_) => ("refused", RequestOutcome::NotApplied),
            None => ("unreachable", RequestOutcome::Unknown),
        };
        let error = Expected { kind, code, outcome, retry_after_ms: None, reason: None };
        text += &line(&Answer { status, body: body.into(), error });
    }
    text
}

const OF_OTHERS: [(u16, &str); 6] = [
    (401, "<html>who are you</html>"),
    (403, ""),
    (404, "<html>not here</html>"),
    (502, "<html>bad gateway</html>"),
    (503, "{\"error\":\"no upstream\"}"),
    (500, "{\"code\":\"a_code_of_later\",\"outcome\":"),
];

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a code without a class of its own is a refusal"
)]
fn kind(code: Code) -> &'static str {
    match code {
        Code::LockHeld | Code::ReclaimWindow => "held",
        Code::Deadlock => "deadlock",
        Code::StaleFence => "stale_fence",
        _ => "refused",
    }
}

/// A body with all that the SDK reads of it.
#[expect(clippy::wildcard_enum_match_arm, reason = "most codes say nothing beside the detail")]
fn said_by_a_server(code: Code) -> Problem {
    let mut problem = Problem::new(code, format!("the detail of {code}"));
    problem.request_id = "8f2c9a".into();
    if code.is_retryable() {
        problem.recommended_retry_ms = Some(150);
    }
    match code {
        Code::InvalidRequest => return Problem::field("ttl_ms", "must be 100..86400000"),
        Code::LockHeld | Code::ReclaimWindow => {
            problem.current_owner_id = Some("worker-1".into());
            problem.holders = Some(vec![holder()]);
            problem.waiters = Some(2);
            problem.waited_ms = Some(50_000);
            problem.ticket = Some("t-1".into());
            problem.queue_position = Some(3);
        }
        Code::Deadlock => problem.cycle = Some(vec![edge("a", "x", "b"), edge("b", "y", "a")]),
        Code::StaleFence => problem.high_water = Some(41),
        Code::LeaseLost => problem.reason = Some(Gone::Expired),
        Code::GracePeriod => problem.grace_ends_in_ms = Some(1500),
        Code::NotLeader => problem.leader = Some("http://10.0.0.2:8080".into()),
        Code::RevisionCompacted => problem.oldest_revision = Some(1000),
        _ => {}
    }
    problem
}

fn holder() -> Holder {
    Holder {
        lock: "a".into(),
        owner_id: "worker-1".into(),
        mode: Mode::Exclusive,
        permits: None,
        state: LockState::Held,
        fencing_token: 40,
        acquired_at: "2026-01-01T00:00:00Z".into(),
        ttl_ms: 30_000,
        expires_at: "2026-01-01T00:00:30Z".into(),
        expires_in_ms: 29_000,
        session: None,
        metadata: [("value".to_string(), "10.0.0.7:9000".into())].into_iter().collect(),
        principal: None,
        hidden: false,
    }
}

fn edge(waiter: &str, lock: &str, blocker: &str) -> WaitEdge {
    WaitEdge { waiter: waiter.into(), lock: lock.into(), blocker: blocker.into(), hidden: false }
}
