//! The audit log, `leasehold::audit`: what an operator took away, and on whose request.

use super::caller::Caller;

macro_rules! audit {
    ($caller:ident, $level:ident, $said:literal, $($field:tt)*) => {
        tracing::$level!(
            target: "leasehold::audit",
            $($field)*,
            principal = $caller.principal.as_str(),
            transport = $caller.transport.as_str(),
            peer = %$caller.peer,
            request_id = &*$caller.request_id,
            $said
        )
    };
}

pub(super) fn lock_broken(
    caller: &Caller,
    lock: &str,
    namespace: &str,
    reason: &str,
    grants: usize,
) {
    if grants == 0 {
        audit!(caller, info, "a break found nothing to end", lock, namespace, reason);
    } else {
        audit!(caller, warn, "a lock was broken", lock, namespace, reason, grants);
    }
}

pub(super) fn session_broken(
    caller: &Caller,
    session: u64,
    namespace: &str,
    reason: &str,
    grants: usize,
) {
    audit!(caller, warn, "a session was broken", session, namespace, reason, grants);
}

pub(super) fn fence_deleted(
    caller: &Caller,
    register: &str,
    namespace: &str,
    reason: &str,
    high_water: u64,
) {
    audit!(caller, warn, "a fence register was deleted", register, namespace, reason, high_water);
}

pub(super) fn file_removed(
    caller: &Caller,
    inode: u64,
    namespace: &str,
    grants: usize,
    waiters: usize,
) {
    audit!(caller, warn, "a file was removed", inode, namespace, grants, waiters);
}
