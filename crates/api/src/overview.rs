//! The overview for operators: numbers, the longest waits, the next expiries; and names as a tree.

use serde::{Deserialize, Serialize};

use crate::locks::{Holder, Waiter};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overview {
    pub namespace: String,
    /// Grants that stand now, in this namespace.
    pub locks_held: u64,
    pub waiters: u64,
    pub sessions: u64,
    /// The longest waits; at most ten.
    pub longest_waits: Vec<Waiter>,
    /// The leases that expire next; at most ten.
    pub about_to_expire: Vec<Holder>,
    /// Not every lease was looked at for that: there are too many.
    pub is_partial: bool,
    pub totals: Totals,
    pub series: Series,
    /// Namespaces with locks, at most a hundred, by name.
    pub namespaces: Vec<NamespaceCount>,
    pub revision: u64,
}

/// Numbers of the whole server since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Totals {
    pub locks_held: u64,
    pub waiters: u64,
    pub sessions: u64,
    pub grants: u64,
    pub expired: u64,
    pub deadlocks: u64,
    /// Percentiles of the waits, of the last thousand requests that had to wait; missing if none had.
    pub wait_p50_ms: Option<u64>,
    pub wait_p99_ms: Option<u64>,
}

/// The last ten minutes of the whole server, the oldest sample first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Series {
    pub every_ms: u64,
    pub locks_held: Vec<u64>,
    pub waiters: Vec<u64>,
    /// In each interval.
    pub grants: Vec<u64>,
    /// In each interval.
    pub expired: Vec<u64>,
    /// In each interval.
    pub deadlocks: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NamespaceCount {
    pub namespace: String,
    pub locks_held: u64,
}

/// One level of the tree of names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TreePage {
    pub prefix: String,
    pub branches: Vec<Branch>,
    pub next_page_token: Option<String>,
    pub revision: u64,
}

/// A held lock, or all held locks with a common prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Branch {
    /// The lock, or the prefix to ask for next.
    pub name: String,
    pub is_lock: bool,
    pub locks: u64,
    /// There are more than were counted.
    pub is_partial: bool,
}

/// The limits of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Limits {
    pub ttl_min_ms: u64,
    pub ttl_max_ms: u64,
    pub reclaim_max_ms: u64,
    pub disconnect_ttl_max_ms: u64,
    pub set_max: u64,
    pub permits_max: u64,
    pub metadata_bytes_max: u64,
    pub waiters_per_lock_max: u64,
    pub waiters_max: u64,
    pub locks_per_session_max: u64,
    pub sessions_per_adapter_max: u64,
    pub registers_per_namespace_max: u64,
    pub registers_max: u64,
    pub namespaces_max: u64,
    pub ticket_kept_ms: u64,
    pub kept_places_max: u64,
    pub body_bytes_max: u64,
    pub connections_max: u64,
    pub connections_per_peer_max: u64,
    pub events_max: u64,
    pub history_endings_max: u64,
    pub history_deadlocks_max: u64,
}
