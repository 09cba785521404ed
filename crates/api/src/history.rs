//! History: past holders and refused deadlocks, as far as the server remembers.

use serde::{Deserialize, Serialize};

use crate::locks::Mode;

/// The entries found, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    pub namespace: String,
    /// The lock that was asked about, if one was.
    pub lock: Option<String>,
    /// Of that lock, and of those that overlap it.
    pub holders: Vec<PastHolder>,
    pub deadlocks: Vec<PastDeadlock>,
    /// All holders that ended after this moment are remembered; if it is missing, all since the server started.
    pub complete_after: Option<String>,
    /// Events after this revision are still remembered, for those who watch.
    #[serde(default)]
    pub events_after: u64,
    /// The server's clock when it answered.
    pub now: String,
}

/// A grant that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastHolder {
    pub lock: String,
    pub owner_id: String,
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    pub fencing_token: u64,
    pub acquired_at: String,
    pub ended_at: String,
    pub held_ms: u64,
    pub ended_ms_ago: u64,
    /// released, expired, revoked, …
    pub reason: String,
    /// The reason given by the operator who broke it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A request that was refused because waiting would have closed a cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastDeadlock {
    /// The revision at which it happened.
    pub revision: u64,
    pub at: String,
    pub ms_ago: u64,
    /// The owner whose request was refused.
    pub victim: String,
    /// The cycle: waiter, lock and blocker of each step; the victim is first.
    pub cycle: Vec<CycleStep>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CycleStep {
    pub waiter: String,
    pub lock: String,
    /// The owner that held it then, or that waited ahead in the queue.
    pub blocker: String,
    /// The blocker's token at that moment, if it held the lock and that is still known.
    pub fencing_token: Option<u64>,
}
