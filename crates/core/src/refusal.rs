//! Every way to say no. A refusal is an answer, not a failure, and carries what its reader needs to react.

use std::sync::Arc;
use std::time::Duration;

use crate::fencing_token::FencingToken;
use crate::id::{Adapter, Epoch, Namespace, Owner, RegisterName, SecretTicket, Ticket};
use crate::mode::Mode;
use crate::quota::{QuotaKind, QuotaOf};
use crate::read::Holder;
use crate::scope::Scope;
use crate::time::Timestamp;

/// An expected "no".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Held(Box<Conflict>),
    #[error("{0}; its last owner may still take it back")]
    ReclaimWindow(Box<Conflict>),
    /// Under a strict policy, only leases from before the restart are renewed.
    #[error("recovery grace active for another {} ms", ends_in.as_millis())]
    GracePeriod { ends_in: Duration },
    /// As above, for a request whose place in the queue is kept: the conflict names no holder, only the place.
    #[error("recovery grace active for another {} ms", ends_in.as_millis())]
    GracePeriodPlaceKept { ends_in: Duration, conflict: Box<Conflict> },
    #[error("no recovery grace is active")]
    NoGrace,
    #[error("waiting would deadlock: {}", length_said(cycle))]
    Deadlock { cycle: Arc<[WaitEdge]> },
    /// With the reason, where the lease was shown by its holder.
    #[error("the lease {}", gone_said(*.0))]
    LeaseLost(Option<Gone>),
    #[error(
        "nothing on {0} can be reclaimed: name the session or lease that held it, with its owner, mode and bytes"
    )]
    NothingToReclaim(Scope),
    #[error("owner, lease and fencing token do not match a grant on {scope}{}", why_said(*.why))]
    NotHolder { scope: Scope, why: Option<Gone> },
    #[error("{scope} is used with {}, not with {}", said(*current), said(*asked))]
    LimitMismatch { scope: Scope, current: Mode, asked: Mode },
    #[error("the request id was used for another request")]
    RequestIdReused,
    /// With the reason, where the session was named by its id.
    #[error("session not found{}", why_said(*.0))]
    SessionNotFound(Option<Gone>),
    #[error("there is no such place in the queue, or it is no longer kept")]
    TicketNotFound(Ticket),
    #[error("fencing token {presented} is lower than {high_water}")]
    StaleFence { presented: FencingToken, high_water: FencingToken },
    #[error("fence register {0} not found")]
    RegisterNotFound(RegisterName),
    #[error("{0}")]
    Limit(Limit),
    #[error("{0}")]
    Invalid(Invalid),
    #[error("the file of inode {0} was removed")]
    FileRemoved(u64),
    #[error("no grants are made for now")]
    Suspended,
    #[error("epoch {presented:?} is not above {current:?}")]
    StaleEpoch { presented: Epoch, current: Epoch },
}

/// The reason why a fencing token or a lease is not good for what it was shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gone {
    /// Never seen, not of this lease or owner, or forgotten.
    Unknown,
    /// The lease was not renewed in time.
    Expired,
    /// Given back by its holder, or ended for it: closed, disconnected, revoked, its file removed.
    Released,
    /// It was granted for something else.
    OtherScope,
    /// The lock has been granted with a later token.
    Superseded,
}

impl Gone {
    pub const fn as_str(self) -> &'static str {
        match self {
            Gone::Unknown => "unknown",
            Gone::Expired => "expired",
            Gone::Released => "released",
            Gone::OtherScope => "other_scope",
            Gone::Superseded => "superseded",
        }
    }
}

/// The length of a cycle; of a long one the middle is left out.
fn length_said(cycle: &[WaitEdge]) -> String {
    let len = cycle.len();
    let is_whole = cycle.windows(2).all(|steps| steps[0].blocker == steps[1].waiter);
    if is_whole {
        format!("a cycle of {len} owners")
    } else {
        format!("a cycle of more than {len} owners, of which {} and the last are shown", len - 1)
    }
}

fn gone_said(why: Option<Gone>) -> &'static str {
    match why {
        None | Some(Gone::OtherScope) => "has ended",
        Some(Gone::Unknown) => "is unknown",
        Some(Gone::Expired) => "has expired",
        Some(Gone::Released) => "was released",
        Some(Gone::Superseded) => "was superseded by a later grant",
    }
}

fn why_said(why: Option<Gone>) -> &'static str {
    match why {
        None | Some(Gone::Unknown) => "",
        Some(Gone::Expired) => ": the lease has expired",
        Some(Gone::Released) => ": it was released",
        Some(Gone::OtherScope) => ": the token belongs to another lock",
        Some(Gone::Superseded) => ": it was superseded by a later grant",
    }
}

/// The reason why a request cannot be granted now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scope} is held by {} until {}",
    holders.first().map_or("an earlier waiter", |holder| holder.owner.as_str()),
    holders.first().map_or(Timestamp::ZERO, |holder| holder.deadline))]
pub struct Conflict {
    /// The first of the asked scopes that is not free for the reason told.
    pub scope: Scope,
    /// Those in the way; the first few if they are many.
    pub holders: Vec<Holder>,
    /// The number of requests that wait for that scope.
    pub waiters: usize,
    pub waited: Duration,
    /// Set when a place in the queue is kept for the caller.
    pub place: Option<Place>,
}

impl Conflict {
    /// The most holders that a conflict names.
    pub const HOLDERS_MAX: usize = 16;
}

/// A kept place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub ticket: SecretTicket,
    /// The number of waiters before it, plus one.
    pub position: usize,
}

/// One edge of the wait-for graph: who waits for which scope because of whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitEdge {
    pub waiter: Owner,
    pub scope: Scope,
    /// The owner that holds it, or waits for it in front.
    pub blocker: Owner,
}

/// A limit of the server that was reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    #[error("{max} requests wait for {scope} already")]
    WaitersPerScope { scope: Scope, max: usize },
    #[error("{max} requests wait on this server already")]
    Waiters { max: usize },
    #[error("too many requests wait for each other: the deadlock check ran out of budget")]
    TooTangled,
    /// A quota of the principal or the namespace, or what all may have together.
    #[error("{}", quota_said(*.quota, *.of, *.max))]
    Quota { quota: QuotaKind, of: QuotaOf, max: u64 },
    #[error("{scope} covers more than {max} ranges that the lease holds: name smaller parts")]
    OwnRanges { scope: Scope, max: usize },
    #[error("the session holds {max} locks already")]
    LocksPerSession { max: usize },
    #[error("a session in which locks have reclaim windows holds at most {max} locks")]
    WindowedLocksPerSession { max: usize },
    #[error("adapter {adapter} has {max} sessions already")]
    Sessions { adapter: Adapter, max: usize },
    #[error("namespace {namespace} has {max} fence registers already")]
    Registers { namespace: Namespace, max: usize },
    #[error("there are {max} fence registers already")]
    RegistersInAll { max: usize },
    #[error("there are {max} namespaces in use already")]
    Namespaces { max: usize },
    #[error("the fencing tokens are used up: the last one, {}, was issued", FencingToken::MAX)]
    Tokens,
}

/// A fault in the request itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("ttl is {} ms; it must be {} to {} ms", ttl.as_millis(), min.as_millis(), max.as_millis())]
    Ttl { ttl: Duration, min: Duration, max: Duration },
    #[error("disconnect ttl is {} ms, the limit is {} ms", ttl.as_millis(), max.as_millis())]
    DisconnectTtl { ttl: Duration, max: Duration },
    #[error("reclaim window is {} ms, the limit is {} ms", window.as_millis(), max.as_millis())]
    ReclaimWindow { window: Duration, max: Duration },
    #[error("wait is {} ms, the limit is {} ms", wait.as_millis(), max.as_millis())]
    Wait { wait: Duration, max: Duration },
    #[error("a set has 1 to {max} scopes, not {len}")]
    SetSize { len: usize, max: usize },
    #[error("{one} and {other} in one set overlap")]
    SetOverlap { one: Scope, other: Scope },
    #[error("permits cannot be had on {0}: byte ranges are shared or exclusive")]
    RangePermits(Scope),
    #[error("a limit of {limit} permits is too high, the most is {max}")]
    Permits { limit: u32, max: u32 },
    #[error("metadata has {len} bytes, the limit is {max}")]
    MetadataSize { len: usize, max: usize },
    #[error(
        "these are held by several grants, each with its own fencing token: reclaim them one by one"
    )]
    NotOneGrant,
    #[error("fencing token {presented} was never issued: the last one is {last}")]
    FenceNotIssued { presented: FencingToken, last: FencingToken },
    #[error("the lease id is in use")]
    LeaseIdInUse,
}

fn said(mode: Mode) -> String {
    match mode {
        Mode::Permits(limit) => format!("a limit of {limit}"),
        Mode::Exclusive | Mode::Shared => "no limit".into(),
    }
}

fn quota_said(quota: QuotaKind, of: QuotaOf, max: u64) -> String {
    let whose = match of {
        QuotaOf::Principal => "the principal",
        QuotaOf::Namespace => "the namespace",
        QuotaOf::Server => "the server",
    };
    let what = match quota {
        QuotaKind::Locks => "locks",
        QuotaKind::Bytes => "bytes of names and metadata",
        QuotaKind::Waiters => "waiting requests",
        QuotaKind::WaiterBytes => "bytes of waiting requests",
        QuotaKind::Sessions => "sessions",
        QuotaKind::Registers => "fence registers",
        QuotaKind::Namespaces => "namespaces in use",
    };
    format!("{whose} may have {max} {what} and no more")
}
