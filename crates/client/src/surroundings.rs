//! The network a client speaks over and the places it runs in, as far as a simulation has to replace them.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// The bytes of one connection.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Bytes for T {}

/// A connection to come.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Bytes>>> + Send>>;
/// A part of a client that runs by itself.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The two places in which a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The runtime that the client was made on.
    Caller,
    /// The client's own thread.
    Guard,
}

/// Stops tasks for a while, as a runtime does whose threads are blocked. For simulations.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    inner: Arc<Mutex<Stalled>>,
}

#[derive(Debug, Default)]
struct Stalled {
    is_on: bool,
    waiting: Vec<Waker>,
}

impl Stall {
    fn stalled(&self) -> MutexGuard<'_, Stalled> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on none of its tasks runs.
    pub fn begin(&self) {
        self.stalled().is_on = true;
    }

    pub fn end(&self) {
        let waiting = {
            let mut stalled = self.stalled();
            stalled.is_on = false;
            std::mem::take(&mut stalled.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// A task that runs only while there is no stall.
    pub async fn stop<F: Future>(self, task: F) -> F::Output {
        let mut task = std::pin::pin!(task);
        std::future::poll_fn(|context| {
            let mut stalled = self.stalled();
            if stalled.is_on {
                stalled.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            drop(stalled);
            task.as_mut().poll(context)
        })
        .await
    }
}

/// A network and places to run in. Programs use the system's; simulations bring their own.
pub trait Surroundings: Send + Sync + fmt::Debug {
    /// Connects to `host:port`.
    fn connect(&self, authority: &str) -> Connecting;

    /// Starts the guard of a client; returns the runtime that it runs on.
    fn run(&self, guard: Task) -> io::Result<Handle>;

    /// Spawns a task of that place. Only called from there.
    fn spawn(&self, place: Place, task: Task) -> AbortHandle {
        let _ = place;
        tokio::spawn(task).abort_handle()
    }
}

/// The system's network, and a thread with a small runtime for each guard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System;

impl Surroundings for System {
    fn connect(&self, authority: &str) -> Connecting {
        let authority = authority.to_owned();
        Box::pin(async move {
            let tcp = TcpStream::connect(authority).await?;
            tcp.set_nodelay(true)?;
            Ok(Box::new(tcp) as Box<dyn Bytes>)
        })
    }

    fn run(&self, guard: Task) -> io::Result<Handle> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("leasehold".into());
        thread.spawn(move || runtime.block_on(guard))?;
        Ok(handle)
    }
}
