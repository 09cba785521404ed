//! Decides a request for scopes that others may hold or want.
//!
//! Waiters are served in order of arrival. A shared request behind an exclusive waiter therefore waits too, though it
//! could be granted now: otherwise a stream of readers would starve the writer.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::budget::{Budget, LOOK_STEPS};
use crate::command::{Acquire, Claim, GracePolicy, Under, Wait};
use crate::conflict::{Asker, Blockers, Want};
use crate::digest::digest_of;
use crate::effect::{Answer, Effect, Grant, Outcome, Step};
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Owner, Ticket};
use crate::inode::{Party, Piece, is_covered};
use crate::lease::{LeaseIdx, LeaseState};
use crate::namespace::{Known, NamespaceIdx, room_for};
use crate::owners::OwnerIdx;
use crate::quota::{Need, Quotas};
use crate::range::ByteRange;
use crate::read::{Holder, HolderState};
use crate::refusal::{Conflict, Gone, Invalid, Limit, Place, Refusal};
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::{Millis, Timestamp};
use crate::transition::{Ending, Granted, Request, Transition};

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

    /// The same request came before: its grant again, or its place in the queue.
    fn retried(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        digest: u64,
    ) -> Result<Option<Outcome>, Refusal> {
        let at = self.space(space);
        let Some(id) = &request.request_id else { return Ok(None) };
        let Some(owner) = at.owners.find(&request.owner) else { return Ok(None) };
        let known = match at.requests.get(&(owner, id.clone())) {
            Some(known) if !planted!("request-id-grants-twice") => *known,
            Some(_) | None => return Ok(None),
        };
        match known {
            Known::Granted { lease, fence, .. } if !self.still_holds(space, lease, fence) => {
                Ok(None)
            }
            Known::Granted { digest: before, .. } if before != digest => {
                Err(Refusal::RequestIdReused)
            }
            Known::Opened { .. } => Err(Refusal::RequestIdReused),
            Known::Kept(_) => Ok(None),
            Known::Granted { lease, fence, .. } => {
                let grant = self.grant_again(space, lease, owner, fence);
                Ok(Some(Outcome::Answered(Answer::Granted(Box::new(grant)))))
            }
            Known::Waiting(ticket) => self.join_waiter(space, ticket, request, digest),
        }
    }

    fn join_waiter(
        &mut self,
        space: NamespaceIdx,
        ticket: Ticket,
        request: &Acquire,
        digest: u64,
    ) -> Result<Option<Outcome>, Refusal> {
        let at = self.space_mut(space);
        let waiter = at.waiters.get_mut(&ticket).expect("a known waiter is there");
        if waiter.digest != digest {
            return Err(Refusal::RequestIdReused);
        }
        if request.wait == Wait::Never {
            let asker = self.asker(space, request, ticket, false);
            return Err(self.refusal_for(space, request, asker, None, self.now));
        }
        waiter.calls.push(request.call);
        let deadline = waiter.deadline;
        at.calls.insert(request.call, ticket);
        self.wait_longer(space, ticket, deadline, request.wait);
        Ok(Some(Outcome::Queued(self.queued(space, ticket))))
    }

    /// Whether anything that was granted with this token is still held under its lease.
    pub(super) fn still_holds(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
    ) -> bool {
        let held = self.space(space).lease(lease);
        if held.is_over() {
            return false;
        }
        let bytes = held.held.byte_request(fence).is_some_and(|request| {
            let owner = request.owner;
            let mut ranges = request.ranges.iter();
            ranges.any(|&(inode, range)| {
                !self.honouring(space, lease, owner, inode, range, fence).is_empty()
            })
        });
        bytes || !held.held.stamped(fence).is_empty()
    }

    /// A grant made before, as its holder sees it now.
    pub(super) fn grant_again(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        fence: FencingToken,
    ) -> Grant {
        let at = self.space(space);
        let held = at.lease(lease);
        let granted_at = self.granted_at(space, lease, owner, fence);
        Grant {
            lease: held.id,
            owner: at.owners.name(owner).clone(),
            fence,
            ttl: held.ttl,
            deadline: held.deadline,
            granted_at,
            waited: Duration::ZERO,
            replayed: true,
            gained: Vec::new(),
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

    /// Every grant takes a fencing token, and their number has an end.
    pub(super) fn check_tokens_left(&self) -> Result<(), Refusal> {
        match self.fence.next() {
            Some(_) => Ok(()),
            None => Err(Refusal::Limit(Limit::Tokens)),
        }
    }

    /// Replacing ranges of its own takes time for each, so a lease may replace so many in one step and no more.
    fn check_own_ranges_claimed(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
    ) -> Result<(), Refusal> {
        let Under::Session(lease) = request.under else { return Ok(()) };
        request
            .claims
            .iter()
            .try_for_each(|claim| self.check_own_ranges(space, lease, &request.owner, &claim.scope))
    }

    /// Refuses a scope that covers more of a lease's own ranges than one step may change.
    pub(super) fn check_own_ranges(
        &self,
        space: NamespaceIdx,
        lease: LeaseId,
        owner: &Owner,
        scope: &Scope,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let Scope::Range { inode, range } = *scope else { return Ok(()) };
        let (Some(lease), Some(owner)) = (at.lease_no(lease), at.owners.find(owner)) else {
            return Ok(());
        };
        let max = self.limits.own_ranges_per_step_max;
        match at.inodes.get(&inode) {
            Some(file) if file.has_more_own(Party { owner, lease }, range, max) => {
                Err(Refusal::Limit(Limit::OwnRanges { scope: scope.clone(), max }))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Giving back the middle of a range leaves two: one more, which counts like any other.
    pub(super) fn check_split(
        &self,
        space: NamespaceIdx,
        lease: LeaseId,
        owner: &Owner,
        scope: &Scope,
        quotas: &Quotas,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let Scope::Range { inode, range } = *scope else { return Ok(()) };
        let (Some(lease), Some(number)) = (at.lease_no(lease), at.owners.find(owner)) else {
            return Ok(());
        };
        let Some(file) = at.inodes.get(&inode) else { return Ok(()) };
        let mut own = file.own_pieces(Party { owner: number, lease }, range);
        match own.next() {
            Some(piece) if matches!(piece.range.without(range), (Some(_), Some(_))) => {
                let need = Need::of_piece(piece.hold(inode));
                self.check_hold_quota(space, owner, quotas, need)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A session holds so much and no more.
    fn check_session_room(&self, space: NamespaceIdx, request: &Acquire) -> Result<(), Refusal> {
        let Under::Session(id) = request.under else { return Ok(()) };
        let lease = self.space(space).live_lease(id).ok_or(Refusal::SessionNotFound(None))?;
        let has_window = !request.reclaim_window.is_zero();
        self.check_room_under(space, lease, room_for(&request.claims), has_window)
    }

    /// A lease holds and waits for so much and no more; less if it is to lapse into reclaim windows, as it does so in one step.
    pub(super) fn check_room_under(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        more: usize,
        has_window: bool,
    ) -> Result<(), Refusal> {
        let at = self.space(space);
        let wanted = at.wanted_under(lease);
        let room = at.lease(lease).held.len() + wanted.room + more;
        let max = self.limits.locks_per_session_max;
        if room > max {
            return Err(Refusal::Limit(Limit::LocksPerSession { max }));
        }
        let max = self.limits.windowed_locks_per_session_max;
        let has_window = has_window || wanted.windows > 0 || at.has_window(lease);
        if has_window && room > max {
            return Err(Refusal::Limit(Limit::WindowedLocksPerSession { max }));
        }
        Ok(())
    }

    /// Takes up what the owner held before a restart; `None` if the request is to go on as a plain one: inside the owner's
    /// reclaim windows, and where the store forgets and it is unknown what was held.
    fn reclaim(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        step: &mut Step,
    ) -> Result<Option<Grant>, Refusal> {
        if let Some((lease, owner, fence)) = self.held_already(space, request)? {
            self.touch_lease(space, lease, step);
            return Ok(Some(self.grant_again(space, lease, owner, fence)));
        }
        if self.may_take_all_back(space, request) {
            return Ok(None);
        }
        match self.grace.map(|grace| grace.policy) {
            None => Err(Refusal::NoGrace),
            Some(GracePolicy::StrictUnknown) => Ok(None),
            Some(_) if planted!("reclaim-of-what-was-never-held") => Ok(None),
            Some(GracePolicy::Conflicting | GracePolicy::Strict) => {
                Err(Refusal::NothingToReclaim(self.first_not_held(space, request)))
            }
        }
    }

    /// The first of the claimed scopes that the owner does not hold as claimed under the lease that is named.
    fn first_not_held(&self, space: NamespaceIdx, request: &Acquire) -> Scope {
        let party = self.asker(space, request, Ticket(0), false).party();
        let is_held = |claim: &&Claim| {
            party.is_some_and(|Party { owner, lease }| {
                !self.fences_borne(space, lease, owner, claim).is_empty()
            })
        };
        let missing = request.claims.iter().find(|claim| !is_held(claim));
        missing.unwrap_or(&request.claims[0]).scope.clone()
    }

    fn may_take_all_back(&self, space: NamespaceIdx, request: &Acquire) -> bool {
        let at = self.space(space);
        let Some(owner) = at.owners.find(&request.owner) else {
            return false;
        };
        request.claims.iter().all(|claim| match &claim.scope {
            Scope::Key(key) => !at.windows_of(key, owner).is_empty(),
            Scope::Range { inode, range } => at.inodes.get(inode).is_some_and(|inode| {
                let lapsed = at.lapsed_bytes(inode, *range, owner).map(|(_, piece)| piece.range);
                is_covered(*range, lapsed.collect())
            }),
        })
    }

    /// The lease under which the owner has everything that is claimed, and the fence that all of it bears. One of its
    /// grants may have brought the whole session back already.
    fn held_already(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
    ) -> Result<Option<(LeaseIdx, OwnerIdx, FencingToken)>, Refusal> {
        let Under::Session(id) = request.under else {
            return Ok(None);
        };
        let at = self.space(space);
        let (Some(lease), Some(owner)) = (at.live_lease(id), at.owners.find(&request.owner)) else {
            return Ok(None);
        };
        // What is still in doubt can only be claimed while the grace is on; what is not, is simply held.
        if at.lease(lease).state == LeaseState::Recovering && self.grace.is_none() {
            return Ok(None);
        }
        let mut fences = Vec::new();
        for claim in &request.claims {
            let borne = self.fences_borne(space, lease, owner, claim);
            if borne.is_empty() {
                return Ok(None);
            }
            fences.extend(borne);
        }
        let by_all = |fence: &FencingToken| {
            request.claims.iter().all(|claim| self.bears(space, lease, owner, claim, *fence))
        };
        match fences.into_iter().filter(by_all).max() {
            Some(fence) => Ok(Some((lease, owner, fence))),
            None => Err(Refusal::Invalid(Invalid::NotOneGrant)),
        }
    }

    /// The fences under which the owner holds all of a claim under this lease, in that mode. Of bytes that merged only
    /// the highest, though they honour others.
    fn fences_borne(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        claim: &Claim,
    ) -> Vec<FencingToken> {
        let at = self.space(space);
        let fences: Vec<FencingToken> = match &claim.scope {
            Scope::Key(key) => at.held.get(key).map_or_else(Vec::new, |held| {
                held.iter().filter(|&(_, l)| l == lease).map(|(fence, _)| fence).collect()
            }),
            Scope::Range { inode, range } => at.inodes.get(inode).map_or_else(Vec::new, |inode| {
                inode.own_pieces(Party { owner, lease }, *range).map(Piece::fence).collect()
            }),
        };
        fences.into_iter().filter(|&fence| self.bears(space, lease, owner, claim, fence)).collect()
    }

    /// Whether the owner holds all of a claim under this lease, in that mode and with this fence.
    fn bears(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        claim: &Claim,
        fence: FencingToken,
    ) -> bool {
        let at = self.space(space);
        match &claim.scope {
            Scope::Key(key) => {
                let grant = at.lease(lease).held.get(fence, key);
                grant.is_some_and(|grant| grant.owner == owner && grant.mode == claim.mode)
            }
            Scope::Range { inode, range } => at.inodes.get(inode).is_some_and(|inode| {
                let own = || inode.own_pieces(Party { owner, lease }, *range);
                own().all(|piece| piece.mode == claim.mode && piece.honours(fence))
                    && is_covered(*range, own().map(|piece| piece.range).collect())
            }),
        }
    }

    /// All contenders of a semaphore must ask with the same limit. A request without permits that meets one is
    /// blocked by it, unless it is the owner's own window: so for those it is mostly enough to look once they are.
    fn check_limits_match(&self, space: NamespaceIdx, request: &Acquire) -> Result<(), Refusal> {
        request.claims.iter().try_for_each(|claim| self.check_limit_matches(space, claim))
    }

    pub(crate) fn check_limit_matches(
        &self,
        space: NamespaceIdx,
        claim: &Claim,
    ) -> Result<(), Refusal> {
        if let Scope::Key(key) = &claim.scope
            && let Some(current) = self.space(space).mode_in_use(key)
            && current.permits() != claim.mode.permits()
        {
            let (scope, asked) = (claim.scope.clone(), claim.mode);
            return Err(Refusal::LimitMismatch { scope, current, asked });
        }
        Ok(())
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

    fn is_reclaim_in_strict_grace(&self, request: &Acquire) -> bool {
        request.reclaim && self.is_strict_grace()
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

    /// The number of the owner's own windows that the grant would end: they are counted as held until then.
    fn windows_taken_back(&self, space: NamespaceIdx, request: &Acquire) -> u64 {
        let at = self.space(space);
        if at.lapsed_len == 0 {
            return 0;
        }
        let Some(owner) = at.owners.find(&request.owner) else { return 0 };
        let has_window = |claim: &&Claim| match &claim.scope {
            Scope::Key(key) => !at.windows_of(key, owner).is_empty(),
            Scope::Range { .. } => false,
        };
        request.claims.iter().filter(has_window).count() as u64
    }

    /// Ends the reclaim window that the owner has used: the oldest hold in the same mode, or all in another.
    fn end_own_windows(&mut self, space: NamespaceIdx, request: &Acquire, step: &mut Step) {
        if self.space(space).lapsed_len == 0 {
            return;
        }
        let Some(owner) = self.space(space).owners.find(&request.owner) else { return };
        for claim in &request.claims {
            let Scope::Key(key) = &claim.scope else { continue };
            let mut windows = self.space(space).windows_of(key, owner);
            if self.space(space).mode_in_use(key) == Some(claim.mode) {
                windows.truncate(1);
            }
            for (lease, fence) in windows {
                let ended = Transition::KeyEnded {
                    namespace: request.namespace.clone(),
                    lease: self.space(space).lease(lease).id,
                    fence,
                    key: key.clone(),
                    ending: Ending::Reclaimed,
                };
                self.enact(ended, step);
            }
        }
    }

    /// The claimed bytes that are not held under the lease yet.
    fn gained_bytes(&self, space: NamespaceIdx, request: &Acquire) -> Vec<(u64, ByteRange)> {
        let at = self.space(space);
        let party = self.asker(space, request, Ticket(0), false).party();
        let mut gained = Vec::new();
        for claim in &request.claims {
            let Scope::Range { inode, range } = claim.scope else {
                continue;
            };
            let own = match (at.inodes.get(&inode), party) {
                (Some(at), Some(party)) => at.own_overlapping(party, range),
                (None, _) | (_, None) => Vec::new(),
            };
            let mut rest = Some(range);
            for held in own {
                let Some(left) = rest else { break };
                let (before, after) = left.without(held);
                gained.extend(before.map(|part| (inode, part)));
                rest = after;
            }
            gained.extend(rest.map(|part| (inode, part)));
        }
        gained
    }

    /// The refusal of a request that cannot be granted now.
    pub(super) fn refusal_for(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        asker: Asker,
        place: Option<Place>,
        since: Timestamp,
    ) -> Refusal {
        if let Some(grace) = self.grace.filter(|grace| grace.policy.is_strict() && !request.reclaim)
        {
            let ends_in = grace.ends_at.since(self.now);
            let Some(place) = place else { return Refusal::GracePeriod { ends_in } };
            let conflict = Box::new(self.kept_place(space, request, place, since));
            return Refusal::GracePeriodPlaceKept { ends_in, conflict };
        }
        let (mut conflict, reason) = self.conflict(space, request, asker);
        conflict.place = place;
        conflict.waited = self.now.since(since);
        let conflict = Box::new(conflict);
        match reason {
            Reason::Nothing if self.suspended && place.is_none() => Refusal::Suspended,
            Reason::ReclaimWindow => Refusal::ReclaimWindow(conflict),
            Reason::Nothing | Reason::Waiters | Reason::Held => Refusal::Held(conflict),
        }
    }

    /// A conflict without holders, by which the caller learns of the place that is kept for it.
    fn kept_place(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        place: Place,
        since: Timestamp,
    ) -> Conflict {
        let scope = request.claims[0].scope.clone();
        let waiters = self.waiters_for(space, &scope, &mut Budget::new(LOOK_STEPS));
        let waited = self.now.since(since);
        Conflict { scope, holders: Vec::new(), waiters, waited, place: Some(place) }
    }

    /// The conflict of the blocked claims and its kind, with the holders in the way of the first claim that decides it.
    fn conflict(&self, space: NamespaceIdx, request: &Acquire, asker: Asker) -> (Conflict, Reason) {
        let at = self.space(space);
        let want = Want::Some(Conflict::HOLDERS_MAX);
        let holders = |blockers: &Blockers| -> Vec<Holder> {
            blockers.iter().filter_map(|blocker| self.holder(space, blocker)).collect()
        };
        let mut decided = (Reason::Nothing, &request.claims[0], Vec::new());
        for claim in &request.claims {
            let blockers = at.blockers(claim, asker, want);
            let holders = holders(&blockers);
            let reason = Reason::of(&blockers, &holders);
            if reason > decided.0 {
                decided = (reason, claim, holders);
            }
        }
        let (reason, claim, mut holders) = decided;
        holders.sort_by(|one, other| (one.fence, &one.scope).cmp(&(other.fence, &other.scope)));
        holders.truncate(Conflict::HOLDERS_MAX);
        let conflict = Conflict {
            scope: claim.scope.clone(),
            holders,
            waiters: self.waiters_for(space, &claim.scope, &mut Budget::new(LOOK_STEPS)),
            waited: Duration::ZERO,
            place: None,
        };
        (conflict, reason)
    }

    /// Tells the holders that another owner wants it; whether they hear that is not for us to know.
    pub(super) fn tell_holders(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        ticket: Ticket,
        step: &mut Step,
    ) {
        let at = self.space(space);
        let asker = self.asker(space, request, ticket, false);
        for claim in &request.claims {
            let want = Want::Some(Conflict::HOLDERS_MAX);
            for blocker in at.blockers(claim, asker, want).iter() {
                let Some(held) = blocker.lease().map(|lease| at.lease(lease)) else { continue };
                if !held.is_over() {
                    step.effects.push(Effect::Wanted {
                        namespace: request.namespace.clone(),
                        lease: held.id,
                        fence: self.fence_of(space, blocker),
                        scope: claim.scope.clone(),
                        waiter: request.owner.clone(),
                    });
                }
            }
        }
    }
}

/// The kind of refusal that the blockers add up to; of several, the last in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Nothing,
    /// Nothing is held, but others wait for it.
    Waiters,
    /// All that is held are reclaim windows.
    ReclaimWindow,
    Held,
}

impl Reason {
    fn of(blockers: &Blockers, holders: &[Holder]) -> Reason {
        if blockers.is_empty() {
            Reason::Nothing
        } else if holders.is_empty() {
            Reason::Waiters
        } else if holders.iter().all(|holder| holder.state == HolderState::ReclaimWindow) {
            Reason::ReclaimWindow
        } else {
            Reason::Held
        }
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
