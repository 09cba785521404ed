//! The service itself: is it well, who leads, which version is it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Version {
    pub name: String,
    pub version: String,
    /// The versions of this interface that are spoken.
    pub api: Vec<String>,
}

/// The health of the server, and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    pub status: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    pub name: String,
    pub ok: bool,
    pub detail: String,
}

/// This server and the leaders. Numbers are those of the groups that this server leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cluster {
    /// This server's name, as the others see it.
    pub name: String,
    /// The address at which the others reach it.
    pub address: String,
    /// Its part in the first group.
    pub role: Role,
    pub epoch: u64,
    pub revision: u64,
    pub store: String,
    pub grace: Option<Grace>,
    pub locks_held: u64,
    pub sessions: u64,
    pub waiters: u64,
    pub last_fencing_token: u64,
    pub groups: Vec<Group>,
    /// The servers that share the store; none if only one can have it open.
    pub servers: Vec<ServerView>,
}

/// A group of namespaces, with a leader of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Group {
    pub group: u64,
    /// This server's part in it.
    pub role: Role,
    pub leader: Option<LeaderView>,
    pub epoch: u64,
    /// Whether this server knows the numbers: only the leader does, and without it they are 0.
    #[serde(default)]
    pub has_numbers: bool,
    pub revision: u64,
    pub store: String,
    pub grace: Option<Grace>,
    pub locks_held: u64,
    pub sessions: u64,
    pub waiters: u64,
    pub last_fencing_token: u64,
}

/// A server around the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerView {
    pub name: String,
    pub address: String,
    /// The time since its last heartbeat.
    pub seen_ms_ago: u64,
}

/// The server that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaderView {
    pub name: String,
    pub address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Starting,
    Leader,
    Follower,
    Draining,
    Stopped,
}

/// The recovery grace, while it is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grace {
    pub strict: bool,
    pub ends_in_ms: u64,
    /// Leases from before that have not come back yet.
    pub expected: u64,
}
