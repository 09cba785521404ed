//! Answers and problems, on their way out.
//!
//! Handlers return a [`Failure`]; the outermost layer, which knows the request's id, writes it as problem+json. A path that
//! is not served, or a method that is not allowed, is turned into the same shape.

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold_api::{Code, Problem};
use leasehold_core::Timestamp;
use serde::Serialize;

use crate::convert;
use crate::service::delivery::DeliveryGuard;
use crate::service::problems::Failure;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The result of a handler.
pub(crate) type Answered = Result<Response, Failure>;

/// An answer in JSON.
pub(crate) fn json<T: Serialize>(status: StatusCode, answer: &T) -> Response {
    let body = serde_json::to_vec(answer).expect("an answer is plain data");
    with_type(status, HeaderValue::from_static("application/json"), body)
}

pub(crate) fn ok<T: Serialize>(answer: &T) -> Answered {
    Ok(json(StatusCode::OK, answer))
}

pub(crate) fn with_type(status: StatusCode, kind: HeaderValue, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// An answer from which something was left out that its caller may not see.
pub(crate) fn filtered(mut response: Response) -> Response {
    response.headers_mut().insert("leasehold-filtered", HeaderValue::from_static("true"));
    response
}

/// An answer that gives something.
pub(crate) fn guarded(mut response: Response, guard: Option<DeliveryGuard>) -> Response {
    if let Some(guard) = guard {
        response.extensions_mut().insert(guard);
    }
    response
}

/// A problem as the whole answer; [`finish`] writes it.
pub(crate) fn problem(problem: Problem) -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(problem);
    response
}

impl IntoResponse for Failure {
    /// An empty answer that carries the failure; [`finish`] writes it.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status(self.code().http_status());
        response.extensions_mut().insert(self);
        response
    }
}

/// Adds the headers by which a browser trusts the media type, shows an answer to our own pages alone, and keeps nothing.
pub(crate) fn guard_browser(headers: &mut HeaderMap, cookie: Option<HeaderValue>) {
    const RULES: [(&str, &str); 4] = [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ];
    for (name, value) in RULES {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    // One that logs in or out has one already.
    if let Some(cookie) = cookie
        && !headers.contains_key(SET_COOKIE)
    {
        headers.insert(SET_COOKIE, cookie);
    }
}

/// Writes the problem that a response carries, if it carries one.
pub(crate) fn finish(
    now: Timestamp,
    mut response: Response,
    request_id: &str,
) -> (Response, Option<Code>) {
    let extensions = response.extensions_mut();
    let failure = extensions.remove::<Failure>().map(|failure| convert::problem(now, &failure));
    let Some(mut problem) = failure.or_else(|| extensions.remove::<Problem>()) else {
        return (response, None);
    };
    problem.request_id = request_id.into();
    let code = problem.code;
    let body = serde_json::to_vec(&problem).expect("a problem is plain data");
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status(problem.status);
    let headers = answer.headers_mut();
    if let Some(allowed) = response.headers_mut().remove(ALLOW) {
        headers.insert(ALLOW, allowed);
    }
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    if let Some(after) = problem.recommended_retry_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.div_ceil(1000)));
    }
    if code == Code::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if closes_connection(code) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    (answer, Some(code))
}

fn status(number: u16) -> StatusCode {
    StatusCode::from_u16(number).expect("every code has a status that exists")
}

/// Tests for problems after which the rest of the request is not worth reading.
fn closes_connection(code: Code) -> bool {
    matches!(code, Code::TooLarge | Code::RequestTimeout | Code::MisdirectedRequest)
}
