//! A grant as it is shown to others.

use std::sync::Arc;

use crate::fencing_token::FencingToken;
use crate::id::Owner;
use crate::mode::Mode;
use crate::scope::Scope;
use crate::time::{Millis, Timestamp};

/// One grant as others may see it: everything but the lease id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub scope: Scope,
    pub owner: Owner,
    pub mode: Mode,
    pub fence: FencingToken,
    pub since: Timestamp,
    /// The full length of its lease.
    pub ttl: Millis,
    /// When the lease lapses, or, in a reclaim window, when that ends.
    pub deadline: Timestamp,
    pub state: HolderState,
    /// The time for which its scope stays reserved for the owner once the lease has expired.
    pub reclaim_window: Millis,
    /// The number of the session it stands under, if it is one.
    pub session: Option<u64>,
    pub metadata: Option<Arc<str>>,
}

/// The state of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HolderState {
    Held,
    /// Comes from the last epoch; its holder has not been heard of yet.
    Recovering,
    /// The lease has lapsed; only the last owner may take the scope back.
    ReclaimWindow,
}
