//! Those who look on and say when a promise is broken.
//!
//! They know more than any part of the world: true time, every record the moment it is durable, what every client
//! believes. None of them takes the word of a server.

mod asks;
mod beliefs;
mod bounds;
mod bytes;
mod history;
mod log;
mod principals;
mod repeats;
mod replies;
mod resource;
mod snapshots;
mod steps;

use std::collections::BTreeMap;
use std::time::Duration;
use std::{fmt, slice};

use leasehold_core::{Claim, FencingToken, Owner, Revision, Scope};
use leasehold_engine::Engine;
use leasehold_judge::history::Kept;

use crate::coverage::Coverage;
use crate::plan::Plan;
use crate::time::{Micros, Moment};

use asks::Asks;
pub(crate) use asks::{Answered, is_unknown};
pub use beliefs::{Belief, Beliefs};
pub use bounds::{Peaks, Queue};
pub use history::{Attempt, History};
use log::{GrantFact, Log};
use repeats::Repeats;
use resource::Resources;
use snapshots::Snapshots;
pub use steps::watch_steps;

/// So often a table that could be compared with the log is.
const COMPARE_EVERY: u64 = 8;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub at: Moment,
    pub promise: &'static str,
    pub seen: String,
}

impl Verdict {
    pub fn new(at: Moment, promise: &'static str, seen: impl Into<String>) -> Verdict {
        Verdict { at, promise, seen: seen.into() }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} s: {}: {}", self.at.to_string().trim(), self.promise, self.seen)
    }
}

impl std::error::Error for Verdict {}

/// All judges of one world.
#[derive(Debug)]
pub struct Judge {
    pub(crate) log: Log,
    pub(crate) resources: Resources,
    pub(crate) history: History,
    pub(crate) beliefs: Beliefs,
    snapshots: Snapshots,
    pub(crate) asks: Asks,
    repeats: Repeats,
    /// When the simple lock was asked for, and for how long, by each owner: the last one counts.
    simple: BTreeMap<Owner, Vec<(Moment, Duration)>>,
    /// Parts in a million by which clocks are off at most.
    drift_ppm: u64,
    accused: Option<Verdict>,
    /// The last revision at which a table could be compared with the log, and how often that was.
    caught_up: (Revision, u64),
}

impl Judge {
    pub fn new(plan: &Plan) -> Judge {
        Judge {
            log: Log::new(plan.limits.clone()),
            resources: Resources::default(),
            history: History::new(plan),
            beliefs: Beliefs::new(plan),
            snapshots: Snapshots::new(plan.limits.clone()),
            asks: Asks::default(),
            repeats: Repeats::default(),
            simple: BTreeMap::new(),
            drift_ppm: plan.drift_ppm.unsigned_abs(),
            accused: None,
            caught_up: (Revision(0), 0),
        }
    }

    /// The least that a length by any clock of this world can be in true time.
    pub(crate) fn at_least(&self, length: Micros) -> Micros {
        shortened(length, self.drift_ppm)
    }

    /// Whether a scope of a grant is over for all the world to see. Its session, or the rest of its set, goes on without it.
    fn is_over(&self, fence: FencingToken, scope: &Scope) -> bool {
        let is_over = |grant: &GrantFact| grant.over.is_some() || grant.taken_at(scope).is_some();
        self.log.grant(fence).is_none_or(is_over)
    }

    /// A renewal was answered: the scope that it named, and all under its lease that is not over, goes on. What is over was
    /// perhaps renewed before.
    pub(crate) fn renewed_with(
        &mut self,
        client: usize,
        claims: &[Claim],
        (invoked, returned): (Moment, Moment),
        (fence, ttl): (FencingToken, Duration),
        named: Option<&Scope>,
    ) {
        for claim in claims {
            let (claims, when) = (slice::from_ref(claim), (invoked, Some(returned)));
            if named == Some(&claim.scope) {
                self.history.renewed(client, claims, when, fence, ttl, Kept::Done);
            } else if self.is_over(fence, &claim.scope) {
                self.history.renewed(client, claims, when, fence, ttl, Kept::Unknown);
            } else {
                self.history.renewed_unnamed(client, claims, when, fence, ttl);
            }
        }
    }

    /// A release was answered: the scope that it named was there, and all of its set that was not taken away before.
    pub(crate) fn released_with(
        &mut self,
        client: usize,
        claims: &[Claim],
        (invoked, returned): (Moment, Moment),
        fence: FencingToken,
        named: &Scope,
    ) {
        for claim in claims {
            let grant = self.log.grant(fence);
            let is_taken = grant.is_some_and(|grant| grant.taken_at(&claim.scope).is_some());
            let is_sure = *named == claim.scope || !is_taken;
            let outcome = if is_sure { Kept::Done } else { Kept::Unknown };
            let when = (invoked, Some(returned));
            self.history.released(client, slice::from_ref(claim), when, fence, outcome);
        }
    }

    /// Something was seen where it could not be reported.
    pub fn accuse(&mut self, verdict: Verdict) {
        self.accused.get_or_insert(verdict);
    }

    pub fn take_verdict(&mut self, now: Moment) -> Result<(), Verdict> {
        match self.accused.take().or_else(|| steps::take_broken(now)) {
            Some(verdict) => Err(verdict),
            None => Ok(()),
        }
    }

    /// A table after something happened to it. The steps in between were looked at as they were made.
    pub fn table(&mut self, now: Moment, engine: &Engine) -> Result<(), Verdict> {
        let unwritten = engine.unwritten_len();
        let revision = engine.table().revision();
        let (last, times) = self.caught_up;
        if unwritten == 0 && revision == self.log.table().revision() && revision != last {
            self.caught_up = (revision, times + 1);
            // Neither is ever set right by the other: what differs once differs for good.
            if times.is_multiple_of(COMPARE_EVERY) {
                return self.fold(now, engine);
            }
        }
        Ok(())
    }

    /// The table is what the log says.
    pub fn fold(&self, now: Moment, engine: &Engine) -> Result<(), Verdict> {
        if engine.table().digest() != self.log.table().digest() {
            let what = format!("at revision {}", engine.table().revision().0);
            return Err(Verdict::new(now, "the table is the fold of the log", what));
        }
        Ok(())
    }

    /// Bytes of records that the last snapshot does not have.
    pub(crate) fn bytes_behind(&self) -> usize {
        self.snapshots.bytes_behind()
    }

    /// Everything is over: what can only be judged as a whole.
    pub fn last(&mut self, now: Moment, coverage: &mut Coverage) -> Result<(), Verdict> {
        let is_decided = self.history.judge(now, &self.log)?;
        coverage.mark(if is_decided { "history judged" } else { "history undecided" });
        Ok(())
    }
}

/// What is left of a length on a clock that is as fast as any.
pub(crate) fn shortened(length: Micros, drift_ppm: u64) -> Micros {
    let length = u128::from(length) * 1_000_000 / u128::from(1_000_000 + drift_ppm);
    u64::try_from(length).unwrap_or(u64::MAX)
}
