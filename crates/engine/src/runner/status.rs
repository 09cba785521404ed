//! The state of the engine, for health checks and people.

use std::sync::Arc;

use leasehold_core::{Epoch, GraceView, Revision};
use leasehold_store::Leader;

/// A snapshot of the engine's own state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub phase: Phase,
    pub epoch: Epoch,
    pub revision: Revision,
    pub grace: Option<GraceView>,
    /// The store as it is spelled in the configuration.
    pub store: &'static str,
    /// The last failure of the store, while it lasts.
    pub store_failure: Option<Arc<str>>,
    /// The leader, while this server is not.
    pub leader: Option<Arc<Leader>>,
}

/// The part of the status that hardly ever changes: what many can wait for without being woken by every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub phase: Phase,
    pub store_failed: bool,
}

impl Status {
    pub fn condition(&self) -> Condition {
        Condition { phase: self.phase, store_failed: self.store_failure.is_some() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Has not yet learnt who leads, or loads what is stored.
    Starting,
    /// Decides for all.
    Leading,
    /// Led, and could not show in time that it still does. Decides nothing until it knows.
    Doubtful,
    /// Another server decides.
    Following,
    /// Grants nothing more.
    Draining,
    Stopped,
}

impl Status {
    /// Whether requests for locks are served.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Leading && self.store_failure.is_none()
    }
}
