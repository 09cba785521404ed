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
//! says what to ask of the store and what may be shown. [`spawn`](crate::spawn) drives it with real ones, the simulator
//! with simulated ones.
//!
//! # Why two servers never decide at once
//!
//! A record is safe by the epoch that the store compares. A renewal, which is *not* written, is safe by time: a
//! leader answers only while its leadership certainly lasts. It counts that from before it sent the confirmation, and
//! uses nine tenths of it; another one waits for the whole of it, counted from when it saw the heartbeat, which is later. The
//! tenth is the slack for clocks that do not run at the same speed: up to 5 % too slow here and 5 % too fast there.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{CallId, Epoch, Millis, Quotas, Revision, Timestamp};
use leasehold_store::{Candidate, JournalCaps, Leader, Leadership};

use super::{Asking, Lane, Loading, Recovery, Request, Response, Snapshots, StartError};
use crate::calls::{Call, CallError};
use crate::runner::{Phase, Status};
use crate::writer::{Engine, Output, Undo};

/// The interval at which a store that failed is asked again.
pub(super) const RETRY_AFTER: Millis = Millis::new(200);
/// With so many transitions unwritten, requests that would add to them wait outside.
const UNWRITTEN_LEN_MAX: usize = 16 * 1024;

/// The settings of a member.
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
    pub(super) plan: Plan,
    pub(super) caps: JournalCaps,
    pub(super) role: Role,
    /// The requests under way with the store, by lane.
    pub(super) lanes: [Option<UnderWay>; 3],
    pub(super) next_id: u64,
    /// Nothing is asked about leadership before this.
    pub(super) leadership_at: Timestamp,
    /// No silent leader is replaced before this: the store has just failed.
    pub(super) campaign_at: Timestamp,
    /// No record is asked for or written before this: the store has just failed.
    pub(super) journal_at: Timestamp,
    pub(super) stopping: bool,
    /// The pause before a campaign when there is no leader, so that other servers can go first.
    pub(super) campaign_delay: Millis,
    pub(super) store_failure: Option<Arc<str>>,
    pub(super) fault: Option<StartError>,
    pub(super) asked: Vec<Asking>,
    pub(super) outputs: Vec<Output>,
}

#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) id: u64,
    pub(super) sent: Timestamp,
}

#[derive(Debug)]
pub(super) enum Role {
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
pub(super) struct Following {
    /// The leader as it was last seen, and since when it has been so.
    pub(super) seen: Option<(Arc<Leader>, Timestamp)>,
    /// Since when nobody has been seen to lead.
    pub(super) vacant_since: Option<Timestamp>,
    pub(super) polled: bool,
}

/// The right to decide, and what is done with it.
#[derive(Debug)]
pub(super) struct Lead<T> {
    pub(super) leadership: Leadership,
    /// Until when it certainly lasts; `None`: for as long as the store is open.
    pub(super) certain_until: Option<Timestamp>,
    pub(super) work: T,
}

#[derive(Debug)]
pub(super) struct Leading {
    pub(super) engine: Engine,
    pub(super) snapshots: Snapshots,
    /// Bytes of the record under way.
    pub(super) appending_bytes: usize,
    /// The outcome of the record under way is unknown.
    pub(super) outcome_unknown: bool,
    /// Since when something unwritten waits for another record to ride with.
    pub(super) piggyback_since: Option<Timestamp>,
    pub(super) closing: Option<Closing>,
}

/// Leads no longer than it takes to write what is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    pub(super) until: Timestamp,
}

impl Member {
    pub fn new(plan: Plan, caps: JournalCaps, now: Timestamp) -> Member {
        Member {
            plan,
            caps,
            role: Role::Following(Following::default()),
            lanes: [const { None }; 3],
            next_id: 1,
            leadership_at: now,
            campaign_at: now,
            journal_at: now,
            stopping: false,
            campaign_delay: Millis::ZERO,
            store_failure: None,
            fault: None,
            asked: Vec::new(),
            outputs: Vec::new(),
        }
    }

    // What comes in.

    /// One call has arrived.
    pub fn submit(&mut self, now: Timestamp, id: CallId, call: Call) {
        self.submit_within(now, id, call, &Quotas::UNLIMITED);
    }

    /// The same for a principal that may have so much and no more.
    pub fn submit_within(&mut self, now: Timestamp, id: CallId, call: Call, quotas: &Quotas) {
        let why = match &mut self.role {
            Role::Leading(lead) if lead.is_certain(now) => {
                return lead.work.engine.submit_within(now, id, call, quotas);
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
            Response::Leader(result) => self.leader_polled(now, result),
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
    /// The earliest deadline of a lease, a wait or a window that has come.
    pub fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let Role::Leading(lead) = &self.role else { return None };
        lead.work.engine.next_deadline().filter(|due| *due <= now)
    }

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
    pub fn step_down(&mut self, now: Timestamp) {
        // Nobody else can have a store that is not shared.
        if self.caps.shared {
            let why = self.not_leader();
            self.close(now, &why);
        }
    }

    /// Leads enough already: when nobody leads here, others may ask first for so long.
    pub fn delay_campaign(&mut self, length: Duration) {
        self.campaign_delay = part(length, 1);
    }

    /// The leader does not serve: looks soon whether there is another, however often this is said.
    pub fn poll_leader(&mut self, now: Timestamp) {
        if matches!(self.role, Role::Following(_)) && self.store_failure.is_none() {
            self.leadership_at = self.leadership_at.min(now.plus(self.poll_soon()));
        }
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

    /// Prepares the next record while the last one is being written.
    pub fn draft_next(&mut self) {
        if let Role::Leading(lead) = &mut self.role {
            lead.work.engine.draft_next();
        }
    }

    /// When something is due that nobody else brings about.
    pub fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let mut moments = [None; 6];
        match &self.role {
            Role::Following(following) => {
                let overdue_at = following.overdue_at().filter(|_| self.is_free(Lane::Leadership));
                moments[0] = self.leadership_due();
                moments[1] = overdue_at.map(|at| {
                    at.plus(self.campaign_delay).plus(Millis::new(1)).max(self.campaign_at)
                });
            }
            Role::Loading(_) => {
                moments[0] = self.leadership_due();
                moments[1] = self.is_free(Lane::Journal).then_some(self.journal_at);
            }
            Role::Leading(lead) => {
                let work = &lead.work;
                moments[0] = self.leadership_due();
                moments[1] = work.engine.next_deadline();
                moments[2] = work.closing.map(|closing| closing.until.plus(Millis::new(1)));
                moments[3] =
                    work.record_due(self.journal_at).filter(|_| self.is_free(Lane::Journal));
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
                self.is_free(Lane::Journal) || lead.work.engine.unwritten_len() < UNWRITTEN_LEN_MAX
            }
            Role::Following(_) | Role::Loading(_) | Role::Resigning { .. } | Role::Stopped => true,
        }
    }

    /// The number of callers that wait for an answer: for something to be written, or in a queue.
    pub fn callers_len(&self) -> usize {
        match &self.role {
            Role::Leading(lead) => lead.work.engine.callers_len(),
            Role::Following(_) | Role::Loading(_) | Role::Resigning { .. } | Role::Stopped => 0,
        }
    }

    /// Nothing more will come of it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.role, Role::Stopped)
    }

    /// The reason why it stopped, if it was not told to.
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
            store: self.caps.name,
            store_failure: self.store_failure.clone(),
            leader: None,
        };
        match &self.role {
            Role::Following(following) => {
                if following.polled {
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

    // The lanes.

    pub(super) fn is_free(&self, lane: Lane) -> bool {
        self.lanes[lane as usize].is_none()
    }

    pub(super) fn ask(&mut self, now: Timestamp, request: Request) {
        let id = self.next_id;
        self.next_id += 1;
        self.lanes[request.lane() as usize] = Some(UnderWay { id, sent: now });
        self.asked.push(Asking { id, request });
    }
}

/// A part of a duration, rounded down; of a very long one as much as can be counted.
pub(super) fn part(whole: Duration, parts: u32) -> Millis {
    Millis::from_duration(whole / parts).unwrap_or(Millis::new(u32::MAX))
}
