//! Fence registers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use leasehold_api::schema::LockName;
use leasehold_api::{
    AcceptRequest, Accepted, Code, DeleteFenceRequest, DeletedFence, Problem, Register,
    RegisterPage,
};
use leasehold_core::{AcceptFence, DeleteFence, RegisterName};

use super::encode::{Answered, ok};
use super::extract::{self, Params};
use super::openapi::{BodyProblems, NamespaceParam, NotFound, Problems};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::fences::Registers;
use crate::service::problems::Failure;
use crate::service::sessions::{PAGE_SIZE, PAGE_SIZE_MAX};

const PREFIX: &str = "/v1/fences/";

/// Takes the verb off the path.
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let uri = request.uri().clone();
    match extract::named_and_verb(&uri, PREFIX) {
        Some((name, "accept")) => accept(&app, &caller, name, request).await,
        Some(_) | None => {
            Err(Failure::new(Code::NotFound, "expected a verb at the end of the path: accept"))
        }
    }
}

fn name(text: &str) -> Result<RegisterName, Failure> {
    convert::register(&extract::path_part(text)?)
}

fn name_in(uri: &Uri) -> Result<RegisterName, Failure> {
    name(uri.path().strip_prefix(PREFIX).unwrap_or(""))
}

/// Accept a fencing token in a fence register
///
/// Raises the register's high-water mark to this token, or rejects the token if it is lower. A token above the last one
/// that was issued is invalid.
#[utoipa::path(
    post, path = "/v1/fences/{name}/accept", operation_id = "accept_fencing_token", tag = "fences",
    params(("name" = LockName, Path, description = "The register's name"), NamespaceParam),
    request_body = AcceptRequest,
    responses(
        (status = 200, description = "Accepted: the register has seen no higher token", body = Accepted),
        (status = 412, description = "stale_fence", body = Problem, content_type = "application/problem+json"),
        BodyProblems,
    )
)]
pub(crate) async fn accept(
    app: &App,
    caller: &Caller,
    register: &str,
    request: Request,
) -> Answered {
    let asked = async {
        let namespace = extract::only_namespace(request.uri())?;
        let register = name(register)?;
        let body: AcceptRequest = extract::json(app, request).await?;
        let (principal, fence) = (caller.principal.clone(), convert::fence(body.fencing_token)?);
        Ok(AcceptFence { namespace, register, principal, fence })
    };
    let high_water = app.accept_fence(caller, asked.await).await?;
    ok(&Accepted { accepted: true, high_water: high_water.get() })
}

/// Get a fence register
///
/// Returns the highest fencing token that the register has accepted.
#[utoipa::path(
    get, path = "/v1/fences/{name}", operation_id = "get_fence", tag = "fences",
    params(("name" = LockName, Path, description = "The register's name"), NamespaceParam),
    responses((status = 200, description = "The highest token it has seen", body = Register), NotFound, Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, caller: Caller, uri: Uri) -> Answered {
    let asked = extract::only_namespace(&uri).and_then(|namespace| Ok((namespace, name_in(&uri)?)));
    let found = app.register(&caller, asked).await?;
    ok(&Register { name: found.name.to_string(), high_water: found.high_water.get() })
}

/// List fence registers
///
/// Lists the fence registers of a namespace by name, page by page.
#[utoipa::path(
    get, path = "/v1/fences", operation_id = "list_fences", tag = "fences",
    params(
        NamespaceParam,
        ("page_size" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "1 to 1000, 100 if left out"),
        ("page_token" = Option<String>, Query, description = "next_page_token of the page before"),
    ),
    responses((status = 200, description = "A page of registers by name", body = RegisterPage), Problems)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    params: Result<Params, Failure>,
) -> Answered {
    let asked = params.and_then(listing)?;
    let len_max = asked.len_max;
    let found = app.registers(&caller, Ok(asked)).await?;
    let (fences, next_page_token) = convert::register_page(&found, len_max);
    ok(&RegisterPage { fences, next_page_token })
}

fn listing(mut params: Params) -> Result<Registers, Failure> {
    let namespace = params.namespace()?;
    let len_max = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    let after = params.take("page_token").as_deref().map(convert::register_cursor).transpose()?;
    params.done()?;
    Ok(Registers { namespace, after, len_max })
}

/// Delete a fence register
///
/// Removes a register, with a reason. What it has seen is forgotten: the next token that it is shown makes it anew. For
/// operators; audited.
#[utoipa::path(
    delete, path = "/v1/fences/{name}", operation_id = "delete_fence", tag = "fences",
    params(("name" = LockName, Path, description = "The register's name"), NamespaceParam),
    request_body = DeleteFenceRequest,
    responses((status = 200, description = "What it had seen", body = DeletedFence), NotFound, BodyProblems)
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let asked = async {
        let namespace = extract::only_namespace(request.uri())?;
        let register = name_in(request.uri())?;
        let body: DeleteFenceRequest = extract::json(&app, request).await?;
        Ok(DeleteFence { namespace, register, reason: body.reason.into() })
    };
    let asked = asked.await;
    let deleted = app.delete_fence(&caller, asked).await?;
    let (name, high_water) = (deleted.name.to_string(), deleted.high_water.get());
    ok(&DeletedFence { name, deleted: true, high_water })
}
