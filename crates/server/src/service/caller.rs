//! The origin of a request, known everywhere below its handler without being handed on.

use std::net::SocketAddr;

/// The peer that sent a request, and the id under which it is logged.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: SocketAddr,
    pub(crate) request_id: String,
}

tokio::task_local! {
    static CALLER: Caller;
}

impl Caller {
    /// Runs a handler on behalf of this caller.
    pub(crate) async fn serve<F: Future>(self, handler: F) -> F::Output {
        CALLER.scope(self, handler).await
    }
}

/// Writes the audit log, `leasehold::audit`: what an operator took away, and on whose request.
pub(crate) mod audit {
    use super::CALLER;

    macro_rules! audit {
        ($level:ident, $said:literal, $($field:tt)*) => {{
            let caller = CALLER.try_with(Clone::clone).ok();
            let peer = caller.as_ref().map(|caller| tracing::field::display(caller.peer));
            let request_id = caller.as_ref().map(|caller| caller.request_id.as_str());
            tracing::$level!(target: "leasehold::audit", $($field)*, peer, request_id, $said);
        }};
    }

    pub(crate) fn lock_broken(lock: &str, namespace: &str, reason: &str, grants: usize) {
        if grants == 0 {
            audit!(info, "a break found nothing to end", lock, namespace, reason);
        } else {
            audit!(warn, "a lock was broken", lock, namespace, reason, grants);
        }
    }

    pub(crate) fn session_broken(session: u64, namespace: &str, reason: &str, grants: usize) {
        audit!(warn, "a session was broken", session, namespace, reason, grants);
    }

    pub(crate) fn fence_deleted(register: &str, namespace: &str, reason: &str, high_water: u64) {
        audit!(warn, "a fence register was deleted", register, namespace, reason, high_water);
    }

    pub(crate) fn file_removed(inode: u64, namespace: &str, grants: usize, waiters: usize) {
        audit!(warn, "a file was removed", inode, namespace, grants, waiters);
    }
}
