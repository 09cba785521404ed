//! Fence registers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use leasehold_api::schema::LockName;
use leasehold_api::{AcceptRequest, Accepted, Code, Problem, Register};
use leasehold_core::{AcceptFence, Answer, Command, RegisterName};
use leasehold_engine::{Query, View};

use super::locks::{outcome, unexpected};
use super::{Answered, input, ok};
use crate::app::App;
use crate::convert;
use crate::metrics::{Op, Stopwatch};
use crate::openapi::{BodyProblems, NamespaceParam, NotFound, Problems};
use crate::problem::Failure;

const PREFIX: &str = "/v1/fences/";

/// Takes the verb off the path.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Answered {
    let uri = request.uri().clone();
    let watch = Stopwatch::start();
    let answered = match input::named_and_verb(&uri, PREFIX) {
        Some((name, "accept")) => accept(&app, name, request).await,
        Some(_) | None => Err(Failure::new(Code::NotFound, "a POST names what to do: accept")),
    };
    app.metrics.answered(Op::Fence, watch.took(), outcome(&answered));
    answered
}

fn name(text: &str) -> Result<RegisterName, Failure> {
    RegisterName::new(&input::path_part(text)?)
        .map_err(|fault| Failure::field("name", fault.to_string()))
}

/// Show a token to a fence register
///
/// Raises the register's high-water mark to this token, or refuses the token if it is lower.
#[utoipa::path(
    post, path = "/v1/fences/{name}/accept", operation_id = "accept_fencing_token", tag = "fences",
    params(("name" = LockName, Path, description = "The register's name"), NamespaceParam),
    request_body = AcceptRequest,
    responses(
        (status = 200, description = "It has seen none higher", body = Accepted),
        (status = 412, description = "stale_fence", body = Problem, content_type = "application/problem+json"),
        BodyProblems,
    )
)]
pub(crate) async fn accept(app: &App, register: &str, request: Request) -> Answered {
    let namespace = input::only_namespace(request.uri())?;
    let register = name(register)?;
    let body: AcceptRequest = input::json(app, request).await?;
    let fence = convert::fence(body.fencing_token)?;
    let command = Command::AcceptFence(AcceptFence { namespace, register, fence });
    let Answer::FenceAccepted { high_water } = app.command(command).await? else {
        return Err(unexpected());
    };
    ok(&Accepted { accepted: true, high_water: high_water.get() })
}

/// Look at a fence register
///
/// Tells the highest fencing token that the register has accepted.
#[utoipa::path(
    get, path = "/v1/fences/{name}", operation_id = "get_fence", tag = "fences",
    params(("name" = LockName, Path, description = "The register's name"), NamespaceParam),
    responses((status = 200, description = "The highest token it has seen", body = Register), NotFound, Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let namespace = input::only_namespace(&uri)?;
    let register = name(uri.path().strip_prefix(PREFIX).unwrap_or(""))?;
    let query = Query::Register { namespace, register: register.clone() };
    let View::Register(high_water) = app.query(query).await? else { return Err(unexpected()) };
    match high_water {
        Some(high_water) => {
            ok(&Register { name: register.to_string(), high_water: high_water.get() })
        }
        None => Err(Failure::new(Code::NotFound, "this register has seen no token yet")),
    }
}
