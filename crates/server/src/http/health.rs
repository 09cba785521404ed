//! Is it well, who leads, which version is it, what has it counted.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use leasehold_api::{Check, Cluster, Code, Health, Problem, Version};
use leasehold_engine::{Phase, Status};

use super::encode::{Answered, ok, problem, with_type};
use super::extract::Params;
use crate::convert::{self, retry};
use crate::http::openapi::Problems;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::RETRY_SOON;
use crate::telemetry::metrics::Format;
use crate::telemetry::readings::Readings;

/// Liveness
///
/// Answers as long as the process serves at all.
#[utoipa::path(get, path = "/livez", operation_id = "get_livez", tag = "service",
    responses((status = 200, description = "It does", body = Health), Problems))]
pub(crate) async fn livez(mut params: Params) -> Answered {
    let _ = params.take("verbose");
    params.done()?;
    ok(&Health { status: "alive".into(), checks: Vec::new() })
}

/// Readiness
///
/// Answers 200 while requests for locks are served. With `verbose`, and whenever it is not ready, each check is
/// listed.
#[utoipa::path(get, path = "/readyz", operation_id = "get_readyz", tag = "service",
    params(("verbose" = Option<String>, Query, description = "Include the state of each part")),
    responses(
        (status = 200, description = "They are", body = Health),
        (status = 503, description = "store_unavailable, not_leader or draining", body = Problem, content_type = "application/problem+json"),
        Problems,
    ))]
pub(crate) async fn readyz(State(app): State<Arc<App>>, mut params: Params) -> Answered {
    let verbose = params.take("verbose").is_some();
    params.done()?;
    let status = app.groups.worst().status();
    if let Some(not_ready) = not_ready(&status) {
        return Ok(problem(not_ready));
    }
    let checks = if verbose { checks(&status) } else { Vec::new() };
    ok(&Health { status: "ready".into(), checks })
}

fn not_ready(status: &Status) -> Option<Problem> {
    let (code, said): (Code, String) = match (status.phase, &status.store_failure) {
        (Phase::Leading, None) => return None,
        (Phase::Leading, Some(reason)) => (Code::StoreUnavailable, reason.to_string()),
        (Phase::Starting, None) => (Code::NotLeader, "the server is starting".into()),
        (Phase::Starting | Phase::Doubtful | Phase::Following, Some(reason)) => {
            (Code::NotLeader, reason.to_string())
        }
        (Phase::Doubtful, None) => {
            (Code::NotLeader, "the leadership could not be confirmed in time".into())
        }
        // What is for the leader goes there.
        (Phase::Following, None) if status.leader.is_some() => return None,
        (Phase::Following, None) => (Code::NotLeader, "no leader is known".into()),
        (Phase::Draining | Phase::Stopped, _) => (Code::Draining, "the server is stopping".into()),
    };
    Some(Problem {
        recommended_retry_ms: Some(retry::not_before(RETRY_SOON)),
        checks: checks(status),
        ..Problem::new(code, said)
    })
}

fn checks(status: &Status) -> Vec<Check> {
    let store = match &status.store_failure {
        None => format!("{}: writable", status.store),
        Some(reason) => format!("{}: {reason}", status.store),
    };
    vec![
        Check {
            name: "leadership".into(),
            ok: leads(status),
            detail: match (&status.leader, status.phase) {
                (Some(leader), _) => format!("{} leads, epoch {}", leader.name, status.epoch.0),
                (None, Phase::Leading) => format!("this server leads, epoch {}", status.epoch.0),
                (None, Phase::Starting) => "the server is starting".into(),
                (None, Phase::Doubtful) => "could not be confirmed in time".into(),
                (None, Phase::Following) => "no leader is known".into(),
                (None, Phase::Draining | Phase::Stopped) => "the server is stopping".into(),
            },
        },
        Check { name: "store".into(), ok: status.store_failure.is_none(), detail: store },
        Check {
            name: "recovery".into(),
            ok: true,
            detail: match &status.grace {
                Some(grace) => format!("grace active, leases not yet renewed: {}", grace.expected),
                None => "no grace".into(),
            },
        },
    ]
}

/// Whether it is known who decides.
fn leads(status: &Status) -> bool {
    match status.phase {
        Phase::Leading => true,
        Phase::Following => status.leader.is_some(),
        Phase::Starting | Phase::Doubtful | Phase::Draining | Phase::Stopped => false,
    }
}

/// Health of each part
///
/// As `/readyz?verbose`: every check, and 503 if one fails.
#[utoipa::path(get, path = "/healthz", operation_id = "get_healthz", tag = "service",
    responses(
        (status = 200, description = "All is well", body = Health),
        (status = 503, description = "store_unavailable, not_leader or draining", body = Problem, content_type = "application/problem+json"),
        Problems,
    ))]
pub(crate) async fn healthz(State(app): State<Arc<App>>) -> Answered {
    let status = app.groups.worst().status();
    match not_ready(&status) {
        Some(not_ready) => Ok(problem(not_ready)),
        None => ok(&Health { status: "ok".into(), checks: checks(&status) }),
    }
}

/// Get the version
///
/// Returns name and version of the server, and the versions of this interface.
#[utoipa::path(get, path = "/v1/version", operation_id = "get_version", tag = "service",
    responses((status = 200, description = "Name and version", body = Version), Problems))]
pub(crate) async fn version() -> Answered {
    ok(&convert::version())
}

/// Get the cluster
///
/// Returns this server's role, the leader of each group of namespaces, and the servers that share the store.
#[utoipa::path(get, path = "/v1/cluster", operation_id = "get_cluster", tag = "service",
    responses((status = 200, description = "This server, and the leader of each group", body = Cluster), Problems))]
pub(crate) async fn cluster(State(app): State<Arc<App>>, caller: Caller) -> Answered {
    let view = app.cluster(&caller).await;
    ok(&convert::cluster(app.now(), &app.name, &app.address, view))
}

/// Metrics for Prometheus
///
/// Counters, gauges and histograms.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "service",
    responses((status = 200, description = "Text in the format of Prometheus, or OpenMetrics if Accept asks for it",
            content((String = "text/plain"), (String = "application/openmetrics-text"))), Problems))]
pub(crate) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Answered {
    let readings = Readings::now(&app).await;
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::asked_by(accept);
    let text = app.metrics.text(readings, format);
    Ok(with_type(StatusCode::OK, HeaderValue::from_static(format.content_type()), text))
}
