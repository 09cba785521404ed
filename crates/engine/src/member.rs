//! One server's part in one group: it follows, asks to lead, loads, leads, and gives up.
//!
//! ```text
//!                 nobody leads, or the leader             all pages are in
//!                 has not moved for its lease
//!   Following ─────────────────────────────► Loading ─────────────────────► Leading
//!       ▲                  won                  │                              │
//!       └───────────────────────────────────────┴──────────────────────────────┘
//!                    another one leads, or it was handed over
//! ```
//!
//! A state machine without a clock, a store or a task: it is told what arrived, what the store said and what time it is, and
//! says what to ask of the store and what may be shown. [`start`](crate::start) drives it with real ones, the simulator
//! with simulated ones.
//!
//! # Why two servers never decide at once
//!
//! What is written is safe by the epoch that the store compares. What is *not* written, a renewal, is safe by time: a
//! leader answers only while its leadership certainly lasts. It counts that from before it sent the confirmation, and
//! uses nine tenths of it; another one waits for the whole of it, counted from when it saw the beat, which is later. The
//! tenth is the slack for clocks that do not run at the same speed: up to 5 % too slow here and 5 % too fast there.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::planted;
use leasehold_core::{CallId, Epoch, Millis, Revision, Timestamp};
use leasehold_store::{
    Beat, Campaign, Candidate, Conflict, Error, Leader, Leadership, Seq, Traits,
};

use crate::call::{Call, CallError};
use crate::engine::{Engine, Failed, Output, Settings, Undo};
use crate::recovery::{Loading, Recovery, StartError};
use crate::request::{Asking, Lane, Request, Response};
use crate::snapshots::Snapshots;
use crate::status::{Phase, Status};

/// How often a store that failed is asked again.
const RETRY_AFTER: Millis = Millis::new(200);
/// How long the record of a release may wait for another one to ride with.
const RIDE_WAIT_MAX: Millis = Millis::new(2);
/// With so many transitions unwritten they are written, whether somebody waits or not.
const RIDE_LEN_MAX: usize = 1024;
/// With so many transitions unwritten, requests that would add to them wait outside.
const UNWRITTEN_LEN_MAX: usize = 16 * 1024;
/// How long a server that is to stop tries to write what is left.
const DRAIN_MAX: Millis = Millis::from_secs(3);
/// How long it then tries to say that it has stopped leading.
const RESIGN_MAX: Millis = Millis::new(500);
/// How long callers are told to wait while nobody is known to lead.
const LEADER_RETRY: Duration = Duration::from_millis(250);
const STORE_RETRY: Duration = Duration::from_secs(1);

/// What a member is told once.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name is like no other server's.
    pub candidate: Candidate,
    pub recovery: Recovery,
    /// After so many bytes of records a snapshot is taken.
    pub snapshot_bytes: u64,
}

/// One server's part in one group.
#[derive(Debug)]
pub struct Member {
    plan: Plan,
    traits: Traits,
    role: Role,
    /// What is under way with the store, by lane.
    lanes: [Option<UnderWay>; 3],
    next_id: u64,
    /// Nothing is asked about leadership before this.
    leadership_at: Timestamp,
    /// Nobody is outlived before this: the store has just failed.
    campaign_at: Timestamp,
    /// No record is asked for or written before this: the store has just failed.
    row_at: Timestamp,
    stopping: bool,
    /// How long others may ask first when nobody leads.
    hesitation: Millis,
    store_failure: Option<Arc<str>>,
    fault: Option<StartError>,
    asked: Vec<Asking>,
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct UnderWay {
    id: u64,
    sent: Timestamp,
}

#[derive(Debug)]
enum Role {
    Following(Following),
    Loading(Box<Lead<Loading>>),
    Leading(Box<Lead<Leading>>),
    /// It has led, and now says to the store that it does not any more.
    Resigning {
        epoch: Epoch,
        until: Timestamp,
    },
    Stopped,
}

#[derive(Debug, Default)]
struct Following {
    /// The leader as it was last seen, and since when it has been so.
    seen: Option<(Arc<Leader>, Timestamp)>,
    /// Since when nobody has been seen to lead.
    vacant_since: Option<Timestamp>,
    looked: bool,
}

/// The right to decide, and what is done with it.
#[derive(Debug)]
struct Lead<T> {
    leadership: Leadership,
    /// Until when it certainly lasts; `None`: for as long as the store is open.
    certain_until: Option<Timestamp>,
    work: T,
}

#[derive(Debug)]
struct Leading {
    engine: Engine,
    snapshots: Snapshots,
    /// Bytes of the record under way.
    appending_bytes: usize,
    /// Nobody knows whether the record under way was written.
    unsettled: bool,
    /// Since when something unwritten waits for another record to ride with.
    riding_since: Option<Timestamp>,
    closing: Option<Closing>,
}

/// Leads no longer than it takes to write what is left.
#[derive(Clone, Copy, Debug)]
struct Closing {
    until: Timestamp,
}

impl Member {
    pub fn new(plan: Plan, traits: Traits, now: Timestamp) -> Member {
        Member {
            plan,
            traits,
            role: Role::Following(Following::default()),
            lanes: [const { None }; 3],
            next_id: 1,
            leadership_at: now,
            campaign_at: now,
            row_at: now,
            stopping: false,
            hesitation: Millis::ZERO,
            store_failure: None,
            fault: None,
            asked: Vec::new(),
            outputs: Vec::new(),
        }
    }

    // What comes in.

    /// One call has arrived.
    pub fn submit(&mut self, now: Timestamp, id: CallId, call: Call) {
        let why = match &mut self.role {
            Role::Leading(lead) if lead.is_certain(now) => {
                return lead.work.engine.submit(now, id, call);
            }
            Role::Stopped | Role::Resigning { .. } if self.stopping => CallError::Draining,
            Role::Leading(_)
            | Role::Following(_)
            | Role::Loading(_)
            | Role::Resigning { .. }
            | Role::Stopped => self.not_leader(),
        };
        self.outputs.push(Output::Reply { call: id, reply: Err(why), undo: None });
    }

    /// An answer could not be delivered: what it gave is taken back, unless a retry will ask for it.
    pub fn undelivered(&mut self, now: Timestamp, undo: Undo) {
        if let Role::Leading(lead) = &mut self.role {
            lead.work.engine.undelivered(now, undo);
        }
    }

    /// The store has answered.
    pub fn answered(&mut self, now: Timestamp, id: u64, response: Response) {
        let lane = self.lanes.iter().position(|way| way.as_ref().is_some_and(|way| way.id == id));
        let Some(way) = lane.and_then(|lane| self.lanes[lane].take()) else { return };
        match response {
            Response::Leader(result) => self.looked(now, result),
            Response::Campaigned(result) => self.campaigned(now, way.sent, result),
            Response::Confirmed(result) => self.confirmed(now, way.sent, result),
            Response::Resigned(_) => self.resigned(now),
            Response::Loaded(result) => self.loaded(now, result),
            Response::Appended(result) => self.appended(now, result),
            Response::ReadBack(result) => self.read_back(now, result.map(|found| found.is_some())),
            Response::ChunkPut(result) => self.snapshot_went_on(now, result.map(|()| None)),
            Response::SnapshotCommitted(result) => {
                if let (Role::Leading(lead), Ok(())) = (&mut self.role, &result) {
                    lead.work.snapshots.committed();
                }
                self.snapshot_went_on(now, result.map(|()| None));
            }
            Response::Pruned(result) => self.snapshot_went_on(now, result.map(Some)),
        }
    }

    /// Time has passed; see [`wake_at`](Member::wake_at).
    pub fn tick(&mut self, now: Timestamp) {
        if let Role::Leading(lead) = &mut self.role {
            lead.work.engine.tick(now);
        }
    }

    /// Grants nothing more, answers those who wait, writes what is left, and ends.
    pub fn stop(&mut self, now: Timestamp) {
        self.stopping = true;
        match &mut self.role {
            Role::Leading(_) => self.close(now, &CallError::Draining),
            Role::Loading(_) => self.resign(now, self.epoch()),
            Role::Following(_) => self.role = Role::Stopped,
            Role::Resigning { .. } | Role::Stopped => {}
        }
    }

    /// Lets another server lead: as a stop, but this one goes on as a follower.
    pub fn hand_over(&mut self, now: Timestamp) {
        // Nobody else can have a store that is not shared.
        if self.traits.shared {
            let why = self.not_leader();
            self.close(now, &why);
        }
    }

    /// Leads enough already: when nobody leads here, others may ask first for so long.
    pub fn hesitate(&mut self, length: Duration) {
        self.hesitation = part(length, 1);
    }

    // What goes out.

    /// Everything that may be shown by now, put behind what is in `outputs`.
    pub fn take_outputs(&mut self, outputs: &mut Vec<Output>) {
        outputs.append(&mut self.outputs);
        if let Role::Leading(lead) = &mut self.role {
            lead.work.engine.take_outputs(outputs);
        }
    }

    /// Everything to be asked of the store now. A new question of a lane takes the place of the one under way there.
    pub fn take_requests(&mut self, now: Timestamp) -> Vec<Asking> {
        self.ask_about_leadership(now);
        self.ask_about_records(now);
        self.ask_about_snapshot(now);
        std::mem::take(&mut self.asked)
    }

    /// When something is due that nobody else brings about.
    pub fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let mut moments = [None; 6];
        match &self.role {
            Role::Following(following) => {
                let overdue_at = following.overdue_at().filter(|_| self.is_free(Lane::Leadership));
                moments[0] = self.leadership_due();
                moments[1] = overdue_at
                    .map(|at| at.plus(self.hesitation).plus(Millis::new(1)).max(self.campaign_at));
            }
            Role::Loading(_) => {
                moments[0] = self.leadership_due();
                moments[1] = self.is_free(Lane::Row).then_some(self.row_at);
            }
            Role::Leading(lead) => {
                let work = &lead.work;
                moments[0] = self.leadership_due();
                moments[1] = work.engine.next_deadline();
                moments[2] = work.closing.map(|closing| closing.until.plus(Millis::new(1)));
                moments[3] = work.record_due(self.row_at).filter(|_| self.is_free(Lane::Row));
                // So that the status tells.
                moments[4] = lead.certain_until.filter(|until| now <= *until);
                moments[4] = moments[4].map(|until| until.plus(Millis::new(1)));
                moments[5] = work.snapshot_due().filter(|_| self.is_free(Lane::Snapshot));
            }
            Role::Resigning { until, .. } => moments[0] = Some(until.plus(Millis::new(1))),
            Role::Stopped => {}
        }
        moments.into_iter().flatten().min()
    }

    /// Whether calls that add to what is unwritten may be taken in.
    pub fn has_room(&self) -> bool {
        match &self.role {
            Role::Leading(lead) => {
                self.is_free(Lane::Row) || lead.work.engine.unwritten_len() < UNWRITTEN_LEN_MAX
            }
            Role::Following(_) | Role::Loading(_) | Role::Resigning { .. } | Role::Stopped => true,
        }
    }

    /// Whether somebody waits for something to be written.
    pub fn is_awaited(&self) -> bool {
        matches!(&self.role, Role::Leading(lead) if lead.work.engine.is_awaited())
    }

    /// Nothing more will come of it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.role, Role::Stopped)
    }

    /// Why it stopped, if nobody told it to.
    pub fn fault(&self) -> Option<&StartError> {
        self.fault.as_ref()
    }

    /// The table it decides by, while it leads.
    pub fn engine(&self) -> Option<&Engine> {
        match &self.role {
            Role::Leading(lead) => Some(&lead.work.engine),
            Role::Following(_) | Role::Loading(_) | Role::Resigning { .. } | Role::Stopped => None,
        }
    }

    /// Whether its leadership certainly lasts.
    pub fn leads(&self, now: Timestamp) -> bool {
        matches!(&self.role, Role::Leading(lead) if lead.is_certain(now))
    }

    pub fn status(&self, now: Timestamp) -> Status {
        let mut status = Status {
            phase: Phase::Starting,
            epoch: Epoch(0),
            revision: Revision(0),
            grace: None,
            store: self.traits.name,
            store_failure: self.store_failure.clone(),
            leader: None,
        };
        match &self.role {
            Role::Following(following) => {
                if following.looked {
                    status.phase = Phase::Following;
                }
                status.leader = following.seen.as_ref().map(|(leader, _)| leader.clone());
                status.epoch = status.leader.as_ref().map_or(Epoch(0), |leader| leader.beat.epoch);
            }
            Role::Loading(lead) => status.epoch = lead.leadership.epoch,
            Role::Leading(lead) => {
                let table = lead.work.engine.table();
                status.phase = match lead.work.closing {
                    Some(_) => Phase::Draining,
                    None if lead.is_certain(now) => Phase::Leading,
                    None => Phase::Doubtful,
                };
                status.epoch = table.epoch();
                status.revision = table.revision();
                status.grace = table.grace();
            }
            Role::Resigning { epoch, .. } => {
                status.phase = Phase::Draining;
                status.epoch = *epoch;
            }
            Role::Stopped => status.phase = Phase::Stopped,
        }
        status
    }

    // Leadership.

    fn ask_about_leadership(&mut self, now: Timestamp) {
        let request = match &mut self.role {
            Role::Following(following) => {
                let hesitation = self.hesitation;
                let overdue = following.overdue_at().is_some_and(|at| at.plus(hesitation) < now);
                let may = self.campaign_at <= now || planted!("campaigns-in-a-loop");
                if overdue && may && self.is_free(Lane::Leadership) {
                    self.campaign()
                } else if self.leadership_due().is_none_or(|due| now < due) {
                    return;
                } else if self.traits.shared {
                    Request::Leader
                } else {
                    // Nobody else can have it open: the last leader is certainly gone.
                    self.campaign()
                }
            }
            Role::Loading(_) | Role::Leading(_) => {
                if self.leadership_due().is_none_or(|due| now < due) {
                    return;
                }
                Request::Confirm(self.epoch())
            }
            Role::Resigning { until, .. } => {
                if *until < now {
                    self.resigned(now);
                }
                return;
            }
            Role::Stopped => return,
        };
        let confirms = matches!(request, Request::Confirm(_));
        let pause = if confirms { self.confirm_every() } else { self.look_every() };
        self.leadership_at = now.plus(pause);
        self.ask(now, request);
    }

    /// When there is something to ask about leadership. A question that is not answered for long is given up for a new
    /// one; not so in a store of one's own, where nothing is lost on the way.
    fn leadership_due(&self) -> Option<Timestamp> {
        let way = self.lanes[Lane::Leadership as usize].as_ref();
        match &self.role {
            Role::Following(_) if !self.traits.shared => {
                way.is_none().then_some(self.leadership_at)
            }
            Role::Loading(lead) if lead.certain_until.is_none() => None,
            Role::Leading(lead) if lead.certain_until.is_none() => None,
            Role::Following(_) | Role::Loading(_) | Role::Leading(_) => {
                let patience = way.map(|way| way.sent.plus(self.confirm_every()));
                Some(patience.map_or(self.leadership_at, |until| until.max(self.leadership_at)))
            }
            Role::Resigning { .. } | Role::Stopped => None,
        }
    }

    /// The epoch that this server leads in, or is about to.
    fn epoch(&self) -> Epoch {
        match &self.role {
            Role::Loading(lead) => lead.leadership.epoch,
            Role::Leading(lead) => lead.leadership.epoch,
            Role::Resigning { epoch, .. } => *epoch,
            Role::Following(_) | Role::Stopped => Epoch(0),
        }
    }

    fn campaign(&self) -> Request {
        let Role::Following(following) = &self.role else {
            unreachable!("only a follower asks to lead")
        };
        let overdue: Option<Beat> = following.seen.as_ref().map(|(leader, _)| leader.beat);
        Request::Campaign { candidate: self.plan.candidate.clone(), overdue }
    }

    /// Often enough that three may be lost.
    fn confirm_every(&self) -> Millis {
        part(self.plan.candidate.lease, 4)
    }

    fn look_every(&self) -> Millis {
        part(self.plan.candidate.lease, 15)
    }

    fn looked(&mut self, now: Timestamp, result: Result<Option<Leader>, Error>) {
        match result {
            Ok(leader) => {
                self.store_works();
                self.saw(now, leader);
            }
            Err(error) => self.leadership_failed(now, &error),
        }
    }

    fn saw(&mut self, now: Timestamp, leader: Option<Leader>) {
        let myself = &self.plan.candidate.name;
        let Role::Following(following) = &mut self.role else { return };
        following.looked = true;
        let Some(leader) = leader else {
            following.seen = None;
            let since = *following.vacant_since.get_or_insert(now);
            if since.plus(self.hesitation) <= now {
                let request = self.campaign();
                self.ask(now, request);
            }
            return;
        };
        following.vacant_since = None;
        let known = following.seen.take().filter(|(seen, _)| seen.beat == leader.beat);
        // A campaign of our own whose answer was lost: nobody has to be outlived.
        let is_me = leader.name == *myself;
        following.seen = Some(known.unwrap_or_else(|| (Arc::new(leader), now)));
        if is_me {
            let request = self.campaign();
            self.ask(now, request);
        }
    }

    fn campaigned(&mut self, now: Timestamp, sent: Timestamp, result: Result<Campaign, Error>) {
        match result {
            Ok(Campaign::Won(leadership)) => {
                self.store_works();
                let lead = Lead::new(leadership, sent, Loading::new(self.plan.recovery.clone()));
                if self.stopping {
                    return self.resign(now, leadership.epoch);
                }
                self.role = Role::Loading(Box::new(lead));
                self.leadership_at = sent.plus(self.confirm_every());
                self.row_at = now;
            }
            Ok(Campaign::Lost(leader)) => {
                self.store_works();
                self.saw(now, Some(leader));
            }
            Err(error) => self.leadership_failed(now, &error),
        }
    }

    fn confirmed(&mut self, now: Timestamp, sent: Timestamp, result: Result<(), Error>) {
        let sent = if planted!("leadership-counted-from-the-answer") { now } else { sent };
        match result {
            Ok(()) => match &mut self.role {
                Role::Loading(lead) => lead.confirmed(sent),
                Role::Leading(lead) => lead.confirmed(sent),
                Role::Following(_) | Role::Resigning { .. } | Role::Stopped => {}
            },
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. })) => self.lost(now, error),
            Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => {
                self.leadership_at = now.plus(part(self.plan.candidate.lease, 30));
            }
        }
    }

    fn leadership_failed(&mut self, now: Timestamp, error: &Error) {
        // A store that nobody else has open does not get better by waiting.
        if !self.traits.shared || matches!(error, Error::Corrupt { .. }) {
            return self.give_up(error.clone().into());
        }
        if self.store_failure.is_none() {
            tracing::warn!(error = %error, "the store does not say who leads");
        }
        self.store_failure = Some(error.to_string().into());
        self.leadership_at = now.plus(RETRY_AFTER);
        self.campaign_at = self.leadership_at;
    }

    /// Leads no longer. Another server does, or this one cannot go on.
    fn lost(&mut self, now: Timestamp, error: Error) {
        if self.traits.shared && matches!(error, Error::Conflict(_)) {
            tracing::warn!(error = %error, "another server leads");
            self.step_down(now);
        } else {
            tracing::error!(error = %error, "the store is no longer ours");
            self.give_up(error.into());
        }
    }

    fn step_down(&mut self, now: Timestamp) {
        self.abandon();
        self.role = match self.stopping {
            true => Role::Stopped,
            false => Role::Following(Following::default()),
        };
        self.leadership_at = now;
    }

    fn give_up(&mut self, fault: StartError) {
        self.abandon();
        self.store_failure = Some(fault.to_string().into());
        self.fault = Some(fault);
        self.role = Role::Stopped;
    }

    /// Everybody who waits is told, and nothing more is asked in the name of this leadership.
    fn abandon(&mut self) {
        let why = self.not_leader();
        let under_way = !self.is_free(Lane::Row);
        if let Role::Leading(lead) = &mut self.role {
            let unknown = under_way || lead.work.unsettled;
            let outcome = if unknown { Failed::Unknown } else { Failed::Unwritten };
            let outputs = lead.work.engine.abandon(&why, outcome);
            self.outputs.extend(outputs);
            self.outputs.push(Output::Ended);
        }
        self.lanes = [const { None }; 3];
    }

    fn not_leader(&self) -> CallError {
        let leader = match &self.role {
            Role::Following(Following { seen: Some((leader, _)), .. }) => Some(leader),
            Role::Following(_)
            | Role::Loading(_)
            | Role::Leading(_)
            | Role::Resigning { .. }
            | Role::Stopped => None,
        };
        let leader = leader.map(|leader| leader.address.clone());
        CallError::NotLeader { leader, retry_after: LEADER_RETRY }
    }

    // Records.

    fn ask_about_records(&mut self, now: Timestamp) {
        self.resign_if_out_of_time(now);
        let failing = now < self.row_at;
        if failing || !self.is_free(Lane::Row) {
            return;
        }
        let request = match &mut self.role {
            Role::Loading(lead) => {
                let epoch = lead.leadership.epoch;
                match lead.work.position() {
                    Some(from) => Request::Load { epoch, from },
                    None => return self.begin(now),
                }
            }
            Role::Leading(lead) => match lead.next_record(now) {
                Some(request) => request,
                None => return self.resign_if_drained(now),
            },
            Role::Following(_) | Role::Resigning { .. } | Role::Stopped => return,
        };
        self.ask(now, request);
    }

    fn loaded(&mut self, now: Timestamp, result: Result<leasehold_store::Page, Error>) {
        let Role::Loading(lead) = &mut self.role else { return };
        match result {
            Ok(page) => {
                let added = lead.work.add(page);
                self.store_works();
                if let Err(fault) = added {
                    self.give_up(fault);
                }
            }
            // The snapshot was replaced under our eyes: begin anew.
            Err(Error::Conflict(Conflict::OutOfSnapshot { .. })) if self.traits.shared => {
                lead.work = Loading::new(self.plan.recovery.clone());
            }
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. })) => self.lost(now, error),
            Err(error) if self.traits.shared => {
                self.store_failure = Some(error.to_string().into());
                self.row_at = now.plus(RETRY_AFTER);
            }
            Err(error) => self.give_up(error.into()),
        }
    }

    /// The whole table is in.
    fn begin(&mut self, now: Timestamp) {
        let role = std::mem::replace(&mut self.role, Role::Stopped);
        let Role::Loading(lead) = role else { unreachable!("only what is loaded begins") };
        let Lead { leadership, certain_until, work } = *lead;
        let recovered = work.begin(leadership.epoch, now);
        tracing::info!(
            epoch = leadership.epoch.0,
            revision = recovered.table.revision().0,
            recovering = recovered.recovering,
            "the table is loaded"
        );
        self.outputs.push(Output::Began(recovered.table.revision()));
        let settings = Settings {
            record_bytes_max: self.traits.record_bytes_max,
            store_retry_after: STORE_RETRY,
        };
        let engine =
            Engine::new(settings, recovered.table, recovered.next_seq, recovered.unwritten);
        let work = Leading {
            engine,
            snapshots: Snapshots::new(self.plan.snapshot_bytes, now),
            appending_bytes: 0,
            unsettled: false,
            riding_since: None,
            closing: None,
        };
        self.role = Role::Leading(Box::new(Lead { leadership, certain_until, work }));
        self.ask_about_records(now);
    }

    fn appended(&mut self, now: Timestamp, result: Result<(), Error>) {
        let Role::Leading(lead) = &mut self.role else { return };
        let work = &mut lead.work;
        match result {
            Ok(()) => {
                work.snapshots.appended(now, work.appending_bytes);
                work.engine.appended(now);
                self.store_works();
            }
            Err(error)
                if matches!(error, Error::Unavailable { .. })
                    || (matches!(error, Error::OutcomeUnknown { .. })
                        && planted!("unknown-append-taken-for-unwritten")) =>
            {
                work.engine.append_failed(now, Failed::Unwritten);
                work.engine.unseal();
                work.snapshots.unsealed(work.engine.next_seq());
                self.store_failed(now, &error);
            }
            Err(error @ (Error::OutcomeUnknown { .. } | Error::Unavailable { .. })) => {
                work.engine.append_failed(now, Failed::Unknown);
                work.unsettled = true;
                self.store_failed(now, &error);
                // Not knowing is worse than waiting: ask at once.
                self.row_at = now;
            }
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. })) => self.lost(now, error),
        }
    }

    /// Whether a record was written is found out, however long that takes, before anything else is.
    fn read_back(&mut self, now: Timestamp, result: Result<bool, Error>) {
        let Role::Leading(lead) = &mut self.role else { return };
        let work = &mut lead.work;
        match result {
            Ok(true) => {
                work.unsettled = false;
                work.snapshots.appended(now, work.appending_bytes);
                work.engine.appended(now);
                self.store_works();
            }
            Ok(false) => {
                work.unsettled = false;
                work.engine.unseal();
                work.snapshots.unsealed(work.engine.next_seq());
                self.row_at = now.plus(RETRY_AFTER);
            }
            Err(error @ (Error::Unavailable { .. } | Error::OutcomeUnknown { .. })) => {
                self.store_failed(now, &error);
            }
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. })) => self.lost(now, error),
        }
    }

    fn store_failed(&mut self, now: Timestamp, error: &Error) {
        if self.store_failure.is_none() {
            tracing::error!(error = %error, "the store failed; nothing is granted until it is back");
        }
        self.store_failure = Some(error.to_string().into());
        self.row_at = now.plus(RETRY_AFTER);
    }

    fn store_works(&mut self) {
        if self.store_failure.take().is_some() {
            tracing::info!("the store is back");
        }
    }

    // Snapshots.

    fn ask_about_snapshot(&mut self, now: Timestamp) {
        if !self.is_free(Lane::Snapshot) {
            return;
        }
        let Role::Leading(lead) = &mut self.role else { return };
        let work = &mut lead.work;
        if work.engine.is_store_failed() || work.closing.is_some() {
            return;
        }
        let durable = Seq(work.engine.next_seq().0 - 1);
        if work.engine.unwritten_len() == 0 {
            work.snapshots.begin_if_due(now, work.engine.table_mut(), durable);
        }
        let epoch = lead.leadership.epoch;
        let request = work.snapshots.next_request(work.engine.table_mut(), epoch, durable);
        if let Some(request) = request {
            self.ask(now, request);
        }
    }

    fn snapshot_went_on(
        &mut self,
        now: Timestamp,
        result: Result<Option<leasehold_store::Pruned>, Error>,
    ) {
        let Role::Leading(lead) = &mut self.role else { return };
        match result {
            Ok(Some(pruned)) => lead.work.snapshots.pruned(pruned),
            Ok(None) => {}
            Err(error @ Error::Conflict(Conflict::Deposed { .. })) => self.lost(now, error),
            Err(error) => {
                tracing::warn!(error = %error, "a snapshot was given up");
                lead.work.snapshots.failed(now);
            }
        }
    }

    // Giving up.

    fn close(&mut self, now: Timestamp, why: &CallError) {
        let Role::Leading(lead) = &mut self.role else { return };
        lead.work.engine.close(now, why);
        let until = lead.work.closing.map_or(now.plus(DRAIN_MAX), |closing| closing.until);
        lead.work.closing = Some(Closing { until });
    }

    /// Everything is written.
    fn resign_if_drained(&mut self, now: Timestamp) {
        let Role::Leading(lead) = &self.role else { return };
        if lead.work.closing.is_some() && lead.work.engine.unwritten_len() == 0 {
            self.resign(now, self.epoch());
        }
    }

    /// It has been tried for long enough: the next leader brings back what is not written.
    fn resign_if_out_of_time(&mut self, now: Timestamp) {
        let Role::Leading(lead) = &self.role else { return };
        if lead.work.closing.is_some_and(|closing| closing.until < now) {
            self.resign(now, self.epoch());
        }
    }

    fn resign(&mut self, now: Timestamp, epoch: Epoch) {
        self.abandon();
        self.role = Role::Resigning { epoch, until: now.plus(RESIGN_MAX) };
        self.ask(now, Request::Resign(epoch));
    }

    fn resigned(&mut self, now: Timestamp) {
        if let Role::Resigning { .. } = self.role {
            self.lanes = [const { None }; 3];
            self.step_down(now);
            // Others first.
            self.leadership_at = now.plus(self.look_every()).plus(self.look_every());
        }
    }

    // The lanes.

    fn is_free(&self, lane: Lane) -> bool {
        self.lanes[lane as usize].is_none()
    }

    fn ask(&mut self, now: Timestamp, request: Request) {
        let id = self.next_id;
        self.next_id += 1;
        self.lanes[request.lane() as usize] = Some(UnderWay { id, sent: now });
        self.asked.push(Asking { id, request });
    }
}

impl Following {
    /// When the leader that was seen has certainly run out of time, if it does not move.
    fn overdue_at(&self) -> Option<Timestamp> {
        let (leader, since) = self.seen.as_ref()?;
        Some(since.plus(part(leader.lease, 1)))
    }
}

impl<T> Lead<T> {
    fn new(leadership: Leadership, sent: Timestamp, work: T) -> Lead<T> {
        let mut lead = Lead { leadership, certain_until: None, work };
        lead.confirmed(sent);
        lead
    }

    /// Counted from before the request that confirmed it was sent.
    fn confirmed(&mut self, sent: Timestamp) {
        let lease = self.leadership.lease;
        self.certain_until = lease.map(|lease| sent.plus(part(lease * 9, 10)));
    }

    fn is_certain(&self, now: Timestamp) -> bool {
        self.certain_until.is_none_or(|until| now <= until)
            || planted!("answers-after-leadership-ran-out")
    }
}

impl Lead<Leading> {
    /// The next question about the records, if there is one.
    fn next_record(&mut self, now: Timestamp) -> Option<Request> {
        let epoch = self.leadership.epoch;
        let work = &mut self.work;
        if work.unsettled {
            return Some(Request::ReadBack { epoch, seq: work.engine.next_seq() });
        }
        if work.may_ride(now) {
            return None;
        }
        work.riding_since = None;
        let batch = work.engine.seal()?;
        if work.engine.sealed_all() {
            work.snapshots.begin_if_due(now, work.engine.table_mut(), batch.seq());
        }
        work.appending_bytes = batch.bytes().len();
        Some(Request::Append { transitions: work.engine.in_flight_len(), batch })
    }
}

impl Leading {
    /// When a snapshot is to begin without anything else happening.
    fn snapshot_due(&self) -> Option<Timestamp> {
        let may_begin = self.engine.unwritten_len() == 0
            && !self.engine.is_store_failed()
            && self.closing.is_none();
        self.snapshots.due_at().filter(|_| may_begin)
    }

    /// When a record is to be written, or asked for again, without anything else happening.
    fn record_due(&self, row_at: Timestamp) -> Option<Timestamp> {
        let waits = self.unsettled || self.engine.unwritten_len() > 0;
        match self.riding_since {
            Some(since) if !self.engine.is_store_failed() => {
                Some(since.plus(RIDE_WAIT_MAX).max(row_at))
            }
            Some(_) | None => (waits && self.engine.is_store_failed()).then_some(row_at),
        }
    }

    /// Whether nobody waits for what is unwritten, so that it can wait for something else to be written with.
    fn may_ride(&mut self, now: Timestamp) -> bool {
        let unwritten = self.engine.unwritten_len();
        if unwritten == 0
            || unwritten >= RIDE_LEN_MAX
            || self.engine.is_awaited()
            || self.engine.is_store_failed()
            || self.closing.is_some()
        {
            return false;
        }
        let since = *self.riding_since.get_or_insert(now);
        now < since.plus(RIDE_WAIT_MAX)
    }
}

/// A part of a length of time, rounded down; of a very long one as much as can be counted.
fn part(whole: Duration, parts: u32) -> Millis {
    Millis::from_duration(whole / parts).unwrap_or(Millis::new(u32::MAX))
}
