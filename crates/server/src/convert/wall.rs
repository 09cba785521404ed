//! The wall clock, for people alone.
//!
//! Every decision is made on the server's own axis of time, which starts at the wall clock's time and is moved by nothing
//! after that. When the wall clock is set, moments on that axis are shown where the wall clock has them now.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Timestamp;

/// A smaller difference is not worth it: moments that were told would seem to change.
const STEP_MS: i64 = 250;

/// The offset of the wall clock to the axis.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// Looks at the wall clock. `now` is the same moment on the server's axis.
pub(crate) fn look(now: Timestamp) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
    let ahead = wall.saturating_sub(signed(now));
    let moved = ahead.saturating_sub(AHEAD_MS.load(Relaxed));
    if moved.abs() >= STEP_MS {
        AHEAD_MS.store(ahead, Relaxed);
        tracing::info!(
            moved_ms = moved,
            "wall clock stepped: times in answers follow it, leases are not affected"
        );
    }
}

/// A moment as the wall clock has it, in milliseconds since 1970.
pub(crate) fn millis(at: Timestamp) -> u64 {
    let shown = signed(at).saturating_add(AHEAD_MS.load(Relaxed));
    u64::try_from(shown).unwrap_or(0)
}

fn signed(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}
