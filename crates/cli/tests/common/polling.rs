//! Waits for what nobody tells of: polled, with a limit, and nowhere else.

use std::time::{Duration, Instant};

/// Nothing here takes longer unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    found(what, || is_so().then_some(()));
}

/// Waits until there is something to be had, and says what.
#[track_caller]
pub(crate) fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Does it again and again, until this process is killed or has been forgotten.
pub(crate) fn repeat(mut act: impl FnMut()) {
    let since = Instant::now();
    while since.elapsed() < PATIENCE * 10 {
        act();
        std::thread::sleep(PAUSE);
    }
}
