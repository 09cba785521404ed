//! Every path, and who answers it.

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use leasehold_api::Code;

use super::console as login;
use super::{
    auth, backup, fences, graph, health, history, inodes, locks, openapi, overview, sessions, sets,
    simple, tokens, watch,
};
use crate::console::files as console;
use crate::service::app::App;
use crate::service::problems::Failure;

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
        .route("/v1/backup", get(backup::get))
        .route("/v1/auth/self", get(auth::who_am_i))
        .route("/v1/auth/login", post(login::login))
        .route("/v1/auth/exchange", post(login::exchange))
        .route("/v1/auth/logout", post(login::logout))
        .route("/v1/auth/cluster-key/rotate", post(login::rotate_key))
        .route("/v1/auth/tokens", get(auth::tokens).post(auth::create))
        .route("/v1/auth/tokens/{token}", get(auth::token).delete(auth::revoke))
        .route("/v1/auth/tokens/{token}/rotate", post(auth::rotate))
        .route("/v1/auth/roles", get(auth::list_roles))
        .route(
            "/v1/auth/roles/{role}",
            get(auth::role).put(auth::put_role).delete(auth::delete_role),
        )
        .route("/v1/auth/revocations", post(auth::revoke_certificate))
        .route("/v1/auth/test", post(auth::test))
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
