//! Fence registers, and files that are gone.

use std::sync::Arc;

use leasehold_api::grpc::fences_server::Fences;
use leasehold_api::grpc::inodes_server::Inodes;
use leasehold_api::grpc::{
    AcceptRequest, Accepted, DeleteRegisterRequest, DeletedRegister, GetRegisterRequest,
    ListRegistersRequest, Register, RegisterPage, RemoveRequest, Removed,
};
use leasehold_core::{AcceptFence, DeleteFence, Namespace, RemoveFile};
use tonic::{Request, Response, Status};

use super::{answer, opened, read};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::fences::Registers;
use crate::service::problems::Failure;
use crate::service::release::FileRemoved;
use crate::service::sessions::{PAGE_SIZE, PAGE_SIZE_MAX};

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Fences for Service {
    async fn accept(&self, request: Request<AcceptRequest>) -> Result<Response<Accepted>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, accept(&self.0, &caller, body).await)
    }

    async fn get(
        &self,
        request: Request<GetRegisterRequest>,
    ) -> Result<Response<Register>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, get(&self.0, &caller, body).await)
    }

    async fn list(
        &self,
        request: Request<ListRegistersRequest>,
    ) -> Result<Response<RegisterPage>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, list(&self.0, &caller, body).await)
    }

    async fn delete(
        &self,
        request: Request<DeleteRegisterRequest>,
    ) -> Result<Response<DeletedRegister>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, delete(&self.0, &caller, body).await)
    }
}

#[tonic::async_trait]
impl Inodes for Service {
    async fn remove(&self, request: Request<RemoveRequest>) -> Result<Response<Removed>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, remove(&self.0, &caller, body).await)
    }
}

/// A token shown to a register.
pub(super) fn asked(
    caller: &Caller,
    body: &AcceptRequest,
    namespace: Namespace,
) -> Result<AcceptFence, Failure> {
    let fence = convert::fence(body.fencing_token)?;
    let (register, principal) = (convert::register(&body.name)?, caller.principal.clone());
    Ok(AcceptFence { namespace, register, principal, fence })
}

async fn accept(app: &App, caller: &Caller, body: AcceptRequest) -> Result<Accepted, Failure> {
    let asked =
        read::namespace(&body.namespace).and_then(|namespace| asked(caller, &body, namespace));
    let high_water = app.accept_fence(caller, asked).await?;
    Ok(Accepted { high_water: high_water.get() })
}

async fn get(app: &App, caller: &Caller, body: GetRegisterRequest) -> Result<Register, Failure> {
    let asked = (read::namespace(&body.namespace)?, convert::register(&body.name)?);
    let found = app.register(caller, Ok(asked)).await?;
    Ok(Register { name: body.name, high_water: found.high_water.get() })
}

async fn list(
    app: &App,
    caller: &Caller,
    body: ListRegistersRequest,
) -> Result<RegisterPage, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let len_max = read::page_size(body.page_size, PAGE_SIZE, PAGE_SIZE_MAX)?;
    let after = match body.page_token.as_str() {
        "" => None,
        token => Some(convert::register_cursor(token)?),
    };
    let found = app.registers(caller, Ok(Registers { namespace, after, len_max })).await?;
    let (fences, next) = convert::register_page(&found, len_max);
    let registers = fences
        .into_iter()
        .map(|register| Register { name: register.name, high_water: register.high_water });
    Ok(RegisterPage { registers: registers.collect(), next_page_token: next.unwrap_or_default() })
}

async fn delete(
    app: &App,
    caller: &Caller,
    body: DeleteRegisterRequest,
) -> Result<DeletedRegister, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let register = convert::register(&body.name)?;
    let delete = DeleteFence { namespace, register, reason: body.reason.into() };
    let deleted = app.delete_fence(caller, Ok(delete)).await?;
    Ok(DeletedRegister { high_water: deleted.high_water.get() })
}

async fn remove(app: &App, caller: &Caller, body: RemoveRequest) -> Result<Removed, Failure> {
    let inode = body.inode;
    let remove = RemoveFile { namespace: read::namespace(&body.namespace)?, inode };
    let FileRemoved { grants, waiters, truncated } = app.remove_file(caller, Ok(remove)).await?;
    Ok(Removed { inode, released: grants as u64, waiters: waiters as u64, truncated })
}
