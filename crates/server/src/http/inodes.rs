//! Files that are gone.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use leasehold_api::Removed;
use leasehold_api::schema::Inode;
use leasehold_core::RemoveFile;

use super::encode::{Answered, ok};
use super::extract;
use super::openapi::{NamespaceParam, Problems};
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use crate::service::release::FileRemoved;

/// Remove all locks and waiters of a removed file
///
/// Ends all locks on the file and refuses all waiting requests. For adapters of file systems; audited.
#[utoipa::path(
    delete, path = "/v1/inodes/{inode}", operation_id = "remove_inode", tag = "locks",
    params(("inode" = Inode, Path, description = "The file's inode number"), NamespaceParam),
    responses((status = 200, description = "Locks that were released with it", body = Removed), Problems)
)]
pub(crate) async fn remove(State(app): State<Arc<App>>, caller: Caller, uri: Uri) -> Answered {
    let namespace = extract::only_namespace(&uri)?;
    let text = uri.path().strip_prefix("/v1/inodes/").unwrap_or("");
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let inode = text.parse().ok().filter(|_| digits);
    let inode: u64 = inode.ok_or_else(|| Failure::field("inode", "is not an inode number"))?;
    let removed = app.remove_file(&caller, Ok(RemoveFile { namespace, inode })).await?;
    let FileRemoved { grants, waiters, truncated } = removed;
    ok(&Removed { inode, released: grants as u64, waiters: waiters as u64, truncated })
}
