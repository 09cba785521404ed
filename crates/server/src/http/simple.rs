//! The simple interface: one lock for everybody, and nothing for the client to keep.
//!
//! It is a named lock in a namespace of its own, held by an owner with the client's name. The client shows neither lease
//! nor token, so the server has to find them again, also after a restart: every acquire carries the same request id and
//! the same ttl, hence a repetition by the same client gets the same grant back, and a renewal then gives it the ttl that
//! was asked for.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use leasehold_api::schema::Name;
use leasehold_api::{Code, SimpleHeld, SimpleRefused, SimpleReleased, SimpleState};
use leasehold_core::{
    Acquire, Answer, CallId, Claim, Command, Conflict, Grant, Holder, HolderState, Mode, Namespace,
    Owner, Refusal, Release, Renew, RequestId, Scope, Timestamp, Under, Wait,
};
use leasehold_engine::{CallError, Query, View};

use super::locks::{outcome, unexpected};
use super::{Answered, input, json, ok};
use crate::app::App;
use crate::convert;
use crate::metrics::{Op, Stopwatch};
use crate::openapi::{BodyProblems, Problems};
use crate::problem::Failure;
use crate::random;

const NAMESPACE: &str = "leasehold.simple";
const LOCK: &str = "lock";
const REQUEST: &str = "simple";
const BODY_HINT: &str = "write the parameters into the query, as in /lock?client=me&ttl=30s";
const TTL: Duration = Duration::from_secs(30);

/// Take or renew the lock
#[utoipa::path(
    post, path = "/lock", tag = "simple",
    params(
        ("client" = Name, Query, description = "Who asks; the same client renews"),
        ("ttl" = Option<String>, Query, pattern = r"^([0-9]+(ms|s|m|h|d)?)+$", description = "30s, 1m30s, 1500ms or whole seconds; 30s if left out"),
    ),
    responses(
        (status = 200, description = "The client holds the lock", body = SimpleHeld),
        (status = 409, description = "Somebody else does, or may still take it back", body = SimpleRefused),
        BodyProblems,
    )
)]
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Answered {
    let uri = input::no_body(&app, request, BODY_HINT).await?;
    let mut params = input::Params::of(&uri)?;
    let client = client(&mut params)?;
    let ttl = params.duration("ttl")?.unwrap_or(TTL);
    params.done()?;
    check_ttl(&app, ttl)?;
    let watch = Stopwatch::start();
    let taken = take(&app, &client, ttl).await;
    let (op, counted) = match &taken {
        Ok(Taken::Anew(_)) => (Op::Acquire, Ok(())),
        Ok(Taken::Renewed(_)) => (Op::Renew, Ok(())),
        Ok(Taken::Refused(_)) => (Op::Acquire, Err(Code::LockHeld)),
        Err(failure) => (Op::Acquire, Err(failure.0.code)),
    };
    app.metrics.answered(op, watch.took(), counted);
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

/// Give the lock back
#[utoipa::path(
    delete, path = "/lock", tag = "simple",
    params(("client" = Name, Query, description = "Who holds it")),
    responses(
        (status = 200, description = "It is free", body = SimpleReleased),
        BodyProblems,
        (status = 403, description = "The client does not hold it; or permission_denied: a page of another site may not change anything",
            content((SimpleRefused = "application/json"), (leasehold_api::Problem = "application/problem+json"))),
    )
)]
pub(crate) async fn delete(State(app): State<Arc<App>>, request: Request) -> Answered {
    let uri = input::no_body(&app, request, BODY_HINT).await?;
    let mut params = input::Params::of(&uri)?;
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

/// Look at the lock
#[utoipa::path(
    get, path = "/lock", tag = "simple",
    responses((status = 200, description = "Who holds it", body = SimpleState), Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    input::Params::of(&uri)?.done()?;
    let grace = app.config.simple_grace;
    ok(&match holder(&app).await? {
        None => SimpleState {
            holder: String::new(),
            expires_at: None,
            is_expired: true,
            grace_until: None,
        },
        Some(holder) => {
            let expires_at = lapse(&holder, grace);
            let grace_until =
                Timestamp::from_millis(expires_at.as_millis() + convert::millis(grace));
            SimpleState {
                holder: holder.owner.to_string(),
                expires_at: Some(convert::moment(expires_at)),
                is_expired: holder.state == HolderState::ReclaimWindow,
                grace_until: Some(convert::moment(grace_until)),
            }
        }
    })
}

fn client(params: &mut input::Params) -> Result<Owner, Failure> {
    let client = params.take("client").ok_or_else(|| Failure::field("client", "is missing"))?;
    Owner::new(&client).map_err(|fault| Failure::field("client", fault.to_string()))
}

fn check_ttl(app: &App, ttl: Duration) -> Result<(), Failure> {
    let (min, max) = (app.config.limits.lease_ttl_min, app.config.limits.lease_ttl_max);
    if (min..=max).contains(&ttl) {
        return Ok(());
    }
    let said = format!(
        "must be {} to {}",
        leasehold_api::format_duration(min),
        leasehold_api::format_duration(max)
    );
    Err(Failure::field("ttl", said))
}

fn namespace() -> Namespace {
    Namespace::new(NAMESPACE).expect("the namespace is a name")
}

fn scope() -> Scope {
    Scope::parse(LOCK).expect("the lock is a name")
}

fn acquire(app: &App, client: &Owner) -> Acquire {
    let (min, max) = (app.config.limits.lease_ttl_min, app.config.limits.lease_ttl_max);
    Acquire {
        call: CallId(0),
        namespace: namespace(),
        owner: client.clone(),
        claims: vec![Claim { scope: scope(), mode: Mode::Exclusive }],
        under: Under::NewLease { id: random::lease_id(), ttl: TTL.clamp(min, max) },
        wait: Wait::Never,
        keep_place: false,
        ticket: None,
        request_id: Some(RequestId::new(REQUEST).expect("the request id is a name")),
        reclaim_window: app.config.simple_grace,
        reclaim: false,
        metadata: None,
    }
}

async fn take(app: &App, client: &Owner, ttl: Duration) -> Result<Taken, Failure> {
    let grant = match app.engine(&namespace()).acquire(acquire(app, client)).await {
        Ok(grant) => grant,
        Err(CallError::Refused(Refusal::Held(conflict))) => {
            return Ok(Taken::Refused(refused(app, &conflict, "lock is held")));
        }
        Err(CallError::Refused(Refusal::ReclaimWindow(conflict))) => {
            return Ok(Taken::Refused(refused(app, &conflict, "grace period active")));
        }
        Err(CallError::Refused(Refusal::GracePeriod { conflict: Some(conflict), .. })) => {
            return Ok(Taken::Refused(refused(app, &conflict, "lock is held")));
        }
        Err(error) => return Err(app.failure(&error)),
    };
    if !grant.replayed && grant.ttl.as_duration() == ttl {
        return Ok(Taken::Anew(grant.deadline));
    }
    let deadline = renew(app, client, &grant, ttl).await?;
    Ok(if grant.replayed { Taken::Renewed(deadline) } else { Taken::Anew(deadline) })
}

async fn renew(
    app: &App,
    client: &Owner,
    grant: &Grant,
    ttl: Duration,
) -> Result<Timestamp, Failure> {
    let renew = Renew {
        namespace: namespace(),
        scope: scope(),
        owner: client.clone(),
        lease: grant.lease,
        fence: grant.fence,
        ttl: Some(ttl),
    };
    let Answer::Renewed(renewed) = app.command(Command::Renew(renew)).await? else {
        return Err(unexpected());
    };
    Ok(renewed.deadline)
}

/// `None` once it is given back.
async fn give_back(app: &App, client: &Owner) -> Result<Option<SimpleRefused>, Failure> {
    let grace = app.config.simple_grace;
    let held = holder(app).await?;
    let is_holder =
        |held: &Holder| held.owner == *client && held.state != HolderState::ReclaimWindow;
    if !held.as_ref().is_some_and(is_holder) {
        return Ok(Some(SimpleRefused {
            holder: held.as_ref().map_or(String::new(), |held| held.owner.to_string()),
            expires_at: held.map(|held| convert::moment(lapse(&held, grace))),
            message: "not the holder".into(),
        }));
    }
    // Finds the grant again. Should it have lapsed just now, this is a new one, which goes the same way.
    let acquired = app.engine(&namespace()).acquire(acquire(app, client)).await;
    let grant = acquired.map_err(|error| app.failure(&error))?;
    let release = Release {
        namespace: namespace(),
        scope: scope(),
        owner: client.clone(),
        lease: grant.lease,
        fence: grant.fence,
    };
    app.command(Command::Release(release)).await?;
    Ok(None)
}

async fn holder(app: &App) -> Result<Option<Holder>, Failure> {
    let query = Query::Get { namespace: namespace(), scope: scope() };
    let View::Lock(view) = app.query(query).await? else { return Err(unexpected()) };
    Ok(view.holders.into_iter().next())
}

fn refused(app: &App, conflict: &Conflict, message: &str) -> SimpleRefused {
    let holder = conflict.holders.first();
    SimpleRefused {
        holder: holder.map_or(String::new(), |holder| holder.owner.to_string()),
        expires_at: holder.map(|holder| convert::moment(lapse(holder, app.config.simple_grace))),
        message: message.into(),
    }
}

/// When the lease lapses or did: inside the window the deadline shown is that of the window.
fn lapse(holder: &Holder, grace: Duration) -> Timestamp {
    match holder.state {
        HolderState::Held | HolderState::Recovering => holder.deadline,
        HolderState::ReclaimWindow => Timestamp::from_millis(
            holder.deadline.as_millis().saturating_sub(convert::millis(grace)),
        ),
    }
}
