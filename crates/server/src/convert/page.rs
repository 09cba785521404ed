//! The size of an answer: the rest of a list has to be asked for.

use leasehold_core::{Holder, LockSummary, RegisterView, SessionView};

/// An answer is at most 1 MiB. Sizes are estimates, so that half of it is left to be wrong by.
const BYTES_MAX: usize = 512 * 1024;

/// The space left on a page, in bytes.
#[derive(Debug)]
pub(crate) struct Room {
    left: usize,
    is_fresh: bool,
}

impl Room {
    pub(crate) fn new() -> Room {
        Room { left: BYTES_MAX, is_fresh: true }
    }

    /// Whether something of this size goes on the page as well. The first thing always does.
    pub(crate) fn has_for(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left || self.is_fresh;
        self.left = self.left.saturating_sub(bytes);
        self.is_fresh = false;
        fits
    }
}

/// The bytes of names and numbers around a text, roughly.
pub(crate) const AROUND: usize = 256;

pub(crate) fn lock_bytes(lock: &LockSummary) -> usize {
    AROUND + lock.scope.to_string().len() + lock.holders.iter().map(holder_bytes).sum::<usize>()
}

fn holder_bytes(holder: &Holder) -> usize {
    let metadata = holder.metadata.as_ref().map_or(0, |metadata| metadata.len());
    AROUND + holder.scope.to_string().len() + holder.owner.as_str().len() + metadata
}

pub(crate) fn register_bytes(register: &RegisterView) -> usize {
    AROUND + register.name.as_str().len()
}

pub(crate) fn session_bytes(session: &SessionView) -> usize {
    let metadata = session.metadata.as_ref().map_or(0, |metadata| metadata.len());
    AROUND + session.owner.as_str().len() + metadata
}
