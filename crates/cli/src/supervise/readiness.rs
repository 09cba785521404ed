//! A descriptor that the runtime watches for us.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Needs the runtime.
#[allow(unsafe_code, reason = "the runtime must be promised that the descriptor stays open")]
pub(super) fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it is open, and an `OwnedFd` stays the same and open until it is dropped, which is with the `AsyncFd`.
    unsafe { AsyncFd::register(descriptor) }.map_err(Into::into)
}
