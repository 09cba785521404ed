//! Waits for what no server tells of: polled, with a limit, and nowhere else.

use std::thread;
use std::time::{Duration, Instant};

/// The time that a server may take to be ready, or to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}: it takes too long");
        thread::sleep(PAUSE);
    }
}
