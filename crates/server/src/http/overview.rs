//! The overview, the tree of names, and the limits in force.

use std::sync::Arc;

use axum::extract::State;
use leasehold_api::schema::LockPrefix;
use leasehold_api::{Limits, Overview, Series, TreePage};
use leasehold_core::{TreeQuery, is_prefix};

use super::encode::{Answered, ok};
use super::extract::{OnlyNamespace, Params};
use super::openapi::{NamespaceParam, Problems};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;

const PAGE_SIZE: usize = 200;
const PAGE_SIZE_MAX: usize = 1000;
/// The most locks that are counted for one page of the tree.
const COUNTED_MAX: usize = 100_000;

/// Get an overview
///
/// Numbers, the longest waits, the leases that end next, and the last ten minutes as series.
#[utoipa::path(
    get, path = "/v1/overview", operation_id = "get_overview", tag = "watch",
    params(NamespaceParam),
    responses((status = 200, description = "Numbers, the longest waits, the leases that end next", body = Overview), Problems)
)]
pub(crate) async fn overview(
    State(app): State<Arc<App>>,
    caller: Caller,
    OnlyNamespace(namespace): OnlyNamespace,
) -> Answered {
    let situation = app.overview(&caller, namespace).await?;
    let series = match situation.is_about_all {
        true => app.samples.series(),
        false => Series::default(),
    };
    ok(&convert::overview(app.now(), situation, series))
}

/// Held locks as a tree
///
/// Lists what follows a prefix up to the next slash, with counts.
#[utoipa::path(
    get, path = "/v1/tree", operation_id = "get_tree", tag = "locks",
    params(
        NamespaceParam,
        ("prefix" = Option<LockPrefix>, Query, description = "The branch to look into: what a name is up to and including a slash; the root if left out"),
        ("page_size" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "1 to 1000, 200 if left out"),
        ("page_token" = Option<String>, Query, description = "next_page_token of the page before"),
    ),
    responses((status = 200, description = "Locks and branches at this level, in the order of their names", body = TreePage), Problems)
)]
pub(crate) async fn tree(
    State(app): State<Arc<App>>,
    caller: Caller,
    mut params: Params,
) -> Answered {
    let namespace = params.namespace()?;
    let prefix = params.take("prefix").unwrap_or_default();
    if !is_prefix(&prefix) {
        return Err(Failure::field("prefix", "cannot begin the name of a lock"));
    }
    let after = params.take("page_token");
    if after.as_ref().is_some_and(|after| !is_prefix(after) || !after.starts_with(&prefix)) {
        return Err(Failure::field("page_token", "is not a valid page token"));
    }
    let len_max = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    params.done()?;
    let query =
        TreeQuery { namespace, prefix: prefix.clone(), after, len_max, looked_at_max: COUNTED_MAX };
    let tree = app.tree(&caller, query).await?;
    ok(&convert::tree(&prefix, &tree))
}

/// Get the limits
///
/// Returns the limits of this server.
#[utoipa::path(
    get, path = "/v1/limits", operation_id = "get_limits", tag = "service",
    responses((status = 200, description = "The limits of this server", body = Limits), Problems)
)]
pub(crate) async fn limits(State(app): State<Arc<App>>) -> Answered {
    let config = &app.config;
    let limits = &config.limits;
    ok(&Limits {
        ttl_min_ms: convert::millis(limits.lease_ttl_min),
        ttl_max_ms: convert::millis(limits.lease_ttl_max),
        reclaim_max_ms: convert::millis(limits.reclaim_window_max),
        disconnect_ttl_max_ms: convert::millis(limits.disconnect_ttl_max),
        set_max: limits.set_len_max as u64,
        permits_max: limits.permits_max.into(),
        metadata_bytes_max: limits.metadata_bytes_max as u64,
        waiters_per_lock_max: limits.waiters_per_scope_max as u64,
        waiters_max: limits.waiters_max as u64,
        locks_per_session_max: limits.locks_per_session_max as u64,
        sessions_per_adapter_max: limits.sessions_per_adapter_max as u64,
        registers_per_namespace_max: limits.registers_per_namespace_max as u64,
        registers_max: limits.registers_max as u64,
        namespaces_max: limits.namespaces_max as u64,
        ticket_kept_ms: convert::millis(limits.ticket_kept),
        kept_places_max: limits.kept_places_max as u64,
        body_bytes_max: config.body_bytes_max as u64,
        connections_max: config.connections_max as u64,
        connections_per_peer_max: config.connections_per_peer_max as u64,
        events_max: config.events_max as u64,
        history_endings_max: config.history.endings_max as u64,
        history_deadlocks_max: config.history.deadlocks_max as u64,
    })
}
