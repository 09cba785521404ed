//! Several locks at once.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use leasehold_api::{AcquireRequest, AcquireSetRequest, Problem, SetGrant};
use leasehold_core::{Acquire, Claim};

use super::encode::{Answered, guarded, json};
use super::extract;
use super::openapi::{BodyProblems, NamespaceParam, NotFound};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;

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
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let asked = asked(&app, &caller, request).await;
    let granted = app.acquire(&caller, asked).await?;
    let answer = json(StatusCode::OK, &convert::set_grant(app.now(), &granted));
    Ok(guarded(answer, granted.guard))
}

async fn asked(app: &App, caller: &Caller, request: Request) -> Result<Acquire, Failure> {
    let namespace = extract::only_namespace(request.uri())?;
    let body: AcquireSetRequest = extract::json(app, request).await?;
    let claims = body.locks.iter().enumerate().map(|(at, claim)| read_claim(at, claim));
    let claims = claims.collect::<Result<Vec<Claim>, Failure>>()?;
    convert::acquire(&caller.principal, namespace, claims, &as_one(body))
}

fn read_claim(at: usize, claim: &leasehold_api::Claim) -> Result<Claim, Failure> {
    let scope = convert::scope(&claim.lock)?;
    let mode = convert::mode(claim.mode, claim.permits);
    Ok(Claim { scope, mode: mode.map_err(|failure| failure.within(&format!("locks[{at}]")))? })
}

/// The fields of a set beside its locks, as a request for one lock.
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
