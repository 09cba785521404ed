//! All that can change and must last. Replayed in order onto a table, transitions rebuild it.

use std::fmt;
use std::sync::Arc;

use crate::command::{Claim, OnDisconnect};
use crate::fencing_token::FencingToken;
use crate::id::{Adapter, Epoch, LeaseId, Namespace, Owner, Principal, RegisterName, RequestId};
use crate::range::ByteRange;
use crate::scope::Key;
use crate::time::{Millis, Timestamp};

/// One lasting change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// A new authority decides from here on.
    EpochBegan {
        epoch: Epoch,
    },
    /// Epoch and fences were raised after a restore; revisions rise as far as fences do.
    Jumped {
        epoch: Epoch,
        fence: FencingToken,
    },
    SessionOpened(SessionOpened),
    Granted(Granted),
    TtlChanged {
        namespace: Namespace,
        lease: LeaseId,
        ttl: Millis,
    },
    /// The deadline passed; what has a reclaim window stays, for its last owner only.
    LeaseLapsed {
        namespace: Namespace,
        lease: LeaseId,
        ending: Ending,
    },
    /// The lease is over, and nothing under it counts as held any more. It is so much that it ends in later turns.
    LeaseEnding {
        namespace: Namespace,
        lease: LeaseId,
        ending: Ending,
    },
    /// The lease and everything under it ended.
    LeaseEnded {
        namespace: Namespace,
        lease: LeaseId,
        ending: Ending,
    },
    /// The grant with this fencing token ended; the rest of the lease stands.
    GrantEnded {
        namespace: Namespace,
        lease: LeaseId,
        fence: FencingToken,
        ending: Ending,
    },
    /// One key of a grant ended; the rest of its set stands.
    KeyEnded {
        namespace: Namespace,
        lease: LeaseId,
        fence: FencingToken,
        key: Key,
        ending: Ending,
    },
    /// An owner's hold on these bytes under this lease ended.
    RangeEnded {
        namespace: Namespace,
        lease: LeaseId,
        owner: Owner,
        inode: u64,
        range: ByteRange,
        ending: Ending,
    },
    FenceAccepted {
        namespace: Namespace,
        register: RegisterName,
        /// Of a new register: whose it is.
        principal: Principal,
        fence: FencingToken,
    },
    /// An operator removed a fence register; the reason is theirs.
    FenceDeleted {
        namespace: Namespace,
        register: RegisterName,
        reason: Arc<str>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionOpened {
    pub namespace: Namespace,
    pub lease: LeaseId,
    pub owner: Owner,
    pub ttl: Millis,
    pub opened_at: Timestamp,
    pub terms: SessionTerms,
}

/// The fields that make a lease a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionTerms {
    /// A number for people and lists: the revision at which it was opened.
    pub number: u64,
    pub adapter: Adapter,
    pub on_disconnect: OnDisconnect,
    pub request: Option<Request>,
    pub metadata: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    pub namespace: Namespace,
    pub lease: LeaseId,
    /// Set when the grant opens its own lease.
    pub opens: Option<Millis>,
    pub owner: Owner,
    pub claims: Vec<Claim>,
    pub fence: FencingToken,
    pub granted_at: Timestamp,
    pub reclaim_window: Millis,
    pub request: Option<Request>,
    pub metadata: Option<Arc<str>>,
}

/// The keys by which a retry is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub id: RequestId,
    /// A digest of what was asked: the same id with another request is refused.
    pub digest: u64,
}

/// The cause of an ending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    Released,
    /// Its session was closed.
    Closed,
    Expired,
    /// Came from the last epoch and was never claimed again.
    GraceExpired,
    /// The stream its session was bound to broke.
    Disconnected,
    /// An operator broke it; the reason is theirs.
    Revoked(Arc<str>),
    FileRemoved,
    /// The same owner locked over it.
    Replaced,
    /// The grant was undone before any caller learned of it.
    Withdrawn,
    /// The reclaim window passed unused.
    WindowOver,
    /// The last owner took it back inside the reclaim window.
    Reclaimed,
}

impl Ending {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Ending::Released => "released",
            Ending::Closed => "closed",
            Ending::Expired => "expired",
            Ending::GraceExpired => "grace_expired",
            Ending::Disconnected => "disconnected",
            Ending::Revoked(_) => "revoked",
            Ending::FileRemoved => "file_removed",
            Ending::Replaced => "replaced",
            Ending::Withdrawn => "withdrawn",
            Ending::WindowOver => "window_over",
            Ending::Reclaimed => "reclaimed",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
