//! The access log, `leasehold::access`: one line for one request.

use std::borrow::Cow;
use std::net::SocketAddr;

use axum::http::{Method, Uri};
use leasehold_api::Code;

use crate::config::AccessLog;
use crate::convert;
use crate::grpc;
use crate::http::locks;
use crate::telemetry::metrics::Stopwatch;

/// The fields of a line about one request.
pub(crate) struct Line<'a> {
    pub(crate) peer: SocketAddr,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) status: u16,
    pub(crate) code: Option<Code>,
    pub(crate) request_id: &'a str,
    pub(crate) watch: Stopwatch,
}

pub(crate) fn is_wanted(set: AccessLog, code: Option<Code>) -> bool {
    match set {
        AccessLog::All => true,
        AccessLog::Errors => code.is_some_and(|code| !is_refusal(code)),
        AccessLog::Off => false,
    }
}

/// One line for one request, without anything secret: a session's id is part of its path.
pub(crate) fn write(line: &Line<'_>) {
    let (route, lock) = route(line.method, line.uri.path());
    tracing::info!(
        target: "leasehold::access",
        method = %line.method,
        route,
        lock = lock.as_deref(),
        status = line.status,
        code = line.code.map(Code::as_str),
        request_id = line.request_id,
        peer = %line.peer,
        took_us = u64::try_from(line.watch.took().as_micros()).unwrap_or(u64::MAX),
        "request"
    );
}

/// The operation behind a path, as far as it may be logged, and the lock that it names.
fn route(method: &Method, path: &str) -> (&'static str, Option<String>) {
    const WHOLE: [&str; 25] = [
        "/",
        "/v1/locks",
        "/v1/sets/acquire",
        "/v1/sessions",
        "/v1/fences",
        "/v1/watch",
        "/v1/events",
        "/v1/graph",
        "/v1/history",
        "/v1/overview",
        "/v1/tree",
        "/v1/limits",
        "/v1/version",
        "/v1/cluster",
        "/metrics",
        "/livez",
        "/readyz",
        "/healthz",
        "/openapi.json",
        "/lock",
        "/v1/auth/self",
        "/v1/auth/tokens",
        "/v1/auth/roles",
        "/v1/auth/test",
        "/v1/locks/",
    ];
    if let Some(method) = grpc::method(path) {
        return (method, None);
    }
    if let Some(lock) = path.strip_prefix("/v1/locks/").filter(|lock| !lock.is_empty()) {
        let (lock, route) = match locks::verb_of(path).filter(|_| *method == Method::POST) {
            Some((lock, verb)) => (lock, locks::route_of(verb)),
            None => (lock, "/v1/locks/{lock}"),
        };
        return (route, convert::percent_decoded(lock).map(Cow::into_owned));
    }
    if let Some(whole) = WHOLE.into_iter().find(|&whole| whole == path) {
        return (whole, None);
    }
    for (prefix, route) in [
        ("/v1/auth/tokens/", "/v1/auth/tokens/{token}"),
        ("/v1/auth/roles/", "/v1/auth/roles/{role}"),
        ("/v1/sessions/", "/v1/sessions/{session_id}"),
        ("/v1/fences/", "/v1/fences/{name}"),
        ("/v1/inodes/", "/v1/inodes/{inode}"),
        ("/v1/tokens/", "/v1/tokens/{fencing_token}"),
        ("/console/", "/console/{path}"),
    ] {
        if path.starts_with(prefix) {
            return (route, None);
        }
    }
    ("unknown", None)
}

/// An expected "no": an answer, not a failure.
fn is_refusal(code: Code) -> bool {
    matches!(code.http_status(), 409 | 410 | 412)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_session_is_never_logged() {
        let path = "/v1/sessions/0123456789abcdef0123456789abcdef/keepalive";
        assert_eq!(route(&Method::POST, path), ("/v1/sessions/{session_id}", None));
        assert_eq!(route(&Method::GET, "/0123"), ("unknown", None));
    }

    #[test]
    fn lock_of_a_request_is_logged_without_the_verb() {
        let acquire = ("/v1/locks/{lock}/acquire", Some("a/b".into()));
        assert_eq!(route(&Method::POST, "/v1/locks/a%2Fb/acquire"), acquire);
        let get = |lock: &str| ("/v1/locks/{lock}", Some(lock.into()));
        assert_eq!(route(&Method::GET, "/v1/locks/a%2Fb"), get("a/b"));
        assert_eq!(route(&Method::GET, "/v1/locks/a%2Facquire"), get("a/acquire"));
    }
}
