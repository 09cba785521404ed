//! Taking, renewing and giving back by the owner's name alone.

use std::time::Duration;

use super::acquire::granted;
use super::{Held, Model};
use leasehold_core::*;

impl Model {
    pub(crate) fn by_owner(&mut self, ask: &ByOwner) -> Outcome {
        let answered = match ask.action {
            OwnerAction::Hold { lease, ttl, reclaim_window } => {
                if let Err(refusal) = self.check_ttl(ttl) {
                    return Outcome::Refused(refusal);
                }
                match self.own(ask) {
                    Some(held) => return granted(self.renew_own(&held, ttl)),
                    None => return self.acquire(&plain(ask, lease, ttl, reclaim_window)),
                }
            }
            OwnerAction::Release => self.let_go(ask),
        };
        match answered {
            Ok(held) => Outcome::Answered(Answer::Released { held, replayed: false }),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// What the owner holds on exactly this key, exclusive and under a plain lease.
    fn own(&self, ask: &ByOwner) -> Option<Held> {
        let own = self.on_key(ask).filter(|held| held.owner == ask.owner);
        let mut own = own.filter(|held| held.window_until.is_none());
        let plain = |held: &&Held| self.lease_of(held).session.is_none();
        own.find(|held| held.mode == Mode::Exclusive && plain(held)).cloned()
    }

    fn on_key(&self, ask: &ByOwner) -> impl Iterator<Item = &Held> {
        let scope = Scope::Key(ask.key.clone());
        self.held.iter().filter(move |held| held.namespace == ask.namespace && held.scope == scope)
    }

    fn renew_own(&mut self, held: &Held, ttl: Duration) -> Grant {
        self.renew_lease(&held.namespace, held.lease, Some(ttl));
        let lease = self.lease_of(held);
        Grant {
            lease: lease.id,
            owner: held.owner.clone(),
            fence: held.fence(),
            ttl: lease.ttl,
            deadline: lease.deadline,
            granted_at: held.granted_at,
            waited: Duration::ZERO,
            replayed: true,
            gained: Vec::new(),
        }
    }

    /// Gives back what is held, or else every reclaim window.
    fn let_go(&mut self, ask: &ByOwner) -> Result<Duration, Refusal> {
        if let Some(held) = self.own(ask) {
            self.end_fence(&held.namespace, held.lease, held.fence(), &Ending::Released);
            return Ok(self.now.since(held.granted_at));
        }
        let windows = self.on_key(ask).filter(|held| held.window_until.is_some());
        let mut windows: Vec<Held> = windows.filter(|w| w.owner == ask.owner).cloned().collect();
        windows.sort_by_key(|held| held.fence());
        for gone in &windows {
            self.end_window_of_key(gone, &ask.key, &Ending::WindowOver);
        }
        if !windows.is_empty() {
            return Ok(Duration::ZERO);
        }
        let scope = Scope::Key(ask.key.clone());
        let view = self.get(&ask.namespace, &scope);
        let Some(first) = view.holders.first() else {
            return Err(Refusal::NotHolder { scope, why: None });
        };
        let is_window = first.state == HolderState::ReclaimWindow;
        let mut holders = view.holders;
        holders.truncate(Conflict::HOLDERS_MAX);
        let waiters = view.waiters_len;
        let waited = Duration::ZERO;
        let conflict = Box::new(Conflict { scope, holders, waiters, waited, place: None });
        Err(if is_window { Refusal::ReclaimWindow(conflict) } else { Refusal::Held(conflict) })
    }
}

fn plain(ask: &ByOwner, id: LeaseId, ttl: Duration, reclaim_window: Duration) -> Acquire {
    Acquire {
        call: CallId(0),
        namespace: ask.namespace.clone(),
        owner: ask.owner.clone(),
        claims: vec![Claim { scope: Scope::Key(ask.key.clone()), mode: Mode::Exclusive }],
        under: Under::NewLease { id, ttl },
        wait: Wait::Never,
        keep_place: false,
        ticket: None,
        request_id: None,
        reclaim_window,
        reclaim: false,
        metadata: None,
    }
}
