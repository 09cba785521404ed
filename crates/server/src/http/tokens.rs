//! Fencing tokens: which grant carries one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use leasehold_api::TokenView;
use leasehold_core::{FencingToken, Namespace};

use super::encode::{Answered, ok};
use super::extract;
use super::openapi::{NamespaceParam, NotFound, Problems};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;

/// Look for the grant of a fencing token
///
/// Tells the grant that carries the token, held or ended, as long as anything of it is remembered. The namespace picks the
/// group of namespaces in which tokens are counted: one server alone has a single group.
#[utoipa::path(
    get, path = "/v1/tokens/{fencing_token}", operation_id = "get_token", tag = "locks",
    params(("fencing_token" = u64, Path, maximum = 9_007_199_254_740_991_u64, description = "The fencing token"), NamespaceParam),
    responses((status = 200, description = "What is held with it, and what has ended", body = TokenView), NotFound, Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, caller: Caller, uri: Uri) -> Answered {
    let found = app.token(&caller, asked(&uri)).await?;
    ok(&convert::token(app.now(), &found))
}

fn asked(uri: &Uri) -> Result<(Namespace, FencingToken), Failure> {
    let namespace = extract::only_namespace(uri)?;
    let text = uri.path().strip_prefix("/v1/tokens/").unwrap_or("");
    let fence = extract::whole_number(text).and_then(FencingToken::new);
    let fence = fence.ok_or_else(|| Failure::field("fencing_token", "is not a fencing token"))?;
    Ok((namespace, fence))
}
