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

use leasehold_api::RequestOutcome;

use crate::error::{Error, Result};
use crate::lease::Lease;
use crate::lock::{LockRequest, Retry};
use crate::machine::State;

/// A client whose calls block. The requests are built with the methods of the async one, and whatever has no function of
/// its own here is waited for with [`wait`]: `wait(client.session().open())`.
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
    /// Connects to a server, or to the first that can be reached of several with commas between them.
    pub fn connect(servers: &str) -> Result<Client> {
        Ok(Client { inner: wait(crate::Client::builder(servers).own_thread().connect())? })
    }

    /// The same client, for the parts of a program that are not async.
    pub fn from_async(inner: crate::Client) -> Client {
        Client { inner }
    }

    /// Asks, and waits as long as the request says.
    pub fn acquire(&self, request: LockRequest) -> Result<Lease> {
        wait(request.acquire())
    }

    /// Asks once; `None` if another owner holds it.
    pub fn try_acquire(&self, request: LockRequest) -> Result<Option<Lease>> {
        wait(request.try_acquire())
    }

    /// Tries again a few times, as the server recommends.
    pub fn acquire_with_retry(&self, request: LockRequest, retry: Retry) -> Result<Lease> {
        wait(request.acquire_with_retry(retry))
    }

    /// Runs the work while the lock is held, and always gives it back. Work on a thread cannot be stopped from outside:
    /// it asks [`check`](crate::LeaseHandle::check) before each write. What it did counts only if the lease stood to
    /// its end.
    ///
    /// ```no_run
    /// # fn example(client: leasehold_client::blocking::Client) -> leasehold_client::Result<()> {
    /// client.run(client.lock("report"), |lease| {
    ///     for row in 0..1000 {
    ///         lease.check()?;
    ///         write(lease.fencing_token(), row);
    ///     }
    ///     leasehold_client::Result::Ok(())
    /// })??;
    /// # fn write(_: u64, _: u64) {}
    /// # Ok(()) }
    /// ```
    pub fn run<T>(&self, request: LockRequest, work: impl FnOnce(&Lease) -> T) -> Result<T> {
        let mut lease = self.acquire(request)?;
        let done = work(&lease);
        let lost = (lease.state() == State::Lost).then(|| lease.lost_by());
        // A lock that cannot be given back now lapses by itself.
        let _ = wait(lease.release_once());
        lost.map_or(Ok(done), |by| Err(Error::lost(by, RequestOutcome::Applied)))
    }

    /// Gives it back, and says what happened. A dropped lease is given back in the background.
    pub fn release(&self, lease: Lease) -> Result<()> {
        wait(lease.release())
    }

    /// Gives everything back, and waits until the server has heard it.
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
