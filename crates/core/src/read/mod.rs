//! Reads: who holds what, who waits, is this fence still good. Nothing here changes anything.

mod graph;
mod holder;
mod holding;
mod list;
mod overview;
mod sessions;
mod tree;
pub(crate) mod view;

use view::{Check, GraceView, LockState, LockView, Stats, Tested};

use crate::budget::{Budget, LOOK_STEPS};
use crate::command::{Claim, GracePolicy};
use crate::conflict::{Asker, Blocker, Want};
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner, Ticket};
use crate::inode::Party;
use crate::mode::Mode;
use crate::namespace::NamespaceIdx;
use crate::range::ByteRange;
use crate::refusal::{Gone, Refusal};
use crate::scope::{Scope, ScopeKind};
use crate::table::LockTable;

pub use holder::{Holder, HolderState};

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
