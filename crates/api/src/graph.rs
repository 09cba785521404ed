//! Who waits for whom.

use serde::{Deserialize, Serialize};

use crate::locks::Mode;

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
    pub revision: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Node {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: NodeKind,
    /// The owner, or the lock in its canonical spelling.
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    Owner,
    Lock,
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
}

/// One step of a circle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitEdge {
    pub waiter: String,
    pub lock: String,
    /// Who holds it, or stands before the waiter in the queue.
    pub blocker: String,
}
