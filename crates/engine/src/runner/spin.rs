//! A bounded spin while a quick store writes a record that several callers wait for.
//!
//! Going to sleep and being woken takes about half as long as a sync. That is worth a processor when many share the
//! commit, or when a lock changes hands with it. For a lone caller neither the engine nor the store spins.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// A store that takes longer than this is not worth spinning for.
const PACE_MAX: Duration = Duration::from_micros(400);
/// So many callers have to wait for an answer, in a queue or for the commit.
const CALLERS_MIN: usize = 2;

/// The longest spin, by the duration of commits.
#[derive(Debug)]
pub(super) struct Spin {
    /// The time that the quickest of the last few commits took.
    pace: Duration,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin { pace: PACE_MAX }
    }
}

impl Spin {
    pub(super) fn committed(&mut self, took: Duration) {
        self.pace = took.min(self.pace * 9 / 8);
    }

    /// Half as long again as a commit takes, if so many callers are worth it.
    pub(super) fn length(&self, callers: usize) -> Duration {
        let is_worth_it = callers >= CALLERS_MIN && self.pace <= PACE_MAX;
        if is_worth_it { self.pace * 3 / 2 } else { Duration::ZERO }
    }
}

/// Polls for the answer until then, and sleeps if it has not come. Other tasks and threads run between two looks, and no
/// waker is left behind, which would cost whoever answers a call to the system.
pub(super) async fn spin_until<T>(until: Option<Instant>, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    while until.is_some_and(|until| Instant::now() < until) {
        let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(answer) = polled {
            return answer;
        }
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
    answer.await
}
