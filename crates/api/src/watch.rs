//! Events for watchers.

use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;
use crate::graph::WaitEdge;
use crate::locks::Mode;

/// One event. Lasting changes raise the revision; news of the queues carry that of the last change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    pub revision: u64,
    /// The point to watch after: all up to here has been sent. Only the last event of a revision has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Cursor>))]
    pub cursor: Option<Cursor>,
    pub at: String,
    pub namespace: String,
    #[serde(flatten)]
    pub news: News,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum News {
    EpochBegan {
        epoch: u64,
    },
    GraceEnded,
    SessionOpened {
        session: u64,
        owner_id: String,
        adapter: String,
    },
    SessionEnded {
        session: u64,
        owner_id: String,
        reason: String,
    },
    Granted {
        lock: String,
        owner_id: String,
        mode: Mode,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permits: Option<u32>,
        fencing_token: u64,
        ttl_ms: u64,
    },
    /// `reclaim_ms` is set when the last owner may still take it back.
    Ended {
        lock: String,
        owner_id: String,
        mode: Mode,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permits: Option<u32>,
        fencing_token: u64,
        /// The time it was held.
        #[serde(default)]
        held_ms: u64,
        reason: String,
        /// The reason given by the operator who broke it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reclaim_ms: Option<u64>,
    },
    TtlChanged {
        owner_id: String,
        ttl_ms: u64,
    },
    FenceAccepted {
        register: String,
        fencing_token: u64,
    },
    /// An operator removed the register.
    FenceDeleted {
        register: String,
        note: String,
    },
    Queued {
        locks: Vec<String>,
        owner_id: String,
    },
    /// A waiter left without a grant.
    Left {
        locks: Vec<String>,
        owner_id: String,
    },
    Deadlock {
        owner_id: String,
        cycle: Vec<WaitEdge>,
    },
    /// Nothing happened for a while; everything up to this revision has been sent.
    Bookmark,
    /// Events were missed: list the locks again. A stream of the server ends here; a client library goes on.
    Resync,
}

impl News {
    /// The name that `type` has in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            News::EpochBegan { .. } => "epoch_began",
            News::GraceEnded => "grace_ended",
            News::SessionOpened { .. } => "session_opened",
            News::SessionEnded { .. } => "session_ended",
            News::Granted { .. } => "granted",
            News::Ended { .. } => "ended",
            News::TtlChanged { .. } => "ttl_changed",
            News::FenceAccepted { .. } => "fence_accepted",
            News::FenceDeleted { .. } => "fence_deleted",
            News::Queued { .. } => "queued",
            News::Left { .. } => "left",
            News::Deadlock { .. } => "deadlock",
            News::Bookmark => "bookmark",
            News::Resync => "resync",
        }
    }
}

/// The answer to a long poll.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    pub events: Vec<Event>,
    pub revision: u64,
    /// The point to ask after next.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Cursor))]
    pub cursor: Cursor,
}
