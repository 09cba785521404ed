//! Changes of rights, as a stream follows them: one look with each message, and a word when nothing else happens.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::watch;

/// Follows the generation of rights.
pub(crate) struct Changes {
    generation: watch::Receiver<u64>,
    next: Pin<Box<dyn Future<Output = watch::Receiver<u64>> + Send>>,
}

impl Changes {
    pub(super) fn new(generation: watch::Receiver<u64>) -> Changes {
        Changes { next: next_of(generation.clone()), generation }
    }

    /// Whether there was one since the last time: no more than one look at a number.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.generation.has_changed().unwrap_or(false);
        if is_due {
            self.generation.mark_unchanged();
        }
        is_due
    }

    /// Ready when there may have been one.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let generation = ready!(self.next.as_mut().poll(cx));
        self.next = next_of(generation);
        Poll::Ready(())
    }
}

fn next_of(
    mut generation: watch::Receiver<u64>,
) -> Pin<Box<dyn Future<Output = watch::Receiver<u64>> + Send>> {
    Box::pin(async move {
        if generation.changed().await.is_err() {
            // Nobody changes anything any more.
            std::future::pending::<()>().await;
        }
        generation
    })
}
