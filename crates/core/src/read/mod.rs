//! Reads: who holds what, who waits, is this fence still good. Nothing here changes anything.

mod holder;
mod list;
mod overview;
mod tree;
pub(crate) mod view;

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::budget::{Budget, Cut, LOOK_STEPS};
use crate::command::{Claim, GracePolicy};
use crate::conflict::{Asker, Blocker, Want};
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner, Principal, RegisterName, Ticket};
use crate::inode::Party;
use crate::lease::{Lease, LeaseIdx, LeaseState, metadata_of};
use crate::mode::Mode;
use crate::namespace::{Holders, NamespaceIdx, NamespaceState};
use crate::owners::OwnerSet;
use crate::range::ByteRange;
use crate::refusal::{Gone, Refusal};
use crate::scope::{Scope, ScopeKind};
use crate::table::LockTable;

pub use holder::{Holder, HolderState};
use view::{
    Check, GraceView, Graph, GraphWait, LockState, LockView, RegisterView, SessionView, Stats,
    Tested, WaiterView,
};

/// The budget of a look at the graph, in steps.
const GRAPH_STEPS: usize = 16_000;
/// The most grants it shows.
const GRAPH_HOLDS_MAX: usize = 2_000;

/// The most holders and waiters that a view of one lock names.
const NAMED_MAX: usize = 100;

impl LockTable {
    /// One scope: everything held that overlaps it, and every waiter for it.
    pub fn get(&self, namespace: &Namespace, scope: &Scope) -> LockView {
        let mut view = LockView {
            scope: scope.clone(),
            state: LockState::Free,
            holders: Vec::new(),
            holders_len: 0,
            waiters: Vec::new(),
            waiters_len: 0,
            last_fence: None,
            truncated: false,
            revision: self.revision,
        };
        view.last_fence = self.endings.last_fence(namespace, scope);
        let Some(space) = self.namespace_idx(namespace) else {
            return view;
        };
        let mut budget = Budget::new(LOOK_STEPS);
        let held = self.holding(space, scope, NAMED_MAX, &mut budget);
        view.holders_len = held.len;
        view.last_fence = view.last_fence.max(held.last_fence);
        view.holders = held.grants.iter().filter_map(|grant| self.holder(space, grant)).collect();
        let states = view.holders.iter().map(|holder| LockState::of(holder.state));
        view.state = states.min().unwrap_or(LockState::Free);
        let mut budget = Budget::new(LOOK_STEPS);
        let waiting = self.waiting_for(space, scope, NAMED_MAX, &mut budget);
        view.waiters_len = waiting.len;
        let waiters = waiting.tickets.iter().map(|&t| self.waiter_view(space, t, scope));
        view.waiters = waiters.collect();
        view.truncated = held.is_cut || waiting.is_cut;
        view
    }

    /// `F_GETLK`: whether a try would be granted now, and the first grant in its way, by place in the file or by fence.
    pub fn test(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        lease: Option<LeaseId>,
        claim: &Claim,
    ) -> Result<Tested, Refusal> {
        if let Some(grace) = self.grace.filter(|grace| grace.policy.is_strict()) {
            let ends_in = grace.ends_at.since(self.now);
            return Err(Refusal::GracePeriod { ends_in });
        }
        let Some(space) = self.namespace_idx(namespace) else {
            return Ok(Tested { free: true, conflict: None, truncated: false });
        };
        let at = self.space(space);
        let principal = owner.principal();
        let lease = lease.and_then(|id| at.live_lease(id));
        let lease = lease.filter(|&lease| at.is_of(lease, &principal));
        let owner = at.owners.find(owner);
        let asker = Asker { owner, lease, ticket: Ticket(u64::MAX), arriving: true };
        let mut found = at.blockers(claim, asker, Want::Some(LOOK_STEPS));
        let truncated = found.len() >= LOOK_STEPS;
        found.retain(|blocker| blocker.lease().is_none_or(|lease| at.counts(lease)));
        let places = found.iter().filter_map(|blocker| {
            let place = (blocker.scope()?, self.fence_of(space, blocker));
            Some((place, blocker))
        });
        let first = places.min_by(|(one, _), (other, _)| one.cmp(other));
        let conflict = first.and_then(|(_, blocker)| self.holder(space, blocker));
        self.check_limit_matches(space, claim)?;
        Ok(Tested { free: found.is_empty() && !truncated, conflict, truncated })
    }

    /// Whether this fence is a current holder's of the scope, and still good.
    pub fn check(
        &self,
        namespace: &Namespace,
        scope: &Scope,
        fence: FencingToken,
        lease: Option<LeaseId>,
    ) -> Check {
        let mut budget = Budget::new(LOOK_STEPS);
        let Some(space) = self.namespace_idx(namespace) else {
            let why = Some(self.why_not_held(namespace, scope, fence, lease, &mut budget));
            return Check { valid: false, why, holder: None, truncated: false };
        };
        let at = self.space(space);
        let (found, is_all) = self.grants_with(space, scope, fence, lease, &mut budget);
        let valid = found.iter().find(|grant| self.is_good(space, grant, scope, lease));
        let Some(grant) = valid.or(found.first()) else {
            let why = Some(self.why_not_held(namespace, scope, fence, lease, &mut budget));
            return Check { valid: false, why, holder: None, truncated: !is_all };
        };
        let holder = self.holder(space, grant);
        if valid.is_some() {
            return Check { valid: true, why: None, holder, truncated: false };
        }
        let held = grant.lease().map(|no| at.lease(no));
        let why = match held {
            Some(held) if lease.is_some_and(|id| held.id != id) => Gone::Unknown,
            Some(held) if held.is_over() || held.is_due(self.now) => Gone::Expired,
            Some(_) | None => Gone::OtherScope,
        };
        Check { valid: false, why: Some(why), holder, truncated: !is_all }
    }

    /// The grants of the scope with this token, by token and place, and whether those are all. Without the lease only the
    /// token that bytes are shown with is good for them.
    pub(crate) fn grants_with(
        &self,
        space: NamespaceIdx,
        scope: &Scope,
        fence: FencingToken,
        lease: Option<LeaseId>,
        budget: &mut Budget,
    ) -> (Vec<Blocker>, bool) {
        let at = self.space(space);
        let (mut found, mut is_all) = (Vec::new(), true);
        match scope {
            Scope::Key(asked) => {
                if let Some(lease) = at.lease_of_token(fence).filter(|&lease| at.counts(lease)) {
                    let held = &at.lease(lease).held;
                    let keys = held.stamped(fence).into_iter().filter(|key| key.overlaps(asked));
                    found.extend(keys.filter_map(|key| {
                        let owner = held.get(fence, &key)?.owner;
                        Some(Blocker::Grant { key, fence, lease, owner })
                    }));
                }
            }
            Scope::Range { inode, range } => {
                let Some(file) = at.inodes.get(inode) else { return (found, true) };
                // A piece that has all the bytes has the first.
                let first = ByteRange::inclusive(range.start(), range.start()).unwrap_or(*range);
                let all = file.overlapping(first).chain(file.overlapping(*range));
                for (Party { owner, lease: no }, piece) in all {
                    if budget.take(1).is_err() {
                        is_all = false;
                        break;
                    }
                    let fits = piece.fence() == fence || (lease.is_some() && piece.honours(fence));
                    if fits && at.counts(no) {
                        let (inode, range) = (*inode, piece.range);
                        found.push(Blocker::Piece { inode, range, lease: no, owner });
                    }
                }
            }
        }
        found.sort_by_cached_key(|grant| (self.fence_of(space, grant), grant.scope()));
        found.dedup();
        (found, is_all)
    }

    /// Whether a grant gives its holder all of the scope, and stands under this lease.
    fn is_good(
        &self,
        space: NamespaceIdx,
        grant: &Blocker,
        scope: &Scope,
        lease: Option<LeaseId>,
    ) -> bool {
        let at = self.space(space);
        let covers = match (grant, scope) {
            (Blocker::Grant { key, .. }, Scope::Key(asked)) => key == asked || covers(key, asked),
            (Blocker::Piece { range, .. }, Scope::Range { range: asked, .. }) => {
                range.covers(*asked)
            }
            (Blocker::Grant { .. } | Blocker::Piece { .. } | Blocker::Waiter { .. }, _) => false,
        };
        let held = grant.lease().map(|no| at.lease(no));
        let good = held.is_some_and(|held| {
            !held.is_over() && !held.is_due(self.now) && lease.is_none_or(|id| held.id == id)
        });
        covers && good
    }

    /// The high-water mark of a fence register.
    pub fn register(&self, namespace: &Namespace, register: &RegisterName) -> Option<FencingToken> {
        self.registers.get(namespace, register)
    }

    /// Fence registers by name, from the one after `after` on.
    pub fn registers(
        &self,
        namespace: &Namespace,
        after: Option<&RegisterName>,
        len_max: usize,
    ) -> Vec<RegisterView> {
        self.registers.page(namespace, after, len_max)
    }

    /// Whether there is such a lease, and its holder may still act on it.
    pub fn is_live(&self, namespace: &Namespace, id: LeaseId) -> bool {
        self.space_named(namespace).is_some_and(|space| space.live_lease(id).is_some())
    }

    /// A session of this principal.
    pub fn session(
        &self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
    ) -> Option<SessionView> {
        let space = self.space_named(namespace)?;
        let lease = space.live_lease(id).filter(|&lease| space.is_of(lease, principal))?;
        session_view(space, lease)
    }

    /// Sessions by number, from the one after `after` on.
    pub fn sessions(&self, namespace: &Namespace, after: u64, len_max: usize) -> Vec<SessionView> {
        let Some(space) = self.space_named(namespace) else {
            return Vec::new();
        };
        let open = space.sessions.range((Excluded(after), Unbounded));
        open.filter_map(|(_, &lease)| session_view(space, lease)).take(len_max).collect()
    }

    /// Those who wait, whom they wait for, and what those hold; at most `waits_max` waits, oldest first. Of the waiters in
    /// the way only those right ahead are named: whoever stands further ahead is in the way of those.
    pub fn graph(&self, namespace: &Namespace, waits_max: usize) -> Graph {
        let revision = self.revision;
        let mut graph = Graph {
            holds: Vec::new(),
            waits: Vec::new(),
            cycles: Vec::new(),
            truncated: false,
            revision,
        };
        let Some(space) = self.namespace_idx(namespace) else {
            return graph;
        };
        let at = self.space(space);
        let mut budget = Budget::new(GRAPH_STEPS);
        let (waits, truncated) = at.first_waits(waits_max, &mut budget);
        graph.truncated = truncated;
        let mut scopes: Vec<&Scope> = waits.iter().map(|wait| wait.scope).collect();
        graph.waits = waits
            .iter()
            .map(|wait| GraphWait {
                waiter: wait.waiter.request.owner.clone(),
                ticket: wait.ticket,
                mode: wait.mode,
                blockers: wait.blockers.iter().map(|&no| at.owners.name(no).clone()).collect(),
                waited: self.now.since(wait.waiter.since),
                scope: wait.scope.clone(),
            })
            .collect();
        scopes.sort_unstable();
        scopes.dedup();
        let cut = self.add_holds(space, &scopes, &mut graph, &mut budget).is_err();
        graph.truncated |= cut || self.add_cycles(space, &mut graph, &mut budget).is_err();
        graph
    }

    /// Adds the holders of these scopes.
    fn add_holds(
        &self,
        space: NamespaceIdx,
        scopes: &[&Scope],
        graph: &mut Graph,
        budget: &mut Budget,
    ) -> Result<(), Cut> {
        let mut known: BTreeSet<(FencingToken, Scope)> = BTreeSet::new();
        for scope in scopes {
            let left = budget.left().min(GRAPH_HOLDS_MAX.saturating_sub(graph.holds.len()));
            let max = NAMED_MAX.min(left);
            let (found, is_all) = self.first_grants_overlapping(space, scope, max);
            budget.take(1 + found.len())?;
            for holder in found.iter().filter_map(|grant| self.holder(space, grant)) {
                if known.insert((holder.fence, holder.scope.clone())) {
                    graph.holds.push(holder);
                }
            }
            graph.truncated |= !is_all;
        }
        Ok(())
    }

    fn add_cycles(
        &self,
        space: NamespaceIdx,
        graph: &mut Graph,
        budget: &mut Budget,
    ) -> Result<(), Cut> {
        let at = self.space(space);
        let mut told = OwnerSet::default();
        for owner in at.stuck_owners(budget)? {
            if !told.contains(owner)
                && let Some(cycle) = at.find_cycle(owner, None, budget)?
            {
                for owner in cycle.owners() {
                    told.insert(owner);
                }
                graph.cycles.push(cycle.edges(at));
            }
        }
        Ok(())
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            epoch: self.epoch,
            revision: self.revision,
            fence: self.fence,
            sessions: self.sessions.values().sum(),
            adapters: self.sessions.iter().map(|(name, len)| (name.clone(), *len)).collect(),
            recovering: self.recovering,
            ..Stats::default()
        };
        for (_, space) in self.spaces_by_name() {
            stats.namespaces += usize::from(!space.is_empty());
            stats.grants += space.grants_len;
            stats.leases += space.leases.len();
            stats.waiters += space.waiters.len();
            stats.kept_places += space.kept.len();
            for (&kind, modes) in ScopeKind::ALL.iter().zip(space.standing) {
                let len = modes.iter().sum();
                stats.held += len;
                if len > 0 {
                    stats.kinds.push((space.name.clone(), kind, len));
                }
            }
            for (no, mode) in Mode::KINDS.into_iter().enumerate() {
                let len = space.standing.iter().map(|modes| modes[no]).sum();
                if len > 0 {
                    stats.modes.push((space.name.clone(), mode, len));
                }
            }
        }
        stats
    }

    /// The recovery grace, if one is on.
    pub fn grace(&self) -> Option<GraceView> {
        self.grace.map(|grace| GraceView {
            strict: grace.policy.is_strict(),
            is_known: grace.policy != GracePolicy::StrictUnknown,
            ends_at: grace.ends_at,
            expected: self.recovering,
        })
    }

    /// A grant as others may see it; `None` for a waiter.
    pub(crate) fn holder(&self, space: NamespaceIdx, grant: &Blocker) -> Option<Holder> {
        let at = self.space(space);
        match grant {
            Blocker::Waiter { .. } => None,
            Blocker::Grant { key, fence, lease, owner } => {
                let held = at.lease(*lease);
                let grant = held.held.get(*fence, key)?;
                Some(Holder {
                    scope: Scope::Key(key.clone()),
                    owner: at.owners.name(*owner).clone(),
                    mode: grant.mode,
                    fence: *fence,
                    since: grant.granted_at,
                    ttl: held.ttl,
                    deadline: self.deadline_shown(held, grant.reclaim_window),
                    state: self.holder_state(held),
                    reclaim_window: grant.reclaim_window,
                    session: held.session.as_ref().map(|session| session.terms.number),
                    metadata: metadata_of(grant.extra.as_deref()),
                })
            }
            Blocker::Piece { inode, range, lease, owner } => {
                let held = at.lease(*lease);
                let party = Party { owner: *owner, lease: *lease };
                let piece = at.inodes.get(inode)?.pieces.get(&(party, range.start()))?;
                Some(Holder {
                    scope: Scope::range(*inode, piece.range),
                    owner: at.owners.name(*owner).clone(),
                    mode: piece.mode,
                    fence: piece.fence(),
                    since: piece.granted_at,
                    ttl: held.ttl,
                    deadline: self.deadline_shown(held, piece.reclaim_window),
                    state: self.holder_state(held),
                    reclaim_window: piece.reclaim_window,
                    session: held.session.as_ref().map(|session| session.terms.number),
                    metadata: piece.metadata.clone(),
                })
            }
        }
    }

    fn deadline_shown(&self, held: &Lease, window: crate::time::Millis) -> crate::time::Timestamp {
        if held.is_lapsed() { held.deadline.plus(window) } else { held.deadline }
    }

    /// Once the grace is over, a grant that has not been heard of is simply a grant.
    pub(crate) fn holder_state(&self, held: &Lease) -> HolderState {
        match held.state {
            LeaseState::Recovering if self.grace.is_some() => HolderState::Recovering,
            LeaseState::Live | LeaseState::Recovering | LeaseState::Ending => HolderState::Held,
            LeaseState::Lapsed(_) => HolderState::ReclaimWindow,
        }
    }

    pub(crate) fn fence_of(&self, space: NamespaceIdx, grant: &Blocker) -> FencingToken {
        match grant {
            Blocker::Grant { fence, .. } => *fence,
            Blocker::Piece { inode, range, owner, lease } => {
                let party = Party { owner: *owner, lease: *lease };
                self.space(space).inodes[inode].pieces[&(party, range.start())].fence()
            }
            Blocker::Waiter { .. } => FencingToken::ZERO,
        }
    }

    /// The holders of a scope, reclaim windows too; the first `named_max` of them by token.
    pub(crate) fn holding(
        &self,
        space: NamespaceIdx,
        scope: &Scope,
        named_max: usize,
        budget: &mut Budget,
    ) -> Holding {
        let at = self.space(space);
        let mut found = Holding::default();
        match scope {
            Scope::Key(key) => {
                for (key, holders) in at.holders_overlapping(key, Mode::Exclusive) {
                    let named = named_max.min(holders.len());
                    found.is_cut = budget.take(1 + named).is_err();
                    if found.is_cut {
                        break;
                    }
                    found.len += at.counted(holders, budget);
                    found.last_fence = found.last_fence.max(Some(holders.last_fence()));
                    found.grants.extend(at.grants_on(key, holders).take(named));
                }
            }
            Scope::Range { inode, range } => {
                let file = at.inodes.get(inode);
                for (Party { owner, lease }, piece) in
                    file.into_iter().flat_map(|file| file.overlapping(*range))
                {
                    found.is_cut = budget.take(1).is_err();
                    if found.is_cut {
                        break;
                    }
                    found.last_fence = found.last_fence.max(Some(piece.fence()));
                    if !at.counts(lease) {
                        continue;
                    }
                    found.len += 1;
                    if named_max > 0 {
                        let (inode, range) = (*inode, piece.range);
                        found.grants.push(Blocker::Piece { inode, range, lease, owner });
                    }
                }
                if *range == ByteRange::ALL && at.ending.is_empty() {
                    found.len = file.map_or(0, |file| file.pieces.len());
                }
            }
        }
        found.grants.sort_by_cached_key(|grant| (self.fence_of(space, grant), grant.scope()));
        found.grants.truncate(named_max);
        found
    }

    /// Those who wait for anything that overlaps the scope; of them the first `named_max` by place.
    pub(crate) fn waiting_for(
        &self,
        space: NamespaceIdx,
        scope: &Scope,
        named_max: usize,
        budget: &mut Budget,
    ) -> Waiting {
        let mut found = Waiting::default();
        let mut queues = Vec::new();
        for queue in self.space(space).queues_for(scope) {
            found.is_cut = budget.take(1).is_err();
            if found.is_cut {
                break;
            }
            found.len += queue.len();
            queues.push(queue);
        }
        // Who stands in one queue alone is counted once.
        let counts_each = queues.len() > 1 && queues.iter().any(|queue| queue.has_sets());
        let taken_max = if counts_each { usize::MAX } else { named_max };
        for queue in queues {
            for (ticket, _) in queue.iter().take(taken_max) {
                if budget.take(1).is_err() {
                    found.is_cut = true;
                    break;
                }
                found.tickets.push(ticket);
            }
        }
        found.tickets.sort_unstable();
        found.tickets.dedup();
        if counts_each && !found.is_cut {
            found.len = found.tickets.len();
        }
        found.tickets.truncate(named_max);
        found
    }

    pub(crate) fn waiter_view(
        &self,
        space: NamespaceIdx,
        ticket: Ticket,
        scope: &Scope,
    ) -> WaiterView {
        let waiter = &self.space(space).waiters[&ticket];
        let claims = &waiter.request.claims;
        let claim = claims.iter().find(|claim| claim.scope.overlaps(scope)).unwrap_or(&claims[0]);
        WaiterView {
            owner: waiter.request.owner.clone(),
            scope: claim.scope.clone(),
            mode: claim.mode,
            ticket,
            since: waiter.since,
            deadline: waiter.deadline,
        }
    }
}

/// The holders of a scope, as far as a look goes.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// The first of it, by token.
    pub(crate) grants: Vec<Blocker>,
    pub(crate) len: usize,
    pub(crate) last_fence: Option<FencingToken>,
    /// There is more than was looked at.
    pub(crate) is_cut: bool,
}

/// Those who wait for a scope, as far as a look goes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The first of them, by place.
    tickets: Vec<Ticket>,
    pub(crate) len: usize,
    pub(crate) is_cut: bool,
}

impl NamespaceState {
    /// The number of the holders of a key that count, as far as the budget goes.
    fn counted(&self, holders: &Holders, budget: &mut Budget) -> usize {
        if self.ending.is_empty() {
            return holders.len();
        }
        let looked_at = holders.iter().take_while(|_| budget.take(1).is_ok());
        looked_at.filter(|&(_, lease)| self.counts(lease)).count()
    }
}

impl LockState {
    /// The state of a lock with this holder; of several holders the first in order counts.
    pub(crate) fn of(holder: HolderState) -> LockState {
        match holder {
            HolderState::Held => LockState::Held,
            HolderState::Recovering => LockState::Recovering,
            HolderState::ReclaimWindow => LockState::ReclaimWindow,
        }
    }
}

/// Whether a held key gives its holder all of `asked`.
pub(crate) fn covers(key: &crate::scope::Key, asked: &crate::scope::Key) -> bool {
    asked.covering_subtrees().iter().any(|text| &text[..] == key.text().as_bytes())
}

fn session_view(space: &NamespaceState, number: LeaseIdx) -> Option<SessionView> {
    let lease = space.lease(number);
    let session = lease.session.as_ref()?;
    Some(SessionView {
        namespace: space.name.clone(),
        number: session.terms.number,
        owner: space.owners.name(lease.owner).clone(),
        adapter: session.terms.adapter.clone(),
        on_disconnect: session.terms.on_disconnect,
        attached: session.attached,
        recovering: lease.state == LeaseState::Recovering,
        opened_at: session.opened_at,
        ttl: lease.ttl,
        deadline: lease.deadline,
        grants: lease.held.len(),
        waiters: space.wanted_under(number).waiters,
        metadata: session.terms.metadata.clone(),
    })
}
