//! One lock, and lists of them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use leasehold_api::schema::{LockName, LockPrefix, Name};
use leasehold_api::{
    AcquireRequest, BreakRequest, Broken, CheckRequest, Checked, Code, Grant, Lock, LockPage,
    LockState, Problem, ReleaseRequest, Released, RenewRequest, Renewed, TestRequest, Tested,
    UnlockRequest, Unlocked,
};
use leasehold_core::{Break, Claim, ListQuery, Namespace, Release, Renew, Scope, is_prefix};
use serde::de::DeserializeOwned;

use super::encode::{self, Answered, guarded, json, ok};
use super::extract::{self, Params};
use super::openapi::{BodyProblems, NamespaceParam, NotFound, Problems};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use crate::service::views::{CheckToken, LOOKED_AT_MAX, List, PAGE_SIZE, PAGE_SIZE_MAX, Test};

const PREFIX: &str = "/v1/locks/";
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
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let uri = request.uri().clone();
    let Some((lock, verb)) = verb_of(uri.path()) else {
        return Err(unknown_verb());
    };
    match verb {
        "acquire" => acquire(&app, &caller, lock, request).await,
        "renew" => renew(&app, &caller, lock, request).await,
        "release" => release(&app, &caller, lock, request).await,
        "unlock" => unlock(&app, &caller, lock, request).await,
        "test" => test(&app, &caller, lock, request).await,
        "check" => check(&app, &caller, lock, request).await,
        "break" => break_(&app, &caller, lock, request).await,
        _ => Err(unknown_verb()),
    }
}

fn unknown_verb() -> Failure {
    let said = "expected a verb at the end of the path: acquire, renew, release, unlock, test, check or break";
    Failure::new(Code::NotFound, said)
}

fn scope(text: &str) -> Result<Scope, Failure> {
    let text = convert::percent_decoded(text).ok_or_else(|| {
        Failure::new(Code::InvalidLockName, "the name is not valid percent-encoded UTF-8")
    })?;
    convert::scope(&text)
}

/// Reads a request about one lock: the namespace, the lock and the body.
async fn said<T: DeserializeOwned>(
    app: &App,
    lock: &str,
    request: Request,
) -> Result<(Namespace, Scope, T), Failure> {
    let namespace = extract::only_namespace(request.uri())?;
    let scope = scope(lock)?;
    Ok((namespace, scope, extract::json(app, request).await?))
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
pub(crate) async fn acquire(app: &App, caller: &Caller, lock: &str, request: Request) -> Answered {
    let said = said(app, lock, request).await;
    let asked = said.and_then(|(namespace, scope, body): (_, _, AcquireRequest)| {
        let claim = Claim { scope, mode: convert::mode(body.mode, body.permits)? };
        convert::acquire(&caller.principal, namespace, vec![claim], &body)
    });
    let granted = app.acquire(caller, asked).await?;
    let answer = json(StatusCode::OK, &convert::grant(app.now(), &granted)?);
    Ok(guarded(answer, granted.guard))
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
pub(crate) async fn renew(app: &App, caller: &Caller, lock: &str, request: Request) -> Answered {
    let said = said(app, lock, request).await;
    let asked = said.and_then(|(namespace, scope, body): (_, _, RenewRequest)| {
        Ok(Renew {
            namespace,
            scope,
            owner: convert::owner(&caller.principal, &body.owner_id)?,
            lease: convert::lease_id("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
            ttl: body.ttl_ms.map(Duration::from_millis),
        })
    });
    let (renew, renewed) = app.renew(caller, asked).await?;
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
pub(crate) async fn release(app: &App, caller: &Caller, lock: &str, request: Request) -> Answered {
    let said = said(app, lock, request).await;
    let asked = said.and_then(|(namespace, scope, body): (_, _, ReleaseRequest)| {
        Ok(Release {
            namespace,
            scope,
            owner: convert::owner(&caller.principal, &body.owner_id)?,
            lease: convert::lease_id("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
        })
    });
    let released = app.release(caller, asked).await?;
    let (held_ms, replayed) = (convert::millis(released.held), released.replayed);
    ok(&Released { released: true, held_ms, replayed })
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
pub(crate) async fn unlock(app: &App, caller: &Caller, lock: &str, request: Request) -> Answered {
    let said = said(app, lock, request).await;
    let lock = said.as_ref().map_or(String::new(), |(_, scope, _)| scope.to_string());
    let asked = said.and_then(|(namespace, scope, body): (_, _, UnlockRequest)| {
        let owner = convert::owner(&caller.principal, &body.owner_id)?;
        let session = convert::lease_id("session_id", &body.session_id)?;
        convert::unlock(namespace, &scope, owner, session)
    });
    let changed = app.unlock(caller, asked).await?;
    ok(&Unlocked { lock, changed })
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
pub(crate) async fn get(State(app): State<Arc<App>>, caller: Caller, uri: Uri) -> Answered {
    let (namespace, view) = app.lock(&caller, named(&uri)).await?;
    ok(&convert::lock(app.now(), &namespace, &view))
}

fn named(uri: &Uri) -> Result<(Namespace, Scope), Failure> {
    let namespace = extract::only_namespace(uri)?;
    if let Some((_, verb)) = verb_of(uri.path()) {
        let said = format!(
            "{verb} is a POST; to look at a lock whose name ends in /{verb}, write its last slash as %2F"
        );
        return Err(Failure::new(Code::InvalidRequest, said));
    }
    Ok((namespace, scope(uri.path().strip_prefix(PREFIX).unwrap_or(""))?))
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
pub(crate) async fn test(app: &App, caller: &Caller, lock: &str, request: Request) -> Answered {
    let said = said(app, lock, request).await;
    let asked = said.and_then(|(namespace, scope, body): (_, _, TestRequest)| {
        let owner = convert::owner(&caller.principal, &body.owner_id)?;
        let claim = Claim { scope, mode: convert::mode(body.mode, body.permits)? };
        let lease = body.session_id.map(|id| convert::lease_id("session_id", &id)).transpose()?;
        Ok(Test { namespace, owner, lease, claim })
    });
    let (lock, found) = app.test(caller, asked).await?;
    let conflict = found.conflict.map(|holder| convert::holder(app.now(), &holder));
    ok(&Tested { lock, free: found.free, conflict, truncated: found.truncated })
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
pub(crate) async fn check(app: &App, caller: &Caller, lock: &str, request: Request) -> Answered {
    let said = said(app, lock, request).await;
    let asked = said.and_then(|(namespace, scope, body): (_, _, CheckRequest)| {
        let fence = convert::fence(body.fencing_token)?;
        let lease = body.lease_id.map(|id| convert::lease_id("lease_id", &id)).transpose()?;
        Ok(CheckToken { namespace, scope, fence, lease })
    });
    let (lock, fence, found) = app.check(caller, asked).await?;
    ok(&Checked {
        lock,
        fencing_token: fence.get(),
        valid: found.valid,
        reason: found.why.map(convert::gone),
        holder: found.holder.map(|holder| convert::holder(app.now(), &holder)),
        truncated: found.truncated,
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
pub(crate) async fn break_(app: &App, caller: &Caller, lock: &str, request: Request) -> Answered {
    let said = said(app, lock, request).await;
    let asked = said.and_then(|(namespace, scope, body): (_, _, BreakRequest)| {
        let fence = body.fencing_token.map(convert::fence).transpose()?;
        Ok(Break { namespace, scope, fence, reason: body.reason.into() })
    });
    let broken = app.break_lock(caller, asked).await?;
    ok(&Broken { lock: broken.lock, broken: broken.grants as u64, truncated: broken.truncated })
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
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    params: Result<Params, Failure>,
) -> Answered {
    let asked = params.and_then(|params| listing(&caller, params));
    let (epoch, page, filtered) = app.list(&caller, asked).await?;
    let page = ok(&convert::lock_page(app.now(), epoch, &page, filtered));
    if filtered { page.map(encode::filtered) } else { page }
}

fn listing(caller: &Caller, mut params: Params) -> Result<List, Failure> {
    let namespace = params.namespace()?;
    let prefix = params.take("prefix").unwrap_or_default();
    if !is_prefix(&prefix) {
        return Err(Failure::field("prefix", "cannot begin the name of a lock"));
    }
    let owner = params.take("owner_id");
    let owner = owner.map(|owner| convert::owner(&caller.principal, &owner)).transpose()?;
    let session = params.take("session_id");
    let state = params.take("state").map(|state| convert::lock_state(&state)).transpose()?;
    let after = params.take("page_token").map(|token| convert::list_cursor(&token)).transpose()?;
    let len_max = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    params.done()?;
    let session = session.map(|session| convert::session_name(&session)).transpose()?;
    let query = ListQuery {
        namespace,
        prefix,
        owner,
        session: None,
        within: None,
        inode: None,
        state,
        after,
        len_max,
        looked_at_max: LOOKED_AT_MAX,
    };
    Ok(List { query, session })
}
