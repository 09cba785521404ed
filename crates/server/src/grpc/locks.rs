//! One lock, lists of them, sets, and who waits for whom.

use std::sync::Arc;

use leasehold_api::grpc::locks_server::Locks;
use leasehold_api::grpc::{
    AcquireRequest, AcquireSetRequest, BreakRequest, Broken, CheckRequest, Checked,
    GetGraphRequest, GetRequest, GetTokenRequest, Grant, Graph, ListRequest, Lock, LockPage,
    ReleaseRequest, Released, RenewRequest, Renewed, SetGrant, TestRequest, Tested, TokenView,
    UnlockRequest, Unlocked, length,
};
use leasehold_core::{Break, ListQuery, Release, Renew, is_prefix};
use tonic::{Request, Response, Status};

use super::{answer, guarded, opened, read};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::delivery::DeliveryGuard;
use crate::service::problems::Failure;
use crate::service::views::{CheckToken, LOOKED_AT_MAX, List, PAGE_SIZE, PAGE_SIZE_MAX, Test};

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Locks for Service {
    async fn acquire(&self, request: Request<AcquireRequest>) -> Result<Response<Grant>, Status> {
        let (caller, body) = opened(request);
        guarded(&self.0, &caller, acquire(&self.0, &caller, body).await)
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<Renewed>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, renew(&self.0, &caller, body).await)
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<Released>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, release(&self.0, &caller, body).await)
    }

    async fn unlock(&self, request: Request<UnlockRequest>) -> Result<Response<Unlocked>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, unlock(&self.0, &caller, body).await)
    }

    async fn get_token(
        &self,
        request: Request<GetTokenRequest>,
    ) -> Result<Response<TokenView>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, token(&self.0, &caller, body).await)
    }

    async fn test(&self, request: Request<TestRequest>) -> Result<Response<Tested>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, test(&self.0, &caller, body).await)
    }

    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<Checked>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, check(&self.0, &caller, body).await)
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<Lock>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, get(&self.0, &caller, body).await)
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<LockPage>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, list(&self.0, &caller, body).await)
    }

    async fn r#break(&self, request: Request<BreakRequest>) -> Result<Response<Broken>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, break_(&self.0, &caller, body).await)
    }

    async fn acquire_set(
        &self,
        request: Request<AcquireSetRequest>,
    ) -> Result<Response<SetGrant>, Status> {
        let (caller, body) = opened(request);
        guarded(&self.0, &caller, acquire_set(&self.0, &caller, body).await)
    }

    async fn get_graph(
        &self,
        request: Request<GetGraphRequest>,
    ) -> Result<Response<Graph>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, graph(&self.0, &caller, body).await)
    }
}

async fn acquire(
    app: &App,
    caller: &Caller,
    body: AcquireRequest,
) -> Result<(Grant, Option<DeliveryGuard>), Failure> {
    let asked = || {
        let namespace = read::namespace(&body.namespace)?;
        let claim = read::claim(&body.lock, body.mode, body.permits)?;
        let terms = read::Terms {
            owner: convert::owner(&caller.principal, &body.owner_id)?,
            under: read::under(body.session_id.as_deref(), body.ttl)?,
            wait: body.wait,
            wait_forever: body.wait_forever,
            request_id: body.request_id.as_deref(),
            reclaim_window: body.reclaim_window,
            reclaim: body.reclaim,
            ticket: body.ticket.as_deref(),
            metadata: body.metadata.as_ref(),
        };
        read::acquire(namespace, vec![claim], terms)
    };
    let granted = app.acquire(caller, asked()).await?;
    Ok(((&convert::grant(app.now(), &granted)?).into(), granted.guard))
}

async fn acquire_set(
    app: &App,
    caller: &Caller,
    body: AcquireSetRequest,
) -> Result<(SetGrant, Option<DeliveryGuard>), Failure> {
    let asked = || {
        let namespace = read::namespace(&body.namespace)?;
        let claims = read::claims(&body.locks)?;
        let terms = read::Terms {
            owner: convert::owner(&caller.principal, &body.owner_id)?,
            under: read::under(body.session_id.as_deref(), body.ttl)?,
            wait: body.wait,
            wait_forever: body.wait_forever,
            request_id: body.request_id.as_deref(),
            reclaim_window: body.reclaim_window,
            reclaim: body.reclaim,
            ticket: body.ticket.as_deref(),
            metadata: body.metadata.as_ref(),
        };
        read::acquire(namespace, claims, terms)
    };
    let granted = app.acquire(caller, asked()).await?;
    Ok(((&convert::set_grant(app.now(), &granted)).into(), granted.guard))
}

async fn renew(app: &App, caller: &Caller, body: RenewRequest) -> Result<Renewed, Failure> {
    let asked = || {
        Ok(Renew {
            namespace: read::namespace(&body.namespace)?,
            scope: read::scope(&body.lock)?,
            owner: convert::owner(&caller.principal, &body.owner_id)?,
            lease: convert::lease_id("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
            ttl: read::length("ttl", body.ttl)?,
        })
    };
    let (renew, renewed) = app.renew(caller, asked()).await?;
    Ok((&convert::renewed(app.now(), app.epoch(&renew.namespace), &renew, renewed)).into())
}

async fn release(app: &App, caller: &Caller, body: ReleaseRequest) -> Result<Released, Failure> {
    let asked = || {
        Ok(Release {
            namespace: read::namespace(&body.namespace)?,
            scope: read::scope(&body.lock)?,
            owner: convert::owner(&caller.principal, &body.owner_id)?,
            lease: convert::lease_id("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
        })
    };
    let released = app.release(caller, asked()).await?;
    Ok(Released { held: Some(length(released.held)), replayed: released.replayed })
}

async fn unlock(app: &App, caller: &Caller, body: UnlockRequest) -> Result<Unlocked, Failure> {
    let scope = read::scope(&body.lock);
    let lock = scope.as_ref().map_or(String::new(), ToString::to_string);
    let asked = scope.and_then(|scope| {
        let owner = convert::owner(&caller.principal, &body.owner_id)?;
        let session = convert::lease_id("session_id", &body.session_id)?;
        convert::unlock(read::namespace(&body.namespace)?, &scope, owner, session)
    });
    Ok(Unlocked { changed: app.unlock(caller, asked).await?, lock })
}

async fn token(app: &App, caller: &Caller, body: GetTokenRequest) -> Result<TokenView, Failure> {
    let asked = || Ok((read::namespace(&body.namespace)?, convert::fence(body.fencing_token)?));
    let found = app.token(caller, asked()).await?;
    Ok((&convert::token(app.now(), &found)).into())
}

async fn test(app: &App, caller: &Caller, body: TestRequest) -> Result<Tested, Failure> {
    let asked = || {
        let lease = body.session_id.as_deref().map(|id| convert::lease_id("session_id", id));
        Ok(Test {
            namespace: read::namespace(&body.namespace)?,
            owner: convert::owner(&caller.principal, &body.owner_id)?,
            lease: lease.transpose()?,
            claim: read::claim(&body.lock, body.mode, body.permits)?,
        })
    };
    let (lock, found) = app.test(caller, asked()).await?;
    Ok(tested(app, lock, &found))
}

pub(super) fn tested(app: &App, lock: String, found: &leasehold_core::Tested) -> Tested {
    let conflict = found.conflict.as_ref();
    let conflict = conflict.map(|holder| (&convert::holder(app.now(), holder)).into());
    Tested { lock, free: found.free, conflict, truncated: found.truncated }
}

async fn check(app: &App, caller: &Caller, body: CheckRequest) -> Result<Checked, Failure> {
    let asked = || {
        let lease = body.lease_id.as_deref().map(|id| convert::lease_id("lease_id", id));
        Ok(CheckToken {
            namespace: read::namespace(&body.namespace)?,
            scope: read::scope(&body.lock)?,
            fence: convert::fence(body.fencing_token)?,
            lease: lease.transpose()?,
        })
    };
    let (lock, fence, found) = app.check(caller, asked()).await?;
    Ok(checked(app, lock, fence.get(), &found))
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

async fn get(app: &App, caller: &Caller, body: GetRequest) -> Result<Lock, Failure> {
    let asked = || Ok((read::namespace(&body.namespace)?, read::scope(&body.lock)?));
    let (namespace, view) = app.lock(caller, asked()).await?;
    Ok((&convert::lock(app.now(), &namespace, &view)).into())
}

async fn list(app: &App, caller: &Caller, body: ListRequest) -> Result<LockPage, Failure> {
    let (epoch, page, filtered) = app.list(caller, listing(caller, body)).await?;
    Ok((&convert::lock_page(app.now(), epoch, &page, filtered)).into())
}

fn listing(caller: &Caller, body: ListRequest) -> Result<List, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    if !is_prefix(&body.prefix) {
        return Err(Failure::field("prefix", "cannot begin the name of a lock"));
    }
    let token = Some(body.page_token.as_str()).filter(|token| !token.is_empty());
    let session = body.session_id.as_deref().map(convert::session_name).transpose()?;
    let owner = body.owner_id.as_deref().map(|id| convert::owner(&caller.principal, id));
    let query = ListQuery {
        namespace,
        owner: owner.transpose()?,
        session: None,
        within: None,
        inode: None,
        state: read::lock_state(body.state)?,
        after: token.map(convert::list_cursor).transpose()?,
        len_max: read::page_size(body.page_size, PAGE_SIZE, PAGE_SIZE_MAX)?,
        looked_at_max: LOOKED_AT_MAX,
        prefix: body.prefix,
    };
    Ok(List { query, session })
}

async fn break_(app: &App, caller: &Caller, body: BreakRequest) -> Result<Broken, Failure> {
    let asked = || {
        let namespace = read::namespace(&body.namespace)?;
        let scope = read::scope(&body.lock)?;
        let fence = body.fencing_token.map(convert::fence).transpose()?;
        Ok(Break { namespace, scope, fence, reason: body.reason.as_str().into() })
    };
    let broken = app.break_lock(caller, asked()).await?;
    Ok(Broken { lock: broken.lock, broken: broken.grants as u64, truncated: broken.truncated })
}

async fn graph(app: &App, caller: &Caller, body: GetGraphRequest) -> Result<Graph, Failure> {
    let view = app.graph(caller, read::namespace(&body.namespace)?, false).await?;
    Ok((&convert::graph(app.now(), view, |_| {}).await?).into())
}
