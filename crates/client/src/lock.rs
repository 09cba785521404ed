//! Asking for locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use leasehold_api::{Claim, Metadata, Mode, RequestOutcome};
use tokio::sync::oneshot;

use crate::client::Client;
use crate::driver::{Got, Item, Order};
use crate::error::{Error, LostBy, Result};
use crate::lease::{Lease, LeaseHandle};
use crate::machine::{Ask, Key, State, Wait};
use crate::payload::{Payload, What, claim};
use crate::view::LeaseView;

/// Default ttl of a lease.
const TTL: Duration = Duration::from_secs(30);

/// Builder of a request for a lock or a set of locks.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before `acquire`, `try_acquire` or `run`"]
pub struct LockRequest {
    client: Client,
    what: What,
    owner: Option<String>,
    ttl: Duration,
    wait: Wait,
    metadata: Option<Metadata>,
    reclaim_window: Duration,
    is_kept: bool,
    session: Option<Under>,
    traceparent: Option<HeaderValue>,
}

/// The session that a grant is to stand under.
#[derive(Clone)]
pub(crate) struct Under {
    pub(crate) key: Key,
    /// A secret.
    pub(crate) id: String,
    pub(crate) view: Arc<LeaseView>,
}

impl fmt::Debug for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Under").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Bounds of [`LockRequest::acquire_with_retry`].
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub attempts: u32,
    /// The pause after the first refusal if the server recommends none. It doubles, and is jittered.
    pub pause: Duration,
    pub pause_max: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts: 5, pause: Duration::from_millis(100), pause_max: Duration::from_secs(5) }
    }
}

impl LockRequest {
    pub(crate) fn new(client: Client, what: What) -> LockRequest {
        LockRequest {
            client,
            what,
            owner: None,
            ttl: TTL,
            wait: Wait::Never,
            metadata: None,
            reclaim_window: Duration::ZERO,
            is_kept: true,
            session: None,
            traceparent: None,
        }
    }

    pub(crate) fn under(mut self, session: Under, owner: &str) -> LockRequest {
        self.session = Some(session);
        self.owner = Some(owner.into());
        self
    }

    /// Sets the owner: one thread of control. Conflicts and deadlocks are between owners. A name of its own for each request
    /// if it is not set.
    pub fn owner(mut self, owner: &str) -> LockRequest {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the ttl, the duration of the lease without a renewal; 30 s if not set. Under a session, the session's ttl counts.
    pub fn ttl(mut self, ttl: Duration) -> LockRequest {
        self.ttl = ttl;
        self
    }

    /// Waits in the queue that long if it is not free.
    pub fn wait(mut self, wait: Duration) -> LockRequest {
        self.wait = if wait.is_zero() { Wait::Never } else { Wait::UpTo(wait) };
        self
    }

    /// Waits in the queue until it is granted or the future is dropped.
    pub fn wait_forever(mut self) -> LockRequest {
        self.wait = Wait::Forever;
        self
    }

    /// Sets the mode of all locks of the request; exclusive if not set.
    pub fn mode(mut self, mode: Mode) -> LockRequest {
        self.each_claim(|one| *one = claim(&one.lock, mode, one.permits));
        self
    }

    /// Together with others who hold it shared.
    pub fn shared(self) -> LockRequest {
        self.mode(Mode::Shared)
    }

    /// Together with up to `permits` holders; all who ask must name the same number.
    pub fn permits(mut self, permits: u32) -> LockRequest {
        self.each_claim(|one| *one = claim(&one.lock, Mode::Permits, Some(permits)));
        self
    }

    fn each_claim(&mut self, change: impl Fn(&mut Claim)) {
        match &mut self.what {
            What::Lock(claim) => change(claim),
            What::Set(claims) => claims.iter_mut().for_each(change),
            What::Session { .. } => {}
        }
    }

    /// Sets the metadata that is shown with the grant.
    pub fn metadata(mut self, metadata: Metadata) -> LockRequest {
        self.metadata = Some(metadata);
        self
    }

    /// Sets the reclaim window: the duration after a lapse in which only this owner may acquire the lock.
    pub fn reclaim_window(mut self, window: Duration) -> LockRequest {
        self.reclaim_window = window;
        self
    }

    /// Makes the request and its release part of a trace: the `traceparent` of the span in which they are asked for. One that
    /// is no header is left out.
    pub fn traceparent(mut self, traceparent: &str) -> LockRequest {
        self.traceparent = HeaderValue::from_str(traceparent).ok();
        self
    }

    /// Sends no heartbeats before [`LeaseHandle::start_heartbeat`].
    pub fn manual_heartbeat(mut self) -> LockRequest {
        self.is_kept = false;
        self
    }

    /// Asks, and waits as long as was said. A broken connection, a restart of the server or a change of the leader on
    /// the way only take time. A dropped future leaves the queue, and leaves no lock behind.
    pub async fn acquire(self) -> Result<Lease> {
        let client = self.client.clone();
        let number = client.next_number();
        let owner = self.owner.unwrap_or_else(|| client.anonymous(number));
        let payload = Payload {
            what: self.what,
            owner,
            ttl: self.session.is_none().then_some(self.ttl),
            session: self.session.as_ref().map(|session| session.id.clone()),
            request_id: client.request_id(number),
            reclaim_window: self.reclaim_window,
            metadata: self.metadata,
            traceparent: self.traceparent,
        };
        let payload = Arc::new(payload);
        let ask = match &self.session {
            Some(session) => Ask::Under { session: session.key, wait: self.wait },
            None => Ask::Lease { ttl: self.ttl, wait: self.wait, is_kept: self.is_kept },
        };
        let view = client.view(self.session.map(|session| session.view));
        let got = ask_for(&client, payload.clone(), ask, view.clone()).await?;
        Ok(Lease::new(LeaseHandle::new(client, got.key, payload, got.granted, view)))
    }

    /// Asks once, without waiting. `None` if another owner holds it.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// match client.lock("job/nightly").try_acquire().await? {
    ///     Some(lease) => println!("token {}", lease.fencing_token()),
    ///     None => println!("it runs elsewhere"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(mut self) -> Result<Option<Lease>> {
        self.wait = Wait::Never;
        match self.acquire().await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.is_held() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tries again when it is refused for something that passes, so often and no more. It pauses as long as the server
    /// recommends. To wait in the FIFO queue use [`LockRequest::wait`].
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// use leasehold_client::Retry;
    ///
    /// let retry = Retry { attempts: 3, ..Retry::default() };
    /// let lease = client.lock("job/nightly").acquire_with_retry(retry).await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire_with_retry(self, retry: Retry) -> Result<Lease> {
        let mut pause = retry.pause;
        for _ in 1..retry.attempts {
            let error = match self.clone().acquire().await {
                Ok(lease) => return Ok(lease),
                Err(error) => error,
            };
            if !error.code().is_some_and(leasehold_api::Code::is_retryable) {
                return Err(error);
            }
            let advised = error.recommended_retry().unwrap_or_else(|| self.jittered(pause));
            let clock = &self.client.shared.clock;
            let until = clock.now().plus(advised.min(retry.pause_max));
            self.client.sleep_until(until).await?;
            pause = pause.saturating_mul(2).min(retry.pause_max);
        }
        self.acquire().await
    }

    /// Between half of the length and one and a half times it; the server's own advice is jittered already.
    fn jittered(&self, length: Duration) -> Duration {
        let part = self.client.next_number().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let part = u32::try_from(part).unwrap_or(0);
        length / 2 + length.saturating_mul(part) / 1024
    }

    /// Runs the work while the lock is held, and always gives it back. When the lease is in jeopardy the work is
    /// dropped where it stands, which is early enough: no other owner can be granted the lock yet.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// let rows = client
    ///     .lock("db/migrate")
    ///     .run(|lease| async move { migrate(lease.fencing_token()).await })
    ///     .await?;
    /// # async fn migrate(_: u64) -> u64 { 0 }
    /// # Ok(()) }
    /// ```
    pub async fn run<F, W>(self, work: F) -> Result<W::Output>
    where
        F: FnOnce(LeaseHandle) -> W,
        W: Future,
    {
        let lease = self.acquire().await?;
        let handle = lease.handle().clone();
        let done = {
            let work = std::pin::pin!(work(handle.clone()));
            tokio::select! {
                biased;
                () = handle.jeopardy() => None,
                done = work => Some(done),
            }
        };
        // Work that ended while the process was stopped ended too late.
        let lost = (handle.state() == State::Lost).then(|| handle.lost_by());
        match (done, lost) {
            (Some(done), None) => {
                // The work is done; a lock that cannot be given back now lapses by itself.
                let _ = lease.release().await;
                Ok(done)
            }
            (Some(_), Some(by)) => Err(Error::lost(by, RequestOutcome::Applied)),
            (None, by) => {
                let by = by.unwrap_or(LostBy::Jeopardy);
                drop(lease);
                Err(Error::lost(by, RequestOutcome::Applied))
            }
        }
    }
}

/// Orders an acquire and waits for what comes of it.
pub(crate) async fn ask_for(
    client: &Client,
    payload: Arc<Payload>,
    ask: Ask,
    view: Arc<LeaseView>,
) -> Result<Got> {
    let (sender, acquired) = oneshot::channel();
    let item = Item {
        payload,
        granted: client.shared.nothing.clone(),
        view: view.clone(),
        acquired: Some(sender),
        released: None,
    };
    client.order(Order::Acquire { item: Box::new(item), ask })?;
    let mut pending = Pending { client, view: Some(view) };
    let got = acquired.await.map_err(|_| Error::Closed)?;
    pending.view = None;
    got
}

/// An acquire with a caller. When the caller goes, so does the request.
struct Pending<'a> {
    client: &'a Client,
    view: Option<Arc<LeaseView>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(view) = self.view.take() {
            let _ = self.client.order(Order::AbandonRequest(view));
        }
    }
}
