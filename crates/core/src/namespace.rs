//! One namespace: who holds what in it, and who waits. Two namespaces share nothing, so they cannot meet.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use crate::command::{Acquire, Claim};
use crate::fencing_token::FencingToken;
use crate::id::{CallId, LeaseId, Namespace, Principal, RequestId, Ticket};
use crate::index::{Index, hash_words};
use crate::inode::{Inode, Party};
use crate::lease::{ByteRequest, Lease, LeaseIdx};
use crate::mode::Mode;
use crate::owners::{OwnerIdx, Owners};
use crate::queue::{InQueue, KeptPlace, Queue, Waiter};
use crate::quota::Usage;
use crate::scope::{Key, Scope, ScopeKind};
use crate::slab::Slab;
use crate::transition::Ending;

/// A namespace's number inside the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamespaceIdx(pub(crate) u32);

#[derive(Clone, Debug)]
pub(crate) struct NamespaceState {
    pub(crate) name: Namespace,
    seed: u64,
    pub(crate) owners: Owners,
    pub(crate) leases: Slab<Lease>,
    lease_ids: Index,
    /// The lease of each token that something held is shown with: once for each key, once for all bytes of a file.
    tokens: Index,
    /// Sessions by number.
    pub(crate) sessions: BTreeMap<u64, LeaseIdx>,
    /// Names, paths and subtrees that are held.
    pub(crate) held: BTreeMap<Key, Holders>,
    /// The paths and subtrees among them that are held in another mode than shared.
    pub(crate) unshared_paths: BTreeSet<Key>,
    /// The subtrees among them, so that looking above a path costs little where there are few.
    pub(crate) subtrees_held: BTreeSet<Key>,
    pub(crate) inodes: BTreeMap<u64, Inode>,
    pub(crate) grants_len: usize,
    /// The counts for quotas.
    pub(crate) usage: Usage,
    /// The number of them by kind.
    pub(crate) kinds: [usize; ScopeKind::ALL.len()],
    /// The number of them under a lease that is not over, by kind and kind of mode.
    pub(crate) standing: [[usize; Mode::KINDS.len()]; ScopeKind::ALL.len()],
    /// Leases that are over but for their reclaim windows.
    pub(crate) lapsed_len: usize,
    /// Leases that are over and cleared in turns.
    pub(crate) ending: BTreeMap<LeaseIdx, UnderWay>,

    /// Boxed: the map moves its values about.
    pub(crate) waiters: BTreeMap<Ticket, Box<Waiter>>,
    /// The queues of names, paths and subtrees.
    pub(crate) queues: BTreeMap<Key, Queue>,
    pub(crate) subtrees_queued: usize,
    pub(crate) waits: BTreeSet<(OwnerIdx, Ticket)>,
    /// The waiters whose grant is to stand under a lease that is there.
    pub(crate) waits_under: BTreeSet<(LeaseIdx, Ticket)>,
    /// The number of those, and the most they may come to hold, by lease.
    pub(crate) wanted_under: BTreeMap<LeaseIdx, WantedUnder>,
    pub(crate) calls: BTreeMap<CallId, Ticket>,
    /// Places of callers who are away; none of them is a waiter.
    pub(crate) kept: BTreeMap<Ticket, KeptPlace>,

    /// Request ids of what is held or waited for, or has a place kept.
    pub(crate) requests: BTreeMap<(OwnerIdx, RequestId), Known>,
}

/// The result of a request whose id came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Granted { lease: LeaseIdx, fence: FencingToken, digest: u64 },
    Opened { lease: LeaseIdx, digest: u64 },
    Waiting(Ticket),
    Kept(Ticket),
}

/// The end of a lease that is cleared in turns.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub(crate) ending: Ending,
    /// The number of grants under it when it ended.
    pub(crate) grants: usize,
}

/// The waiters whose grants are to stand under one lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedUnder {
    pub(crate) waiters: usize,
    pub(crate) room: usize,
    /// The number of them that ask for a reclaim window.
    pub(crate) windows: usize,
}

/// The most grants and pieces the claims can leave behind. Locking bytes inside an own range can leave two more.
pub(crate) fn room_for(claims: &[Claim]) -> usize {
    let each = claims.iter().map(|claim| match claim.scope {
        Scope::Key(_) => 1,
        Scope::Range { .. } => 2,
    });
    each.sum()
}

/// The holders of one name, path or subtree; all in the same mode. Nearly always one, so that one takes 16 bytes.
#[derive(Clone, Debug)]
pub(crate) enum Holders {
    One { fence: FencingToken, lease: LeaseIdx, mode: PackedMode },
    Many(Box<ManyHolders>),
}

#[derive(Clone, Debug)]
pub(crate) struct ManyHolders {
    mode: Mode,
    by_fence: BTreeMap<FencingToken, LeaseIdx>,
}

/// A mode in four bytes, never zero: the limit, or one of the two highest numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedMode(NonZeroU32);

impl PackedMode {
    const EXCLUSIVE: NonZeroU32 = NonZeroU32::MAX;
    const SHARED: NonZeroU32 = NonZeroU32::new(u32::MAX - 1).expect("is not zero");

    fn new(mode: Mode) -> PackedMode {
        PackedMode(match mode {
            Mode::Exclusive => PackedMode::EXCLUSIVE,
            Mode::Shared => PackedMode::SHARED,
            Mode::Permits(limit) => limit,
        })
    }

    fn mode(self) -> Mode {
        match self.0 {
            PackedMode::EXCLUSIVE => Mode::Exclusive,
            PackedMode::SHARED => Mode::Shared,
            limit => Mode::Permits(limit),
        }
    }
}

impl Holders {
    fn new(mode: Mode, fence: FencingToken, lease: LeaseIdx) -> Holders {
        Holders::One { fence, lease, mode: PackedMode::new(mode) }
    }

    pub(crate) fn mode(&self) -> Mode {
        match self {
            Holders::One { mode, .. } => mode.mode(),
            Holders::Many(many) => many.mode,
        }
    }

    fn insert(&mut self, fence: FencingToken, lease: LeaseIdx) {
        match self {
            Holders::One { fence: first, lease: holder, mode } => {
                let by_fence = BTreeMap::from([(*first, *holder), (fence, lease)]);
                *self = Holders::Many(Box::new(ManyHolders { mode: mode.mode(), by_fence }));
            }
            Holders::Many(many) => {
                many.by_fence.insert(fence, lease);
            }
        }
    }

    /// Whether anything is left.
    fn remove(&mut self, fence: FencingToken) -> bool {
        match self {
            Holders::One { .. } => false,
            Holders::Many(many) => {
                many.by_fence.remove(&fence);
                !many.by_fence.is_empty()
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Holders::One { .. } => 1,
            Holders::Many(many) => many.by_fence.len(),
        }
    }

    /// The highest token among them.
    pub(crate) fn last_fence(&self) -> FencingToken {
        match self {
            Holders::One { fence, .. } => *fence,
            Holders::Many(many) => {
                many.by_fence.last_key_value().map_or(FencingToken::ZERO, |(&fence, _)| fence)
            }
        }
    }

    /// By token.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FencingToken, LeaseIdx)> {
        let (one, many) = match self {
            Holders::One { fence, lease, .. } => (Some((*fence, *lease)), None),
            Holders::Many(many) => (None, Some(&many.by_fence)),
        };
        let many = many.into_iter().flatten().map(|(&fence, &lease)| (fence, lease));
        one.into_iter().chain(many)
    }
}

impl NamespaceState {
    pub(crate) fn new(name: Namespace, seed: u64) -> NamespaceState {
        NamespaceState {
            name,
            seed,
            owners: Owners::new(seed),
            leases: Slab::default(),
            lease_ids: Index::new(),
            tokens: Index::new(),
            sessions: BTreeMap::new(),
            held: BTreeMap::new(),
            unshared_paths: BTreeSet::new(),
            subtrees_held: BTreeSet::new(),
            inodes: BTreeMap::new(),
            grants_len: 0,
            usage: Usage::default(),
            kinds: [0; ScopeKind::ALL.len()],
            standing: [[0; Mode::KINDS.len()]; ScopeKind::ALL.len()],
            lapsed_len: 0,
            ending: BTreeMap::new(),
            waiters: BTreeMap::new(),
            queues: BTreeMap::new(),
            subtrees_queued: 0,
            waits: BTreeSet::new(),
            waits_under: BTreeSet::new(),
            wanted_under: BTreeMap::new(),
            calls: BTreeMap::new(),
            kept: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leases.len() == 0 && self.waiters.is_empty() && self.kept.is_empty()
    }

    pub(crate) fn lease_no(&self, id: LeaseId) -> Option<LeaseIdx> {
        self.lease_ids
            .find(hash_words(self.seed, id.words()), |number| self.leases[number].id == id)
            .map(LeaseIdx)
    }

    /// The lease under which anything is held that is shown with this token.
    pub(crate) fn lease_of_token(&self, token: FencingToken) -> Option<LeaseIdx> {
        let is_it = |number| self.leases[number].held.is_shown_with(token);
        self.tokens.find(self.hash_of(token), is_it).map(LeaseIdx)
    }

    pub(crate) fn know_token(&mut self, token: FencingToken, lease: LeaseIdx) {
        self.tokens.insert(self.hash_of(token), lease.0);
    }

    pub(crate) fn forget_token(&mut self, token: FencingToken, lease: LeaseIdx) {
        self.tokens.remove(self.hash_of(token), lease.0);
    }

    fn hash_of(&self, token: FencingToken) -> u32 {
        hash_words(self.seed, [token.get(), 0])
    }

    pub(crate) fn is_of(&self, lease: LeaseIdx, principal: &Principal) -> bool {
        self.owners.name(self.lease(lease).owner).is_of(principal)
    }

    /// A lease whose holder may still act on it.
    pub(crate) fn live_lease(&self, id: LeaseId) -> Option<LeaseIdx> {
        let over = |lease: LeaseIdx| self.lease(lease).is_over();
        self.lease_no(id).filter(|&lease| !over(lease) || planted!("renewal-revives-lapsed-lease"))
    }

    pub(crate) fn lease(&self, lease: LeaseIdx) -> &Lease {
        &self.leases[lease.0]
    }

    pub(crate) fn lease_mut(&mut self, lease: LeaseIdx) -> &mut Lease {
        &mut self.leases[lease.0]
    }

    pub(crate) fn insert_lease(&mut self, lease: Lease) -> LeaseIdx {
        let id = lease.id;
        let number = self.leases.insert(lease);
        self.lease_ids.insert(hash_words(self.seed, id.words()), number);
        LeaseIdx(number)
    }

    /// The owner of the lease is still mentioned.
    pub(crate) fn remove_lease(&mut self, lease: LeaseIdx) -> Lease {
        let removed = self.leases.remove(lease.0);
        self.lapsed_len -= usize::from(removed.is_lapsed());
        self.ending.remove(&lease);
        self.lease_ids.remove(hash_words(self.seed, removed.id.words()), lease.0);
        removed
    }

    /// Whether anything under the lease may be taken back after it has lapsed.
    pub(crate) fn has_window(&self, lease: LeaseIdx) -> bool {
        self.lease(lease).held.shortest_window().is_some()
    }

    /// Whether what stands under the lease counts as held.
    pub(crate) fn counts(&self, lease: LeaseIdx) -> bool {
        self.ending.is_empty()
            || !self.lease(lease).is_ending()
            || planted!("ended-session-still-holds")
    }

    /// Whether the id of a request still leads to the grant with this token.
    pub(crate) fn leads_to(&self, known: &ByteRequest, token: FencingToken) -> bool {
        let key = (known.owner, known.request.id.clone());
        let found = self.requests.get(&key);
        matches!(found, Some(Known::Granted { fence, .. }) if *fence == token)
    }

    /// Forgets a request id, unless it has led to another grant since.
    pub(crate) fn forget_request(&mut self, owner: OwnerIdx, id: &RequestId, ended: FencingToken) {
        let key = (owner, id.clone());
        if let Some(Known::Granted { fence, .. }) = self.requests.get(&key)
            && *fence == ended
        {
            self.requests.remove(&key);
        }
    }

    /// The same for what a session was opened with.
    pub(crate) fn forget_opening(&mut self, owner: OwnerIdx, id: &RequestId, ended: LeaseIdx) {
        let key = (owner, id.clone());
        if let Some(Known::Opened { lease, .. }) = self.requests.get(&key)
            && *lease == ended
        {
            self.requests.remove(&key);
        }
    }

    /// Counts one grant or piece more, for [`LockTable::count_hold`](crate::LockTable).
    pub(crate) fn count_hold(
        &mut self,
        owner: OwnerIdx,
        lease: LeaseIdx,
        kind: ScopeKind,
        mode: Mode,
    ) {
        self.kinds[kind as usize] += 1;
        self.standing[kind as usize][mode.kind_no()] += usize::from(!self.lease(lease).is_lapsed());
        self.owners.count_hold(owner, lease);
        self.grants_len += 1;
    }

    /// Whether it was the owner's last one under the lease.
    pub(crate) fn uncount_hold(
        &mut self,
        owner: OwnerIdx,
        lease: LeaseIdx,
        kind: ScopeKind,
        mode: Mode,
    ) -> bool {
        self.kinds[kind as usize] -= 1;
        self.standing[kind as usize][mode.kind_no()] -= usize::from(!self.lease(lease).is_lapsed());
        self.grants_len -= 1;
        self.owners.uncount_hold(owner, lease)
    }

    /// Takes the grants under a lease that is about to be over out of the counts of those that stand.
    pub(crate) fn uncount_standing(&mut self, lease: LeaseIdx) {
        let held = &self.leases[lease.0].held;
        for grant in held.grants() {
            self.standing[grant.key.kind() as usize][grant.mode.kind_no()] -= 1;
        }
        for &(inode, owner, start) in held.pieces().into_iter().flatten() {
            let party = Party { owner, lease };
            let piece = &self.inodes[&inode].pieces[&(party, start)];
            let kind = Scope::range(inode, piece.range).kind();
            self.standing[kind as usize][piece.mode.kind_no()] -= 1;
        }
    }

    pub(crate) fn holds_anything(&self, owner: OwnerIdx) -> bool {
        self.owners.holds(owner).next().is_some()
    }

    /// An owner's waiters by place.
    pub(crate) fn waits_of(&self, owner: OwnerIdx) -> impl Iterator<Item = Ticket> + '_ {
        let all = (owner, Ticket(0))..=(owner, Ticket(u64::MAX));
        self.waits.range(all).map(|&(_, ticket)| ticket)
    }

    /// The waiters whose grant is to stand under this lease, by place.
    pub(crate) fn waits_under(&self, lease: LeaseIdx) -> impl Iterator<Item = Ticket> + '_ {
        let all = (lease, Ticket(0))..=(lease, Ticket(u64::MAX));
        self.waits_under.range(all).map(|&(_, ticket)| ticket)
    }

    /// Notes a waiter whose grant is to stand under a lease.
    pub(crate) fn wait_under(&mut self, lease: LeaseIdx, ticket: Ticket, request: &Acquire) {
        self.waits_under.insert((lease, ticket));
        let wanted = self.wanted_under.entry(lease).or_default();
        wanted.waiters += 1;
        wanted.room += room_for(&request.claims);
        wanted.windows += usize::from(!request.reclaim_window.is_zero());
    }

    pub(crate) fn no_longer_waits_under(
        &mut self,
        lease: LeaseIdx,
        ticket: Ticket,
        request: &Acquire,
    ) {
        self.waits_under.remove(&(lease, ticket));
        if let Some(wanted) = self.wanted_under.get_mut(&lease) {
            wanted.waiters -= 1;
            wanted.room -= room_for(&request.claims);
            wanted.windows -= usize::from(!request.reclaim_window.is_zero());
            if wanted.waiters == 0 {
                self.wanted_under.remove(&lease);
            }
        }
    }

    pub(crate) fn wanted_under(&self, lease: LeaseIdx) -> WantedUnder {
        self.wanted_under.get(&lease).copied().unwrap_or_default()
    }

    /// Remembers which grant a request id led to; of several, the newest.
    pub(crate) fn know_request(&mut self, owner: OwnerIdx, id: RequestId, granted: Known) {
        let newer = |before: &Known| match (before, granted) {
            (Known::Granted { fence: before, .. }, Known::Granted { fence, .. }) => *before < fence,
            (Known::Opened { .. }, _) => false,
            (Known::Granted { .. } | Known::Waiting(_) | Known::Kept(_), _) => true,
        };
        let key = (owner, id);
        if self.requests.get(&key).is_none_or(newer) {
            self.requests.insert(key, granted);
        }
    }

    pub(crate) fn add_holder(
        &mut self,
        key: &Key,
        mode: Mode,
        fence: FencingToken,
        lease: LeaseIdx,
    ) {
        self.know_token(fence, lease);
        match self.held.entry(key.clone()) {
            Entry::Occupied(mut holders) => {
                holders.get_mut().insert(fence, lease);
                return;
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Holders::new(mode, fence, lease));
            }
        }
        let kind = key.kind();
        if kind != ScopeKind::Named && mode != Mode::Shared {
            self.unshared_paths.insert(key.clone());
        }
        if kind == ScopeKind::Subtree {
            self.subtrees_held.insert(key.clone());
        }
    }

    pub(crate) fn remove_holder(&mut self, key: &Key, fence: FencingToken, lease: LeaseIdx) {
        self.forget_token(fence, lease);
        let Entry::Occupied(mut holders) = self.held.entry(key.clone()) else { return };
        if holders.get_mut().remove(fence) {
            return;
        }
        let mode = holders.remove().mode();
        let kind = key.kind();
        if kind != ScopeKind::Named && mode != Mode::Shared {
            self.unshared_paths.remove(key);
        }
        if kind == ScopeKind::Subtree {
            self.subtrees_held.remove(key);
        }
    }

    pub(crate) fn queue(&self, scope: &Scope) -> Option<&Queue> {
        match scope {
            Scope::Key(key) => self.queues.get(key),
            Scope::Range { inode, range } => self.inodes.get(inode)?.queues.get(range),
        }
    }

    /// Puts a waiter into the queue of every scope it claims.
    pub(crate) fn enqueue(&mut self, ticket: Ticket) {
        let waiter = &self.waiters[&ticket];
        let (owner, lease) = (waiter.owner, waiter.lease);
        let is_only_one = waiter.request.claims.len() == 1;
        for claim in waiter.request.claims.clone() {
            let place = InQueue { ticket, owner, lease, mode: claim.mode, is_only_one };
            match &claim.scope {
                Scope::Key(key) => self.enqueue_at_key(key, place),
                Scope::Range { inode, range } => {
                    let at = self.inodes.entry(*inode).or_default();
                    at.enqueue(*range, place);
                    self.entangle(owner, *inode, ticket);
                }
            }
        }
    }

    fn enqueue_at_key(&mut self, key: &Key, place: InQueue) {
        if !self.queues.contains_key(key) {
            self.queues.insert(key.clone(), Queue::default());
            self.subtrees_queued += usize::from(key.kind() == ScopeKind::Subtree);
        }
        self.queues.get_mut(key).expect("just made sure").insert(place);
    }

    /// Takes a waiter out of every queue; it stays in `waiters`.
    pub(crate) fn dequeue(&mut self, ticket: Ticket) {
        for claim in self.waiters[&ticket].request.claims.clone() {
            match &claim.scope {
                Scope::Key(key) => {
                    let Some(queue) = self.queues.get_mut(key) else {
                        continue;
                    };
                    queue.remove(ticket);
                    if queue.is_empty() {
                        self.queues.remove(key);
                        self.subtrees_queued -= usize::from(key.kind() == ScopeKind::Subtree);
                    }
                }
                Scope::Range { inode, range } => {
                    let Some(at) = self.inodes.get_mut(inode) else {
                        continue;
                    };
                    at.dequeue(*range, ticket);
                    self.drop_inode_if_empty(*inode);
                }
            }
        }
    }

    /// Marks an owner's waiters on a file once it holds bytes of it or has more than one of them.
    pub(crate) fn entangle(&mut self, owner: OwnerIdx, inode: u64, newest: Ticket) {
        let others: Vec<Ticket> = self.waits_of(owner).filter(|&t| t != newest).collect();
        let others_here = others.iter().any(|ticket| self.waits_on(*ticket, inode));
        let Some(at) = self.inodes.get(&inode) else {
            return;
        };
        if others_here || at.has_pieces_of(owner) {
            for ticket in others.into_iter().chain([newest]) {
                self.mark_entangled(ticket, inode);
            }
        }
    }

    /// Marks all of an owner's waiters on a file.
    pub(crate) fn entangle_all(&mut self, owner: OwnerIdx, inode: u64) {
        for ticket in self.waits_of(owner).collect::<Vec<_>>() {
            self.mark_entangled(ticket, inode);
        }
    }

    fn mark_entangled(&mut self, ticket: Ticket, inode: u64) {
        let Some(waiter) = self.waiters.get(&ticket) else { return };
        let Some(at) = self.inodes.get_mut(&inode) else {
            return;
        };
        for claim in &waiter.request.claims {
            if let Scope::Range { inode: i, range } = claim.scope
                && i == inode
            {
                at.entangle(range, ticket);
            }
        }
    }

    fn waits_on(&self, ticket: Ticket, inode: u64) -> bool {
        self.waiters.get(&ticket).is_some_and(|waiter| {
            let mut claims = waiter.request.claims.iter();
            claims.any(|claim| matches!(claim.scope, Scope::Range { inode: i, .. } if i == inode))
        })
    }

    pub(crate) fn drop_inode_if_empty(&mut self, inode: u64) {
        if self.inodes.get(&inode).is_some_and(Inode::is_empty) {
            self.inodes.remove(&inode);
        }
    }
}
