//! One lock, lists of them, sets, and who waits for whom.

use std::sync::Arc;

use leasehold_api::grpc::locks_server::Locks;
use leasehold_api::grpc::{
    AcquireRequest, AcquireSetRequest, BreakRequest, Broken, CheckRequest, Checked,
    GetGraphRequest, GetRequest, GetTokenRequest, Grant, Graph, ListRequest, Lock, LockPage,
    ReleaseRequest, Released, RenewRequest, Renewed, SetGrant, TestRequest, Tested, TokenView,
    UnlockRequest, Unlocked, length,
};
use leasehold_core::{Answer, Break, Command, ListQuery, Release, Renew, is_prefix};
use leasehold_engine::{Query, View};
use tonic::{Request, Response, Status};

use super::{Responder, read};
use crate::convert;
use crate::http::graph as drawing;
use crate::http::locks::{
    LOOKED_AT_MAX, PAGE_SIZE, PAGE_SIZE_MAX, check_permits, check_reason, granted, outcome,
    session_number, unexpected,
};
use crate::http::tokens;
use crate::net::delivery::DeliveryGuard;
use crate::service::app::App;
use crate::service::caller::audit;
use crate::service::problems::Failure;
use crate::telemetry::metrics::{Op, Stopwatch};
use crate::telemetry::readings;

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Locks for Service {
    async fn acquire(&self, request: Request<AcquireRequest>) -> Result<Response<Grant>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        responder.give(acquire(&self.0, watch, request.into_inner()).await)
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<Renewed>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let renewed = renew(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Renew, watch.took(), outcome(&renewed));
        responder.answer(renewed)
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<Released>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let released = release(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Release, watch.took(), outcome(&released));
        responder.answer(released)
    }

    async fn unlock(&self, request: Request<UnlockRequest>) -> Result<Response<Unlocked>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let unlocked = unlock(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Release, watch.took(), outcome(&unlocked));
        responder.answer(unlocked)
    }

    async fn get_token(
        &self,
        request: Request<GetTokenRequest>,
    ) -> Result<Response<TokenView>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let found = token(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Get, watch.took(), outcome(&found));
        responder.answer(found)
    }

    async fn test(&self, request: Request<TestRequest>) -> Result<Response<Tested>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let tested = test(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Test, watch.took(), outcome(&tested));
        responder.answer(tested)
    }

    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<Checked>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let checked = check(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Check, watch.took(), outcome(&checked));
        responder.answer(checked)
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<Lock>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let looked = get(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Get, watch.took(), outcome(&looked));
        responder.answer(looked)
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<LockPage>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let listed = list(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::List, watch.took(), outcome(&listed));
        responder.answer(listed)
    }

    async fn r#break(&self, request: Request<BreakRequest>) -> Result<Response<Broken>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let broken = break_(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Break, watch.took(), outcome(&broken));
        responder.answer(broken)
    }

    async fn acquire_set(
        &self,
        request: Request<AcquireSetRequest>,
    ) -> Result<Response<SetGrant>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        responder.give(acquire_set(&self.0, watch, request.into_inner()).await)
    }

    async fn get_graph(
        &self,
        request: Request<GetGraphRequest>,
    ) -> Result<Response<Graph>, Status> {
        let responder = Responder::of(&request);
        responder.answer(graph(&self.0, request.into_inner()).await)
    }
}

async fn acquire(
    app: &App,
    watch: Stopwatch,
    body: AcquireRequest,
) -> Result<(Grant, Option<DeliveryGuard>), Failure> {
    let asked = || {
        let namespace = read::namespace(&body.namespace)?;
        let claim = read::claim(&body.lock, body.mode, body.permits)?;
        let terms = read::Terms {
            owner: convert::owner(&body.owner_id)?,
            under: read::under(body.session_id.as_deref(), body.ttl)?,
            wait: body.wait,
            wait_forever: body.wait_forever,
            request_id: body.request_id.as_deref(),
            reclaim_window: body.reclaim_window,
            reclaim: body.reclaim,
            ticket: body.ticket.as_deref(),
            metadata: body.metadata.as_ref(),
        };
        Ok((claim.clone(), read::acquire(namespace, vec![claim], terms)?))
    };
    let (claim, acquire) = asked().inspect_err(|failure| not_asked(app, watch, failure))?;
    let namespace = acquire.namespace.clone();
    let kind = readings::kind(claim.scope.kind());
    let (grant, given) = granted(app, watch, kind, acquire).await?;
    let grant = convert::grant(app.now(), app.epoch(&namespace), &claim, &grant);
    Ok(((&grant).into(), given))
}

async fn acquire_set(
    app: &App,
    watch: Stopwatch,
    body: AcquireSetRequest,
) -> Result<(SetGrant, Option<DeliveryGuard>), Failure> {
    let asked = || {
        let namespace = read::namespace(&body.namespace)?;
        let claims = read::claims(&body.locks)?;
        let terms = read::Terms {
            owner: convert::owner(&body.owner_id)?,
            under: read::under(body.session_id.as_deref(), body.ttl)?,
            wait: body.wait,
            wait_forever: body.wait_forever,
            request_id: body.request_id.as_deref(),
            reclaim_window: body.reclaim_window,
            reclaim: body.reclaim,
            ticket: body.ticket.as_deref(),
            metadata: body.metadata.as_ref(),
        };
        Ok((claims.clone(), read::acquire(namespace, claims, terms)?))
    };
    let (claims, acquire) = asked().inspect_err(|failure| not_asked(app, watch, failure))?;
    let namespace = acquire.namespace.clone();
    let (grant, given) = granted(app, watch, "set", acquire).await?;
    let grant = convert::set_grant(app.now(), app.epoch(&namespace), &claims, &grant);
    Ok(((&grant).into(), given))
}

/// A request that never came to the engine counts as failed all the same.
fn not_asked(app: &App, watch: Stopwatch, failure: &Failure) {
    app.metrics.answered(Op::Acquire, watch.took(), Err(failure.0.code));
}

async fn renew(app: &App, body: RenewRequest) -> Result<Renewed, Failure> {
    let renew = Renew {
        namespace: read::namespace(&body.namespace)?,
        scope: read::scope(&body.lock)?,
        owner: convert::owner(&body.owner_id)?,
        lease: convert::lease_id("lease_id", &body.lease_id)?,
        fence: convert::fence(body.fencing_token)?,
        ttl: read::length("ttl", body.ttl)?,
    };
    let Answer::Renewed(renewed) = app.command(Command::Renew(renew.clone())).await? else {
        return Err(unexpected());
    };
    Ok((&convert::renewed(app.now(), app.epoch(&renew.namespace), &renew, renewed)).into())
}

async fn release(app: &App, body: ReleaseRequest) -> Result<Released, Failure> {
    let release = Release {
        namespace: read::namespace(&body.namespace)?,
        scope: read::scope(&body.lock)?,
        owner: convert::owner(&body.owner_id)?,
        lease: convert::lease_id("lease_id", &body.lease_id)?,
        fence: convert::fence(body.fencing_token)?,
    };
    let Answer::Released { held, replayed } = app.command(Command::Release(release)).await? else {
        return Err(unexpected());
    };
    Ok(Released { held: Some(length(held)), replayed })
}

async fn unlock(app: &App, body: UnlockRequest) -> Result<Unlocked, Failure> {
    let scope = read::scope(&body.lock)?;
    let owner = convert::owner(&body.owner_id)?;
    let session = convert::lease_id("session_id", &body.session_id)?;
    let unlock = convert::unlock(read::namespace(&body.namespace)?, &scope, owner, session)?;
    let Answer::Unlocked { changed } = app.command(Command::Unlock(unlock)).await? else {
        return Err(unexpected());
    };
    Ok(Unlocked { lock: scope.to_string(), changed })
}

async fn token(app: &App, body: GetTokenRequest) -> Result<TokenView, Failure> {
    let (namespace, fence) =
        (read::namespace(&body.namespace)?, convert::fence(body.fencing_token)?);
    Ok((&tokens::of(app, namespace, fence).await?).into())
}

async fn test(app: &App, body: TestRequest) -> Result<Tested, Failure> {
    check_permits(app, body.permits)?;
    let query = Query::Test {
        namespace: read::namespace(&body.namespace)?,
        owner: convert::owner(&body.owner_id)?,
        lease: body
            .session_id
            .as_deref()
            .map(|id| convert::lease_id("session_id", id))
            .transpose()?,
        claim: read::claim(&body.lock, body.mode, body.permits)?,
    };
    let lock = read::scope(&body.lock)?.to_string();
    let View::Tested(found) = app.query(query).await? else { return Err(unexpected()) };
    Ok(tested(app, lock, &found))
}

pub(super) fn tested(app: &App, lock: String, found: &leasehold_core::Tested) -> Tested {
    let conflict = found.conflict.as_ref();
    let conflict = conflict.map(|holder| (&convert::holder(app.now(), holder)).into());
    Tested { lock, free: found.free, conflict, truncated: found.truncated }
}

async fn check(app: &App, body: CheckRequest) -> Result<Checked, Failure> {
    let lease = body.lease_id.as_deref().map(|id| convert::lease_id("lease_id", id));
    let scope = read::scope(&body.lock)?;
    let lock = scope.to_string();
    let query = Query::Check {
        namespace: read::namespace(&body.namespace)?,
        scope,
        fence: convert::fence(body.fencing_token)?,
        lease: lease.transpose()?,
    };
    let View::Checked(check) = app.query(query).await? else { return Err(unexpected()) };
    Ok(checked(app, lock, body.fencing_token, &check))
}

pub(super) fn checked(
    app: &App,
    lock: String,
    fencing_token: u64,
    check: &leasehold_core::Check,
) -> Checked {
    let holder = check.holder.as_ref().map(|holder| (&convert::holder(app.now(), holder)).into());
    let reason = check.why.map_or("", leasehold_core::Gone::as_str).into();
    Checked { lock, fencing_token, valid: check.valid, holder, reason, truncated: check.truncated }
}

async fn get(app: &App, body: GetRequest) -> Result<Lock, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let query = Query::Get { namespace: namespace.clone(), scope: read::scope(&body.lock)? };
    let View::Lock(view) = app.query(query).await? else { return Err(unexpected()) };
    Ok((&convert::lock(app.now(), &namespace, &view)).into())
}

async fn list(app: &App, body: ListRequest) -> Result<LockPage, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    if !is_prefix(&body.prefix) {
        return Err(Failure::field("prefix", "cannot begin the name of a lock"));
    }
    let token = Some(body.page_token.as_str()).filter(|token| !token.is_empty());
    let session = match &body.session_id {
        Some(session) => Some(session_number(app, &namespace, session).await?),
        None => None,
    };
    let epoch = app.epoch(&namespace);
    let query = ListQuery {
        namespace,
        prefix: body.prefix,
        owner: body.owner_id.as_deref().map(convert::owner).transpose()?,
        session,
        inode: None,
        state: read::lock_state(body.state)?,
        after: token.map(convert::list_cursor).transpose()?,
        len_max: read::page_size(body.page_size, PAGE_SIZE, PAGE_SIZE_MAX)?,
        looked_at_max: LOOKED_AT_MAX,
    };
    let View::Page(page) = app.query(Query::List(query)).await? else { return Err(unexpected()) };
    Ok((&convert::lock_page(app.now(), epoch, &page)).into())
}

async fn break_(app: &App, body: BreakRequest) -> Result<Broken, Failure> {
    check_reason(&body.reason)?;
    let namespace = read::namespace(&body.namespace)?;
    let scope = read::scope(&body.lock)?;
    let fence = body.fencing_token.map(convert::fence).transpose()?;
    let lock = scope.to_string();
    let reason = body.reason.as_str();
    let command = Break { namespace: namespace.clone(), scope, fence, reason: reason.into() };
    let Answer::Broken { grants, truncated } =
        app.command_in_turns(Command::Break(command)).await?
    else {
        return Err(unexpected());
    };
    audit::lock_broken(&lock, namespace.as_str(), reason, grants);
    Ok(Broken { lock, broken: grants as u64, truncated })
}

async fn graph(app: &App, body: GetGraphRequest) -> Result<Graph, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    Ok((&drawing::now(app, namespace, false, |_| {}).await?).into())
}
