//! Several locks at once.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use leasehold_api::{AcquireRequest, AcquireSetRequest, Problem, SetGrant};
use leasehold_core::Claim;

use super::{Answered, extract, json, locks};
use crate::convert;
use crate::http::openapi::{BodyProblems, NamespaceParam, NotFound};
use crate::service::app::App;
use crate::service::problems::Failure;
use crate::telemetry::metrics::Stopwatch;

/// Acquire a set of locks, all or nothing
///
/// Grants up to 64 locks at once: all or nothing, under one lease with one fencing token. Renewed and released
/// as a session.
#[utoipa::path(
    post, path = "/v1/sets/acquire", operation_id = "acquire_set", tag = "locks",
    params(NamespaceParam),
    request_body = AcquireSetRequest,
    responses(
        (status = 200, description = "All of them were granted, under one lease and one token", body = SetGrant),
        (status = 409, description = "as for one lock; none of them was granted",
            body = Problem, content_type = "application/problem+json"),
        NotFound, BodyProblems,
    )
)]
pub(crate) async fn acquire(State(app): State<Arc<App>>, request: Request) -> Answered {
    let watch = Stopwatch::start();
    let asked = async {
        let namespace = extract::only_namespace(request.uri())?;
        let body: AcquireSetRequest = extract::json(&app, request).await?;
        let claims = body.locks.iter().enumerate().map(|(at, claim)| read_claim(at, claim));
        let claims = claims.collect::<Result<Vec<Claim>, Failure>>()?;
        Ok((claims.clone(), convert::acquire(namespace, claims, &as_one(body))?))
    };
    let (claims, acquire) = match asked.await {
        Ok(asked) => asked,
        Err(failure) => return locks::not_asked(&app, watch, failure),
    };
    let namespace = acquire.namespace.clone();
    let (grant, given) = locks::granted(&app, watch, "set", acquire).await?;
    let grant = convert::set_grant(app.now(), app.epoch(&namespace), &claims, &grant);
    locks::giving(json(StatusCode::OK, &grant), given)
}

fn read_claim(at: usize, claim: &leasehold_api::Claim) -> Result<Claim, Failure> {
    let named = |mut failure: Failure| {
        for error in &mut failure.0.errors {
            error.field = format!("locks[{at}].{}", error.field);
        }
        failure
    };
    let scope = convert::scope(&claim.lock)?;
    Ok(Claim { scope, mode: convert::mode(claim.mode, claim.permits).map_err(named)? })
}

/// What a set is asked with beside its locks.
fn as_one(body: AcquireSetRequest) -> AcquireRequest {
    AcquireRequest {
        owner_id: body.owner_id,
        ttl_ms: body.ttl_ms,
        wait_ms: body.wait_ms,
        mode: None,
        permits: None,
        session_id: body.session_id,
        request_id: body.request_id,
        reclaim_ms: body.reclaim_ms,
        reclaim: body.reclaim,
        ticket: body.ticket,
        metadata: body.metadata,
    }
}
