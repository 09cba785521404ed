//! How things end: a lease with all under it, what one fence stands for, or some bytes of a file.

use super::range::range_of;
use super::{Held, Lease, Model, Set, Waiter};
use leasehold_core::*;

impl Model {
    /// The lease and everything under it ends; nothing has a window.
    pub(crate) fn end_lease(&mut self, namespace: &Namespace, id: LeaseId, ending: &Ending) {
        self.fail_waiters_of(namespace, id);
        self.record(Transition::LeaseEnded {
            namespace: namespace.clone(),
            lease: id,
            ending: ending.clone(),
        });
        let grants = self.grants_under(namespace, id).count();
        self.end_held(ending, |held| held.namespace == *namespace && held.lease == id);
        self.remember_lease(namespace, id, grants, ending);
        self.tell_session_ended(namespace, id, ending);
        self.leases.retain(|lease| lease.id != id || lease.namespace != *namespace);
        self.forget_empty_leases();
    }

    /// What was granted with this fence ends: its keys, and its ranges where they are still held under it.
    pub(crate) fn end_fence(
        &mut self,
        namespace: &Namespace,
        id: LeaseId,
        fence: FencingToken,
        ending: &Ending,
    ) {
        let set = self
            .sets
            .iter()
            .find(|set| set.namespace == *namespace && set.lease == id && set.fence == fence)
            .cloned();
        self.record(Transition::GrantEnded {
            namespace: namespace.clone(),
            lease: id,
            fence,
            ending: ending.clone(),
        });
        self.end_held(ending, |held| {
            held.namespace == *namespace
                && held.lease == id
                && matches!(held.scope, Scope::Key(_))
                && held.fence() == fence
        });
        for scope in set.iter().flat_map(|set| &set.ranges) {
            let owner = &set.as_ref().expect("it has ranges").owner;
            self.end_bytes(scope, ending, |held| {
                held.namespace == *namespace
                    && held.lease == id
                    && held.owner == *owner
                    && held.fences.contains(&fence)
            });
        }
        self.sets.retain(|set| set.fence != fence);
        self.known.retain(|known| known.fence != fence);
        self.forget_empty_leases();
    }

    /// An owner's hold on some bytes under a lease ends.
    pub(crate) fn end_range(&mut self, of: &Held, range: ByteRange, ending: &Ending) {
        let Scope::Range { inode, .. } = of.scope else {
            panic!("{} is not a byte range", of.scope)
        };
        self.record(Transition::RangeEnded {
            namespace: of.namespace.clone(),
            lease: of.lease,
            owner: of.owner.clone(),
            inode,
            range,
            ending: ending.clone(),
        });
        let of = of.clone();
        self.end_bytes(&Scope::Range { inode, range }, ending, |held| {
            held.namespace == of.namespace && held.lease == of.lease && held.owner == of.owner
        });
        self.forget_empty_leases();
    }

    fn end_bytes(&mut self, scope: &Scope, ending: &Ending, ends: impl Fn(&Held) -> bool) {
        let Scope::Range { inode, range } = *scope else { panic!("{scope} is not a byte range") };
        let ends = |held: &Held| ends(held) && held.scope.overlaps(scope);
        for held in self.held.clone().iter().filter(|held| ends(held)) {
            let bytes = range_of(held).intersection(range).expect("they overlap");
            let ended = Held { scope: Scope::Range { inode, range: bytes }, ..held.clone() };
            self.tell_ended(&ended, ending, None);
            self.lose(held);
        }
        self.unlock_range(range, ends);
    }

    pub(crate) fn end_held(&mut self, ending: &Ending, ends: impl Fn(&Held) -> bool) {
        for held in self.held.clone().iter().filter(|held| ends(held)) {
            self.tell_ended(held, ending, None);
            self.lose(held);
        }
        self.held.retain(|held| !ends(held));
    }

    /// What follows when something held ends or is cut, whatever the reason.
    pub(crate) fn lose(&mut self, held: &Held) {
        if matches!(held.scope, Scope::Range { .. }) {
            self.bereft.push((held.namespace.clone(), held.owner.clone()));
        }
    }

    /// "Reclaiming gives a new token": the window on what is granted again is over. In the same mode each grant takes
    /// one window back, the oldest; in another mode all of them.
    pub(crate) fn end_own_windows(&mut self, ask: &Acquire, claim: &Claim) {
        let Scope::Key(key) = &claim.scope else {
            return;
        };
        let own = |held: &&Held| {
            held.namespace == ask.namespace
                && held.scope == claim.scope
                && held.owner == ask.owner
                && held.window_until.is_some()
        };
        let mut windows: Vec<Held> = self.held.iter().filter(own).cloned().collect();
        windows.sort_by_key(|held| held.fence());
        if windows.first().is_some_and(|oldest| oldest.mode == claim.mode) {
            windows.truncate(1);
        }
        for gone in windows {
            self.end_window_of_key(&gone, key, &Ending::Reclaimed);
        }
    }

    pub(crate) fn end_window_of_key(&mut self, gone: &Held, key: &Key, ending: &Ending) {
        self.record(Transition::KeyEnded {
            namespace: gone.namespace.clone(),
            lease: gone.lease,
            fence: gone.fence(),
            key: key.clone(),
            ending: ending.clone(),
        });
        self.end_held(ending, |held| {
            held.namespace == gone.namespace
                && held.scope == gone.scope
                && held.lease == gone.lease
                && held.fences == gone.fences
        });
        self.forget_empty_leases();
    }

    /// A lease that is no session is gone with the last thing under it, and so are those who wait to stand under it.
    pub(crate) fn forget_empty_leases(&mut self) {
        let held = &self.held;
        self.leases.retain(|lease| {
            let is_session = lease.session.is_some();
            let under = |held: &Held| held.lease == lease.id && held.namespace == lease.namespace;
            is_session || held.iter().any(under)
        });
        let leases = &self.leases;
        let stands =
            |set: &Set, lease: &Lease| lease.id == set.lease && lease.namespace == set.namespace;
        self.sets.retain(|set| leases.iter().any(|lease| stands(set, lease)));
        let orphaned = |waiter: &Waiter| match waiter.ask.under {
            Under::Session(id) => {
                !leases.iter().any(|l| l.id == id && l.namespace == waiter.ask.namespace)
            }
            Under::NewLease { .. } => false,
        };
        let (orphans, stay): (Vec<Waiter>, Vec<Waiter>) =
            std::mem::take(&mut self.waiters).into_iter().partition(orphaned);
        self.waiters = stay;
        self.orphans.extend(orphans);
    }

    /// "A waiter that leaves is forgotten at once": one whose session ended is told so.
    pub(crate) fn fail_waiters_of(&mut self, namespace: &Namespace, id: LeaseId) {
        for waiter in self.take_waiters_of(namespace, id) {
            self.tell_left(&waiter);
            self.refuse_waiter(&waiter, &Refusal::LeaseLost(None));
        }
    }

    pub(crate) fn take_waiters_of(&mut self, namespace: &Namespace, id: LeaseId) -> Vec<Waiter> {
        self.take_waiters(|waiter| {
            waiter.ask.namespace == *namespace && waiter.ask.under == Under::Session(id)
        })
    }

    pub(crate) fn take_waiters(&mut self, leaves: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let (gone, stay) = std::mem::take(&mut self.waiters).into_iter().partition(leaves);
        self.waiters = stay;
        gone
    }

    /// The holder should hear at once.
    pub(crate) fn tell_lost(
        &mut self,
        namespace: &Namespace,
        lease: LeaseId,
        fence: Option<FencingToken>,
        ending: &Ending,
    ) {
        let (namespace, ending) = (namespace.clone(), ending.clone());
        self.step.effects.push(Effect::Lost { namespace, lease, fence, ending });
    }

    pub(crate) fn tell_ended(&mut self, held: &Held, ending: &Ending, window: Option<Millis>) {
        if window.is_none() {
            self.remember(held, ending);
        }
        let news = News::Ended {
            scope: held.scope.clone(),
            owner: held.owner.clone(),
            mode: held.mode,
            fence: held.fence(),
            since: held.granted_at,
            ending: ending.clone(),
            window,
            session: self.session_number(&held.namespace, held.lease),
            disconnected: self.is_kept(&held.namespace, held.lease),
        };
        self.tell(&held.namespace, news);
    }

    pub(crate) fn session_number(&self, namespace: &Namespace, id: LeaseId) -> Option<u64> {
        let session = self.lease(namespace, id)?.session.as_ref()?;
        Some(session.terms.number)
    }

    /// The session stands only because its stream broke a short while ago.
    fn is_kept(&self, namespace: &Namespace, id: LeaseId) -> bool {
        let session = self.lease(namespace, id).and_then(|lease| lease.session.as_ref());
        session.is_some_and(|session| session.kept)
    }

    pub(crate) fn tell_session_ended(
        &mut self,
        namespace: &Namespace,
        id: LeaseId,
        ending: &Ending,
    ) {
        let lease = self.lease(namespace, id).expect("it has just ended").clone();
        if let Some(session) = lease.session {
            let (number, owner, ending) = (session.terms.number, lease.owner, ending.clone());
            self.tell(namespace, News::SessionEnded { number, owner, ending });
        }
    }

    pub(crate) fn tell_left(&mut self, waiter: &Waiter) {
        let news = News::Left {
            scopes: super::acquire::scopes(&waiter.ask),
            owner: waiter.ask.owner.clone(),
            ticket: waiter.ticket,
        };
        self.tell(&waiter.ask.namespace, news);
    }
}
