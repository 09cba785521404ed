//! What is durable: every record, replayed the moment it was written, onto a table that nobody else touches.
//!
//! This is the one order in which everything happened. What a server shows must be in it; what it says is over must be
//! over in it; and replayed it must never show two conflicting grants.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use leasehold_core::{
    Claim, Ending, Epoch, FencingToken, Granted, Key, LeaseId, Limits, LockTable, Millis,
    Namespace, Owner, Principal, RegisterName, RequestId, Scope, Transition, invariant,
};
use leasehold_store::{Batch, Seq};

use super::bytes::Bytes;
use super::history::TakenAway;
use super::{Judge, Verdict, shortened};
use crate::time::{MILLI, Micros, Moment};

/// A lease by its full name.
pub(crate) type Name = (Namespace, LeaseId);

#[derive(Debug)]
pub(crate) struct Log {
    table: LockTable,
    seq: Seq,
    epoch: Epoch,
    fence: FencingToken,
    leases: BTreeMap<Name, Lease>,
    grants: BTreeMap<FencingToken, GrantFact>,
    /// Those of each lease that is not over.
    by_lease: BTreeMap<Name, Vec<FencingToken>>,
    sessions: BTreeMap<(Namespace, u64), LeaseId>,
    /// The last grant that each request with an id has led to.
    requests: BTreeMap<(Namespace, Owner, RequestId), FencingToken>,
    /// The highest token that each fence register has ever accepted.
    marks: BTreeMap<(Namespace, RegisterName), FencingToken>,
    bytes: Bytes,
    /// What has ended without its holder's doing, until histories are told: the grant, or one key of it.
    taken: Vec<(FencingToken, Option<Key>)>,
    /// When the last two records were durable.
    durable: [Moment; 2],
}

/// A lease as the log has it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) principal: Principal,
    pub(crate) ttl: Millis,
    /// The longest that it ever was.
    pub(crate) ttl_most: Millis,
    pub(crate) is_over: bool,
    /// A client was told that it is over.
    pub(crate) told_over: bool,
    /// No one may let it lapse before this moment of true time.
    pub(crate) promised: Moment,
    /// When something was asked last that can shorten it, and to what length: what was asked before promises nothing any
    /// more, and what was asked in the same moment no more than that.
    pub(crate) shortened: (Moment, Micros),
    /// Both as they were before that was asked: if it was not applied, that is what was promised all the time.
    before: (Moment, (Moment, Micros)),
}

/// A grant as the log has it.
#[derive(Clone, Debug)]
pub(crate) struct GrantFact {
    pub(crate) at: Moment,
    pub(crate) granted: Granted,
    /// When a holder first heard of it.
    pub(crate) told: Option<Moment>,
    /// When its end was durable.
    pub(crate) over: Option<Moment>,
    /// What of it has ended otherwise than by its holder's release or by time, one key or all, and when that was durable.
    taken: Vec<(Option<Key>, Moment)>,
    /// An operator has taken it away, or a part of it.
    pub(crate) is_overruled: bool,
}

impl Log {
    pub(crate) fn new(limits: Limits) -> Log {
        Log {
            table: LockTable::new(limits, 1),
            seq: Seq(0),
            epoch: Epoch(0),
            fence: FencingToken::ZERO,
            leases: BTreeMap::new(),
            grants: BTreeMap::new(),
            by_lease: BTreeMap::new(),
            sessions: BTreeMap::new(),
            requests: BTreeMap::new(),
            marks: BTreeMap::new(),
            bytes: Bytes::default(),
            taken: Vec::new(),
            durable: [Moment(0); 2],
        }
    }

    pub(crate) fn table(&self) -> &LockTable {
        &self.table
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn lease(&self, namespace: &Namespace, lease: LeaseId) -> Option<&Lease> {
        self.leases.get(&(namespace.clone(), lease))
    }

    pub(crate) fn lease_mut(
        &mut self,
        namespace: &Namespace,
        lease: LeaseId,
    ) -> Option<&mut Lease> {
        self.leases.get_mut(&(namespace.clone(), lease))
    }

    /// Whether the lease is gone from the table: a plain lease that holds nothing any more is over without a word.
    pub(crate) fn is_gone(&self, namespace: &Namespace, lease: LeaseId) -> bool {
        !self.table.is_live(namespace, lease)
    }

    pub(crate) fn grant(&self, fence: FencingToken) -> Option<&GrantFact> {
        self.grants.get(&fence)
    }

    pub(crate) fn told_of(&mut self, now: Moment, fence: FencingToken) {
        if let Some(grant) = self.grants.get_mut(&fence) {
            grant.told.get_or_insert(now);
        }
    }

    /// The highest token that the register has ever accepted, deleted since or not.
    pub(crate) fn mark(
        &self,
        namespace: &Namespace,
        register: &RegisterName,
    ) -> Option<FencingToken> {
        self.marks.get(&(namespace.clone(), register.clone())).copied()
    }

    /// The session with this number.
    pub(crate) fn session(&self, namespace: &Namespace, number: u64) -> Option<LeaseId> {
        self.sessions.get(&(namespace.clone(), number)).copied()
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = (&FencingToken, &GrantFact)> {
        self.grants.iter()
    }

    pub(crate) fn grants_after(&self, fence: FencingToken) -> impl Iterator<Item = &GrantFact> {
        self.grants.range((Excluded(fence), Unbounded)).map(|(_, grant)| grant)
    }

    fn open(
        &mut self,
        now: Moment,
        (namespace, lease): (&Namespace, LeaseId),
        owner: &Owner,
        ttl: Millis,
    ) {
        let fresh = Lease {
            principal: owner.principal(),
            ttl,
            ttl_most: ttl,
            is_over: false,
            told_over: false,
            promised: now,
            shortened: (Moment(0), Micros::MAX),
            before: (now, (Moment(0), Micros::MAX)),
        };
        self.leases.insert((namespace.clone(), lease), fresh);
    }

    fn note(&mut self, now: Moment, transition: &Transition) -> Result<(), Verdict> {
        if let Transition::Granted(granted) = transition {
            self.once_for_each_request(now, granted)?;
        }
        let grants = &self.grants;
        let noted = self.bytes.note(transition, |fence| grants.get(&fence).map(|at| &at.granted));
        noted.map_err(|seen| Verdict::new(now, "bytes belong to one lease", seen))?;
        match transition {
            Transition::SessionOpened(opened) => {
                let name = (&opened.namespace, opened.lease);
                self.open(now, name, &opened.owner, opened.ttl);
                let name = (opened.namespace.clone(), opened.terms.number);
                self.sessions.insert(name, opened.lease);
            }
            Transition::Granted(granted) => {
                if granted.fence <= self.fence {
                    let what = format!("fence {} after fence {}", granted.fence, self.fence);
                    return Err(Verdict::new(now, "fences only rise", what));
                }
                self.fence = granted.fence;
                if let Some(ttl) = granted.opens {
                    let name = (&granted.namespace, granted.lease);
                    self.open(now, name, &granted.owner, ttl);
                }
                let fact = GrantFact {
                    at: now,
                    granted: granted.clone(),
                    told: None,
                    over: None,
                    taken: Vec::new(),
                    is_overruled: false,
                };
                self.grants.insert(granted.fence, fact);
                let name = (granted.namespace.clone(), granted.lease);
                self.by_lease.entry(name).or_default().push(granted.fence);
            }
            Transition::TtlChanged { namespace, lease, ttl } => {
                if let Some(known) = self.lease_mut(namespace, *lease) {
                    known.ttl = *ttl;
                    known.ttl_most = known.ttl_most.max(*ttl);
                }
            }
            Transition::LeaseLapsed { namespace, lease, ending }
            | Transition::LeaseEnding { namespace, lease, ending }
            | Transition::LeaseEnded { namespace, lease, ending } => {
                self.lease_over(now, namespace, *lease, ending)?;
            }
            Transition::GrantEnded { fence, .. } => self.grant_over(now, *fence),
            Transition::KeyEnded { fence, .. } => {
                let is_single = |fact: &GrantFact| fact.granted.claims.len() == 1;
                if self.grants.get(fence).is_some_and(is_single) {
                    self.grant_over(now, *fence);
                }
            }
            Transition::Jumped { fence, .. } => self.fence = self.fence.max(*fence),
            Transition::FenceAccepted { namespace, register, fence, .. } => {
                if *fence > self.fence {
                    let what = format!("{register} at {fence}, the last token is {}", self.fence);
                    return Err(Verdict::new(now, "a register takes issued tokens only", what));
                }
                let mark = self.marks.entry((namespace.clone(), register.clone())).or_default();
                *mark = (*mark).max(*fence);
            }
            Transition::EpochBegan { .. }
            | Transition::RangeEnded { .. }
            | Transition::FenceDeleted { .. } => {}
        }
        Ok(())
    }

    /// A request that is sent again leads to the grant that it has led to before, as long as that stands.
    fn once_for_each_request(&mut self, now: Moment, granted: &Granted) -> Result<(), Verdict> {
        let Some(request) = &granted.request else { return Ok(()) };
        let name = (granted.namespace.clone(), granted.owner.clone(), request.id.clone());
        let before = self.requests.insert(name, granted.fence);
        // Bytes end piece by piece; as long as one of them is left, so is the grant.
        let stands = |fact: &&GrantFact| {
            let is_key = |claim: &Claim| matches!(claim.scope, Scope::Key(_));
            let is_plain = fact.granted.claims.iter().all(is_key);
            fact.over.is_none() && (is_plain || self.bytes.stands(&fact.granted))
        };
        let before = before.and_then(|fence| self.grants.get(&fence)).filter(stands);
        if let Some(before) = before {
            let what = format!("fences {} and {}", before.granted.fence, granted.fence);
            return Err(Verdict::new(now, "a request is granted once", what));
        }
        Ok(())
    }

    fn note_overruled(&mut self, transition: &Transition) {
        let (name, ending) = match transition {
            Transition::LeaseEnding { namespace, lease, ending }
            | Transition::LeaseEnded { namespace, lease, ending }
            | Transition::GrantEnded { namespace, lease, ending, .. }
            | Transition::KeyEnded { namespace, lease, ending, .. }
            | Transition::RangeEnded { namespace, lease, ending, .. } => {
                ((namespace.clone(), *lease), ending)
            }
            Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::SessionOpened(_)
            | Transition::Granted(_)
            | Transition::TtlChanged { .. }
            | Transition::LeaseLapsed { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => return,
        };
        if matches!(ending, Ending::Revoked(_) | Ending::FileRemoved) {
            for fence in self.by_lease.get(&name).into_iter().flatten() {
                if let Some(grant) = self.grants.get_mut(fence) {
                    grant.is_overruled = true;
                }
            }
        }
        if is_taken(ending) {
            match transition {
                Transition::KeyEnded { fence, key, .. } => {
                    self.taken.push((*fence, Some(key.clone())));
                }
                Transition::GrantEnded { fence, .. } => self.taken.push((*fence, None)),
                // Histories tell of no bytes, and the names of a set stay when its bytes are gone.
                Transition::RangeEnded { .. } => {}
                _ => {
                    let fences = self.by_lease.get(&name).into_iter().flatten();
                    self.taken.extend(fences.map(|fence| (*fence, None)));
                }
            }
        }
        if matches!(transition, Transition::LeaseEnded { .. }) {
            self.by_lease.remove(&name);
        }
    }

    fn grant_over(&mut self, now: Moment, fence: FencingToken) {
        if let Some(grant) = self.grants.get_mut(&fence) {
            grant.over.get_or_insert(now);
        }
    }

    fn lease_over(
        &mut self,
        now: Moment,
        namespace: &Namespace,
        lease: LeaseId,
        ending: &Ending,
    ) -> Result<(), Verdict> {
        let Some(known) = self.lease_mut(namespace, lease) else { return Ok(()) };
        let by_time = matches!(ending, Ending::Expired | Ending::GraceExpired);
        if by_time && !known.is_over && now < known.promised {
            let what = format!("a lease lapsed, promised until {}", known.promised);
            return Err(Verdict::new(now, "no lease lapses early", what));
        }
        known.is_over = true;
        for fence in self.by_lease.get(&(namespace.clone(), lease)).into_iter().flatten() {
            if let Some(grant) = self.grants.get_mut(fence) {
                grant.over.get_or_insert(now);
            }
        }
        Ok(())
    }

    /// Everything is gone but the fences that were seen.
    fn forget(&mut self, now: Moment) {
        self.table = LockTable::new(self.table.limits().clone(), 1);
        (self.seq, self.epoch) = (Seq(0), Epoch(0));
        for (fence, grant) in self.grants.iter_mut().filter(|(_, grant)| grant.over.is_none()) {
            grant.over = Some(now);
            self.taken.push((*fence, None));
        }
        self.by_lease.clear();
        self.sessions.clear();
        self.bytes.forget();
    }

    fn replay(&mut self, now: Moment, batch: &Batch) -> Result<(), Verdict> {
        let (seq, epoch) = (batch.seq(), batch.epoch());
        if seq != self.seq.next() || epoch < self.epoch {
            let what = format!(
                "record {seq} of epoch {} after record {} of epoch {}",
                epoch.0, self.seq, self.epoch.0
            );
            return Err(Verdict::new(now, "records follow each other", what));
        }
        (self.seq, self.epoch) = (seq, epoch);
        for transition in batch.transitions() {
            let unreadable = |fault| Verdict::new(now, "records can be read", format!("{fault}"));
            let transition = transition.map_err(unreadable)?;
            let unfit = |unfit| Verdict::new(now, "records fit together", format!("{unfit}"));
            self.table.apply(&transition).map_err(unfit)?;
            self.note(now, &transition)?;
            self.note_overruled(&transition);
        }
        invariant::check_lasting(&self.table).map_err(|broken| {
            Verdict::new(now, broken.promise, format!("in the log: {}", broken.seen))
        })
    }
}

impl GrantFact {
    /// When it was durable that the scope was taken away from its holder.
    pub(crate) fn taken_at(&self, scope: &Scope) -> Option<Moment> {
        let is_it = |key: &Option<Key>| match (key, scope) {
            (Some(key), Scope::Key(own)) => key == own,
            (Some(_), Scope::Range { .. }) => false,
            (None, _) => true,
        };
        self.taken.iter().find(|(key, _)| is_it(key)).map(|(_, at)| *at)
    }
}

/// Whether something can end like that though its holder has neither released it nor let it lapse.
fn is_taken(ending: &Ending) -> bool {
    match ending {
        Ending::Released | Ending::Expired | Ending::GraceExpired | Ending::WindowOver => false,
        // Not each of those who hold something under a session is there when it is closed.
        Ending::Closed
        | Ending::Disconnected
        | Ending::Revoked(_)
        | Ending::FileRemoved
        | Ending::Replaced
        | Ending::Withdrawn
        | Ending::Reclaimed => true,
    }
}

impl Judge {
    /// A record is durable.
    pub fn written(&mut self, now: Moment, batch: &Batch) -> Result<(), Verdict> {
        self.log.replay(now, batch)?;
        for transition in batch.transitions().flatten() {
            self.asks.written(now, &transition)?;
        }
        self.asks.settle(now, &self.log)?;
        self.snapshots.written(batch);
        // A record is sealed when the one before the last is durable at the earliest; what is in the next happened later.
        let [since, last] = self.log.durable;
        self.log.durable = [last, now];
        self.tell_taken(since, now);
        Ok(())
    }

    /// A store that forgets is gone with its server. What was promised stands: nobody else may hold it before that is over.
    pub fn forgotten(&mut self, now: Moment) {
        self.log.forget(now);
        self.snapshots.forget();
        self.asks.forgotten();
        self.tell_taken(now, now);
    }

    fn tell_taken(&mut self, since: Moment, now: Moment) {
        for (fence, key) in std::mem::take(&mut self.log.taken) {
            let Some(grant) = self.log.grants.get_mut(&fence) else { continue };
            grant.taken.push((key.clone(), now));
            if grant.granted.namespace != Namespace::default() {
                continue;
            }
            let is_it = |claim: &&Claim| match (&key, &claim.scope) {
                (Some(key), Scope::Key(own)) => key == own,
                (Some(_), Scope::Range { .. }) => false,
                (None, _) => true,
            };
            let claims: Vec<Claim> = grant.granted.claims.iter().filter(is_it).cloned().collect();
            self.history.taken_away(TakenAway { fence, claims, since, at: now });
        }
    }

    /// A client was told at `now` that a lease stands for `ttl`, in answer to what came in at `asked`.
    pub(crate) fn promise(
        &mut self,
        namespace: &Namespace,
        lease: LeaseId,
        asked: Moment,
        ttl: Millis,
    ) {
        let drift_ppm = self.drift_ppm;
        if let Some(lease) = self.log.lease_mut(namespace, lease)
            && lease.shortened.0 <= asked
        {
            let ttl = u64::from(ttl.get()) * MILLI;
            let (at, most) = lease.shortened;
            let length = shortened(if at == asked { ttl.min(most) } else { ttl }, drift_ppm);
            // A server reads its clock in whole milliseconds, rounded down.
            lease.promised = lease.promised.max(Moment((asked + length).0.saturating_sub(MILLI)));
        }
    }

    /// Something is asked that can shorten a lease.
    pub(crate) fn shorten(
        &mut self,
        now: Moment,
        namespace: &Namespace,
        lease: LeaseId,
        length: u64,
    ) {
        let promised = now + self.at_least(length);
        if let Some(lease) = self.log.lease_mut(namespace, lease) {
            let (at, most) = lease.shortened;
            if at != now {
                lease.before = (lease.promised, lease.shortened);
            }
            lease.promised = lease.promised.min(promised);
            lease.shortened = (now, if at == now { length.min(most) } else { length });
        }
    }

    /// What was asked at that moment, and nothing since, could have shortened the lease; it was not applied.
    pub(crate) fn not_shortened(&mut self, asked: Moment, namespace: &Namespace, lease: LeaseId) {
        if let Some(lease) = self.log.lease_mut(namespace, lease)
            && lease.shortened.0 == asked
        {
            let (promised, shortened) = lease.before;
            (lease.promised, lease.shortened) = (lease.promised.max(promised), shortened);
        }
    }
}
