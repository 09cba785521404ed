//! Calls to a store behind a network, made as tasks.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tracing::Instrument;

use crate::error::Error;
use crate::journal::Pending;

/// A backend whose calls run on the runtime that it was opened in, and go on whether or not the answer is awaited.
pub(crate) struct Remote<B> {
    pub(crate) backend: Arc<B>,
    runtime: Handle,
}

impl<B> Remote<B> {
    /// Inside a tokio runtime.
    pub(crate) fn new(backend: B) -> Remote<B> {
        Remote { backend: Arc::new(backend), runtime: Handle::current() }
    }

    pub(crate) fn call<T, W>(&self, work: impl FnOnce(Arc<B>) -> W) -> Pending<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let task = self.runtime.spawn(work(self.backend.clone()).in_current_span());
        Box::pin(async move { task.await.unwrap_or_else(|_| Err(ended())) })
    }
}

fn ended() -> Error {
    Error::unavailable("the runtime that it needs has ended")
}

/// Calls of a journal that the backend has under the same name.
macro_rules! calls {
    ($($call:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $call(&self, $($name: $type),*) -> Pending<$answer> {
            self.0.call(|backend| async move { backend.$call($($name),*).await })
        }
    )*};
}
pub(crate) use calls;
