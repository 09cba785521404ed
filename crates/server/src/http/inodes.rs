//! Files that are gone.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use leasehold_api::Removed;
use leasehold_api::schema::Inode;
use leasehold_core::{Answer, Command, RemoveFile};

use super::locks::unexpected;
use super::{Answered, extract, ok};
use crate::http::openapi::{NamespaceParam, Problems};
use crate::service::app::App;
use crate::service::caller::audit;
use crate::service::problems::Failure;

/// Remove all locks and waiters of a removed file
///
/// Ends all locks on the file and refuses all waiting requests. For adapters of file systems; audited.
#[utoipa::path(
    delete, path = "/v1/inodes/{inode}", operation_id = "remove_inode", tag = "locks",
    params(("inode" = Inode, Path, description = "The file's inode number"), NamespaceParam),
    responses((status = 200, description = "Locks that were released with it", body = Removed), Problems)
)]
pub(crate) async fn remove(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let namespace = extract::only_namespace(&uri)?;
    let text = uri.path().strip_prefix("/v1/inodes/").unwrap_or("");
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let inode = text.parse().ok().filter(|_| digits);
    let inode: u64 = inode.ok_or_else(|| Failure::field("inode", "is not an inode number"))?;
    let command = Command::RemoveFile(RemoveFile { namespace: namespace.clone(), inode });
    let Answer::FileRemoved { grants, waiters, truncated } = app.command_in_turns(command).await?
    else {
        return Err(unexpected());
    };
    audit::file_removed(inode, namespace.as_str(), grants, waiters);
    ok(&Removed { inode, released: grants as u64, waiters: waiters as u64, truncated })
}
