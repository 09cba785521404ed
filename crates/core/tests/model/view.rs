//! What can be seen of the model, in the words of the real table.

use super::conflict::{Asker, View};
use super::{Held, Lease, LeaseState, Model, Waiter};
use leasehold_core::*;

impl Model {
    pub(crate) fn holder(&self, held: &Held) -> Holder {
        let lease = self.lease_of(held);
        Holder {
            scope: held.scope.clone(),
            owner: held.owner.clone(),
            mode: held.mode,
            fence: held.fence(),
            since: held.granted_at,
            ttl: lease.ttl,
            deadline: held.window_until.unwrap_or(lease.deadline),
            state: self.state_of(held),
            reclaim_window: held.window,
            session: lease.session.as_ref().map(|session| session.terms.number),
            metadata: held.metadata.clone(),
        }
    }

    /// One scope: everything held that overlaps it, and everybody who waits for anything that does.
    pub(crate) fn get(&self, namespace: &Namespace, scope: &Scope) -> LockView {
        let held = self.held.iter().filter(|held| held.namespace == *namespace);
        let held = held.filter(|held| held.scope.overlaps(scope));
        let mut holders: Vec<Holder> = held.map(|held| self.holder(held)).collect();
        holders.sort_by(|one, other| (one.fence, &one.scope).cmp(&(other.fence, &other.scope)));
        let waiters: Vec<WaiterView> =
            self.waiting(namespace).filter_map(|waiter| waiter_view(waiter, scope)).collect();
        LockView {
            scope: scope.clone(),
            state: state_of(&holders),
            holders_len: holders.len(),
            last_fence: self.last_fence(namespace, scope),
            holders,
            waiters_len: waiters.len(),
            truncated: false,
            waiters,
            revision: self.revision,
        }
    }

    pub(crate) fn session_views(&self, namespace: &Namespace) -> Vec<SessionView> {
        let leases = self.leases.iter().filter(|lease| lease.namespace == *namespace);
        let mut views: Vec<SessionView> =
            leases.filter_map(|lease| self.session_view(lease)).collect();
        views.sort_by_key(|view| view.number);
        views
    }

    fn session_view(&self, lease: &Lease) -> Option<SessionView> {
        let session = lease.session.as_ref()?;
        let under = |waiter: &&Waiter| {
            waiter.ask.namespace == lease.namespace && waiter.ask.under == Under::Session(lease.id)
        };
        Some(SessionView {
            namespace: lease.namespace.clone(),
            number: session.terms.number,
            owner: lease.owner.clone(),
            adapter: session.terms.adapter.clone(),
            on_disconnect: session.terms.on_disconnect,
            attached: session.attached,
            recovering: lease.state == LeaseState::Recovering,
            opened_at: session.opened_at,
            ttl: lease.ttl,
            deadline: lease.deadline,
            grants: self.grants_under(&lease.namespace, lease.id).count(),
            waiters: self.waiters.iter().filter(under).count(),
            metadata: session.terms.metadata.clone(),
        })
    }

    pub(crate) fn registers(&self, namespace: &Namespace) -> Vec<RegisterView> {
        let here = self.registers.iter().filter(|register| register.namespace == *namespace);
        let mut registers: Vec<RegisterView> = here
            .map(|register| RegisterView {
                name: register.name.clone(),
                high_water: register.high_water,
            })
            .collect();
        registers.sort_by(|one, other| one.name.cmp(&other.name));
        registers
    }

    /// The first moment at which a tick would find something to do: past the earliest of all deadlines.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let leases = self.leases.iter().filter(|lease| lease.state != LeaseState::Lapsed);
        let leases = leases.map(|lease| lease.deadline);
        let waits = self.waiters.iter().filter_map(|waiter| waiter.until);
        let waits = waits.chain(self.kept.iter().map(|kept| kept.until));
        let windows = self.held.iter().filter_map(|held| held.window_until);
        let grace = self.grace.map(|grace| grace.ends_at);
        let first = leases.chain(waits).chain(windows).chain(grace).min()?;
        Some(first.plus(Millis::new(1)))
    }

    pub(crate) fn stats(&self) -> Stats {
        let standing = || self.leases.iter().filter(|lease| lease.state != LeaseState::Lapsed);
        Stats {
            epoch: self.epoch,
            revision: self.revision,
            fence: self.fence,
            namespaces: self.namespaces().len(),
            grants: self.held.len(),
            held: self.held_now().count(),
            leases: self.leases.len(),
            sessions: standing().filter(|lease| lease.session.is_some()).count(),
            recovering: self.recovering(),
            waiters: self.waiters.len(),
            kept_places: self.kept.len(),
            kinds: self.kinds(),
            modes: self.modes(),
            adapters: self.adapters(),
        }
    }

    fn held_now(&self) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(|held| {
            let lease = self.lease(&held.namespace, held.lease);
            lease.is_some_and(|lease| lease.state != LeaseState::Lapsed)
        })
    }

    fn modes(&self) -> Vec<(Namespace, &'static str, usize)> {
        let of = |namespace: &Namespace, mode: &str| {
            self.held_now().filter(|h| h.namespace == *namespace && h.mode.kind() == mode).count()
        };
        let names: std::collections::BTreeSet<Namespace> =
            self.held.iter().map(|held| held.namespace.clone()).collect();
        let all = names.iter().flat_map(|name| Mode::KINDS.map(|mode| (name.clone(), mode)));
        all.map(|(name, mode)| (name.clone(), mode, of(&name, mode)))
            .filter(|(_, _, len)| *len > 0)
            .collect()
    }

    fn adapters(&self) -> Vec<(Adapter, usize)> {
        let mut adapters = std::collections::BTreeMap::new();
        for lease in self.leases.iter().filter(|lease| lease.state != LeaseState::Lapsed) {
            if let Some(session) = &lease.session {
                *adapters.entry(session.terms.adapter.clone()).or_insert(0) += 1;
            }
        }
        adapters.into_iter().collect()
    }

    fn kinds(&self) -> Vec<(Namespace, ScopeKind, usize)> {
        let mut kinds: Vec<(Namespace, ScopeKind, usize)> = Vec::new();
        for held in self.held_now() {
            let kind = held.scope.kind();
            match kinds.iter_mut().find(|(n, k, _)| *n == held.namespace && *k == kind) {
                Some((_, _, len)) => *len += 1,
                None => kinds.push((held.namespace.clone(), kind, 1)),
            }
        }
        kinds.sort();
        kinds
    }

    pub(crate) fn grace_view(&self) -> Option<GraceView> {
        self.grace.map(|grace| GraceView {
            strict: grace.policy != GracePolicy::Conflicting,
            is_known: grace.policy != GracePolicy::StrictUnknown,
            ends_at: grace.ends_at,
            expected: self.recovering(),
        })
    }

    /// `F_GETLK`, "what a try would say": whether anything is in its way, and the first holder by place and fence.
    pub(crate) fn test(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        lease: Option<LeaseId>,
        claim: &Claim,
    ) -> Result<Tested, Refusal> {
        if let Some(grace) = self.grace.filter(|_| self.strict_grace()) {
            let ends_in = grace.ends_at.since(self.now);
            return Err(Refusal::GracePeriod { ends_in });
        }
        let asker = Asker { namespace, owner, lease };
        let in_the_way = self.blockers(asker, claim, Ticket(u64::MAX), View::Arriving);
        let holders = in_the_way.holders.iter().map(|held| self.holder(held));
        let conflict =
            holders.min_by(|one, other| (&one.scope, one.fence).cmp(&(&other.scope, other.fence)));
        self.check_limit_agrees(namespace, claim)?;
        Ok(Tested { free: in_the_way.none(), conflict, truncated: false })
    }

    /// "Is this token still good?": it was stamped on something that stands and covers the scope. Of fences that
    /// merged into a piece all are good with the right lease; without it, only the one that others are shown.
    pub(crate) fn check(
        &self,
        namespace: &Namespace,
        scope: &Scope,
        fence: FencingToken,
        lease: Option<LeaseId>,
    ) -> bool {
        self.held.iter().any(|held| {
            let stamped = match lease {
                None => fence == held.fence(),
                Some(id) => id == held.lease && held.fences.contains(&fence),
            };
            held.namespace == *namespace
                && stamped
                && covers(&held.scope, scope)
                && held.window_until.is_none()
                && self.now <= self.lease_of(held).deadline
        })
    }

    /// Everything held that a query asks for, by canonical text: names in the order of their bytes, files by number
    /// and place in between.
    pub(crate) fn list(&self, query: &ListQuery) -> Vec<LockSummary> {
        let mut locks: Vec<LockSummary> = Vec::new();
        for held in self.held.iter().filter(|held| held.namespace == query.namespace) {
            let holder = self.holder(held);
            let is_wanted = query.owner.as_ref().is_none_or(|owner| *owner == holder.owner)
                && query.session.is_none_or(|number| holder.session == Some(number))
                && held.scope.to_string().starts_with(&query.prefix)
                && query.inode.is_none_or(|inode| held.scope.overlaps(&Scope::inode(inode)));
            if !is_wanted {
                continue;
            }
            let is_key = matches!(held.scope, Scope::Key(_));
            match locks.iter_mut().find(|lock| is_key && lock.scope == held.scope) {
                Some(lock) => lock.holders.push(holder),
                None => locks.push(self.summary(&query.namespace, holder)),
            }
        }
        for lock in &mut locks {
            lock.holders.sort_by_key(|holder| holder.fence);
            (lock.holders_len, lock.state) = (lock.holders.len(), state_of(&lock.holders));
        }
        locks.retain(|lock| query.state.is_none_or(|state| state == lock.state));
        locks.sort_by_key(|lock| (text_order(&lock.scope), lock.holders[0].fence));
        locks
    }

    fn summary(&self, namespace: &Namespace, holder: Holder) -> LockSummary {
        LockSummary {
            scope: holder.scope.clone(),
            state: LockState::Free,
            waiters_len: self.waiting_for(namespace, &holder.scope).count(),
            holders_len: 1,
            truncated: false,
            holders: vec![holder],
        }
    }

    /// Who waits for what, and the owners in the way.
    pub(crate) fn waits(&self, namespace: &Namespace) -> Vec<GraphWait> {
        let mut waits = Vec::new();
        for waiter in self.waiting(namespace) {
            for claim in &waiter.ask.claims {
                let ask = &waiter.ask;
                let in_the_way = self.queued_blockers(waiter, claim);
                let holders = in_the_way.holders.iter().map(|held| held.owner.clone());
                let earlier = in_the_way.waiters.iter().map(|waiter| waiter.ask.owner.clone());
                let mut blockers: Vec<Owner> = holders.chain(earlier).collect();
                blockers.sort();
                blockers.dedup();
                waits.push(GraphWait {
                    waiter: ask.owner.clone(),
                    ticket: waiter.ticket,
                    scope: claim.scope.clone(),
                    mode: claim.mode,
                    blockers,
                    waited: self.now.since(waiter.since),
                });
            }
        }
        waits
    }
}

/// Whether holding one scope is holding all of the other.
pub(crate) fn covers(held: &Scope, asked: &Scope) -> bool {
    match (held, asked) {
        (Scope::Range { inode, range }, Scope::Range { inode: i, range: r }) => {
            inode == i && range.covers(*r)
        }
        (Scope::Key(held), Scope::Key(asked)) => {
            held == asked || is_above(held.as_str(), asked.as_str())
        }
        (Scope::Key(_), Scope::Range { .. }) | (Scope::Range { .. }, Scope::Key(_)) => false,
    }
}

/// Whether a subtree has a path or subtree in it.
fn is_above(held: &str, asked: &str) -> bool {
    let Some(root) = held.strip_suffix("/**") else {
        return false;
    };
    held.starts_with("path:") && (asked == root || asked.starts_with(&format!("{root}/")))
}

fn text_order(scope: &Scope) -> (Vec<u8>, u64, u64, u64) {
    match scope {
        Scope::Key(key) => (key.as_str().into(), 0, 0, 0),
        Scope::Range { inode, range } => ("inode:".into(), *inode, range.start(), range.last()),
    }
}

/// A waiter as seen from one scope: by the first of its claims that overlaps it.
fn waiter_view(waiter: &Waiter, scope: &Scope) -> Option<WaiterView> {
    let claim = waiter.ask.claims.iter().find(|claim| claim.scope.overlaps(scope))?;
    Some(WaiterView {
        owner: waiter.ask.owner.clone(),
        scope: claim.scope.clone(),
        mode: claim.mode,
        ticket: waiter.ticket,
        since: waiter.since,
        deadline: waiter.until,
    })
}

/// The firmest of the holders.
fn state_of(holders: &[Holder]) -> LockState {
    let has = |state| holders.iter().any(|holder| holder.state == state);
    if has(HolderState::Held) {
        LockState::Held
    } else if has(HolderState::Recovering) {
        LockState::Recovering
    } else if has(HolderState::ReclaimWindow) {
        LockState::ReclaimWindow
    } else {
        LockState::Free
    }
}
