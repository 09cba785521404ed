//! All that the workers see, and whether it can be true.
//!
//! Clients' clocks are exact, so what two workers believe at the same moment can be compared. The history of each lock goes
//! to `leasehold-judge`, and what was answered `not_applied` is looked for in the journal.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold_api::RequestOutcome;
use leasehold_client::{LeaseHandle, State};
use leasehold_judge::checker::{Fault, Rules, check};
use leasehold_judge::history::{Acquired, Event, Kept, LockIndex, Mode, Moment, Operation, Token};

use crate::clock;
use crate::log::{Log, session_of};
use crate::raw_client::Done;

/// How long after its caller has gone something may still be carried out: what is held up on its way, and a queue that
/// nobody has left yet.
const LATE: Duration = Duration::from_secs(30);

/// Somebody who takes itself for a holder.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) owner: String,
    pub(crate) locks: Vec<LockIndex>,
    pub(crate) mode: Mode,
    pub(crate) handle: LeaseHandle,
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    pub(crate) trace: Vec<String>,
    pub(crate) log: Log,
    verdict: Option<String>,
    holding: Vec<Holding>,
    /// The highest token that each guarded thing was written with.
    written: BTreeMap<LockIndex, Token>,
    operations: Vec<Operation>,
    /// When requests were answered `not_applied`, by their owners: each request has one of its own.
    not_applied: BTreeMap<String, Duration>,
    /// What was answered to requests by hand, and when.
    told: Vec<(Duration, Done, RequestOutcome)>,
    /// Since when the server was down, each time.
    downs: Vec<Duration>,
    pub(crate) counts: Counts,
}

/// What came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub grants: usize,
    pub refusals: usize,
    pub not_applied: usize,
    pub unknown: usize,
    pub renewals: usize,
    pub losses: usize,
    pub restarts: usize,
    pub by_hand: usize,
    pub by_hand_not_applied: usize,
    pub faults: usize,
    /// How often the runtime of a client was blocked.
    pub blocks: usize,
}

impl Judge {
    pub(crate) fn say(&mut self, line: fmt::Arguments<'_>) {
        self.trace.push(format!("{:>10.3}  {line}", clock::elapsed().as_secs_f64()));
    }

    /// A promise was broken. The first one counts.
    pub(crate) fn broken(&mut self, what: String) {
        self.say(format_args!("BROKEN: {what}"));
        self.verdict.get_or_insert(what);
    }

    pub(crate) fn verdict(&self) -> Option<&str> {
        self.verdict.as_deref()
    }

    fn record(
        &mut self,
        client: usize,
        locks: &[LockIndex],
        (invoked, returned): (Duration, Option<Duration>),
        event: Event,
    ) {
        let client = u32::try_from(client).unwrap_or(u32::MAX);
        let returned = returned.map_or(Moment::NEVER, moment);
        for &lock in locks {
            let invoked = moment(invoked);
            self.operations.push(Operation { client, lock, invoked, returned, event });
        }
    }

    pub(crate) fn granted(
        &mut self,
        client: usize,
        invoked: Duration,
        waited: bool,
        holding: Holding,
    ) {
        self.counts.grants += 1;
        let (handle, mode) = (&holding.handle, holding.mode);
        let (token, ttl) = (handle.fencing_token(), handle.ttl());
        let outcome = Acquired::Granted(token);
        let event = Event::Acquire { mode, ttl, waited, outcome };
        self.say(format_args!("{} granted {:?} token {token}", holding.owner, holding.locks));
        self.record(client, &holding.locks, (invoked, Some(clock::elapsed())), event);
        if handle.state() == State::Lost {
            return;
        }
        let meets = |other: &&Holding| {
            other.handle.state() != State::Lost
                && other.mode.conflicts_with(holding.mode)
                && other.locks.iter().any(|lock| holding.locks.contains(lock))
        };
        if let Some(other) = self.holding.iter().find(meets) {
            let what = format!("{} and {} both hold {:?}", other.owner, holding.owner, other.locks);
            self.broken(what);
        }
        self.holding.push(holding);
    }

    pub(crate) fn not_granted(
        &mut self,
        client: usize,
        (owner, locks): (&str, &[LockIndex]),
        (invoked, waited): (Duration, bool),
        (mode, ttl): (Mode, Duration),
        why: &NotGranted,
    ) {
        self.say(format_args!("{owner} not granted {locks:?}: {why}"));
        let now = clock::elapsed();
        let event = |outcome| Event::Acquire { mode, ttl, waited, outcome };
        match why {
            NotGranted::Held => {
                self.counts.refusals += 1;
                self.not_applied.insert(owner.into(), now);
                // Of a set it is not known which lock was held; but who stood in line was in the way of others.
                match (locks, waited) {
                    ([_], _) => {
                        self.record(client, locks, (invoked, Some(now)), event(Acquired::Refused));
                    }
                    (_, true) => {
                        self.record(client, locks, (invoked, Some(now)), event(Acquired::Unknown));
                    }
                    (_, false) => {}
                }
            }
            NotGranted::NotApplied(_) => {
                self.counts.not_applied += 1;
                self.not_applied.insert(owner.into(), now);
                // It got nothing, but while it stood in line it was in the way of others.
                if waited {
                    self.record(client, locks, (invoked, Some(now)), event(Acquired::Unknown));
                }
            }
            NotGranted::Unknown(_) => {
                self.counts.unknown += 1;
                let returned = Some(now + LATE);
                self.record(client, locks, (invoked, returned), event(Acquired::Unknown));
            }
        }
    }

    pub(crate) fn session_not_opened(&mut self, owner: &str) {
        self.counts.not_applied += 1;
        self.not_applied.insert(session_of(owner), clock::elapsed());
    }

    pub(crate) fn renewed(
        &mut self,
        client: usize,
        (locks, token): (&[LockIndex], Token),
        (sent, ttl): (Duration, Duration),
    ) {
        self.counts.renewals += 1;
        let event = Event::Renew { token, ttl, outcome: Kept::Done };
        self.record(client, locks, (sent, Some(clock::elapsed())), event);
    }

    /// A holder writes to what its lock guards, while it believes that it may.
    pub(crate) fn write(&mut self, lock: LockIndex, token: Token, owner: &str) {
        let seen = self.written.entry(lock).or_default();
        if token < *seen {
            let what = format!("lock {lock} was written with token {seen}, {owner} has {token}");
            return self.broken(what);
        }
        *seen = token;
    }

    /// A holder is told that it has lost what by its own clock it still has.
    pub(crate) fn lost(&mut self, owner: &str, handle: &LeaseHandle, why: &str) {
        self.counts.losses += 1;
        let left = handle.window().lapses_at().since(clock::now());
        self.say(format_args!("{owner} lost it, {left:?} before its end: {why}"));
        if !left.is_zero() {
            self.broken(format!("{owner} lost its lease {left:?} early: {why}"));
        }
    }

    /// A worker no longer takes itself for a holder.
    pub(crate) fn lets_go(&mut self, owner: &str) {
        self.holding.retain(|holding| holding.owner != owner);
    }

    pub(crate) fn released(
        &mut self,
        client: usize,
        (locks, token): (&[LockIndex], Token),
        (invoked, since): (Duration, Duration),
        ttl: Duration,
        outcome: Kept,
    ) {
        let now = clock::elapsed();
        let unanswered = Event::Renew { token, ttl, outcome: Kept::Unknown };
        self.record(client, locks, (since, Some(now + LATE)), unanswered);
        let returned = (outcome != Kept::Unknown).then_some(now);
        self.say(format_args!("token {token} released: {outcome:?}"));
        self.record(client, locks, (invoked, returned), Event::Release { token, outcome });
    }

    pub(crate) fn restarted(&mut self, down: Duration) {
        self.counts.restarts += 1;
        self.downs.push(down);
        let up = clock::elapsed();
        self.say(format_args!("server up"));
        let event = Event::Restart { down: moment(down) };
        self.record(usize::MAX, &[LockIndex::MAX], (down, Some(up)), event);
    }

    /// A request by hand was answered.
    pub(crate) fn told(&mut self, done: Done, happened: RequestOutcome) {
        self.counts.by_hand += 1;
        self.counts.by_hand_not_applied += usize::from(happened == RequestOutcome::NotApplied);
        self.told.push((clock::elapsed(), done, happened));
    }

    /// What was answered to a request by hand, and is not so.
    fn told_wrong(&self) -> Option<String> {
        let is_wrong = |(at, done, happened): &&(Duration, Done, RequestOutcome)| match happened {
            RequestOutcome::NotApplied => self.log.has_done(done),
            RequestOutcome::Applied => {
                !self.log.has_done(done) && !self.may_be_forgotten(*at, done)
            }
            RequestOutcome::Unknown => false,
        };
        let (at, done, happened) = self.told.iter().find(is_wrong)?;
        Some(format!("{done:?} was answered {happened:?} after {at:?}, which is not so"))
    }

    /// Whether something that was done before this moment may not be in the records. A crash brings back what was released,
    /// until its ttl is over. A release whose record failed is made again, unless the ttl was over by then.
    fn may_be_forgotten(&self, at: Duration, done: &Done) -> bool {
        let Done::Ended(ttl) = done else { return false };
        self.log.has_done(&Done::Lapsed(*ttl)) || self.downs.iter().any(|&down| down >= at)
    }

    /// Judges what can only be judged at the end.
    pub(crate) fn conclude(&mut self, ttl_max: Duration) {
        if self.verdict.is_some() {
            return;
        }
        let late = self.log.applied(&self.not_applied).map(|(owner, token)| {
            format!("{owner} was told that nothing happened, and then got token {token}")
        });
        let left = self.log.left().map(|owner| format!("{owner} still holds a lock at the end"));
        let rules =
            Rules { late_max: ttl_max + Duration::from_millis(200), configurations_max: 20_000 };
        let history = match check(&self.operations, rules) {
            Ok(_) | Err(Fault::Undecided { .. }) => None,
            Err(fault) => Some(format!("the history cannot have happened: {fault}")),
        };
        if let Some(what) = late.or(left).or_else(|| self.told_wrong()).or(history) {
            self.verdict = Some(what.clone());
            self.trace.push(format!("BROKEN: {what}"));
        }
    }
}

/// Why a request was not granted.
#[derive(Debug)]
pub(crate) enum NotGranted {
    /// Somebody was in the way.
    Held,
    NotApplied(String),
    Unknown(String),
}

impl fmt::Display for NotGranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotGranted::Held => f.write_str("held"),
            NotGranted::NotApplied(said) => write!(f, "not applied: {said}"),
            NotGranted::Unknown(said) => write!(f, "unknown: {said}"),
        }
    }
}

fn moment(elapsed: Duration) -> Moment {
    Moment::default() + elapsed
}
