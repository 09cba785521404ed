//! Waits for what no store tells of: polled, with a limit, and nowhere else.

use std::time::{Duration, Instant};

use leasehold_store::{Error, Pending};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks again until the way to the store is open.
pub(crate) async fn again<T>(call: impl Fn() -> Pending<T>) -> T {
    let answer = again_unless(call, |error| !matches!(error, Error::Unavailable { .. })).await;
    answer.unwrap_or_else(|error| panic!("{error:?}"))
}

/// Asks again until there is an answer, or an error that says enough.
pub(crate) async fn again_unless<T>(
    call: impl Fn() -> Pending<T>,
    is_enough: impl Fn(&Error) -> bool,
) -> Result<T, Error> {
    let since = Instant::now();
    loop {
        match call().await {
            Err(error) if !is_enough(&error) => {
                assert!(since.elapsed() < PATIENCE, "still {error:?}");
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}
