//! Fence registers, and files that are gone.

use std::sync::Arc;

use leasehold_api::Code;
use leasehold_api::grpc::fences_server::Fences;
use leasehold_api::grpc::inodes_server::Inodes;
use leasehold_api::grpc::{
    AcceptRequest, Accepted, DeleteRegisterRequest, DeletedRegister, GetRegisterRequest,
    ListRegistersRequest, Register, RegisterPage, RemoveRequest, Removed,
};
use leasehold_core::{AcceptFence, Answer, Command, Namespace, RegisterName, RemoveFile};
use leasehold_engine::{Query, View};
use tonic::{Request, Response, Status};

use super::{Responder, read};
use crate::convert;
use crate::http::fences::{delete_one, page_token};
use crate::http::locks::{check_reason, outcome, unexpected};
use crate::http::sessions::{PAGE_SIZE, PAGE_SIZE_MAX};
use crate::service::app::App;
use crate::service::problems::Failure;
use crate::telemetry::metrics::{Op, Stopwatch};

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Fences for Service {
    async fn accept(&self, request: Request<AcceptRequest>) -> Result<Response<Accepted>, Status> {
        let (responder, watch) = (Responder::of(&request), Stopwatch::start());
        let accepted = accept(&self.0, request.into_inner()).await;
        self.0.metrics.answered(Op::Fence, watch.took(), outcome(&accepted));
        responder.answer(accepted)
    }

    async fn get(
        &self,
        request: Request<GetRegisterRequest>,
    ) -> Result<Response<Register>, Status> {
        let responder = Responder::of(&request);
        responder.answer(get(&self.0, request.into_inner()).await)
    }

    async fn list(
        &self,
        request: Request<ListRegistersRequest>,
    ) -> Result<Response<RegisterPage>, Status> {
        let responder = Responder::of(&request);
        responder.answer(list(&self.0, request.into_inner()).await)
    }

    async fn delete(
        &self,
        request: Request<DeleteRegisterRequest>,
    ) -> Result<Response<DeletedRegister>, Status> {
        let responder = Responder::of(&request);
        responder.answer(delete(&self.0, request.into_inner()).await)
    }
}

#[tonic::async_trait]
impl Inodes for Service {
    async fn remove(&self, request: Request<RemoveRequest>) -> Result<Response<Removed>, Status> {
        let responder = Responder::of(&request);
        responder.answer(remove(&self.0, request.into_inner()).await)
    }
}

fn name(text: &str) -> Result<RegisterName, Failure> {
    RegisterName::new(text).map_err(|fault| Failure::field("name", fault.to_string()))
}

/// A token shown to a register.
pub(super) fn asked(body: &AcceptRequest, namespace: Namespace) -> Result<AcceptFence, Failure> {
    let fence = convert::fence(body.fencing_token)?;
    Ok(AcceptFence { namespace, register: name(&body.name)?, fence })
}

async fn accept(app: &App, body: AcceptRequest) -> Result<Accepted, Failure> {
    let accept = asked(&body, read::namespace(&body.namespace)?)?;
    let Answer::FenceAccepted { high_water } = app.command(Command::AcceptFence(accept)).await?
    else {
        return Err(unexpected());
    };
    Ok(Accepted { high_water: high_water.get() })
}

async fn get(app: &App, body: GetRegisterRequest) -> Result<Register, Failure> {
    let register = name(&body.name)?;
    let query = Query::Register { namespace: read::namespace(&body.namespace)?, register };
    let View::Register(high_water) = app.query(query).await? else { return Err(unexpected()) };
    match high_water {
        Some(high_water) => Ok(Register { name: body.name, high_water: high_water.get() }),
        None => Err(Failure::new(Code::NotFound, "not found: this register has accepted no token")),
    }
}

async fn list(app: &App, body: ListRegistersRequest) -> Result<RegisterPage, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let len_max = read::page_size(body.page_size, PAGE_SIZE, PAGE_SIZE_MAX)?;
    let after = match body.page_token.as_str() {
        "" => None,
        token => Some(page_token(token)?),
    };
    let query = Query::Registers { namespace, after, len_max };
    let View::Registers(found) = app.query(query).await? else { return Err(unexpected()) };
    let (fences, next) = convert::register_page(&found, len_max);
    let registers = fences
        .into_iter()
        .map(|register| Register { name: register.name, high_water: register.high_water });
    Ok(RegisterPage { registers: registers.collect(), next_page_token: next.unwrap_or_default() })
}

async fn delete(app: &App, body: DeleteRegisterRequest) -> Result<DeletedRegister, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let register = name(&body.name)?;
    check_reason(&body.reason)?;
    let high_water = delete_one(app, namespace, &register, &body.reason).await?;
    Ok(DeletedRegister { high_water })
}

async fn remove(app: &App, body: RemoveRequest) -> Result<Removed, Failure> {
    let inode = body.inode;
    let command = RemoveFile { namespace: read::namespace(&body.namespace)?, inode };
    let Answer::FileRemoved { grants, waiters, truncated } =
        app.command_in_turns(Command::RemoveFile(command)).await?
    else {
        return Err(unexpected());
    };
    Ok(Removed { inode, released: grants as u64, waiters: waiters as u64, truncated })
}
