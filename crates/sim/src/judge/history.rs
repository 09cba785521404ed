//! The word of the clients, lock by lock, for the judge of histories.
//!
//! Only plain names are told of: they overlap with nothing else, so each is a lock of its own; everything else is judged by
//! the log. What nobody got an answer to is looked up there: if it was granted, then when it was durable. So is what
//! ended without its holder's doing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{Claim, FencingToken, LeaseId, Mode, Namespace, Owner, RequestId, Scope};
use leasehold_judge::checker::{Rules, check};
use leasehold_judge::history::{Acquired, Event, Kept, LockIndex, Mode as Told, Operation};

use super::log::{GrantFact, Log};
use super::{Verdict, shortened};
use crate::client::scopes::{NAMES, name};
use crate::plan::Plan;
use crate::time::{Moment, SECOND};

type When = leasehold_judge::history::Moment;

#[derive(Debug)]
pub struct History {
    locks: BTreeMap<Scope, LockIndex>,
    operations: Vec<Operation>,
    attempts: Vec<Attempt>,
    restarts: Vec<Restart>,
    taken: Vec<TakenAway>,
    /// Renewals that did not name the lock: their answers say that the lease goes on, not that all is there under it.
    unnamed: Vec<usize>,
    /// Sessions whose stream was gone, and when: from then on they may be short.
    disconnected: Vec<(LeaseId, Moment)>,
    drift_ppm: u64,
    late_max: Duration,
}

/// Something that has ended without its holder's doing, at some moment since `since`, and was durable at `at`.
#[derive(Debug)]
pub(super) struct TakenAway {
    pub(super) fence: FencingToken,
    pub(super) claims: Vec<Claim>,
    pub(super) since: Moment,
    pub(super) at: Moment,
}

/// A new leader began: what was not over when it took over stands in full since it is up.
#[derive(Clone, Copy, Debug)]
struct Restart {
    down: Moment,
    up: Moment,
}

/// A request for locks, and what its client knows of it.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub client: usize,
    pub owner: Owner,
    pub claims: Vec<Claim>,
    pub ttl: Duration,
    pub waited: bool,
    pub request_id: Option<RequestId>,
    /// The leases that it may have opened, or the session that it was made under.
    pub leases: Vec<LeaseId>,
    pub invoked: Moment,
    pub returned: Option<Moment>,
    pub granted: Option<FencingToken>,
    /// A holder was in the way, or a waiter that came earlier.
    pub is_refused: bool,
}

impl History {
    pub fn new(plan: &Plan) -> History {
        let drift_ppm = plan.drift_ppm.unsigned_abs();
        let longest = plan.limits.lease_ttl_max;
        let late = longest * u32::try_from(3 * drift_ppm).unwrap_or(0) / 1_000_000;
        // A session that was not heard of after a restart is kept as if its stream had gone.
        let kept = if plan.work.plain { Duration::ZERO } else { plan.limits.disconnect_ttl_max };
        let locks = (0..NAMES).zip(0..).map(|(number, index)| (name(number), index));
        History {
            locks: locks.collect(),
            operations: Vec::new(),
            attempts: Vec::new(),
            restarts: Vec::new(),
            taken: Vec::new(),
            unnamed: Vec::new(),
            disconnected: Vec::new(),
            drift_ppm,
            late_max: late + kept + Duration::from_millis(50),
        }
    }

    fn index(&self, scope: &Scope) -> Option<LockIndex> {
        self.locks.get(scope).copied()
    }

    pub fn attempt(&mut self, attempt: Attempt) {
        self.attempts.push(attempt);
    }

    pub fn kept(
        &mut self,
        client: usize,
        claims: &[Claim],
        (invoked, returned): (Moment, Option<Moment>),
        event: Event,
    ) {
        for claim in claims {
            if let (Some(lock), Some(_)) = (self.index(&claim.scope), told_mode(claim.mode)) {
                self.push(client, lock, invoked, returned, event);
            }
        }
    }

    pub fn renewed(
        &mut self,
        client: usize,
        claims: &[Claim],
        when: (Moment, Option<Moment>),
        fence: FencingToken,
        ttl: Duration,
        outcome: Kept,
    ) {
        let ttl = self.least(ttl);
        self.kept(client, claims, when, Event::Renew { token: fence.get(), ttl, outcome });
    }

    /// The same for a lock that the renewal did not name.
    pub fn renewed_unnamed(
        &mut self,
        client: usize,
        claims: &[Claim],
        when: (Moment, Option<Moment>),
        fence: FencingToken,
        ttl: Duration,
    ) {
        let first = self.operations.len();
        self.renewed(client, claims, when, fence, ttl, Kept::Done);
        self.unnamed.extend(first..self.operations.len());
    }

    pub fn released(
        &mut self,
        client: usize,
        claims: &[Claim],
        when: (Moment, Option<Moment>),
        fence: FencingToken,
        outcome: Kept,
    ) {
        self.kept(client, claims, when, Event::Release { token: fence.get(), outcome });
    }

    /// What was perhaps not given back stands for as long as its session is kept, and nobody tells of that any more.
    pub fn may_last(
        &mut self,
        client: usize,
        claims: &[Claim],
        since: Moment,
        fence: FencingToken,
    ) {
        let when = (since, None);
        self.renewed(client, claims, when, fence, Duration::from_secs(1), Kept::Unknown);
    }

    pub(super) fn taken_away(&mut self, taken: TakenAway) {
        self.taken.push(taken);
    }

    /// From then on it need not be there.
    fn may_be_gone(&mut self, since: Moment, claims: &[Claim], fence: FencingToken) {
        self.released(usize::MAX, claims, (since, None), fence, Kept::Unknown);
    }

    pub fn disconnected(&mut self, now: Moment, session: LeaseId) {
        self.disconnected.push((session, now));
    }

    /// A new leader begins: every lease stands in full again.
    pub fn restarted(&mut self, down: Moment, up: Moment) {
        self.restarts.push(Restart { down, up });
        let event = Event::Restart { down: when(down) };
        self.push(usize::MAX, LockIndex::MAX, down, Some(up), event);
    }

    /// The least that the ttl is in true time.
    fn least(&self, ttl: Duration) -> Duration {
        let micros = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(shortened(micros, self.drift_ppm).saturating_sub(2000))
    }

    fn push(
        &mut self,
        client: usize,
        lock: LockIndex,
        invoked: Moment,
        returned: Option<Moment>,
        event: Event,
    ) {
        let client = u32::try_from(client).unwrap_or(u32::MAX);
        let returned = returned.map_or(When::NEVER, when);
        self.operations.push(Operation { client, lock, invoked: when(invoked), returned, event });
    }

    /// Says whether it could be decided.
    pub(super) fn judge(&mut self, now: Moment, log: &Log) -> Result<bool, Verdict> {
        let known = |attempt: &Attempt| Some((attempt.granted?, attempt.returned?));
        let known: BTreeMap<FencingToken, Moment> =
            self.attempts.iter().filter_map(known).collect();
        self.tell_taken(&known);
        self.tell_disconnected(log, &known);
        let mut by_request: BTreeMap<(&Owner, &RequestId), Vec<FencingToken>> = BTreeMap::new();
        let mut by_lease: BTreeMap<LeaseId, Vec<FencingToken>> = BTreeMap::new();
        for (fence, GrantFact { granted, .. }) in log.grants() {
            if let Some(request) = &granted.request {
                by_request.entry((&granted.owner, &request.id)).or_default().push(*fence);
            }
            by_lease.entry(granted.lease).or_default().push(*fence);
        }
        let mut told = BTreeSet::new();
        let asked = self.first_asked(log);
        for (mut attempt, invoked) in std::mem::take(&mut self.attempts).into_iter().zip(asked) {
            attempt.invoked = invoked;
            if attempt.granted.is_some_and(|fence| !told.insert(fence)) {
                continue;
            }
            let mut fences: BTreeSet<FencingToken> = match &attempt.request_id {
                Some(id) => {
                    by_request.get(&(&attempt.owner, id)).into_iter().flatten().copied().collect()
                }
                None => {
                    let of_leases = attempt.leases.iter().filter_map(|lease| by_lease.get(lease));
                    of_leases.flatten().copied().collect()
                }
            };
            // Whoever takes back what it had is answered with a grant that came of another request.
            fences.extend(attempt.granted);
            let grants = fences.into_iter().filter_map(|fence| Some((fence, log.grant(fence)?)));
            self.tell_attempt(&attempt, grants, &known);
        }
        let rules = Rules { late_max: self.late_max, configurations_max: 2000 };
        match check(&self.operations, rules) {
            Ok(_) => Ok(true),
            Err(leasehold_judge::checker::Fault::Undecided { .. }) => Ok(false),
            Err(fault) => {
                Err(Verdict::new(now, "the history can have happened", fault.to_string()))
            }
        }
    }

    /// When each attempt was asked for. One that was made again may be answered with a grant from before: then it was made
    /// when the first one was that the grant can have come of, which nobody may have heard of for a while.
    fn first_asked(&self, log: &Log) -> Vec<Moment> {
        let mut known: BTreeMap<(&Owner, &RequestId), Vec<&Attempt>> = BTreeMap::new();
        for attempt in &self.attempts {
            if let Some(id) = &attempt.request_id {
                known.entry((&attempt.owner, id)).or_default().push(attempt);
            }
        }
        let first = |attempt: &Attempt| {
            let grant = attempt.granted.and_then(|fence| log.grant(fence))?;
            let can_be_its = |other: &&&Attempt| {
                other.invoked <= grant.at && other.returned.is_none_or(|at| at >= grant.at)
            };
            let id = attempt.request_id.as_ref();
            let others = id.and_then(|id| known.get(&(&attempt.owner, id))).into_iter().flatten();
            let asked = others.filter(can_be_its).map(|other| other.invoked);
            asked.chain([attempt.invoked, grant.at]).min()
        };
        self.attempts.iter().map(|attempt| first(attempt).unwrap_or(attempt.invoked)).collect()
    }

    fn tell_taken(&mut self, told: &BTreeMap<FencingToken, Moment>) {
        self.doubt_unnamed();
        for TakenAway { fence, claims, since, at } in std::mem::take(&mut self.taken) {
            // Nothing can be said about a grant that nobody knows of yet.
            let known = told.get(&fence).filter(|known| **known < at);
            let since = known.map_or(at, |known| since.max(*known + 1));
            self.may_be_gone(since, &claims, fence);
        }
    }

    /// What was being taken away when its lease was renewed was perhaps not renewed with it.
    fn doubt_unnamed(&mut self) {
        let mut gone: BTreeMap<(u64, LockIndex), Moment> = BTreeMap::new();
        for taken in &self.taken {
            for lock in taken.claims.iter().filter_map(|claim| self.index(&claim.scope)) {
                // What is gone may be told of again when its lease ends.
                gone.entry((taken.fence.get(), lock)).or_insert(taken.since);
            }
        }
        for at in std::mem::take(&mut self.unnamed) {
            let Operation { lock, returned, event, .. } = &mut self.operations[at];
            if let Event::Renew { token, outcome, .. } = event
                && gone.get(&(*token, *lock)).is_some_and(|since| *returned >= when(*since))
            {
                *outcome = Kept::Unknown;
            }
        }
    }

    /// What stood under a session whose stream was gone may have ended any time after that.
    fn tell_disconnected(&mut self, log: &Log, told: &BTreeMap<FencingToken, Moment>) {
        for (session, at) in std::mem::take(&mut self.disconnected) {
            for (fence, grant) in log.grants() {
                let is_its = grant.granted.lease == session;
                // One that was granted just before may be durable just after.
                let was_there =
                    grant.over.is_none_or(|over| over >= at) && grant.at <= at + 2 * SECOND;
                if is_its && was_there && grant.granted.namespace == Namespace::default() {
                    // Nothing can be said about a grant that nobody knows of yet.
                    let known = told.get(fence).map_or(grant.at, |told| *told + 1);
                    self.may_be_gone(at.max(known), &grant.granted.claims, *fence);
                }
            }
        }
    }

    /// Everything that was granted because of it, known to its client or not.
    fn tell_attempt<'a>(
        &mut self,
        attempt: &Attempt,
        grants: impl Iterator<Item = (FencingToken, &'a GrantFact)>,
        known: &BTreeMap<FencingToken, Moment>,
    ) {
        let mut is_told = false;
        for (fence, grant) in grants.filter(|(_, grant)| grant.at >= attempt.invoked) {
            let granted = &grant.granted;
            let is_its = attempt.request_id.is_some()
                || attempt.granted == Some(fence)
                || (granted.owner == attempt.owner && granted.claims == attempt.claims);
            // Made after it was answered: by another request, or by a copy of this one that came late. Nobody was told of
            // what such a copy was granted.
            let returned = attempt.returned.filter(|_| attempt.granted.is_some());
            let is_after = returned.is_some_and(|returned| returned < grant.at);
            let is_copy = attempt.request_id.is_some() && !known.contains_key(&fence);
            if !is_its || (is_after && !is_copy) {
                continue;
            }
            is_told |= attempt.granted == Some(fence);
            for claim in &attempt.claims {
                // One that was gone before its answer came is as good as one that never had an answer.
                let taken = grant.taken_at(&claim.scope);
                let is_gone = taken.is_some_and(|taken| Some(taken) < attempt.returned);
                if attempt.granted == Some(fence) && !is_gone {
                    let outcome = Acquired::Granted(fence.get());
                    self.tell_claim(attempt, claim, outcome, attempt.returned);
                    continue;
                }
                // Under a session it may stand for long without its client's knowing: as long as the log says.
                let is_lease = attempt.ttl > Duration::ZERO;
                let over = grant.over.unwrap_or(Moment(u64::MAX)).since(grant.at);
                let ttl = if is_lease { attempt.ttl } else { Duration::from_micros(over) };
                let invoked = if is_after { grant.at } else { attempt.invoked };
                let made = Attempt { invoked, ttl, ..attempt.clone() };
                self.tell_claim(&made, claim, Acquired::Unknown, Some(grant.at));
                if is_lease {
                    self.tell_revived(attempt, claim, grant);
                }
            }
        }
        // It stood in line, and others may have been refused because of that.
        if attempt.is_refused && !is_told {
            self.tell_acquire(attempt, Acquired::Refused, attempt.returned);
        } else if attempt.waited && !is_told {
            self.tell_acquire(attempt, Acquired::Unknown, attempt.returned);
        }
    }

    /// A grant that nobody knows of stands in full again after each restart that finds it. A leader may have been gone for
    /// longer than the lease was: whether it had ended before, only the log knows.
    fn tell_revived(&mut self, attempt: &Attempt, claim: &Claim, grant: &GrantFact) {
        let over = grant.taken_at(&claim.scope).into_iter().chain(grant.over).min();
        let finds_it = |restart: &&Restart| {
            grant.at <= restart.down && over.is_none_or(|over| over > restart.down)
        };
        for Restart { down, up } in self.restarts.clone().iter().filter(finds_it).copied() {
            let again = Attempt { invoked: down, ..attempt.clone() };
            self.tell_claim(&again, claim, Acquired::Unknown, Some(up));
        }
    }

    fn tell_acquire(&mut self, attempt: &Attempt, outcome: Acquired, returned: Option<Moment>) {
        for claim in &attempt.claims {
            self.tell_claim(attempt, claim, outcome, returned);
        }
    }

    fn tell_claim(
        &mut self,
        attempt: &Attempt,
        claim: &Claim,
        outcome: Acquired,
        returned: Option<Moment>,
    ) {
        if let (Some(lock), Some(mode)) = (self.index(&claim.scope), told_mode(claim.mode)) {
            let ttl = self.least(attempt.ttl);
            let event = Event::Acquire { mode, ttl, waited: attempt.waited, outcome };
            self.push(attempt.client, lock, attempt.invoked, returned, event);
        }
    }
}

fn told_mode(mode: Mode) -> Option<Told> {
    match mode {
        Mode::Exclusive => Some(Told::Exclusive),
        Mode::Shared => Some(Told::Shared),
        Mode::Permits(_) => None,
    }
}

fn when(moment: Moment) -> When {
    leasehold_judge::history::Moment(moment.0.saturating_mul(1000))
}
