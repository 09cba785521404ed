//! Fencing tokens: which grant carries one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use leasehold_api::{Code, TokenView};
use leasehold_core::{FencingToken, Namespace};
use leasehold_engine::{Query, View};

use super::locks::{outcome, unexpected};
use super::{Answered, extract, ok};
use crate::convert;
use crate::http::openapi::{NamespaceParam, NotFound, Problems};
use crate::service::app::App;
use crate::service::problems::Failure;
use crate::telemetry::metrics::{Op, Stopwatch};

/// Look for the grant of a fencing token
///
/// Tells the grant that carries the token, held or ended, as long as anything of it is remembered. The namespace picks the
/// group of namespaces in which tokens are counted: one server alone has a single group.
#[utoipa::path(
    get, path = "/v1/tokens/{fencing_token}", operation_id = "get_token", tag = "locks",
    params(("fencing_token" = u64, Path, maximum = 9_007_199_254_740_991_u64, description = "The fencing token"), NamespaceParam),
    responses((status = 200, description = "What is held with it, and what has ended", body = TokenView), NotFound, Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let watch = Stopwatch::start();
    let found = look(&app, &uri).await;
    app.metrics.answered(Op::Get, watch.took(), outcome(&found));
    ok(&found?)
}

async fn look(app: &App, uri: &Uri) -> Result<TokenView, Failure> {
    let namespace = extract::only_namespace(uri)?;
    let text = uri.path().strip_prefix("/v1/tokens/").unwrap_or("");
    let fence = extract::whole_number(text).and_then(FencingToken::new);
    let fence = fence.ok_or_else(|| Failure::field("fencing_token", "is not a fencing token"))?;
    of(app, namespace, fence).await
}

/// The grant that carries a token.
pub(crate) async fn of(
    app: &App,
    namespace: Namespace,
    fence: FencingToken,
) -> Result<TokenView, Failure> {
    let View::Token(found) = app.query(Query::Token { namespace, fence }).await? else {
        return Err(unexpected());
    };
    let unknown = || Failure::new(Code::NotFound, format!("nothing is known of token {fence}"));
    Ok(convert::token(app.now(), &*found.ok_or_else(unknown)?))
}
