//! Sessions. Their ids are secrets: they come back to who opened one, and are in no list.

use std::sync::Arc;

use leasehold_api::grpc::sessions_server::Sessions;
use leasehold_api::grpc::{
    AttachRequest, BreakSessionRequest, CloseRequest, Closed, GetSessionRequest, KeepAliveRequest,
    KeptAlive, ListSessionsRequest, OpenRequest, Opened, Session, SessionPage,
};
use leasehold_core::{BreakSession, CloseSession, KeepAlive, Namespace, OpenSession};
use tonic::{Request, Response, Status, Streaming};

use super::stream::attach::{self, Attached};
use super::{answer, guarded, opened, read, status};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::delivery::DeliveryGuard;
use crate::service::problems::Failure;
use crate::service::random;
use crate::service::sessions::{PAGE_SIZE, PAGE_SIZE_MAX, Sessions as Listing};

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Sessions for Service {
    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<Opened>, Status> {
        let (caller, body) = opened(request);
        guarded(&self.0, &caller, open(&self.0, &caller, body).await)
    }

    async fn keep_alive(
        &self,
        request: Request<KeepAliveRequest>,
    ) -> Result<Response<KeptAlive>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, keep_alive(&self.0, &caller, body).await)
    }

    async fn get(&self, request: Request<GetSessionRequest>) -> Result<Response<Session>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, get(&self.0, &caller, body).await)
    }

    async fn list(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<SessionPage>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, list(&self.0, &caller, body).await)
    }

    async fn close(&self, request: Request<CloseRequest>) -> Result<Response<Closed>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, close(&self.0, &caller, body).await)
    }

    async fn r#break(
        &self,
        request: Request<BreakSessionRequest>,
    ) -> Result<Response<Closed>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, break_(&self.0, &caller, body).await)
    }

    type AttachStream = Attached;

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Attached>, Status> {
        let (caller, commands) = opened(request);
        let (request_id, app) = (caller.request_id.clone(), &self.0);
        let attached = attach::attach(app, caller, commands).await;
        let attached = attached.map_err(|failure| status(app, &failure, &request_id))?;
        let outbox = attached.outbox();
        let mut response = Response::new(attached);
        response.extensions_mut().insert(outbox);
        Ok(response)
    }
}

/// Opens a session; in the stream's namespace, if it is for one.
pub(super) fn asked(
    caller: &Caller,
    body: &OpenRequest,
    namespace: Namespace,
) -> Result<OpenSession, Failure> {
    Ok(OpenSession {
        namespace,
        id: random::lease_id(),
        owner: convert::owner(&caller.principal, &body.owner_id)?,
        ttl: read::needed_length("ttl", body.ttl)?,
        adapter: convert::adapter(body.adapter.as_deref(), "grpc")?,
        on_disconnect: read::on_disconnect(body)?,
        request_id: body.request_id.as_deref().map(convert::request_id).transpose()?,
        metadata: match &body.metadata {
            Some(given) => read::metadata(given)?,
            None => None,
        },
    })
}

async fn open(
    app: &App,
    caller: &Caller,
    body: OpenRequest,
) -> Result<(Opened, Option<DeliveryGuard>), Failure> {
    let asked =
        read::namespace(&body.namespace).and_then(|namespace| asked(caller, &body, namespace));
    let opened = app.open_session(caller, asked).await?;
    Ok(((&convert::opened(app.now(), &opened)).into(), opened.guard))
}

async fn keep_alive(
    app: &App,
    caller: &Caller,
    body: KeepAliveRequest,
) -> Result<KeptAlive, Failure> {
    let asked = || {
        Ok(KeepAlive {
            namespace: read::namespace(&body.namespace)?,
            principal: caller.principal.clone(),
            session: convert::lease_id("session_id", &body.session_id)?,
            ttl: read::length("ttl", body.ttl)?,
        })
    };
    let (epoch, renewed) = app.keep_alive(caller, asked()).await?;
    Ok((&convert::kept_alive(app.now(), epoch, renewed)).into())
}

async fn get(app: &App, caller: &Caller, body: GetSessionRequest) -> Result<Session, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let id = convert::lease_id("session_id", &body.session_id)?;
    let found = app.session(caller, namespace, id).await?;
    Ok((&convert::session(app.now(), &found)).into())
}

async fn list(
    app: &App,
    caller: &Caller,
    body: ListSessionsRequest,
) -> Result<SessionPage, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let len_max = read::page_size(body.page_size, PAGE_SIZE, PAGE_SIZE_MAX)?;
    let after = match body.page_token.as_str() {
        "" => 0,
        token => {
            token.parse().map_err(|_| Failure::field("page_token", "is not a whole number"))?
        }
    };
    let found = app.sessions(caller, Ok(Listing { namespace, after, len_max })).await?;
    let (sessions, next) = convert::session_page(app.now(), &found, len_max);
    Ok(SessionPage {
        next_page_token: next.map(|number| number.to_string()).unwrap_or_default(),
        sessions: sessions.iter().map(Into::into).collect(),
    })
}

async fn break_(app: &App, caller: &Caller, body: BreakSessionRequest) -> Result<Closed, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let asked = BreakSession { namespace, number: body.session, reason: body.reason.into() };
    let grants = app.break_session(caller, Ok(asked)).await?;
    Ok(Closed { released: grants as u64, replayed: false })
}

async fn close(app: &App, caller: &Caller, body: CloseRequest) -> Result<Closed, Failure> {
    let asked = || {
        Ok(CloseSession {
            namespace: read::namespace(&body.namespace)?,
            principal: caller.principal.clone(),
            session: convert::lease_id("session_id", &body.session_id)?,
        })
    };
    let (grants, replayed) = app.close_session(caller, asked()).await?;
    Ok(Closed { released: grants as u64, replayed })
}
