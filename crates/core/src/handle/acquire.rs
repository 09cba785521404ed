//! Decides a request for scopes that others may hold or want.
//!
//! Waiters are served in order of arrival. A shared request behind an exclusive waiter therefore waits too, though it
//! could be granted now: otherwise a stream of readers would starve the writer.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::budget::{Budget, LOOK_STEPS};
use crate::command::{Acquire, Claim, Under, Wait};
use crate::conflict::{Asker, Want};
use crate::digest::digest_of;
use crate::effect::{Answer, Grant, Outcome, Step};
use crate::id::{LeaseId, Ticket};
use crate::lease::LeaseIdx;
use crate::namespace::NamespaceIdx;
use crate::quota::Quotas;
use crate::refusal::{Gone, Invalid, Refusal};
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::{Millis, Timestamp};
use crate::transition::{Granted, Request, Transition};

/// The cost of ending a lease, in the steps of a search.
const DUE_STEPS: usize = 20;

impl LockTable {
    pub(super) fn acquire(
        &mut self,
        request: &mut Acquire,
        quotas: &Quotas,
        step: &mut Step,
    ) -> Outcome {
        if request.wait == Wait::Forever && quotas.wait_max < Duration::MAX {
            request.wait = Wait::UpTo(quotas.wait_max.min(self.limits.wait_max));
        }
        match self.try_acquire(request, quotas, step) {
            Ok(outcome) => outcome,
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    fn try_acquire(
        &mut self,
        request: &mut Acquire,
        quotas: &Quotas,
        step: &mut Step,
    ) -> Result<Outcome, Refusal> {
        self.check_request(request, quotas)?;
        let principal = request.owner.principal();
        self.check_namespace_quota(self.namespace_idx(&request.namespace), &principal, quotas)?;
        let space = self.space_to_fill(&request.namespace)?;
        let known_again = request.request_id.is_some() || request.ticket.is_some();
        let digest = if known_again { digest_of(request) } else { 0 };
        if let Some(outcome) = self.retried(space, request, digest)? {
            return Ok(outcome);
        }
        self.check_lease(space, request, step)?;
        if request.reclaim
            && let Some(grant) = self.reclaim(space, request, step)?
        {
            return Ok(Outcome::Answered(Answer::Granted(Box::new(grant))));
        }
        if self.suspended {
            return Err(Refusal::Suspended);
        }
        self.check_tokens_left()?;
        let place = self.find_place(space, request, digest, step)?;
        let place = place.filter(|_| !planted!("kept-place-goes-to-the-back"));
        self.check_own_ranges_claimed(space, request)?;
        self.check_session_room(space, request)?;
        let need = request.need().less(self.windows_taken_back(space, request));
        self.check_hold_quota(space, &request.owner, quotas, need)?;
        self.grant_or_wait(space, request, digest, place, quotas, step)
    }

    /// Everything that can be wrong with a request whatever the table holds.
    fn check_request(&self, request: &Acquire, quotas: &Quotas) -> Result<(), Refusal> {
        let limits = &self.limits;
        if let Under::NewLease { ttl, .. } = request.under {
            self.check_ttl(ttl, quotas)?;
        }
        let invalid = |fault| Err(Refusal::Invalid(fault));
        let window_max = limits.reclaim_window_max.min(quotas.reclaim_max);
        let window = request.reclaim_window;
        if window > window_max {
            return invalid(Invalid::ReclaimWindow { window, max: window_max });
        }
        let wait_max = limits.wait_max.min(quotas.wait_max);
        if let Wait::UpTo(wait) = request.wait
            && wait > wait_max
        {
            return invalid(Invalid::Wait { wait, max: wait_max });
        }
        let metadata_len = request.metadata.as_ref().map_or(0, |metadata| metadata.len());
        if metadata_len > limits.metadata_bytes_max {
            let max = limits.metadata_bytes_max;
            return invalid(Invalid::MetadataSize { len: metadata_len, max });
        }
        let permits = request.claims.iter().filter_map(|claim| claim.mode.permits());
        if let Some(limit) = permits.map(NonZeroU32::get).find(|&limit| limit > limits.permits_max)
        {
            return invalid(Invalid::Permits { limit, max: limits.permits_max });
        }
        check_claims(&request.claims, limits.set_len_max).map_err(Refusal::Invalid)
    }

    pub(super) fn check_ttl(&self, ttl: Duration, quotas: &Quotas) -> Result<Millis, Refusal> {
        let (min, max) = (self.limits.lease_ttl_min, self.limits.lease_ttl_max.min(quotas.ttl_max));
        match Millis::from_duration(ttl) {
            Some(millis) if (min..=max).contains(&ttl) => Ok(millis),
            Some(_) | None => Err(Refusal::Invalid(Invalid::Ttl { ttl, min, max })),
        }
    }

    /// The lease that the grant would stand under must be there, or be new.
    fn check_lease(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        match request.under {
            Under::NewLease { id, .. } => match self.space(space).lease_no(id) {
                Some(_) => Err(Refusal::Invalid(Invalid::LeaseIdInUse)),
                None => Ok(()),
            },
            Under::Session(id) => {
                let principal = request.owner.principal();
                let (_, lease) = self.find_live(&request.namespace, id, &principal, step)?;
                let at = self.space(space);
                let held = at.lease(lease);
                // Many owners of its principal may use a session; a plain lease is its owner's.
                let own = *at.owners.name(held.owner) == request.owner;
                if held.session.is_some() || own {
                    Ok(())
                } else {
                    Err(Refusal::SessionNotFound(Some(Gone::Unknown)))
                }
            }
        }
    }

    fn grant_or_wait(
        &mut self,
        space: NamespaceIdx,
        request: &mut Acquire,
        digest: u64,
        place: Option<Ticket>,
        quotas: &Quotas,
        step: &mut Step,
    ) -> Result<Outcome, Refusal> {
        let ticket = place.unwrap_or(Ticket(self.last_ticket.0 + 1));
        self.clear_the_way(space, request, ticket, step);
        let strict = self.is_strict_grace() && !request.reclaim;
        let permits = request.claims.iter().any(|claim| claim.mode.permits().is_some());
        if permits || strict || self.space(space).lapsed_len > 0 {
            self.check_limits_match(space, request)?;
        }
        if !strict && !self.is_blocked_on_arrival(space, request, ticket, step) {
            let since = place.map(|ticket| self.forget_place(space, ticket).since);
            let grant = self.grant(space, request, digest, since.unwrap_or(self.now), step);
            return Ok(Outcome::Answered(Answer::Granted(Box::new(grant))));
        }
        self.check_limits_match(space, request)?;
        if request.wait == Wait::Never || self.is_reclaim_in_strict_grace(request) {
            let asker = self.asker(space, request, ticket, true);
            let since = place.map_or(self.now, |kept| self.space(space).kept[&kept].since);
            let place = place.and_then(|kept| {
                let position = self.position(space, request, kept);
                self.keep_place_on(space, kept);
                self.place_shown(space, kept, position)
            });
            return Err(self.refusal_for(space, request, asker, place, since));
        }
        self.check_wait_quota(space, &request.owner, quotas, request.need())?;
        self.start_to_wait(space, request, digest, place, step)
    }

    /// Whether anything is in the way. Leases that are over but have not been worked off yet are first.
    fn is_blocked_on_arrival(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        ticket: Ticket,
        step: &mut Step,
    ) -> bool {
        let mut budget = Budget::new(LOOK_STEPS);
        loop {
            let asker = self.asker(space, request, ticket, true);
            let at = self.space(space);
            let Some(claim) = request.claims.iter().find(|claim| at.is_blocked(claim, asker))
            else {
                return false;
            };
            if !self.anything_due() {
                return true;
            }
            match self.due_in_the_way(space, claim, asker, &mut budget) {
                Some(lease) => self.lapse_lease(space, lease, step),
                None => return true,
            }
        }
    }

    /// A lease that is over and in the way of a claim, though that has not been worked off yet.
    fn due_in_the_way(
        &self,
        space: NamespaceIdx,
        claim: &Claim,
        asker: Asker,
        budget: &mut Budget,
    ) -> Option<LeaseIdx> {
        let at = self.space(space);
        let used_up = !at.blockers(claim, asker, Want::One).permits.is_empty();
        let permits = at.permits_held(claim, asker).take_while(|_| used_up);
        let holders = at.holders_in_the_way(claim, asker).chain(permits);
        let looked_at = holders.take_while(|_| budget.take(1).is_ok());
        let mut leases = looked_at.flatten().map(|(lease, _)| lease);
        let due = leases.find(|&lease| {
            let held = at.lease(lease);
            !held.is_over() && held.is_due(self.now)
        })?;
        // To end one is as much work as to look at many.
        budget.take(DUE_STEPS).is_ok().then_some(due)
    }

    pub(super) fn asker(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        ticket: Ticket,
        arriving: bool,
    ) -> Asker {
        let at = self.space(space);
        let lease = match request.under {
            Under::NewLease { .. } => None,
            Under::Session(id) => at.lease_no(id),
        };
        Asker { owner: at.owners.find(&request.owner), lease, ticket, arriving }
    }

    /// Makes the grant that was just found to be possible. What the request claims becomes the grant's.
    pub(super) fn grant(
        &mut self,
        space: NamespaceIdx,
        request: &mut Acquire,
        digest: u64,
        since: Timestamp,
        step: &mut Step,
    ) -> Grant {
        debug_assert!(since <= self.now, "whoever is granted something asked before");
        debug_assert!(request.claims.len() <= self.limits.set_len_max, "admission has counted");
        debug_assert!(self.is_free_for(space, request), "nobody else holds what is granted");
        self.end_own_windows(space, request, step);
        let (lease, opens) = match request.under {
            Under::NewLease { id, ttl } => (id, Millis::from_duration(ttl)),
            Under::Session(id) => (id, None),
        };
        let fence = self.fence.next().expect("whoever grants has checked that tokens are left");
        let gained = self.gained_bytes(space, request);
        let window = Millis::from_duration(request.reclaim_window).unwrap_or_default();
        let granted = Granted {
            namespace: request.namespace.clone(),
            lease,
            opens,
            owner: request.owner.clone(),
            claims: std::mem::take(&mut request.claims),
            fence,
            granted_at: self.now,
            reclaim_window: window,
            request: request.request_id.take().map(|id| Request { id, digest }),
            metadata: request.metadata.take(),
        };
        self.waited = self.now.since(since);
        self.enact(Transition::Granted(granted), step);
        let number = self.lease_just_used(space, lease);
        self.mark_reclaimed(space, number);
        let held = self.space(space).lease(number);
        let grant = Grant {
            lease,
            owner: request.owner.clone(),
            fence,
            ttl: held.ttl,
            deadline: held.deadline,
            granted_at: self.now,
            waited: self.now.since(since),
            replayed: false,
            gained,
        };
        self.break_late_deadlocks(space, &request.owner, step);
        grant
    }

    /// Whether no other holder conflicts with the request. For assertions: permits are counted elsewhere.
    fn is_free_for(&self, space: NamespaceIdx, request: &Acquire) -> bool {
        let asker = self.asker(space, request, Ticket(0), false);
        let at = self.space(space);
        let lease = match request.under {
            Under::NewLease { id, .. } => at.lease_no(id).is_none(),
            Under::Session(id) => at.lease_no(id).is_some_and(|lease| !at.lease(lease).is_over()),
        };
        lease
            && request
                .claims
                .iter()
                .all(|claim| at.holders_in_the_way(claim, asker).flatten().next().is_none())
    }

    fn lease_just_used(&self, space: NamespaceIdx, id: LeaseId) -> LeaseIdx {
        self.space(space).lease_no(id).expect("a grant stands under its lease")
    }
}

fn check_claims(claims: &[Claim], max: usize) -> Result<(), Invalid> {
    if claims.is_empty() || claims.len() > max {
        return Err(Invalid::SetSize { len: claims.len(), max });
    }
    for (at, claim) in claims.iter().enumerate() {
        if matches!(claim.scope, Scope::Range { .. }) && claim.mode.permits().is_some() {
            return Err(Invalid::RangePermits(claim.scope.clone()));
        }
        if let Some(other) = claims[..at].iter().find(|other| other.scope.overlaps(&claim.scope)) {
            let (one, other) = (other.scope.clone(), claim.scope.clone());
            return Err(Invalid::SetOverlap { one, other });
        }
    }
    Ok(())
}
