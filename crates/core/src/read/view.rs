//! Queries: all that can be read off the table without changing it.

use std::sync::Arc;
use std::time::Duration;

use crate::command::OnDisconnect;
use crate::fencing_token::FencingToken;
use crate::id::{Adapter, Epoch, Namespace, Owner, RegisterName, Revision, Ticket};
use crate::mode::Mode;
use crate::read::Holder;
use crate::refusal::{Gone, WaitEdge};
use crate::scope::{Scope, ScopeKind};
use crate::time::{Millis, Timestamp};
use crate::transition::Ending;

/// One scope: who holds anything that overlaps it, and who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    pub scope: Scope,
    pub state: LockState,
    /// The first few by fence; `holders_len` counts them all.
    pub holders: Vec<Holder>,
    pub holders_len: usize,
    /// The first few by place; `waiters_len` counts them all.
    pub waiters: Vec<WaiterView>,
    pub waiters_len: usize,
    /// The highest token it is known to have been granted with: of a holder, or of a grant that ended lately.
    pub last_fence: Option<FencingToken>,
    /// There is more than can be looked at in one go: the counts are at least these, and the holders and waiters named
    /// are some of them.
    pub truncated: bool,
    pub revision: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockState {
    /// A lock with several holders is in the first state after this one that any of them is in.
    Free,
    Held,
    Recovering,
    ReclaimWindow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    pub owner: Owner,
    pub scope: Scope,
    pub mode: Mode,
    pub ticket: Ticket,
    pub since: Timestamp,
    /// When it stops waiting by itself.
    pub deadline: Option<Timestamp>,
}

/// Whether a try would be granted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    pub free: bool,
    /// The first grant in the way. Without one, a lock that is not free has others waiting for it.
    pub conflict: Option<Holder>,
    /// So much is in the way that not all of it was looked at: the grant named may not be the first.
    pub truncated: bool,
}

/// Whether a fence is the current holder's and still good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub valid: bool,
    /// Set when it is not valid.
    pub why: Option<Gone>,
    /// The grant that the fence belongs to, if there is one.
    pub holder: Option<Holder>,
    /// There is more in the range than can be looked at in one go: the token may be good all the same.
    pub truncated: bool,
}

/// The grant that carries a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenView {
    pub fence: FencingToken,
    pub namespace: Namespace,
    /// The grants with it, reclaim windows too; the first few.
    pub holders: Vec<Holder>,
    /// Its grants that have ended lately, newest first; the first few.
    pub ended: Vec<EndedGrant>,
}

/// A grant, or a part of one, that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedGrant {
    pub scope: Scope,
    pub owner: Owner,
    pub mode: Mode,
    pub since: Timestamp,
    /// When it ended.
    pub at: Timestamp,
    pub ending: Ending,
}

/// The filter of a list of locks, and the position to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    pub namespace: Namespace,
    /// Canonical texts that start with this.
    pub prefix: String,
    pub owner: Option<Owner>,
    /// The number of a session.
    pub session: Option<u64>,
    pub inode: Option<u64>,
    pub state: Option<LockState>,
    pub after: Option<ListCursor>,
    /// Only what lies in these parts of the order; `None`: everything.
    pub within: Option<Arc<Parts>>,
    pub len_max: usize,
    /// The most locks that may be looked at for one page; a page may be short, or even empty, and yet not be the last.
    pub looked_at_max: usize,
}

/// Parts of the order of what is held: nothing outside them is walked through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Canonical texts from the first on, up to but without the second; in order and apart from one another.
    pub keys: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Files from one number to another, the last one included; in order and apart from one another.
    pub inodes: Vec<(u64, u64)>,
}

/// The position in a listing: the last lock of the page before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCursor {
    pub scope: Scope,
    pub fence: FencingToken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub locks: Vec<LockSummary>,
    /// Set when there may be more.
    pub next: Option<ListCursor>,
    pub revision: Revision,
}

/// One held lock in a list: a name or path with its holders, or one piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSummary {
    pub scope: Scope,
    pub state: LockState,
    pub holders: Vec<Holder>,
    pub holders_len: usize,
    pub waiters_len: usize,
    /// There is more of it than can be looked at in one go: the counts are at least these.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub namespace: Namespace,
    pub number: u64,
    pub owner: Owner,
    pub adapter: Adapter,
    pub on_disconnect: OnDisconnect,
    pub attached: bool,
    pub recovering: bool,
    pub opened_at: Timestamp,
    pub ttl: Millis,
    pub deadline: Timestamp,
    pub grants: usize,
    pub waiters: usize,
    pub metadata: Option<Arc<str>>,
}

/// A fence register and the highest token it has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterView {
    pub name: RegisterName,
    pub high_water: FencingToken,
}

/// The wait-for graph: holders, waiters, and the edges between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    pub holds: Vec<Holder>,
    pub waits: Vec<GraphWait>,
    /// Circles in the graph; empty unless something is wrong with the rules.
    pub cycles: Vec<Arc<[WaitEdge]>>,
    /// Some of it was left out: there is more than can be looked at in one go.
    pub truncated: bool,
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphWait {
    pub waiter: Owner,
    pub ticket: Ticket,
    pub scope: Scope,
    pub mode: Mode,
    /// Owners in the way: holders first, then the waiters right ahead.
    pub blockers: Vec<Owner>,
    pub waited: Duration,
}

/// The overview of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    pub grants: usize,
    pub sessions: usize,
    pub waiters: usize,
    /// Those who have waited longest.
    pub longest_waits: Vec<WaiterView>,
    /// Holders whose leases end soonest.
    pub next_to_lapse: Vec<Holder>,
    /// Leases were left out of the search: there are too many to look at all of them.
    pub is_partial: bool,
    pub revision: Revision,
}

/// The part of the tree of names to list, and the position to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeQuery {
    pub namespace: Namespace,
    /// Canonical texts that start with this; a whole part, so it is empty or ends in `/` or `:`.
    pub prefix: String,
    /// The last branch of the page before.
    pub after: Option<String>,
    pub len_max: usize,
    /// The most locks that may be counted for one page.
    pub looked_at_max: usize,
}

/// All that is held and whose text goes on alike after a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// A lock's canonical text, or the beginning of several, up to and including the next `/`.
    pub text: String,
    pub is_lock: bool,
    /// The number of held locks.
    pub locks: usize,
    /// There are more than were counted.
    pub is_partial: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub branches: Vec<Branch>,
    /// Set when there may be more: ask after the last branch.
    pub has_more: bool,
    pub revision: Revision,
}

/// Numbers about the whole table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub epoch: Epoch,
    pub revision: Revision,
    pub fence: FencingToken,
    pub namespaces: usize,
    /// Grants, those in a reclaim window too.
    pub grants: usize,
    /// Grants whose lease is not over.
    pub held: usize,
    pub leases: usize,
    pub sessions: usize,
    pub recovering: usize,
    pub waiters: usize,
    /// Places kept for callers who are away.
    pub kept_places: usize,
    /// Grants whose lease is not over, by namespace and kind.
    pub kinds: Vec<(Namespace, ScopeKind, usize)>,
    /// The same by namespace and mode, as in [`Mode::KINDS`].
    pub modes: Vec<(Namespace, &'static str, usize)>,
    /// Open sessions by adapter.
    pub adapters: Vec<(Adapter, usize)>,
}

/// The recovery grace, while it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceView {
    pub strict: bool,
    /// Whether it is known who held what; otherwise a reclaim is believed.
    pub is_known: bool,
    pub ends_at: Timestamp,
    /// Leases of the last epoch that have not come back yet.
    pub expected: usize,
}
