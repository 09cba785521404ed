//! Sessions. Their ids are secrets: they come back to who opened one, and are in no list.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use leasehold_api::schema::LeaseId;
use leasehold_api::{
    BreakSessionRequest, Closed, KeepAliveRequest, KeptAlive, OpenRequest, Opened, Problem,
    Session, SessionPage,
};
use leasehold_core::{BreakSession, CloseSession, KeepAlive, OpenSession};

use super::encode::{Answered, guarded, json, ok};
use super::extract::{self, Params};
use super::openapi::{BodyProblems, NamespaceParam, NotFound, Problems};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use crate::service::random;
use crate::service::sessions::{PAGE_SIZE, PAGE_SIZE_MAX, Sessions};

const PREFIX: &str = "/v1/sessions/";
/// Open a session
///
/// Opens a lease under which any number of locks can be acquired. One heartbeat renews all of them.
#[utoipa::path(
    post, path = "/v1/sessions", operation_id = "open_session", tag = "sessions",
    params(NamespaceParam),
    request_body = OpenRequest,
    responses(
        (status = 201, description = "The session is open", body = Opened),
        (status = 409, description = "request_id_reused", body = Problem, content_type = "application/problem+json"),
        BodyProblems,
    )
)]
pub(crate) async fn open(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let asked = opening(&app, &caller, request).await;
    let opened = app.open_session(&caller, asked).await?;
    let answer = json(StatusCode::CREATED, &convert::opened(app.now(), &opened));
    Ok(guarded(answer, opened.guard))
}

async fn opening(app: &App, caller: &Caller, request: Request) -> Result<OpenSession, Failure> {
    let namespace = extract::only_namespace(request.uri())?;
    let body: OpenRequest = extract::json(app, request).await?;
    Ok(OpenSession {
        namespace,
        id: random::lease_id(),
        owner: convert::owner(&caller.principal, &body.owner_id)?,
        ttl: Duration::from_millis(body.ttl_ms),
        adapter: convert::adapter(body.adapter.as_deref(), "http")?,
        on_disconnect: convert::on_disconnect(&body)?,
        request_id: body.request_id.as_deref().map(convert::request_id).transpose()?,
        metadata: convert::metadata(body.metadata.as_ref())?,
    })
}

fn session_id(uri: &Uri, suffix: &str) -> Result<leasehold_core::LeaseId, Failure> {
    let text = uri.path().strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(suffix));
    convert::lease_id("session_id", text.unwrap_or(""))
}

/// Renew a session, or any lease
///
/// Sets the deadline of the session or lease, and so of every lock under it, to its full ttl from now.
#[utoipa::path(
    post, path = "/v1/sessions/{session_id}/keepalive", operation_id = "keep_session_alive", tag = "sessions",
    params(("session_id" = LeaseId, Path, description = "The session's id, or a lease_id"), NamespaceParam),
    request_body = Option<KeepAliveRequest>,
    responses((status = 200, description = "The session was renewed for its full ttl", body = KeptAlive), NotFound, BodyProblems)
)]
pub(crate) async fn keepalive(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let asked = keeping(&app, &caller, request).await;
    let (epoch, renewed) = app.keep_alive(&caller, asked).await?;
    ok(&convert::kept_alive(app.now(), epoch, renewed))
}

async fn keeping(app: &App, caller: &Caller, request: Request) -> Result<KeepAlive, Failure> {
    let namespace = extract::only_namespace(request.uri())?;
    let session = session_id(request.uri(), "/keepalive")?;
    let body: KeepAliveRequest = extract::json_if_any(app, request).await?;
    let principal = caller.principal.clone();
    Ok(KeepAlive { namespace, principal, session, ttl: body.ttl_ms.map(Duration::from_millis) })
}

/// Close a session, or any lease, and release everything under it
///
/// Ends the session or lease and releases everything under it. Repeated, it is answered as before with `replayed`, while
/// that is remembered.
#[utoipa::path(
    delete, path = "/v1/sessions/{session_id}", operation_id = "close_session", tag = "sessions",
    params(("session_id" = LeaseId, Path, description = "The session's id, or a lease_id"), NamespaceParam),
    responses((status = 200, description = "Everything under it was released", body = Closed), NotFound, Problems)
)]
pub(crate) async fn close(State(app): State<Arc<App>>, caller: Caller, uri: Uri) -> Answered {
    let asked = extract::only_namespace(&uri).and_then(|namespace| {
        Ok(CloseSession {
            namespace,
            principal: caller.principal.clone(),
            session: session_id(&uri, "")?,
        })
    });
    let (grants, replayed) = app.close_session(&caller, asked).await?;
    ok(&Closed { closed: true, released: grants as u64, replayed })
}

/// Break a session
///
/// Ends another owner's session by its number, with a reason. For operators; audited.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/break", operation_id = "break_session", tag = "sessions",
    params(("session" = u64, Path, maximum = 9_007_199_254_740_991_u64, description = "The session's number, as in lists"), NamespaceParam),
    request_body = BreakSessionRequest,
    responses((status = 200, description = "Everything under it has ended", body = Closed), NotFound, BodyProblems)
)]
pub(crate) async fn break_(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let asked = breaking(&app, request).await;
    let grants = app.break_session(&caller, asked).await?;
    ok(&Closed { closed: true, released: grants as u64, replayed: false })
}

async fn breaking(app: &App, request: Request) -> Result<BreakSession, Failure> {
    let namespace = extract::only_namespace(request.uri())?;
    let part =
        request.uri().path().strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix("/break"));
    let number: u64 = part
        .and_then(|part| part.parse().ok())
        .ok_or_else(|| Failure::field("session", "is not the number of a session"))?;
    let body: BreakSessionRequest = extract::json(app, request).await?;
    Ok(BreakSession { namespace, number, reason: body.reason.into() })
}

/// Get a session
///
/// Returns the session with this id, which its owner alone knows.
#[utoipa::path(
    get, path = "/v1/sessions/{session_id}", operation_id = "get_session", tag = "sessions",
    params(("session_id" = LeaseId, Path, description = "The session's id"), NamespaceParam),
    responses((status = 200, description = "The session as it is now", body = Session), NotFound, Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, caller: Caller, uri: Uri) -> Answered {
    let namespace = extract::only_namespace(&uri)?;
    let found = app.session(&caller, namespace, session_id(&uri, "")?).await?;
    ok(&convert::session(app.now(), &found))
}

/// List sessions
///
/// Lists the sessions of a namespace by number, page by page.
#[utoipa::path(
    get, path = "/v1/sessions", operation_id = "list_sessions", tag = "sessions",
    params(
        NamespaceParam,
        ("page_size" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "1 to 1000, 100 if left out"),
        ("page_token" = Option<String>, Query, description = "next_page_token of the page before"),
    ),
    responses((status = 200, description = "A page of sessions by number", body = SessionPage), Problems)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    params: Result<Params, Failure>,
) -> Answered {
    let asked = params.and_then(listing)?;
    let len_max = asked.len_max;
    let found = app.sessions(&caller, Ok(asked)).await?;
    let (sessions, next) = convert::session_page(app.now(), &found, len_max);
    ok(&SessionPage { sessions, next_page_token: next.map(|number| number.to_string()) })
}

fn listing(mut params: Params) -> Result<Sessions, Failure> {
    let namespace = params.namespace()?;
    let len_max = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    let after = match params.take("page_token") {
        None => 0,
        Some(token) => extract::whole_number(&token)
            .ok_or_else(|| Failure::field("page_token", "is not a valid page token"))?,
    };
    params.done()?;
    Ok(Sessions { namespace, after, len_max })
}
