//! All that can be asked of the table.

use std::sync::Arc;
use std::time::Duration;

use crate::effect::Grant;
use crate::fencing_token::FencingToken;
use crate::id::{
    Adapter, CallId, Epoch, LeaseId, Namespace, Owner, Principal, RegisterName, RequestId,
    SecretTicket,
};
use crate::mode::Mode;
use crate::quota::Need;
use crate::range::ByteRange;
use crate::scope::{Key, Scope};

/// Something asked of the table. Reads are methods of their own: see `read/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    ByOwner(ByOwner),
    Unlock(Unlock),
    Cancel(Cancel),
    OpenSession(OpenSession),
    KeepAlive(KeepAlive),
    CloseSession(CloseSession),
    Attach(Attach),
    Disconnect(Disconnect),
    AcceptFence(AcceptFence),
    DeleteFence(DeleteFence),
    Break(Break),
    BreakSession(BreakSession),
    RemoveFile(RemoveFile),
    Withdraw(Withdraw),
    BeginEpoch(BeginEpoch),
    Jump(Jump),
    Suspend,
    Resume,
    /// Tells the time and nothing else.
    Tick,
}

impl Command {
    /// The namespace it is about; `None` if it is about all of them.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Command::Acquire(acquire) => Some(&acquire.namespace),
            Command::Renew(renew) => Some(&renew.namespace),
            Command::Release(release) => Some(&release.namespace),
            Command::ByOwner(ask) => Some(&ask.namespace),
            Command::Unlock(unlock) => Some(&unlock.namespace),
            Command::Cancel(cancel) => Some(&cancel.namespace),
            Command::OpenSession(open) => Some(&open.namespace),
            Command::KeepAlive(keep) => Some(&keep.namespace),
            Command::CloseSession(close) => Some(&close.namespace),
            Command::Attach(attach) => Some(&attach.namespace),
            Command::Disconnect(disconnect) => Some(&disconnect.namespace),
            Command::AcceptFence(accept) => Some(&accept.namespace),
            Command::DeleteFence(delete) => Some(&delete.namespace),
            Command::Break(broken) => Some(&broken.namespace),
            Command::BreakSession(broken) => Some(&broken.namespace),
            Command::RemoveFile(remove) => Some(&remove.namespace),
            Command::Withdraw(withdraw) => Some(&withdraw.namespace),
            Command::BeginEpoch(_)
            | Command::Jump(_)
            | Command::Suspend
            | Command::Resume
            | Command::Tick => None,
        }
    }
}

/// One scope and how it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    pub scope: Scope,
    pub mode: Mode,
}

/// Asks for one scope or a set of them, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The call to answer if it has to wait.
    pub call: CallId,
    pub namespace: Namespace,
    pub owner: Owner,
    pub claims: Vec<Claim>,
    pub under: Under,
    pub wait: Wait,
    /// When the wait runs out, keep the place in the queue for a while: the refusal carries a ticket.
    pub keep_place: bool,
    /// Comes back for a place that was kept, or that is about to be.
    pub ticket: Option<SecretTicket>,
    pub request_id: Option<RequestId>,
    /// The time after the lease expired in which only this owner may acquire the scope again.
    pub reclaim_window: Duration,
    /// Takes up, during a recovery grace, what the owner held before it under the lease that is named.
    pub reclaim: bool,
    /// For people: shown with the grant, never looked at.
    pub metadata: Option<Arc<str>>,
}

impl Acquire {
    /// The request's cost against quotas once it is granted.
    pub(crate) fn need(&self) -> Need {
        Need::of(&self.claims, self.metadata.as_deref())
    }
}

/// The lease that a grant is to stand under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// A lease of its own. The id must be fresh and random.
    NewLease { id: LeaseId, ttl: Duration },
    /// A session opened before, by the principal of the owner.
    Session(LeaseId),
}

/// The longest time a request is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Never,
    UpTo(Duration),
    /// Until the caller goes.
    Forever,
}

/// Moves a lease's deadline to now + ttl. Owner, lease and fence must all be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    pub namespace: Namespace,
    pub scope: Scope,
    pub owner: Owner,
    pub lease: LeaseId,
    pub fence: FencingToken,
    /// A new length for the lease from here on.
    pub ttl: Option<Duration>,
}

impl Renew {
    /// The proof of holding, as for a release.
    pub(crate) fn shown(&self) -> Release {
        Release {
            namespace: self.namespace.clone(),
            scope: self.scope.clone(),
            owner: self.owner.clone(),
            lease: self.lease,
            fence: self.fence,
        }
    }
}

/// Ends what was granted with this fence: one scope, the named bytes of a file, or a whole set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub namespace: Namespace,
    pub scope: Scope,
    pub owner: Owner,
    pub lease: LeaseId,
    pub fence: FencingToken,
}

/// Takes, renews or gives back one key for an owner that keeps neither lease id nor fencing token: the simple `/lock`.
///
/// Finding the owner's grant and acting on it is one step, so nothing can come between the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByOwner {
    pub namespace: Namespace,
    pub key: Key,
    pub owner: Owner,
    pub action: OwnerAction,
}

/// The two things an owner can ask for by name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerAction {
    /// Renews what the owner holds, with this ttl; or acquires it, exclusive and without waiting.
    Hold {
        /// For a new grant. Must be fresh and random.
        lease: LeaseId,
        ttl: Duration,
        reclaim_window: Duration,
    },
    /// Releases what the owner holds, or gives up its reclaim window.
    Release,
}

/// Ends an owner's hold on bytes of a file, whatever grants they came by: `F_UNLCK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlock {
    pub namespace: Namespace,
    pub session: LeaseId,
    pub owner: Owner,
    pub inode: u64,
    pub range: ByteRange,
}

/// The caller of a waiting request has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    pub namespace: Namespace,
    pub call: CallId,
    /// Its connection broke and it may come back: its place is kept for a while.
    pub keep_place: bool,
}

/// Opens a lease under which any number of grants can be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    pub namespace: Namespace,
    /// Must be fresh and random.
    pub id: LeaseId,
    pub owner: Owner,
    pub ttl: Duration,
    pub adapter: Adapter,
    pub on_disconnect: OnDisconnect,
    pub request_id: Option<RequestId>,
    pub metadata: Option<Arc<str>>,
}

/// The policy for a session whose stream breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDisconnect {
    /// Everything is released at once: the NFS habit.
    #[default]
    Release,
    /// Everything is kept for that long: the SMB durable-handle habit.
    Keep(Duration),
}

/// The heartbeat of a session or of a set's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    pub namespace: Namespace,
    /// A lease of another principal is not found.
    pub principal: Principal,
    pub session: LeaseId,
    pub ttl: Option<Duration>,
}

/// Ends a session, or any lease, and everything under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseSession {
    pub namespace: Namespace,
    pub principal: Principal,
    pub session: LeaseId,
}

/// Binds a session to a live stream, again after a disconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    pub namespace: Namespace,
    pub principal: Principal,
    pub session: LeaseId,
}

/// The stream that a session was bound to has broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    pub namespace: Namespace,
    pub principal: Principal,
    pub session: LeaseId,
}

/// Shows a fencing token to a register, which takes it only if it has seen no higher one and it was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptFence {
    pub namespace: Namespace,
    pub register: RegisterName,
    /// A register that it creates counts as one of this principal's.
    pub principal: Principal,
    pub fence: FencingToken,
}

/// An operator removes a fence register: what it has seen is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteFence {
    pub namespace: Namespace,
    pub register: RegisterName,
    pub reason: Arc<str>,
}

/// An operator ends every grant that overlaps the scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    pub namespace: Namespace,
    pub scope: Scope,
    /// Only the grant with this fence.
    pub fence: Option<FencingToken>,
    pub reason: Arc<str>,
}

/// An operator ends a session, which people know by its number, and everything under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakSession {
    pub namespace: Namespace,
    pub number: u64,
    pub reason: Arc<str>,
}

/// A file is gone: drops all grants and fails all waiters of its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveFile {
    pub namespace: Namespace,
    pub inode: u64,
}

/// Takes back a grant that nobody will ever learn of: its answer could not be delivered or its commit failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdraw {
    pub namespace: Namespace,
    pub lease: LeaseId,
    pub fence: FencingToken,
    /// The bytes of files that came with it, as the grant said. Bytes held before stay held.
    pub gained: Vec<(u64, ByteRange)>,
}

impl GracePolicy {
    /// Whether every new grant is refused while the recovery grace is active.
    pub fn is_strict(self) -> bool {
        match self {
            GracePolicy::Conflicting => false,
            GracePolicy::Strict | GracePolicy::StrictUnknown => true,
        }
    }
}

impl Withdraw {
    /// Takes back exactly this grant.
    pub fn of(namespace: &Namespace, grant: &Grant) -> Withdraw {
        Withdraw {
            namespace: namespace.clone(),
            lease: grant.lease,
            fence: grant.fence,
            gained: grant.gained.clone(),
        }
    }
}

/// A new authority takes over the table: every grant has to be claimed again by its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeginEpoch {
    pub epoch: Epoch,
    pub grace: GracePolicy,
    /// When the grace ends at the latest.
    pub grace_length: Duration,
}

/// The requests that are refused while holders of the last epoch may still come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracePolicy {
    /// Only what conflicts with a grant that has not come back yet.
    Conflicting,
    /// Every new grant, until all that was held has come back or lapsed.
    Strict,
    /// Every new grant until the timer ends: for a store that forgets, where it is unknown what was held.
    StrictUnknown,
}

/// After a restore: epoch and fences go on well above anything handed out since the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    pub epoch: Epoch,
    pub fence: FencingToken,
}
