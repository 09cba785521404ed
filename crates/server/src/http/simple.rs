//! The simple interface: one lock for everyone, and nothing for the client to keep.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use leasehold_api::schema::Name;
use leasehold_api::{
    DurationError, SimpleHeld, SimpleRefused, SimpleReleased, SimpleState, format_duration,
    parse_duration,
};
use leasehold_core::{Conflict, Holder, HolderState, Owner, Timestamp};

use super::encode::{Answered, json, ok};
use super::extract::{self, Params};
use super::openapi::{BodyProblems, Problems};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use crate::service::simple::{Held, Refused};

const BODY_HINT: &str = "write the parameters into the query, as in /lock?client=me&ttl=30s";
const TTL: Duration = Duration::from_secs(30);

/// Acquire or renew the lock
///
/// Acquires the lock, or renews it if the same client holds it. Parameters go into the query; there is no body.
#[utoipa::path(
    post, path = "/lock", operation_id = "take_simple_lock", tag = "simple",
    params(
        ("client" = Name, Query, description = "The name of the client; the same client renews"),
        ("ttl" = Option<String>, Query, description = "30s, 1m30s, 1.5h, 1500ms or a number of seconds; 30s if left out"),
    ),
    responses(
        (status = 200, description = "The client holds the lock", body = SimpleHeld),
        (status = 409, description = "Another client holds it, or its grace is active", body = SimpleRefused),
        BodyProblems,
    )
)]
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let uri = extract::no_body(&app, request, BODY_HINT).await?;
    let mut params = Params::of(&uri)?;
    let client = client(&caller, &mut params)?;
    let ttl = ttl(&app, params.take("ttl"))?;
    params.done()?;
    let holder = client.to_string();
    match app.hold_simple(&caller, client, ttl).await? {
        Held::Anew(deadline) | Held::Renewed(deadline) => {
            ok(&SimpleHeld { holder, expires_at: convert::moment(deadline) })
        }
        Held::Refused(refused) => {
            Ok(json(StatusCode::CONFLICT, &shown(&refused, "lock is held", "grace period active")))
        }
    }
}

/// Release the lock
///
/// Releases the lock. Only its holder can.
#[utoipa::path(
    delete, path = "/lock", operation_id = "release_simple_lock", tag = "simple",
    params(("client" = Name, Query, description = "The holder, or the last holder inside its grace")),
    responses(
        (status = 200, description = "It is free", body = SimpleReleased),
        BodyProblems,
        (status = 403, description = "The client does not hold it; or permission_denied: a page of another site may not change anything",
            content((SimpleRefused = "application/json"), (leasehold_api::Problem = "application/problem+json"))),
    )
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    const MESSAGE: &str = "not the holder";
    let uri = extract::no_body(&app, request, BODY_HINT).await?;
    let mut params = Params::of(&uri)?;
    let client = client(&caller, &mut params)?;
    params.done()?;
    match app.release_simple(&caller, client).await? {
        None => ok(&SimpleReleased { released: true }),
        Some(refused) => Ok(json(StatusCode::FORBIDDEN, &shown(&refused, MESSAGE, MESSAGE))),
    }
}

/// Get the lock
///
/// Returns the holder of the lock, and until when.
#[utoipa::path(
    get, path = "/lock", operation_id = "get_simple_lock", tag = "simple",
    responses((status = 200, description = "Who holds it", body = SimpleState), Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, caller: Caller, params: Params) -> Answered {
    params.done()?;
    ok(&match &app.simple_holder(&caller).await? {
        None => SimpleState {
            holder: String::new(),
            expires_at: None,
            is_expired: true,
            grace_until: None,
        },
        Some(holder) => SimpleState {
            holder: holder.owner.to_string(),
            expires_at: Some(convert::moment(expiry(holder))),
            is_expired: holder.state == HolderState::ReclaimWindow,
            grace_until: Some(convert::moment(expiry(holder).plus(holder.reclaim_window))),
        },
    })
}

fn client(caller: &Caller, params: &mut Params) -> Result<Owner, Failure> {
    let client = params.take("client").ok_or_else(|| Failure::field("client", "is missing"))?;
    Owner::of(&caller.principal, &client)
        .map_err(|fault| Failure::field("client", fault.to_string()))
}

/// The ttl that was asked for, or the usual one as far as the limits allow it.
fn ttl(app: &App, given: Option<String>) -> Result<Duration, Failure> {
    let (min, max) = (app.config.limits.lease_ttl_min, app.config.limits.lease_ttl_max);
    let Some(given) = given else { return Ok(TTL.clamp(min, max)) };
    // A plus sign that was not encoded arrives as a blank.
    let text = given.strip_prefix(' ').unwrap_or(&given);
    let fault = match parse_duration(text) {
        Ok(ttl) if (min..=max).contains(&ttl) => return Ok(ttl),
        Ok(ttl) if ttl < min => limit("short", min, max),
        Ok(_) | Err(DurationError::TooLong(_)) => limit("long", min, max),
        Err(DurationError::Negative(_)) => limit("short", min, max),
        Err(fault @ (DurationError::Empty | DurationError::Malformed(_))) => fault.to_string(),
    };
    Err(Failure::field("ttl", fault))
}

fn limit(too: &str, min: Duration, max: Duration) -> String {
    let (min, max) = (format_duration(min), format_duration(max));
    format!("is too {too}: it must be {min} to {max}")
}

fn shown(refused: &Refused, held: &str, reclaim_window: &str) -> SimpleRefused {
    match refused {
        Refused::Held(conflict) => held_by(conflict, held),
        Refused::ReclaimWindow(conflict) => held_by(conflict, reclaim_window),
        Refused::NotHeld => {
            SimpleRefused { holder: String::new(), expires_at: None, message: held.into() }
        }
    }
}

fn held_by(conflict: &Conflict, message: &str) -> SimpleRefused {
    let holder = conflict.holders.first();
    SimpleRefused {
        holder: holder.map_or(String::new(), |holder| holder.owner.to_string()),
        expires_at: holder.map(|holder| convert::moment(expiry(holder))),
        message: message.into(),
    }
}

/// When the lease expires or did: inside the window the deadline shown is that of the window.
fn expiry(holder: &Holder) -> Timestamp {
    match holder.state {
        HolderState::Held | HolderState::Recovering => holder.deadline,
        HolderState::ReclaimWindow => {
            let window = u64::from(holder.reclaim_window.get());
            Timestamp::from_millis(holder.deadline.as_millis().saturating_sub(window))
        }
    }
}
