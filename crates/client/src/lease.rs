//! A lock that is held.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::{Claim, RequestOutcome};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::driver::Order;
use crate::error::{Error, LostBy, Result};
use crate::machine::{Key, LeaseWindow, State};
use crate::payload::{Granted, Payload};
use crate::view::LeaseView;

/// A lock, or a set of them, that is held. Dropping it gives it back in the background.
///
/// It is kept alive by heartbeats. Before each write ask [`state`](LeaseHandle::state), or wait for
/// [`jeopardy`](LeaseHandle::jeopardy) beside the work; and show [`fencing_token`](LeaseHandle::fencing_token) to what
/// the lock guards, which catches what no check of a clock can.
#[derive(Debug)]
pub struct Lease {
    handle: LeaseHandle,
    is_given_back: bool,
}

/// A view of a lease that can be cloned and passed around. It gives nothing back when it is dropped.
#[derive(Clone, Debug)]
pub struct LeaseHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    key: Key,
    payload: Arc<Payload>,
    granted: Arc<Granted>,
    view: Arc<LeaseView>,
}

impl LeaseHandle {
    pub(crate) fn new(
        client: Client,
        key: Key,
        payload: Arc<Payload>,
        granted: Arc<Granted>,
        view: Arc<LeaseView>,
    ) -> LeaseHandle {
        LeaseHandle { inner: Arc::new(Inner { client, key, payload, granted, view }) }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn key(&self) -> Key {
        self.inner.key
    }

    pub(crate) fn view(&self) -> &LeaseView {
        &self.inner.view
    }

    /// Show this with every write to what the lock guards: see [`Fence`](crate::Fence).
    pub fn fencing_token(&self) -> u64 {
        self.inner.granted.token
    }

    /// A secret: it is all that is needed to renew and release.
    pub fn lease_id(&self) -> &str {
        &self.inner.granted.lease_id
    }

    /// Owner of the lease.
    pub fn owner(&self) -> &str {
        &self.inner.payload.owner
    }

    /// The lock in its canonical spelling; of a set the first one.
    pub fn lock(&self) -> &str {
        let asked = || self.locks().first().map_or("", |claim| claim.lock.as_str());
        self.inner.granted.lock.as_deref().unwrap_or_else(asked)
    }

    /// Locks as they were requested.
    pub fn locks(&self) -> &[Claim] {
        self.inner.payload.locks()
    }

    /// Duration of its wait in the queue.
    pub fn waited(&self) -> Duration {
        self.inner.granted.waited
    }

    /// True if it was granted to an earlier try of the same request.
    pub fn is_replayed(&self) -> bool {
        self.inner.granted.replayed
    }

    /// The epoch of the server that granted it.
    pub fn epoch(&self) -> u64 {
        self.inner.granted.epoch
    }

    /// Duration of the lease without a renewal.
    pub fn ttl(&self) -> Duration {
        self.inner.view.window().ttl()
    }

    /// Current state. It reads the clock, so it is right even if no part of this client ran for a while.
    pub fn state(&self) -> State {
        self.inner.view.state()
    }

    /// True while the work may go on.
    pub fn is_valid(&self) -> bool {
        self.state() == State::Valid
    }

    /// The lease as it stands: what it counts from, on the client's clock, and how long it is.
    pub fn window(&self) -> LeaseWindow {
        self.inner.view.window()
    }

    /// Follows what becomes of it, from now on.
    pub fn changes(&self) -> Changes {
        Changes { handle: self.clone(), seen: (self.state(), self.window()) }
    }

    /// Time until jeopardy if no further renewal is confirmed.
    pub fn time_to_work(&self) -> Duration {
        self.inner.view.time_to_work()
    }

    /// Time until another owner may hold the lock.
    pub fn time_left(&self) -> Duration {
        self.inner.view.time_left()
    }

    /// Ends when the work must stop: in jeopardy, or lost.
    pub async fn jeopardy(&self) {
        self.inner.view.until(State::Jeopardy).await;
    }

    /// A token that is cancelled when the work must stop: in jeopardy, lost, or given back. For work that takes one, and for parts
    /// of it that are somewhere else; cancelling it stops nothing but those who share this very token.
    ///
    /// ```no_run
    /// # async fn example(lease: leasehold_client::Lease) -> leasehold_client::Result<()> {
    /// let stop = lease.cancellation_token();
    /// let work = tokio::spawn(async move {
    ///     while !stop.is_cancelled() {
    ///         stop.run_until_cancelled(next_batch()).await;
    ///     }
    /// });
    /// # async fn next_batch() {}
    /// # Ok(()) }
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        self.inner.view.cancellation_token()
    }

    /// Ends when the lease is over. The work should have stopped before: see [`LeaseHandle::jeopardy`].
    pub async fn lost(&self) -> LostBy {
        self.inner.view.until(State::Lost).await;
        self.lost_by()
    }

    /// The reason why it is over, or about to be.
    pub fn lost_by(&self) -> LostBy {
        self.inner.view.lost_by()
    }

    /// An error unless the lease is valid: to be asked right before each write.
    pub fn check(&self) -> Result<()> {
        match self.state() {
            State::Valid => Ok(()),
            State::Jeopardy => Err(Error::lost(LostBy::Jeopardy, RequestOutcome::NotApplied)),
            State::Lost => Err(Error::lost(self.lost_by(), RequestOutcome::NotApplied)),
        }
    }

    /// Keeps the lease alive from here on, if it was asked for with `manual_heartbeat`. All others are kept already.
    pub fn start_heartbeat(&self) {
        let _ = self.inner.client.order(Order::StartHeartbeat(self.inner.key));
    }

    /// Sends a heartbeat now.
    pub fn renew(&self) {
        let _ = self.inner.client.order(Order::Renew(self.inner.key));
    }
}

/// Stream of changes of a lease: see [`LeaseHandle::changes`].
#[derive(Clone, Debug)]
pub struct Changes {
    handle: LeaseHandle,
    seen: (State, LeaseWindow),
}

/// Change of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A heartbeat was confirmed.
    Renewed(LeaseWindow),
    /// The work must stop.
    Jeopardy,
    Lost(LostBy),
}

impl Changes {
    /// The next change. After the loss there is none, and this never ends.
    pub async fn next(&mut self) -> Change {
        if self.seen.0 == State::Lost {
            std::future::pending::<()>().await;
        }
        let before = self.seen.0;
        self.seen = self.handle.inner.view.other_than(self.seen).await;
        match self.seen {
            (State::Valid, window) => Change::Renewed(window),
            (State::Jeopardy, window) if before == State::Jeopardy => Change::Renewed(window),
            (State::Jeopardy, _) => Change::Jeopardy,
            (State::Lost, _) => Change::Lost(self.handle.lost_by()),
        }
    }
}

impl Lease {
    pub(crate) fn new(handle: LeaseHandle) -> Lease {
        Lease { handle, is_given_back: false }
    }

    /// A view that can be cloned and passed around.
    pub fn handle(&self) -> &LeaseHandle {
        &self.handle
    }

    /// Gives it back, and says what happened. It is tried again while the lease could still stand; an error of
    /// [`LeaseLost`](Error::LeaseLost) means that it was over before.
    pub async fn release(mut self) -> Result<()> {
        self.give_back().await
    }

    /// As [`Lease::release`], for a lease that may have been released elsewhere: the first time counts, and what was
    /// given back or lost before is no error.
    pub async fn release_once(&mut self) -> Result<()> {
        if self.is_given_back {
            return Ok(());
        }
        match self.give_back().await {
            Err(Error::LeaseLost { .. }) => Ok(()),
            done => done,
        }
    }

    async fn give_back(&mut self) -> Result<()> {
        self.is_given_back = true;
        let (done, released) = oneshot::channel();
        let inner = &self.handle.inner;
        inner.client.order(Order::Release { key: inner.key, done })?;
        let came = released.await.map_err(|_| Error::Closed)?;
        // A lease that has ended is forgotten by the machine; only its view still knows how it did.
        match (came, inner.view.lost_by()) {
            (Err(Error::LeaseLost { by: LostBy::Lapse, outcome }), by)
                if by != LostBy::Released =>
            {
                Err(Error::lost(by, outcome))
            }
            (came, _) => came,
        }
    }
}

impl Deref for Lease {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.handle
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_given_back {
            let inner = &self.handle.inner;
            inner.view.lost(LostBy::Released);
            let _ = inner.client.order(Order::Abandon(inner.key));
        }
    }
}
