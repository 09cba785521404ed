//! One lock: asking for it, keeping it, giving it back, looking at it.

use serde::{Deserialize, Serialize};

use crate::history::PastHolder;

/// Whatever a holder wants others to see with its grant; the service never looks at it.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// The mode of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By one holder alone.
    #[default]
    Exclusive,
    /// By any number of holders, all of them shared.
    Shared,
    /// By up to `permits` holders at once.
    Permits,
}

/// Asks for a lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub owner_id: String,
    /// The duration of the lease without a renewal. Needed unless `session_id` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
    /// The longest time to wait if it is not free; over HTTP at most 50 s of it are waited in one request.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 50_000))]
    pub wait_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The most holders at once (a semaphore). Every request must give the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub permits: Option<u32>,
    /// The session, or the plain lease of the same owner, that the grant is to stand under: the id of either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::LeaseId>))]
    pub session_id: Option<String>,
    /// Your own name for this request: a repetition gets the same grant, not a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Name>))]
    pub request_id: Option<String>,
    /// The time after the lease expired in which only this owner may acquire the lock again.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub reclaim_ms: u64,
    /// Takes up, after a restart of the server, what the owner held before it.
    #[serde(default)]
    pub reclaim: bool,
    /// Comes back for a place in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Ticket>))]
    pub ticket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Metadata>,
}

/// The lock is yours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The lock in its canonical spelling.
    pub lock: String,
    pub owner_id: String,
    /// A secret: whoever has it can renew and release.
    pub lease_id: String,
    /// Show this with every write to what the lock guards.
    pub fencing_token: u64,
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    pub ttl_ms: u64,
    /// When the lease lapses, in milliseconds since 1970; for people. Programs count `expires_in_ms` from before they asked.
    pub lease_expiry_ms: u64,
    pub expires_in_ms: u64,
    pub expires_at: String,
    pub acquired_at: String,
    pub waited_ms: u64,
    /// The same request was granted before; this is that grant.
    pub replayed: bool,
    pub epoch: u64,
}

/// Moves the end of a lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub owner_id: String,
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::LeaseId))]
    pub lease_id: String,
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub fencing_token: u64,
    /// A new ttl from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
}

/// The lease was renewed for its full ttl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewed {
    pub lock: String,
    pub owner_id: String,
    pub fencing_token: u64,
    pub ttl_ms: u64,
    pub lease_expiry_ms: u64,
    pub expires_in_ms: u64,
    pub expires_at: String,
    pub epoch: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub owner_id: String,
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::LeaseId))]
    pub lease_id: String,
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub fencing_token: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Released {
    pub released: bool,
    pub held_ms: u64,
    /// The same owner has released it before, under the same lease; `held_ms` is what was said then.
    #[serde(default)]
    pub replayed: bool,
}

/// Ends an owner's hold on bytes of a file, whatever grants they came by: the `F_UNLCK` of fcntl(2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UnlockRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub owner_id: String,
    /// The session, or the lease, that the bytes are held under.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::LeaseId))]
    pub session_id: String,
}

/// Nothing of the range is held any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unlocked {
    pub lock: String,
    /// Whether any of it was.
    pub changed: bool,
}

/// One grant as others may see it: everything but the lease id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holder {
    /// The lock it holds: the one asked about, or one that overlaps it.
    pub lock: String,
    pub owner_id: String,
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    pub state: LockState,
    pub fencing_token: u64,
    pub acquired_at: String,
    /// The ttl of its lease.
    #[serde(default)]
    pub ttl_ms: u64,
    pub expires_at: String,
    pub expires_in_ms: u64,
    /// The number of its session, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub metadata: Metadata,
    /// The holder's principal; left out for callers without one, and where it may not be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// It may not be seen: only its mode, its state and its times are told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LockState {
    Free,
    Held,
    /// Held before the server restarted; its holder has not been heard of yet.
    Recovering,
    /// The lease has lapsed; only the last owner may take it back.
    ReclaimWindow,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiter {
    pub owner_id: String,
    pub lock: String,
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    pub position: u64,
    pub waiting_ms: u64,
    /// When it stops waiting by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_up_in_ms: Option<u64>,
}

/// One lock, as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lock {
    pub lock: String,
    pub namespace: String,
    pub state: LockState,
    /// The first hundred; `holders_total` counts them all.
    pub holders: Vec<Holder>,
    pub holders_total: u64,
    /// The first hundred; `waiters_total` counts them all.
    pub waiters: Vec<Waiter>,
    pub waiters_total: u64,
    /// The highest token that the lock is known to have been granted with: of its holders, or, while they are remembered,
    /// of grants that have ended.
    pub last_fencing_token: Option<u64>,
    /// There is more than can be looked at in one go: the totals are at least these, and the holders and waiters named are some of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    pub revision: u64,
}

/// Asks whether a lock could be acquired now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TestRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub owner_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub permits: Option<u32>,
    /// The session or lease that the lock would be taken under: bytes held under it are not in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tested {
    pub lock: String,
    /// Whether a try would be granted now.
    pub free: bool,
    /// The first grant in the way. Without one, a lock that is not free has others waiting for it.
    pub conflict: Option<Holder>,
    /// There is more than can be looked at in one go: the grant named may not be the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Asks whether a token is a current holder's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub fencing_token: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::LeaseId>))]
    pub lease_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Checked {
    pub lock: String,
    pub fencing_token: u64,
    pub valid: bool,
    /// Set when it is not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Gone>,
    /// The grant that the token belongs to, if there is one.
    pub holder: Option<Holder>,
    /// There is more than can be looked at in one go: a token that is not valid here may be valid for a part of the range.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The reason why a fencing token or a lease is not good for what it was shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// Nothing is known of it, or it is not of this lease or owner.
    Unknown,
    /// The lease was not renewed in time.
    Expired,
    /// Given back by its holder, or ended for it: closed, disconnected, revoked, its file removed.
    Released,
    /// It was granted for another lock.
    OtherScope,
    /// The lock has been granted with a later token.
    Superseded,
}

impl Gone {
    pub const ALL: [Gone; 5] =
        [Gone::Unknown, Gone::Expired, Gone::Released, Gone::OtherScope, Gone::Superseded];

    pub const fn as_str(self) -> &'static str {
        match self {
            Gone::Unknown => "unknown",
            Gone::Expired => "expired",
            Gone::Released => "released",
            Gone::OtherScope => "other_scope",
            Gone::Superseded => "superseded",
        }
    }

    /// A reason by its name.
    pub fn of(name: &str) -> Option<Gone> {
        Gone::ALL.into_iter().find(|gone| gone.as_str() == name)
    }
}

/// The grant that carries a fencing token, held or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    pub fencing_token: u64,
    /// The namespace of the grant.
    pub namespace: String,
    pub state: TokenState,
    /// The locks held with it, the first hundred: one lock, those of a set, or parts of a file.
    pub holders: Vec<Holder>,
    /// The grants with it that have ended, newest first; at most a hundred.
    pub ended: Vec<PastHolder>,
}

/// The state of a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    Held,
    /// Held before the server restarted; its holder has not been heard of yet.
    Recovering,
    /// The lease has lapsed; only the last owner may take the lock back.
    ReclaimWindow,
    /// Nothing is held with it any more.
    Ended,
}

/// An operator ends a grant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BreakRequest {
    /// For the record, and for the holder.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub reason: String,
    /// Only the grant with this token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub fencing_token: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Broken {
    pub lock: String,
    /// The number of grants that ended.
    pub broken: u64,
    /// Not all of them were ended, as there are too many or the server was interrupted: ask again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One held lock in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockSummary {
    pub lock: String,
    pub state: LockState,
    /// The first sixteen; `holders_total` counts them all.
    pub holders: Vec<Holder>,
    pub holders_total: u64,
    pub waiters_total: u64,
    /// There is more than can be looked at in one go: the totals are at least these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockPage {
    pub locks: Vec<LockSummary>,
    /// Set when there may be more, even if this page is short.
    pub next_page_token: Option<String>,
    pub revision: u64,
    /// The point to watch after, to see what changes from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Cursor>))]
    pub cursor: Option<crate::Cursor>,
    /// There may be more than the caller may see.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filtered: bool,
}
