//! What is wrong with a request before anybody else is looked at, and which limit it runs into.

use std::num::NonZeroU32;
use std::time::Duration;

use super::acquire::scopes;
use super::{Held, Model, Waiter};
use leasehold_core::*;

impl Model {
    /// Requests that no state of the table could satisfy.
    pub(crate) fn check_request(&self, ask: &Acquire) -> Result<(), Refusal> {
        if let Under::NewLease { ttl, .. } = ask.under {
            self.check_ttl(ttl)?;
        }
        let limits = &self.limits;
        if ask.reclaim_window > limits.reclaim_window_max {
            let (window, max) = (ask.reclaim_window, limits.reclaim_window_max);
            return invalid(Invalid::ReclaimWindow { window, max });
        }
        if let Wait::UpTo(wait) = ask.wait
            && wait > limits.wait_max
        {
            return invalid(Invalid::Wait { wait, max: limits.wait_max });
        }
        self.check_metadata(ask.metadata.as_deref())?;
        let permits = ask.claims.iter().filter_map(|claim| claim.mode.permits());
        for limit in permits.map(NonZeroU32::get) {
            if limit > limits.permits_max {
                return invalid(Invalid::Permits { limit, max: limits.permits_max });
            }
        }
        self.check_set(&ask.claims)
    }

    fn check_set(&self, claims: &[Claim]) -> Result<(), Refusal> {
        let (len, max) = (claims.len(), self.limits.set_len_max);
        if len == 0 || len > max {
            return invalid(Invalid::SetSize { len, max });
        }
        for (place, claim) in claims.iter().enumerate() {
            if matches!(claim.scope, Scope::Range { .. }) && claim.mode.permits().is_some() {
                return invalid(Invalid::RangePermits(claim.scope.clone()));
            }
            for one in &claims[..place] {
                if one.scope.overlaps(&claim.scope) {
                    let (one, other) = (one.scope.clone(), claim.scope.clone());
                    return invalid(Invalid::SetOverlap { one, other });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Refusal> {
        let (min, max) = (self.limits.lease_ttl_min, self.limits.lease_ttl_max);
        if ttl < min || ttl > max {
            return invalid(Invalid::Ttl { ttl, min, max });
        }
        Ok(())
    }

    pub(crate) fn check_metadata(&self, metadata: Option<&str>) -> Result<(), Refusal> {
        let (len, max) = (metadata.map_or(0, str::len), self.limits.metadata_bytes_max);
        if len > max {
            return invalid(Invalid::MetadataSize { len, max });
        }
        Ok(())
    }

    /// A session must be there and live; the id of a new lease must not be in use, and its namespace must have room.
    pub(crate) fn check_lease(&self, ask: &Acquire) -> Result<(), Refusal> {
        match ask.under {
            // Many owners of its principal may use a session; a plain lease is its owner's.
            Under::Session(id) => {
                let lease = self.check_standing(&ask.namespace, id, &ask.owner.principal())?;
                match lease.session.is_some() || lease.owner == ask.owner {
                    true => Ok(()),
                    false => Err(Refusal::SessionNotFound(Some(Gone::Unknown))),
                }
            }
            Under::NewLease { id, .. } => self.check_new_id(&ask.namespace, id),
        }
    }

    pub(crate) fn check_new_id(&self, namespace: &Namespace, id: LeaseId) -> Result<(), Refusal> {
        match self.lease(namespace, id) {
            Some(_) => invalid(Invalid::LeaseIdInUse),
            None => Ok(()),
        }
    }

    pub(crate) fn check_namespace(&self, namespace: &Namespace) -> Result<(), Refusal> {
        let (used, max) = (self.namespaces(), self.limits.namespaces_max);
        if !used.contains(namespace) && used.len() >= max {
            return Err(Refusal::Limit(Limit::Namespaces { max }));
        }
        Ok(())
    }

    /// Namespaces in which anything is held, waited for or kept; fence registers use none up.
    pub(crate) fn namespaces(&self) -> Vec<Namespace> {
        let leases = self.leases.iter().map(|lease| &lease.namespace);
        let kept = self.kept.iter().map(|kept| &kept.waiter);
        let waiters = self.waiters.iter().chain(kept).map(|waiter| &waiter.ask.namespace);
        let mut used: Vec<Namespace> = leases.chain(waiters).cloned().collect();
        used.sort();
        used.dedup();
        used
    }

    /// "All contenders must ask with the same limit, a different one is refused."
    pub(crate) fn check_limits_agree(&self, ask: &Acquire) -> Result<(), Refusal> {
        ask.claims.iter().try_for_each(|claim| self.check_limit_agrees(&ask.namespace, claim))
    }

    pub(crate) fn check_limit_agrees(
        &self,
        namespace: &Namespace,
        claim: &Claim,
    ) -> Result<(), Refusal> {
        if matches!(claim.scope, Scope::Range { .. }) {
            return Ok(());
        }
        let held = self.held.iter().filter(|held| held.namespace == *namespace);
        let wanted = self.queue_of(namespace, &claim.scope);
        let contenders = held
            .map(|held| held.claim())
            .chain(wanted.flat_map(|waiter| waiter.ask.claims.clone()))
            .filter(|contender| contender.scope == claim.scope);
        for contender in contenders {
            if contender.mode.permits() != claim.mode.permits() {
                let (current, asked) = (contender.mode, claim.mode);
                let scope = claim.scope.clone();
                return Err(Refusal::LimitMismatch { scope, current, asked });
            }
        }
        Ok(())
    }

    /// What a session holds and waits for must fit. Locking bytes inside an own range can leave two more pieces
    /// behind: room for them must be there before.
    pub(crate) fn check_locks(&self, ask: &Acquire) -> Result<(), Refusal> {
        let Under::Session(id) = ask.under else {
            return Ok(());
        };
        let has_window = ask.reclaim_window > Duration::ZERO;
        self.check_room_under(&ask.namespace, id, room_for(ask), has_window)
    }

    /// With a reclaim window among what a lease holds or waits for, less fits under it.
    pub(crate) fn check_room_under(
        &self,
        namespace: &Namespace,
        id: LeaseId,
        more: usize,
        has_window: bool,
    ) -> Result<(), Refusal> {
        let waits: Vec<&Acquire> = self
            .waiters
            .iter()
            .map(|waiter| &waiter.ask)
            .filter(|ask| ask.namespace == *namespace && ask.under == Under::Session(id))
            .collect();
        let wanted: usize = waits.iter().map(|ask| room_for(ask)).sum();
        let room = self.grants_under(namespace, id).count() + wanted + more;
        let max = self.limits.locks_per_session_max;
        if room > max {
            return Err(Refusal::Limit(Limit::LocksPerSession { max }));
        }
        let max = self.limits.windowed_locks_per_session_max;
        let has_window = has_window
            || waits.iter().any(|ask| ask.reclaim_window > Duration::ZERO)
            || self.grants_under(namespace, id).any(|held| held.window > Millis::ZERO);
        if has_window && room > max {
            return Err(Refusal::Limit(Limit::WindowedLocksPerSession { max }));
        }
        Ok(())
    }

    pub(crate) fn grants_under(
        &self,
        namespace: &Namespace,
        lease: LeaseId,
    ) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| held.namespace == *namespace && held.lease == lease)
    }

    /// Queues have an end too; whoever comes back to a kept place was let in before.
    pub(crate) fn check_queues(&self, ask: &Acquire, waiter: &Waiter) -> Result<(), Refusal> {
        let max = self.limits.waiters_max;
        if !waiter.returned && self.waiters.len() >= max {
            return Err(Refusal::Limit(Limit::Waiters { max }));
        }
        let max = self.limits.waiters_per_scope_max;
        for scope in scopes(ask) {
            if self.queue_of(&ask.namespace, &scope).count() >= max {
                return Err(Refusal::Limit(Limit::WaitersPerScope { scope, max }));
            }
        }
        Ok(())
    }
}

fn room_for(ask: &Acquire) -> usize {
    let each = ask.claims.iter().map(|claim| match claim.scope {
        Scope::Key(_) => 1,
        Scope::Range { .. } => 2,
    });
    each.sum()
}

pub(crate) fn invalid<T>(invalid: Invalid) -> Result<T, Refusal> {
    Err(Refusal::Invalid(invalid))
}
