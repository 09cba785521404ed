//! Which servers there are around a shared store.
//!
//! Nothing rests on it: who leads is settled by the journals alone. It is for people who want to see the servers, and for
//! the servers to share the groups among them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::journal::{Pending, ready};

/// A list of servers, kept in the store. Like leadership it knows no clock: a server that is there moves its count.
pub trait Roster: Send + Sync + fmt::Debug {
    /// Puts this server on the list, as it says it is.
    fn announce(&self, server: Announced) -> Pending<()>;

    /// Takes a server off the list.
    fn remove(&self, name: String) -> Pending<()>;

    /// Everybody on the list, by name.
    fn servers(&self) -> Pending<Vec<Announced>>;
}

/// A server as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub name: String,
    pub address: String,
    /// Moves as long as the server is there.
    pub count: u64,
}

/// A list in memory. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct MemoryRoster {
    servers: Arc<Mutex<Vec<Announced>>>,
}

impl Roster for MemoryRoster {
    fn announce(&self, server: Announced) -> Pending<()> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|known| known.name != server.name);
        let at = servers.partition_point(|known| known.name < server.name);
        servers.insert(at, server);
        ready(Ok(()))
    }

    fn remove(&self, name: String) -> Pending<()> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|known| known.name != name);
        ready(Ok(()))
    }

    fn servers(&self) -> Pending<Vec<Announced>> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        ready(Ok(servers.clone()))
    }
}
