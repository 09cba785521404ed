//! Elections: the holder of the lock of that name leads.

use std::ops::Deref;
use std::time::Duration;

use leasehold_api::{Holder, LockState, Metadata};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::lease::{Lease, LeaseHandle};
use crate::watch::Watch;

const VALUE: &str = "value";
/// Between two looks while no server answers.
const PAUSE: Duration = Duration::from_millis(200);

/// An election under a name. It is a lock: see [`Client::election`].
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    name: String,
    owner: Option<String>,
    ttl: Option<Duration>,
}

/// A leader.
#[derive(Clone, Debug, PartialEq)]
pub struct Leader {
    pub owner: String,
    /// Value that the leader published, an address for instance.
    pub value: String,
    /// Rises with each leader.
    pub fencing_token: u64,
}

impl Election {
    pub(crate) fn new(client: Client, name: &str) -> Election {
        Election { client, name: name.into(), owner: None, ttl: None }
    }

    /// Sets the owner that campaigns.
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Election {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the ttl: the time after which another can lead if this one fails.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Election {
        self.ttl = Some(ttl);
        self
    }

    /// Waits in the queue until elected. `value` is what the others see, an address for instance.
    pub async fn campaign(&self, value: &str) -> Result<Leadership> {
        let mut metadata = Metadata::new();
        metadata.insert(VALUE.into(), value.into());
        let mut request = self.client.lock(&self.name).metadata(metadata).wait_forever();
        if let Some(owner) = &self.owner {
            request = request.owner(owner);
        }
        if let Some(ttl) = self.ttl {
            request = request.ttl(ttl);
        }
        Ok(Leadership { lease: request.acquire().await? })
    }

    /// The current leader.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let lock = self.client.api().get(&self.name).await?;
        Ok(lock.holders.iter().find(|holder| is_leading(holder)).map(leader))
    }

    /// Follows who leads, from now on.
    pub async fn observe(&self) -> Result<Observer> {
        // Watched before it is looked at, so that no change falls between the two.
        let watch = self.client.watch(&self.name, None).await?;
        Ok(Observer { election: self.clone(), watch, last: None, is_due: true })
    }
}

fn is_leading(holder: &Holder) -> bool {
    matches!(holder.state, LockState::Held | LockState::Recovering)
}

fn leader(holder: &Holder) -> Leader {
    let value = holder.metadata.get(VALUE).and_then(|value| value.as_str()).unwrap_or("");
    Leader {
        owner: holder.owner_id.clone(),
        value: value.into(),
        fencing_token: holder.fencing_token,
    }
}

/// True for errors that pass when a server is back.
fn is_passing(error: &Error) -> bool {
    error.is_unreachable() || error.code().is_some_and(|code| code.http_status() == 503)
}

/// Being elected, for as long as the lease stands. Dropping it resigns in the background.
#[derive(Debug)]
pub struct Leadership {
    lease: Lease,
}

impl Leadership {
    /// Steps down, and says when the next one can lead.
    pub async fn resign(self) -> Result<()> {
        self.lease.release().await
    }
}

impl Deref for Leadership {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        self.lease.handle()
    }
}

/// The leaders as they change.
#[derive(Debug)]
pub struct Observer {
    election: Election,
    watch: Watch,
    last: Option<Option<Leader>>,
    /// An event came since the last look.
    is_due: bool,
}

impl Observer {
    /// The leader: at once for the first time, then after each change. `None` if there is none. While no server can
    /// be reached it waits for one.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            if !self.is_due {
                match self.watch.next().await {
                    Some(Ok(_)) => self.is_due = true,
                    Some(Err(error)) => return Err(error),
                    None => return Err(Error::Closed),
                }
            }
            let now = match self.election.leader().await {
                Ok(now) => now,
                Err(error) if is_passing(&error) => {
                    let clock = &self.election.client.shared.clock;
                    let again = clock.now().plus(PAUSE);
                    self.election.client.sleep_until(again).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.is_due = false;
            if self.last.as_ref() != Some(&now) {
                self.last = Some(now.clone());
                return Ok(now);
            }
        }
    }
}
