//! Waiting for a file that another process has locked, and counting how often that was needed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of times SQLite has found the file locked, in this process.
static MET: AtomicU64 = AtomicU64::new(0);

/// The pauses between two tries in milliseconds; the last one is repeated.
const PAUSES: [u64; 9] = [1, 2, 5, 10, 15, 20, 25, 50, 100];
/// After so many tries it was about a second.
const TRIES_MAX: i32 = 16;

/// The number of `SQLITE_BUSY` answers in this process, whether or not the next try went through.
pub fn busy_total() -> u64 {
    MET.load(Ordering::Relaxed)
}

/// Called by SQLite each time it finds the file locked. Whether to try again.
pub(super) fn wait(tries: i32) -> bool {
    MET.fetch_add(1, Ordering::Relaxed);
    if tries >= TRIES_MAX {
        return false;
    }
    let at = usize::try_from(tries).unwrap_or(0).min(PAUSES.len() - 1);
    std::thread::sleep(Duration::from_millis(PAUSES[at]));
    true
}
