//! Sessions. Their ids are secrets: they come back to who opened one, and are in no list.

use std::sync::Arc;

use leasehold_api::grpc::sessions_server::Sessions;
use leasehold_api::grpc::{
    AttachRequest, BreakSessionRequest, CloseRequest, Closed, GetSessionRequest, KeepAliveRequest,
    KeptAlive, ListSessionsRequest, OpenRequest, Opened, Session, SessionPage,
};
use leasehold_core::{
    Adapter, Answer, BreakSession, CloseSession, Command, KeepAlive, Namespace, OpenSession,
    Principal,
};
use leasehold_engine::{Query, View};
use tonic::{Request, Response, Status, Streaming};

use super::stream::attach::{self, Attached};
use super::{Responder, read};
use crate::convert;
use crate::http::locks::{check_reason, no_session, outcome, unexpected};
use crate::http::sessions::{PAGE_SIZE, PAGE_SIZE_MAX};
use crate::service::app::App;
use crate::service::caller::audit;
use crate::service::problems::Failure;
use crate::service::random;
use crate::telemetry::metrics::{Op, Stopwatch};

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Sessions for Service {
    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<Opened>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let opened = open(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Session, watch.took(), outcome(&opened));
        responder.answer(opened)
    }

    async fn keep_alive(
        &self,
        request: Request<KeepAliveRequest>,
    ) -> Result<Response<KeptAlive>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let kept = keep_alive(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Renew, watch.took(), outcome(&kept));
        responder.answer(kept)
    }

    async fn get(&self, request: Request<GetSessionRequest>) -> Result<Response<Session>, Status> {
        let responder = Responder::of(&request);
        responder.answer(get(&self.0, request.into_inner()).await)
    }

    async fn list(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<SessionPage>, Status> {
        let responder = Responder::of(&request);
        responder.answer(list(&self.0, request.into_inner()).await)
    }

    async fn close(&self, request: Request<CloseRequest>) -> Result<Response<Closed>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let closed = close(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Session, watch.took(), outcome(&closed));
        responder.answer(closed)
    }

    async fn r#break(
        &self,
        request: Request<BreakSessionRequest>,
    ) -> Result<Response<Closed>, Status> {
        let responder = Responder::of(&request);
        responder.answer(break_(&self.0, request.into_inner()).await)
    }

    type AttachStream = Attached;

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Attached>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let attached = attach::attach(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Session, watch.took(), outcome(&attached));
        responder.answer(attached)
    }
}

/// Opens a session; in the stream's namespace, if it is for one.
pub(super) fn asked(body: &OpenRequest, namespace: Namespace) -> Result<OpenSession, Failure> {
    let adapter = body.adapter.as_deref().unwrap_or("grpc");
    Ok(OpenSession {
        namespace,
        id: random::lease_id(),
        owner: convert::owner(&body.owner_id)?,
        ttl: read::needed_length("ttl", body.ttl)?,
        adapter: Adapter::new(adapter)
            .map_err(|fault| Failure::field("adapter", fault.to_string()))?,
        on_disconnect: read::on_disconnect(body)?,
        request_id: body.request_id.as_deref().map(convert::request_id).transpose()?,
        metadata: match &body.metadata {
            Some(given) => read::metadata(given)?,
            None => None,
        },
    })
}

async fn open(app: &App, body: OpenRequest) -> Result<Opened, Failure> {
    let open = asked(&body, read::namespace(&body.namespace)?)?;
    let command = Command::OpenSession(open.clone());
    let Answer::SessionOpened(opened) = app.command(command).await? else {
        return Err(unexpected());
    };
    Ok((&convert::opened(app.now(), app.epoch(&open.namespace), &open, &opened)).into())
}

async fn keep_alive(app: &App, body: KeepAliveRequest) -> Result<KeptAlive, Failure> {
    let keep = KeepAlive {
        namespace: read::namespace(&body.namespace)?,
        principal: Principal::ANONYMOUS,
        session: convert::lease_id("session_id", &body.session_id)?,
        ttl: read::length("ttl", body.ttl)?,
    };
    let namespace = keep.namespace.clone();
    let Answer::Renewed(renewed) = app.command(Command::KeepAlive(keep)).await? else {
        return Err(unexpected());
    };
    Ok((&convert::kept_alive(app.now(), app.epoch(&namespace), renewed)).into())
}

async fn get(app: &App, body: GetSessionRequest) -> Result<Session, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let id = convert::lease_id("session_id", &body.session_id)?;
    let query = Query::Session { namespace, principal: Principal::ANONYMOUS, id };
    let View::Session(found) = app.query(query).await? else {
        return Err(unexpected());
    };
    Ok((&convert::session(app.now(), &*found.ok_or_else(no_session)?)).into())
}

async fn list(app: &App, body: ListSessionsRequest) -> Result<SessionPage, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let len_max = read::page_size(body.page_size, PAGE_SIZE, PAGE_SIZE_MAX)?;
    let after = match body.page_token.as_str() {
        "" => 0,
        token => {
            token.parse().map_err(|_| Failure::field("page_token", "is not a whole number"))?
        }
    };
    let query = Query::Sessions { namespace, after, len_max };
    let View::Sessions(found) = app.query(query).await? else { return Err(unexpected()) };
    let (sessions, next) = convert::session_page(app.now(), &found, len_max);
    Ok(SessionPage {
        next_page_token: next.map(|number| number.to_string()).unwrap_or_default(),
        sessions: sessions.iter().map(Into::into).collect(),
    })
}

async fn break_(app: &App, body: BreakSessionRequest) -> Result<Closed, Failure> {
    check_reason(&body.reason)?;
    let (number, reason) = (body.session, body.reason.as_str());
    let namespace = read::namespace(&body.namespace)?;
    let command = BreakSession { namespace: namespace.clone(), number, reason: reason.into() };
    let Answer::SessionClosed { grants, .. } = app.command(Command::BreakSession(command)).await?
    else {
        return Err(unexpected());
    };
    audit::session_broken(number, namespace.as_str(), reason, grants);
    Ok(Closed { released: grants as u64, replayed: false })
}

async fn close(app: &App, body: CloseRequest) -> Result<Closed, Failure> {
    let close = CloseSession {
        namespace: read::namespace(&body.namespace)?,
        principal: Principal::ANONYMOUS,
        session: convert::lease_id("session_id", &body.session_id)?,
    };
    let closed = app.command(Command::CloseSession(close)).await?;
    let Answer::SessionClosed { grants, replayed } = closed else { return Err(unexpected()) };
    Ok(Closed { released: grants as u64, replayed })
}
