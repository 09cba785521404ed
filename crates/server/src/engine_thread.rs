//! A thread for the engines alone.
//!
//! Handshakes of TLS, and whatever else connections cost, then delay no heartbeat of a leader and no deadline. Without TLS one
//! thread for all is faster, because nothing has to be woken on another one.

use std::io;

use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;

/// A runtime of one thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct EngineThread {
    runtime: Handle,
    #[expect(dead_code, reason = "held, never read")]
    end: oneshot::Sender<()>,
}

impl EngineThread {
    pub(crate) fn start() -> io::Result<EngineThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new().name("engine".into()).spawn(move || {
            let _ = runtime.block_on(ended);
        })?;
        Ok(EngineThread { runtime: handle, end })
    }

    /// Makes this runtime the current one: tasks that are spawned while the guard is there run on it.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Does something on it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        doing: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.runtime.spawn(doing).await.expect("it goes on as long as this is there")
    }
}
