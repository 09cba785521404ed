//! One lock, and lists of them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use leasehold_api::schema::{LockName, LockPrefix, Name};
use leasehold_api::{
    AcquireRequest, BreakRequest, Broken, CheckRequest, Checked, Code, Grant, Lock, LockPage,
    LockState, Problem, ReleaseRequest, Released, RenewRequest, Renewed, TestRequest, Tested,
    UnlockRequest, Unlocked,
};
use leasehold_core::{
    Answer, Break, Claim, Command, ListQuery, Namespace, Principal, Release, Renew, Scope,
    Withdraw, check_line, is_prefix,
};
use leasehold_engine::{Query, View};

use super::{Answered, extract, json, ok};
use crate::convert;
use crate::http::openapi::{BodyProblems, NamespaceParam, NotFound, Problems};
use crate::net::delivery::DeliveryGuard;
use crate::service::app::App;
use crate::service::caller::audit;
use crate::service::problems::Failure;
use crate::telemetry::metrics::{Op, Stopwatch};
use crate::telemetry::readings;

const PREFIX: &str = "/v1/locks/";
pub(crate) const PAGE_SIZE: usize = 100;
pub(crate) const PAGE_SIZE_MAX: usize = 1000;
/// How many locks are looked at for one page at most, so that a filter that hardly matches stops nobody.
pub(crate) const LOOKED_AT_MAX: usize = 10_000;
const REASON_LEN_MAX: usize = 255;

/// The last part of the path of a POST, with the whole path for the log.
const VERBS: [(&str, &str); 7] = [
    ("acquire", "/v1/locks/{lock}/acquire"),
    ("renew", "/v1/locks/{lock}/renew"),
    ("release", "/v1/locks/{lock}/release"),
    ("unlock", "/v1/locks/{lock}/unlock"),
    ("test", "/v1/locks/{lock}/test"),
    ("check", "/v1/locks/{lock}/check"),
    ("break", "/v1/locks/{lock}/break"),
];

/// Splits the verb off the path of a POST; `None` if it ends in none.
pub(crate) fn verb_of(path: &str) -> Option<(&str, &'static str)> {
    let (lock, last) = path.strip_prefix(PREFIX)?.rsplit_once('/')?;
    VERBS.into_iter().find(|(verb, _)| *verb == last).map(|(verb, _)| (lock, verb))
}

/// The path of a verb as the access log tells it.
pub(crate) fn route_of(verb: &str) -> &'static str {
    let known = VERBS.into_iter().find(|(known, _)| *known == verb);
    known.map_or("/v1/locks/{lock}", |(_, route)| route)
}

/// Takes the verb off the path.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Answered {
    let uri = request.uri().clone();
    let Some((lock, verb)) = verb_of(uri.path()) else {
        return Err(unknown_verb());
    };
    let watch = Stopwatch::start();
    let (op, answered) = match verb {
        "acquire" => return acquire(&app, watch, lock, request).await,
        "renew" => (Op::Renew, renew(&app, lock, request).await),
        "release" => (Op::Release, release(&app, lock, request).await),
        "unlock" => (Op::Release, unlock(&app, lock, request).await),
        "test" => (Op::Test, test(&app, lock, request).await),
        "check" => (Op::Check, check(&app, lock, request).await),
        "break" => (Op::Break, break_(&app, lock, request).await),
        _ => return Err(unknown_verb()),
    };
    app.metrics.answered(op, watch.took(), outcome(&answered));
    answered
}

fn unknown_verb() -> Failure {
    let said = "expected a verb at the end of the path: acquire, renew, release, unlock, test, check or break";
    Failure::new(Code::NotFound, said)
}

pub(crate) fn outcome<T>(answered: &Result<T, Failure>) -> Result<(), Code> {
    match answered {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.0.code),
    }
}

fn scope(text: &str) -> Result<Scope, Failure> {
    let text = extract::percent_decoded(text).ok_or_else(|| {
        Failure::new(Code::InvalidLockName, "the name is not valid percent-encoded UTF-8")
    })?;
    convert::scope(&text)
}

/// Acquire a lock
///
/// Grants the lock, or waits for it up to `wait_ms`. A refusal names the holders and when to retry; after a
/// wait it carries a `ticket` that keeps the place in the queue.
#[utoipa::path(
    post, path = "/v1/locks/{lock}/acquire", operation_id = "acquire_lock", tag = "locks",
    params(("lock" = LockName, Path, description = "The lock's name; slashes may be raw or %2F"), NamespaceParam),
    request_body = AcquireRequest,
    responses(
        (status = 200, description = "The lock was granted", body = Grant),
        (status = 409, description = "lock_held, reclaim_window, deadlock, lease_lost, limit_mismatch, request_id_reused, file_removed or no_grace",
            body = Problem, content_type = "application/problem+json"),
        NotFound, BodyProblems,
    )
)]
pub(crate) async fn acquire(app: &App, watch: Stopwatch, lock: &str, request: Request) -> Answered {
    let asked = async {
        let namespace = extract::only_namespace(request.uri())?;
        let scope = scope(lock)?;
        let body: AcquireRequest = extract::json(app, request).await?;
        let claim = Claim { scope, mode: convert::mode(body.mode, body.permits)? };
        Ok((claim.clone(), convert::acquire(namespace, vec![claim], &body)?))
    };
    let (claim, acquire) = match asked.await {
        Ok(asked) => asked,
        Err(failure) => return not_asked(app, watch, failure),
    };
    let kind = readings::kind(claim.scope.kind());
    let namespace = acquire.namespace.clone();
    let (grant, given) = granted(app, watch, kind, acquire).await?;
    let grant = convert::grant(app.now(), app.epoch(&namespace), &claim, &grant);
    giving(json(StatusCode::OK, &grant), given)
}

/// A reply that gives something.
pub(crate) fn giving(mut response: Response, given: Option<DeliveryGuard>) -> Answered {
    if let Some(given) = given {
        given.attach(&mut response);
    }
    Ok(response)
}

/// A request that never came to the engine counts as failed all the same.
pub(crate) fn not_asked(app: &App, watch: Stopwatch, failure: Failure) -> Answered {
    app.metrics.answered(Op::Acquire, watch.took(), Err(failure.0.code));
    Err(failure)
}

/// Waits for a grant, and counts what comes of it.
pub(crate) async fn granted(
    app: &App,
    watch: Stopwatch,
    kind: &'static str,
    acquire: leasehold_core::Acquire,
) -> Result<(leasehold_core::Grant, Option<DeliveryGuard>), Failure> {
    let namespace = acquire.namespace.clone();
    let engine = app.engine(&namespace);
    // With an id of its own, a retry will ask for the grant.
    let is_repeatable = acquire.request_id.is_some();
    let granted = engine.acquire(acquire).await.map_err(|error| app.failure(&error));
    let waited = match &granted {
        Ok(grant) => grant.waited,
        Err(failure) => Duration::from_millis(failure.0.waited_ms.unwrap_or(0)),
    };
    app.metrics.acquired(namespace.as_str(), kind, watch.took(), waited, outcome(&granted));
    let grant = granted?;
    let given = (!is_repeatable && !grant.replayed)
        .then(|| DeliveryGuard::new(engine, Command::Withdraw(Withdraw::of(&namespace, &grant))));
    Ok((grant, given))
}

/// Renew a lock's lease
///
/// Sets the deadline of the lease to its full ttl from now. Owner, lease and fencing token must all be right.
#[utoipa::path(
    post, path = "/v1/locks/{lock}/renew", operation_id = "renew_lock", tag = "locks",
    params(("lock" = LockName, Path, description = "The lock's name"), NamespaceParam),
    request_body = RenewRequest,
    responses(
        (status = 200, description = "The lease was renewed for its full ttl", body = Renewed),
        (status = 409, description = "lease_lost or not_holder, with the reason", body = Problem, content_type = "application/problem+json"),
        BodyProblems,
    )
)]
pub(crate) async fn renew(app: &App, lock: &str, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let scope = scope(lock)?;
    let body: RenewRequest = extract::json(app, request).await?;
    let renew = Renew {
        namespace,
        scope,
        owner: convert::owner(&body.owner_id)?,
        lease: convert::lease_id("lease_id", &body.lease_id)?,
        fence: convert::fence(body.fencing_token)?,
        ttl: body.ttl_ms.map(Duration::from_millis),
    };
    let Answer::Renewed(renewed) = app.command(Command::Renew(renew.clone())).await? else {
        return Err(unexpected());
    };
    ok(&convert::renewed(app.now(), app.epoch(&renew.namespace), &renew, renewed))
}

/// Release a lock
///
/// Ends the grant. Owner, lease and fencing token must all be right. Repeated by the same owner under the same lease, it
/// is answered as before with `replayed`, while that is remembered.
#[utoipa::path(
    post, path = "/v1/locks/{lock}/release", operation_id = "release_lock", tag = "locks",
    params(("lock" = LockName, Path, description = "The lock's name"), NamespaceParam),
    request_body = ReleaseRequest,
    responses(
        (status = 200, description = "The lock was released", body = Released),
        (status = 409, description = "not_holder, with the reason", body = Problem, content_type = "application/problem+json"),
        BodyProblems,
    )
)]
pub(crate) async fn release(app: &App, lock: &str, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let scope = scope(lock)?;
    let body: ReleaseRequest = extract::json(app, request).await?;
    let release = Release {
        namespace,
        scope,
        owner: convert::owner(&body.owner_id)?,
        lease: convert::lease_id("lease_id", &body.lease_id)?,
        fence: convert::fence(body.fencing_token)?,
    };
    let Answer::Released { held, replayed } = app.command(Command::Release(release)).await? else {
        return Err(unexpected());
    };
    ok(&Released { released: true, held_ms: convert::millis(held), replayed })
}

/// Unlock bytes of a file
///
/// Ends an owner's hold on bytes of a file under a session or a lease, whatever grants they came by: the `F_UNLCK` of
/// fcntl(2). Bytes that are not held do not matter.
#[utoipa::path(
    post, path = "/v1/locks/{lock}/unlock", operation_id = "unlock_bytes", tag = "locks",
    params(("lock" = LockName, Path, description = "`inode:N`, or a range of it"), NamespaceParam),
    request_body = UnlockRequest,
    responses((status = 200, description = "None of it is held any more", body = Unlocked), NotFound, BodyProblems)
)]
pub(crate) async fn unlock(app: &App, lock: &str, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let scope = scope(lock)?;
    let body: UnlockRequest = extract::json(app, request).await?;
    let owner = convert::owner(&body.owner_id)?;
    let session = convert::lease_id("session_id", &body.session_id)?;
    let command = Command::Unlock(convert::unlock(namespace, &scope, owner, session)?);
    let Answer::Unlocked { changed } = app.command(command).await? else {
        return Err(unexpected());
    };
    ok(&Unlocked { lock: scope.to_string(), changed })
}

/// Get a lock
///
/// Returns the state of a lock, its holders and its waiters. To get a lock whose name ends in a verb, such as
/// `a/renew`, write its last slash as `%2F`.
#[utoipa::path(
    get, path = "/v1/locks/{lock}", operation_id = "get_lock", tag = "locks",
    params(("lock" = LockName, Path, description = "The lock's name"), NamespaceParam),
    responses((status = 200, description = "The lock as it is now; an unused lock is free", body = Lock), Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let watch = Stopwatch::start();
    let answered = look(&app, &uri).await;
    app.metrics.answered(Op::Get, watch.took(), outcome(&answered));
    answered
}

async fn look(app: &App, uri: &Uri) -> Answered {
    let namespace = extract::only_namespace(uri)?;
    if let Some((_, verb)) = verb_of(uri.path()) {
        let said = format!(
            "{verb} is a POST; to look at a lock whose name ends in /{verb}, write its last slash as %2F"
        );
        return Err(Failure::new(Code::InvalidRequest, said));
    }
    let scope = scope(uri.path().strip_prefix(PREFIX).unwrap_or(""))?;
    let query = Query::Get { namespace: namespace.clone(), scope };
    let View::Lock(view) = app.query(query).await? else { return Err(unexpected()) };
    ok(&convert::lock(app.now(), &namespace, &view))
}

/// Test whether a lock could be acquired now
///
/// Tells whether the lock would be granted now, and changes nothing.
#[utoipa::path(
    post, path = "/v1/locks/{lock}/test", operation_id = "test_lock", tag = "locks",
    params(("lock" = LockName, Path, description = "The lock's name"), NamespaceParam),
    request_body = TestRequest,
    responses((status = 200, description = "Whether a try would be granted, and the first grant in its way", body = Tested), BodyProblems)
)]
pub(crate) async fn test(app: &App, lock: &str, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let scope = scope(lock)?;
    let body: TestRequest = extract::json(app, request).await?;
    let owner = convert::owner(&body.owner_id)?;
    check_permits(app, body.permits)?;
    let claim = Claim { scope, mode: convert::mode(body.mode, body.permits)? };
    let text = claim.scope.to_string();
    let lease = body.session_id.map(|id| convert::lease_id("session_id", &id)).transpose()?;
    let query = Query::Test { namespace, owner, lease, claim };
    let View::Tested(found) = app.query(query).await? else { return Err(unexpected()) };
    let conflict = found.conflict.map(|holder| convert::holder(app.now(), &holder));
    ok(&Tested { lock: text, free: found.free, conflict, truncated: found.truncated })
}

/// Check whether a fencing token is valid
///
/// Tells whether a fencing token belongs to a current holder of the lock; if it does not, `reason` says why.
#[utoipa::path(
    post, path = "/v1/locks/{lock}/check", operation_id = "check_lock", tag = "locks",
    params(("lock" = LockName, Path, description = "The lock's name"), NamespaceParam),
    request_body = CheckRequest,
    responses((status = 200, description = "Whether the token is valid, and its holder", body = Checked), BodyProblems)
)]
pub(crate) async fn check(app: &App, lock: &str, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let scope = scope(lock)?;
    let body: CheckRequest = extract::json(app, request).await?;
    let fence = convert::fence(body.fencing_token)?;
    let lease = body.lease_id.map(|id| convert::lease_id("lease_id", &id)).transpose()?;
    let text = scope.to_string();
    let query = Query::Check { namespace, scope, fence, lease };
    let View::Checked(check) = app.query(query).await? else { return Err(unexpected()) };
    ok(&Checked {
        lock: text,
        fencing_token: fence.get(),
        valid: check.valid,
        reason: check.why.map(convert::gone),
        holder: check.holder.map(|holder| convert::holder(app.now(), &holder)),
        truncated: check.truncated,
    })
}

/// Break a lock
///
/// Ends the grants on a lock, or the one with the given fencing token, with a reason. For operators; audited.
#[utoipa::path(
    post, path = "/v1/locks/{lock}/break", operation_id = "break_lock", tag = "locks",
    params(("lock" = LockName, Path, description = "The lock's name"), NamespaceParam),
    request_body = BreakRequest,
    responses((status = 200, description = "How many grants ended", body = Broken), BodyProblems)
)]
pub(crate) async fn break_(app: &App, lock: &str, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let scope = scope(lock)?;
    let body: BreakRequest = extract::json(app, request).await?;
    check_reason(&body.reason)?;
    let fence = body.fencing_token.map(convert::fence).transpose()?;
    let text = scope.to_string();
    let reason = body.reason.as_str();
    let command = Break { namespace: namespace.clone(), scope, fence, reason: reason.into() };
    let Answer::Broken { grants, truncated } =
        app.command_in_turns(Command::Break(command)).await?
    else {
        return Err(unexpected());
    };
    audit::lock_broken(&text, namespace.as_str(), reason, grants);
    ok(&Broken { lock: text, broken: grants as u64, truncated })
}

/// Nobody could be granted more, so nobody can ask about more.
pub(crate) fn check_permits(app: &App, permits: Option<u32>) -> Result<(), Failure> {
    let max = app.config.limits.permits_max;
    match permits {
        Some(permits) if permits > max => {
            Err(Failure::field("permits", format!("is {permits}, the limit is {max}")))
        }
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn check_reason(reason: &str) -> Result<(), Failure> {
    check_line(reason, REASON_LEN_MAX)
        .map_err(|fault| Failure::field("reason", format!("{fault} (1 to {REASON_LEN_MAX} bytes)")))
}

/// List held locks
///
/// Lists the locks that are held, in the order of their names, page by page.
#[utoipa::path(
    get, path = "/v1/locks", operation_id = "list_locks", tag = "locks",
    params(
        NamespaceParam,
        ("prefix" = Option<LockPrefix>, Query, description = "Canonical names that start with this"),
        ("state" = Option<LockState>, Query, description = "held, recovering or reclaim_window"),
        ("owner_id" = Option<Name>, Query, description = "Held by this owner"),
        ("session_id" = Option<String>, Query, description = "Held under this session: its id, or its number"),
        ("page_size" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "1 to 1000, 100 if left out"),
        ("page_token" = Option<String>, Query, description = "next_page_token of the page before"),
    ),
    responses((status = 200, description = "A page of locks in the order of their names", body = LockPage), NotFound, Problems)
)]
pub(crate) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let watch = Stopwatch::start();
    let answered = page(&app, &uri).await;
    app.metrics.answered(Op::List, watch.took(), outcome(&answered));
    answered
}

async fn page(app: &App, uri: &Uri) -> Answered {
    let mut params = extract::Params::of(uri)?;
    let namespace = params.namespace()?;
    let prefix = params.take("prefix").unwrap_or_default();
    if !is_prefix(&prefix) {
        return Err(Failure::field("prefix", "cannot begin the name of a lock"));
    }
    let owner = params.take("owner_id").map(|owner| convert::owner(&owner)).transpose()?;
    let session = params.take("session_id");
    let state = params.take("state").map(|state| convert::lock_state(&state)).transpose()?;
    let after = params.take("page_token").map(|token| convert::list_cursor(&token)).transpose()?;
    let len_max = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    params.done()?;
    let session = match session {
        Some(session) => Some(session_number(app, &namespace, &session).await?),
        None => None,
    };
    let epoch = app.epoch(&namespace);
    let query = ListQuery {
        namespace,
        prefix,
        owner,
        session,
        inode: None,
        state,
        after,
        len_max,
        looked_at_max: LOOKED_AT_MAX,
    };
    let View::Page(page) = app.query(Query::List(query)).await? else { return Err(unexpected()) };
    ok(&convert::lock_page(app.now(), epoch, &page))
}

/// A session is named by its id, which is a secret, or by its number, which everybody sees.
pub(crate) async fn session_number(
    app: &App,
    namespace: &Namespace,
    text: &str,
) -> Result<u64, Failure> {
    if text.len() < 32
        && let Ok(number) = text.parse()
    {
        return Ok(number);
    }
    let id = convert::lease_id("session_id", text)?;
    let query =
        Query::Session { namespace: namespace.clone(), principal: Principal::ANONYMOUS, id };
    let View::Session(found) = app.query(query).await? else { return Err(unexpected()) };
    found.map(|session| session.number).ok_or_else(no_session)
}

pub(crate) fn no_session() -> Failure {
    Failure::new(Code::SessionNotFound, "session not found")
}

/// The engine answered something else than it was asked.
pub(crate) fn unexpected() -> Failure {
    tracing::error!("an answer does not fit what was asked");
    Failure::new(Code::Internal, "internal error; the server's log has the cause")
}
