//! Fence registers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use leasehold_api::schema::LockName;
use leasehold_api::{
    AcceptRequest, Accepted, Code, DeleteFenceRequest, DeletedFence, Problem, Register,
    RegisterPage,
};
use leasehold_core::{AcceptFence, Answer, Command, DeleteFence, Namespace, RegisterName};
use leasehold_engine::{Query, View};

use super::locks::{check_reason, outcome, unexpected};
use super::sessions::{PAGE_SIZE, PAGE_SIZE_MAX};
use super::{Answered, extract, ok};
use crate::convert;
use crate::http::openapi::{BodyProblems, NamespaceParam, NotFound, Problems};
use crate::service::app::App;
use crate::service::caller::audit;
use crate::service::problems::Failure;
use crate::telemetry::metrics::{Op, Stopwatch};

const PREFIX: &str = "/v1/fences/";

/// Takes the verb off the path.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Answered {
    let uri = request.uri().clone();
    let watch = Stopwatch::start();
    let answered = match extract::named_and_verb(&uri, PREFIX) {
        Some((name, "accept")) => accept(&app, name, request).await,
        Some(_) | None => {
            Err(Failure::new(Code::NotFound, "expected a verb at the end of the path: accept"))
        }
    };
    app.metrics.answered(Op::Fence, watch.took(), outcome(&answered));
    answered
}

fn name(text: &str) -> Result<RegisterName, Failure> {
    RegisterName::new(&extract::path_part(text)?)
        .map_err(|fault| Failure::field("name", fault.to_string()))
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
pub(crate) async fn accept(app: &App, register: &str, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let register = name(register)?;
    let body: AcceptRequest = extract::json(app, request).await?;
    let fence = convert::fence(body.fencing_token)?;
    let command = Command::AcceptFence(AcceptFence { namespace, register, fence });
    let Answer::FenceAccepted { high_water } = app.command(command).await? else {
        return Err(unexpected());
    };
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
pub(crate) async fn get(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let namespace = extract::only_namespace(&uri)?;
    let register = name(uri.path().strip_prefix(PREFIX).unwrap_or(""))?;
    let query = Query::Register { namespace, register: register.clone() };
    let View::Register(high_water) = app.query(query).await? else { return Err(unexpected()) };
    match high_water {
        Some(high_water) => {
            ok(&Register { name: register.to_string(), high_water: high_water.get() })
        }
        None => Err(Failure::new(Code::NotFound, "not found: this register has accepted no token")),
    }
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
pub(crate) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let mut params = extract::Params::of(&uri)?;
    let namespace = params.namespace()?;
    let len_max = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    let after = params.take("page_token").as_deref().map(page_token).transpose()?;
    params.done()?;
    let query = Query::Registers { namespace, after, len_max };
    let View::Registers(found) = app.query(query).await? else { return Err(unexpected()) };
    let (fences, next_page_token) = convert::register_page(&found, len_max);
    ok(&RegisterPage { fences, next_page_token })
}

/// The register that ended the page before.
pub(crate) fn page_token(token: &str) -> Result<RegisterName, Failure> {
    RegisterName::stored(token)
        .map_err(|_| Failure::field("page_token", "is not one that was handed out"))
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
pub(crate) async fn delete(State(app): State<Arc<App>>, request: Request) -> Answered {
    let namespace = extract::only_namespace(request.uri())?;
    let register = name(request.uri().path().strip_prefix(PREFIX).unwrap_or(""))?;
    let body: DeleteFenceRequest = extract::json(&app, request).await?;
    check_reason(&body.reason)?;
    let high_water = delete_one(&app, namespace, &register, &body.reason).await?;
    ok(&DeletedFence { name: register.to_string(), deleted: true, high_water })
}

/// Gives what the register had seen.
pub(crate) async fn delete_one(
    app: &App,
    namespace: Namespace,
    register: &RegisterName,
    reason: &str,
) -> Result<u64, Failure> {
    let delete = DeleteFence {
        namespace: namespace.clone(),
        register: register.clone(),
        reason: reason.into(),
    };
    let Answer::FenceDeleted { high_water } = app.command(Command::DeleteFence(delete)).await?
    else {
        return Err(unexpected());
    };
    audit::fence_deleted(register.as_str(), namespace.as_str(), reason, high_water.get());
    Ok(high_water.get())
}
