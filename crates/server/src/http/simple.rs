//! The simple interface: one lock for everybody, and nothing for the client to keep.
//!
//! It is a named lock in a namespace of its own, held by an owner with the client's name. The client shows neither lease
//! nor token: the rules find the client's grant by its name and act on it in the same step, also after a restart with
//! other settings. Nothing else may take what is in that namespace.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use leasehold_api::schema::Name;
use leasehold_api::{
    Code, DurationError, SimpleHeld, SimpleRefused, SimpleReleased, SimpleState, format_duration,
    parse_duration,
};
use leasehold_core::{
    Answer, ByOwner, Command, Conflict, Holder, HolderState, Key, Namespace, Owner, OwnerAction,
    Principal, Refusal, Scope, Timestamp,
};
use leasehold_engine::{CallError, Query, View};

use super::locks::{outcome, unexpected};
use super::{Answered, extract, json, ok};
use crate::convert;
use crate::http::openapi::{BodyProblems, Problems};
use crate::service::app::App;
use crate::service::problems::Failure;
use crate::service::random;
use crate::telemetry::metrics::{Op, Stopwatch};

const LOCK: &str = "lock";
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
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Answered {
    let uri = extract::no_body(&app, request, BODY_HINT).await?;
    let mut params = extract::Params::of(&uri)?;
    let client = client(&mut params)?;
    let ttl = ttl(&app, params.take("ttl"))?;
    params.done()?;
    let watch = Stopwatch::start();
    let taken = take(&app, &client, ttl).await;
    let (op, counted) = match &taken {
        Ok(Taken::Anew(_)) => (Op::Acquire, Ok(())),
        Ok(Taken::Renewed(_)) => (Op::Renew, Ok(())),
        Ok(Taken::Refused(_)) => (Op::Acquire, Err(Code::LockHeld)),
        Err(failure) => (Op::Acquire, Err(failure.0.code)),
    };
    if op == Op::Acquire {
        app.metrics.acquired(namespace().as_str(), "named", watch.took(), Duration::ZERO, counted);
    } else {
        app.metrics.answered(op, watch.took(), counted);
    }
    match taken? {
        Taken::Anew(deadline) | Taken::Renewed(deadline) => {
            ok(&SimpleHeld { holder: client.to_string(), expires_at: convert::moment(deadline) })
        }
        Taken::Refused(refused) => Ok(json(StatusCode::CONFLICT, &refused)),
    }
}

/// What came of asking for the lock.
enum Taken {
    Anew(Timestamp),
    Renewed(Timestamp),
    Refused(SimpleRefused),
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
pub(crate) async fn delete(State(app): State<Arc<App>>, request: Request) -> Answered {
    let uri = extract::no_body(&app, request, BODY_HINT).await?;
    let mut params = extract::Params::of(&uri)?;
    let client = client(&mut params)?;
    params.done()?;
    let watch = Stopwatch::start();
    let released = give_back(&app, &client).await;
    let counted = match &released {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Code::NotHolder),
        Err(_) => outcome(&released),
    };
    app.metrics.answered(Op::Release, watch.took(), counted);
    match released? {
        None => ok(&SimpleReleased { released: true }),
        Some(refused) => Ok(json(StatusCode::FORBIDDEN, &refused)),
    }
}

/// Get the lock
///
/// Returns the holder of the lock, and until when.
#[utoipa::path(
    get, path = "/lock", operation_id = "get_simple_lock", tag = "simple",
    responses((status = 200, description = "Who holds it", body = SimpleState), Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    extract::Params::of(&uri)?.done()?;
    let query = Query::Get { namespace: namespace(), scope: Scope::Key(key()) };
    let View::Lock(view) = app.query(query).await? else { return Err(unexpected()) };
    ok(&match view.holders.first() {
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

fn client(params: &mut extract::Params) -> Result<Owner, Failure> {
    let client = params.take("client").ok_or_else(|| Failure::field("client", "is missing"))?;
    Owner::of(&Principal::ANONYMOUS, &client)
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

fn namespace() -> Namespace {
    Namespace::new(convert::SIMPLE_NAMESPACE).expect("the namespace is a name")
}

fn key() -> Key {
    match Scope::parse(LOCK) {
        Ok(Scope::Key(key)) => key,
        Ok(Scope::Range { .. }) | Err(_) => unreachable!("the lock is a name"),
    }
}

async fn ask(app: &App, client: &Owner, action: OwnerAction) -> Result<Answer, CallError> {
    let namespace = namespace();
    let engine = app.engine(&namespace);
    let ask = ByOwner { namespace: namespace.clone(), key: key(), owner: client.clone(), action };
    engine.command(Command::ByOwner(ask)).await
}

async fn take(app: &App, client: &Owner, ttl: Duration) -> Result<Taken, Failure> {
    let reclaim_window = app.config.simple_grace;
    let hold = OwnerAction::Hold { lease: random::lease_id(), ttl, reclaim_window };
    match ask(app, client, hold).await {
        Ok(Answer::Granted(grant)) if grant.replayed => Ok(Taken::Renewed(grant.deadline)),
        Ok(Answer::Granted(grant)) => Ok(Taken::Anew(grant.deadline)),
        Ok(_) => Err(unexpected()),
        Err(CallError::Refused(Refusal::Held(conflict))) => {
            Ok(Taken::Refused(refused(&conflict, "lock is held")))
        }
        Err(CallError::Refused(Refusal::ReclaimWindow(conflict))) => {
            Ok(Taken::Refused(refused(&conflict, "grace period active")))
        }
        Err(error) => Err(app.failure(&error)),
    }
}

/// `None` once it is given back.
async fn give_back(app: &App, client: &Owner) -> Result<Option<SimpleRefused>, Failure> {
    const MESSAGE: &str = "not the holder";
    match ask(app, client, OwnerAction::Release).await {
        Ok(Answer::Released { .. }) => Ok(None),
        Ok(_) => Err(unexpected()),
        Err(CallError::Refused(Refusal::Held(conflict) | Refusal::ReclaimWindow(conflict))) => {
            Ok(Some(refused(&conflict, MESSAGE)))
        }
        Err(CallError::Refused(Refusal::NotHolder { .. })) => Ok(Some(SimpleRefused {
            holder: String::new(),
            expires_at: None,
            message: MESSAGE.into(),
        })),
        Err(error) => Err(app.failure(&error)),
    }
}

fn refused(conflict: &Conflict, message: &str) -> SimpleRefused {
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
