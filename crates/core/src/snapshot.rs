//! The whole table as a list of entries: what a store keeps so that it need not replay every transition ever made.

use std::sync::Arc;

use crate::fencing_token::FencingToken;
use crate::id::{Epoch, LeaseId, Namespace, Owner, Principal, RegisterName, Revision};
use crate::mode::Mode;
use crate::range::ByteRange;
use crate::scope::Key;
use crate::time::{Millis, Timestamp};
use crate::transition::{Ending, Request, SessionTerms};

/// One piece of a snapshot. The order of entries does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    Counters {
        epoch: Epoch,
        fence: FencingToken,
        revision: Revision,
    },
    Lease(Box<LeaseEntry>),
    Register {
        namespace: Namespace,
        register: RegisterName,
        principal: Principal,
        fence: FencingToken,
    },
}

/// A lease and everything that stands under it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseEntry {
    pub namespace: Namespace,
    pub lease: LeaseId,
    pub owner: Owner,
    pub ttl: Millis,
    pub session: Option<SessionEntry>,
    /// Set when the lease has lapsed and only reclaim windows are left of it.
    pub lapsed: Option<Ending>,
    /// Set when the lease is over and is cleared in turns.
    pub ending: Option<Ending>,
    pub grants: Vec<GrantEntry>,
    pub pieces: Vec<PieceEntry>,
    pub sets: Vec<SetEntry>,
    pub requests: Vec<ByteRequestEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionEntry {
    pub opened_at: Timestamp,
    pub terms: SessionTerms,
}

/// A grant on a name, path or subtree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantEntry {
    pub key: Key,
    pub owner: Owner,
    pub mode: Mode,
    pub fence: FencingToken,
    pub granted_at: Timestamp,
    pub reclaim_window: Millis,
    pub request: Option<Request>,
    pub metadata: Option<Arc<str>>,
}

/// Bytes of a file that one owner holds in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PieceEntry {
    pub inode: u64,
    pub range: ByteRange,
    pub owner: Owner,
    pub mode: Mode,
    /// The tokens that are good for this piece, in order; the last is the one it is shown with.
    pub tokens: Vec<FencingToken>,
    pub granted_at: Timestamp,
    pub reclaim_window: Millis,
    pub metadata: Option<Arc<str>>,
}

/// The byte ranges that belong to a set, so that releasing its fence releases them too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetEntry {
    pub fence: FencingToken,
    pub owner: Owner,
    pub ranges: Vec<(u64, ByteRange)>,
}

/// A request with an id that was granted bytes of files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ByteRequestEntry {
    pub fence: FencingToken,
    pub owner: Owner,
    pub request: Request,
    pub granted_at: Timestamp,
    pub ranges: Vec<(u64, ByteRange)>,
}
