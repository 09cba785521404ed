//! Sessions: one heartbeat, many locks.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::{Claim, Metadata, OnDisconnect};

use crate::client::Client;
use crate::error::Result;
use crate::lease::{Lease, LeaseHandle};
use crate::lock::{LockRequest, Under, ask_for};
use crate::machine::{Ask, Wait};
use crate::payload::{Payload, What};

const TTL: Duration = Duration::from_secs(30);

/// Builder of a session.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct SessionRequest {
    client: Client,
    owner: Option<String>,
    ttl: Duration,
    adapter: Option<String>,
    on_disconnect: OnDisconnect,
    disconnect_ttl: Option<Duration>,
    metadata: Option<Metadata>,
}

impl SessionRequest {
    pub(crate) fn new(client: Client) -> SessionRequest {
        SessionRequest {
            client,
            owner: None,
            ttl: TTL,
            adapter: None,
            on_disconnect: OnDisconnect::default(),
            disconnect_ttl: None,
            metadata: None,
        }
    }

    /// Sets the owner of its locks, unless a request names another.
    pub fn owner(mut self, owner: &str) -> SessionRequest {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the ttl, the duration of the session without a heartbeat; 30 s if not set.
    pub fn ttl(mut self, ttl: Duration) -> SessionRequest {
        self.ttl = ttl;
        self
    }

    /// The adapter whose limit it counts for; `http` if not set.
    pub fn adapter(mut self, adapter: &str) -> SessionRequest {
        self.adapter = Some(adapter.into());
        self
    }

    /// Sets the metadata that is shown with it.
    pub fn metadata(mut self, metadata: Metadata) -> SessionRequest {
        self.metadata = Some(metadata);
        self
    }

    /// Should a stream be bound to it and break: everything is kept that long.
    pub fn keep_on_disconnect(mut self, ttl: Duration) -> SessionRequest {
        self.on_disconnect = OnDisconnect::Keep;
        self.disconnect_ttl = Some(ttl);
        self
    }

    /// Opens it; from then on it is kept alive.
    pub async fn open(self) -> Result<Session> {
        let client = self.client;
        let number = client.next_number();
        let payload = Payload {
            what: What::Session {
                adapter: self.adapter,
                on_disconnect: self.on_disconnect,
                disconnect_ttl: self.disconnect_ttl,
            },
            owner: self.owner.unwrap_or_else(|| client.anonymous(number)),
            ttl: Some(self.ttl),
            session: None,
            request_id: client.request_id(number),
            reclaim_window: Duration::ZERO,
            metadata: self.metadata,
            traceparent: None,
        };
        let payload = Arc::new(payload);
        let view = client.view(None);
        let ask = Ask::Lease { ttl: self.ttl, wait: Wait::Never, is_kept: true };
        let got = ask_for(&client, payload.clone(), ask, view.clone()).await?;
        let session = got.granted.session_number.unwrap_or(0);
        let under = Under { key: got.key, id: got.granted.lease_id.clone(), view: view.clone() };
        let handle = LeaseHandle::new(client.clone(), got.key, payload, got.granted, view);
        Ok(Session { client, under, number: session, lease: Lease::new(handle) })
    }
}

/// A lease under which any number of locks are taken: renewed together, lost together, given back together.
///
/// Its state is that of a lease, and every lock under it has at best the same. Dropping it closes it in the background.
#[derive(Debug)]
pub struct Session {
    client: Client,
    under: Under,
    number: u64,
    lease: Lease,
}

impl Session {
    /// Asks for a lock under this session.
    pub fn lock(&self, lock: &str) -> LockRequest {
        self.client.lock(lock).under(self.under.clone(), self.lease.owner())
    }

    /// Asks for several, all or nothing.
    pub fn set<'a>(&self, locks: impl IntoIterator<Item = &'a str>) -> LockRequest {
        self.client.set(locks).under(self.under.clone(), self.lease.owner())
    }

    /// Asks for several of different modes.
    pub fn claims(&self, claims: Vec<Claim>) -> LockRequest {
        self.client.claims(claims).under(self.under.clone(), self.lease.owner())
    }

    /// A secret: it is all that is needed to use and end the session.
    pub fn id(&self) -> &str {
        &self.under.id
    }

    /// Its number in lists.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Ends it, and everything under it.
    pub async fn close(self) -> Result<()> {
        self.lease.release().await
    }
}

impl Deref for Session {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        self.lease.handle()
    }
}
