//! The HTTP interface, one file for each kind of thing it speaks about.

pub(crate) mod extract;
pub(crate) mod locks;
pub(crate) mod sets;
pub(crate) mod sessions;
pub(crate) mod fences;
pub(crate) mod tokens;
pub(crate) mod inodes;
pub(crate) mod watch;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod overview;
pub(crate) mod simple;
pub(crate) mod health;
pub(crate) mod openapi;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{delete, get, post};
use leasehold_api::Code;
use serde::Serialize;

use crate::console::files as console;
use crate::service::app::App;
use crate::service::problems::Failure;

/// What a handler comes to.
pub(crate) type Answered = Result<Response, Failure>;

/// Every path there is.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/locks", get(locks::list))
        // A lock's name may have slashes: what a path asks for is told by its last part.
        .route("/v1/locks/", get(locks::get).post(locks::post))
        .route("/v1/locks/{*lock}", get(locks::get).post(locks::post))
        .route("/v1/sets/acquire", post(sets::acquire))
        .route("/v1/sessions", get(sessions::list).post(sessions::open))
        .route("/v1/sessions/{session_id}", get(sessions::get).delete(sessions::close))
        .route("/v1/sessions/{session_id}/keepalive", post(sessions::keepalive))
        .route("/v1/sessions/{session_id}/break", post(sessions::break_))
        .route("/v1/fences", get(fences::list))
        .route("/v1/fences/{*name}", get(fences::get).post(fences::post).delete(fences::delete))
        .route("/v1/tokens/{fencing_token}", get(tokens::get))
        .route("/v1/inodes/{inode}", delete(inodes::remove))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/events", get(watch::events))
        .route("/v1/graph", get(graph::graph))
        .route("/v1/history", get(history::history))
        .route("/v1/overview", get(overview::overview))
        .route("/v1/tree", get(overview::tree))
        .route("/v1/limits", get(overview::limits))
        .route("/v1/version", get(health::version))
        .route("/v1/cluster", get(health::cluster))
        .route("/lock", get(simple::get).post(simple::post).delete(simple::delete))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/healthz", get(health::healthz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::openapi))
        .route("/", get(console::front))
        .route("/console/{*path}", get(console::part))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .with_state(app)
}

async fn nothing_here() -> Failure {
    Failure::new(Code::NotFound, "no resource at this path; /openapi.json lists them all")
}

async fn not_that_way() -> Failure {
    Failure::new(Code::MethodNotAllowed, "the Allow header lists the methods of this path")
}

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
