//! Takes, renews and gives back one key for an owner that keeps neither lease id nor fencing token.

use std::time::Duration;

use crate::command::{Acquire, ByOwner, Claim, OwnerAction, Under, Wait};
use crate::effect::{Answer, Outcome, Step};
use crate::fencing_token::FencingToken;
use crate::id::{CallId, LeaseId};
use crate::lease::LeaseIdx;
use crate::mode::Mode;
use crate::namespace::NamespaceIdx;
use crate::quota::Quotas;
use crate::read::HolderState;
use crate::refusal::{Conflict, Refusal};
use crate::scope::Scope;
use crate::table::LockTable;
use crate::transition::{Ending, Transition};

impl LockTable {
    pub(super) fn by_owner(
        &mut self,
        ask: ByOwner,
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        match ask.action {
            OwnerAction::Hold { lease, ttl, reclaim_window } => {
                self.hold(ask, lease, (ttl, reclaim_window), quotas, step)
            }
            OwnerAction::Release => self.let_go(&ask, step),
        }
    }

    fn hold(
        &mut self,
        ask: ByOwner,
        id: LeaseId,
        (ttl, reclaim_window): (Duration, Duration),
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        let length = self.check_ttl(ttl, quotas)?;
        if let Some((space, lease, fence)) = self.own_grant(&ask, step) {
            self.renew_lease(space, lease, Some(length), step)?;
            let owner = self.space(space).lease(lease).owner;
            let grant = self.grant_again(space, lease, owner, fence);
            return Ok(Answer::Granted(Box::new(grant)));
        }
        let mut acquire = Acquire {
            call: CallId(0),
            namespace: ask.namespace,
            owner: ask.owner,
            claims: vec![Claim { scope: Scope::Key(ask.key), mode: Mode::Exclusive }],
            under: Under::NewLease { id, ttl },
            wait: Wait::Never,
            keep_place: false,
            ticket: None,
            request_id: None,
            reclaim_window,
            reclaim: false,
            metadata: None,
        };
        match self.acquire(&mut acquire, quotas, step) {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Refused(refusal) => Err(refusal),
            Outcome::Queued(_) => unreachable!("a request that does not wait is not queued"),
        }
    }

    fn let_go(&mut self, ask: &ByOwner, step: &mut Step) -> super::Handled {
        if let Some((space, lease, fence)) = self.own_grant(ask, step) {
            let grant = self.space(space).lease(lease).held.get(fence, &ask.key);
            let held = grant.map_or(Duration::ZERO, |grant| self.now.since(grant.granted_at));
            self.end_fence(space, lease, fence, Ending::Released, step);
            return Ok(Answer::Released { held, replayed: false });
        }
        if self.give_up_windows(ask, step) {
            return Ok(Answer::Released { held: Duration::ZERO, replayed: false });
        }
        Err(self.not_the_owner(ask))
    }

    /// The owner's grant on exactly this key, exclusive and under a plain lease. One whose lease is due expires now.
    fn own_grant(
        &mut self,
        ask: &ByOwner,
        step: &mut Step,
    ) -> Option<(NamespaceIdx, LeaseIdx, FencingToken)> {
        let space = self.namespace_idx(&ask.namespace)?;
        loop {
            let at = self.space(space);
            let owner = at.owners.find(&ask.owner)?;
            let held = at.held.get(&ask.key).filter(|held| held.mode() == Mode::Exclusive)?;
            let (fence, lease) = held.iter().find(|&(fence, lease)| {
                let lease = at.lease(lease);
                let own = lease.held.get(fence, &ask.key).is_some_and(|own| own.owner == owner);
                own && !lease.is_over() && lease.session.is_none()
            })?;
            if !at.lease(lease).is_due(self.now) {
                return Some((space, lease, fence));
            }
            self.lapse_lease(space, lease, step);
        }
    }

    /// Whether there was a window to give up.
    fn give_up_windows(&mut self, ask: &ByOwner, step: &mut Step) -> bool {
        let Some(space) = self.namespace_idx(&ask.namespace) else { return false };
        let at = self.space(space);
        let Some(owner) = at.owners.find(&ask.owner) else { return false };
        let windows = at.windows_of(&ask.key, owner);
        for &(lease, fence) in &windows {
            let ended = Transition::KeyEnded {
                namespace: ask.namespace.clone(),
                lease: self.space(space).lease(lease).id,
                fence,
                key: ask.key.clone(),
                ending: Ending::WindowOver,
            };
            self.enact(ended, step);
        }
        !windows.is_empty()
    }

    /// Another owner holds it, or none does.
    fn not_the_owner(&self, ask: &ByOwner) -> Refusal {
        let scope = Scope::Key(ask.key.clone());
        let view = self.get(&ask.namespace, &scope);
        let mut holders = view.holders;
        holders.truncate(Conflict::HOLDERS_MAX);
        let Some(first) = holders.first() else { return Refusal::NotHolder { scope, why: None } };
        let is_window = first.state == HolderState::ReclaimWindow;
        let waiters = view.waiters_len;
        let waited = Duration::ZERO;
        let conflict = Box::new(Conflict { scope, holders, waiters, waited, place: None });
        if is_window { Refusal::ReclaimWindow(conflict) } else { Refusal::Held(conflict) }
    }
}
