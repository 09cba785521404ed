//! The wait-for graph.

use serde::{Deserialize, Serialize};

use crate::locks::{LockState, Mode};

/// The wait-for graph: an owner points to the lock it waits for, a lock to the owner that holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// Circles; empty unless something is wrong with the service.
    pub cycles: Vec<Vec<WaitEdge>>,
    /// There are more waiters than are shown.
    pub truncated: bool,
    /// With `layout=true`: how large the drawing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    pub revision: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Node {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: NodeKind,
    /// The owner, or the lock in its canonical spelling.
    pub name: String,
    /// For a lock: how it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockNode>,
    /// For `more`: how many waiters it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// With `layout=true`: where it is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// A lock in the graph: the holder with the highest token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockNode {
    pub state: LockState,
    pub fencing_token: u64,
    pub ttl_ms: u64,
    pub expires_in_ms: u64,
    pub holders: u64,
}

/// The place of a node in the drawing: its upper left corner, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Place {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Size {
    pub width: f64,
    pub height: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    Owner,
    Lock,
    /// Further waiters for one lock, drawn as one.
    More,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Edge {
    #[serde(rename = "type")]
    pub kind: EdgeKind,
    pub from: String,
    pub to: String,
    pub mode: Mode,
    pub since_ms: u64,
    /// For a wait: the owners in the way, holders first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    Holds,
    Waits,
    /// From a lock that is waited for to another one that is in its way: a path and a subtree above it, say.
    Overlaps,
    /// With `layout=true`: a wait that was refused in the last ten minutes because it would have closed a cycle, while
    /// the rest of that circle still stands.
    Refused,
}

/// One step of a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitEdge {
    pub waiter: String,
    pub lock: String,
    /// The owner that holds it, or that waits ahead in the queue.
    pub blocker: String,
    /// It may not be seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}
