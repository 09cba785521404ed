//! Every error leaves as problem+json, with the id of its request, whoever found it.
//!
//! Handlers return a [`Failure`]; the outermost layer, which knows the request's id, writes it. Whatever the framework
//! answers by itself (a path nobody serves, a method that is not allowed) is turned into the same shape.

use axum::body::Body;
use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold_api::{Code, Problem};

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A problem on its way out. Boxed: errors are rare, and every handler would carry their size around.
#[derive(Clone, Debug)]
pub(crate) struct Failure(pub(crate) Box<Problem>);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure(Box::new(problem))
    }
}

impl Failure {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Failure {
        Problem::new(code, detail).into()
    }

    /// A request of which one field is wrong.
    pub(crate) fn field(field: impl Into<String>, message: impl Into<String>) -> Failure {
        Problem::field(field, message).into()
    }
}

impl IntoResponse for Failure {
    /// An empty answer that carries the problem; [`finish`] writes it.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status(&self.0);
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the problem that a response carries, if it carries one.
pub(crate) fn finish(mut response: Response, request_id: &str) -> (Response, Option<Code>) {
    let Some(Failure(mut problem)) = response.extensions_mut().remove::<Failure>() else {
        return (response, None);
    };
    problem.request_id = request_id.into();
    let code = problem.code;
    let body = serde_json::to_vec(&problem).expect("a problem is plain data");
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status(&problem);
    let headers = answer.headers_mut();
    if let Some(allowed) = response.headers_mut().remove(ALLOW) {
        headers.insert(ALLOW, allowed);
    }
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    if let Some(after) = problem.recommended_retry_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.div_ceil(1000)));
    }
    if closes_connection(code) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    (answer, Some(code))
}

/// What is left of such a request on the connection is not worth reading.
fn closes_connection(code: Code) -> bool {
    matches!(code, Code::TooLarge | Code::RequestTimeout | Code::MisdirectedRequest)
}

fn status(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).expect("every code has a status that exists")
}
