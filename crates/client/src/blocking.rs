//! The same for programs without async: every call waits on the calling thread.
//!
//! ```no_run
//! # fn main() -> leasehold_client::Result<()> {
//! let client = leasehold_client::blocking::Client::connect("http://127.0.0.1:8080")?;
//! let lease = client.acquire(client.lock("db/migrate"))?;
//! println!("token {}", lease.fencing_token());
//! client.release(lease)?;
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::error::Result;
use crate::lease::Lease;
use crate::lock::{LockRequest, Retry};

/// A client whose calls block. The requests are built with the methods of the async one.
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
}

impl std::ops::Deref for Client {
    type Target = crate::Client;

    fn deref(&self) -> &crate::Client {
        &self.inner
    }
}

impl Client {
    pub fn connect(servers: &str) -> Result<Client> {
        Ok(Client { inner: wait(crate::Client::connect(servers))? })
    }

    pub fn from_async(inner: crate::Client) -> Client {
        Client { inner }
    }

    pub fn acquire(&self, request: LockRequest) -> Result<Lease> {
        wait(request.acquire())
    }

    pub fn try_acquire(&self, request: LockRequest) -> Result<Option<Lease>> {
        wait(request.try_acquire())
    }

    pub fn acquire_with_retry(&self, request: LockRequest, retry: Retry) -> Result<Lease> {
        wait(request.acquire_with_retry(retry))
    }

    pub fn release(&self, lease: Lease) -> Result<()> {
        wait(lease.release())
    }

    pub fn close(self) {
        wait(self.inner.close());
    }
}

/// Waits for any future of this crate on the calling thread. Their work is done by the client's own thread, so no
/// runtime is needed.
pub fn wait<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
