//! Drives a member with a real clock and a real journal, in a task of its own.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Command, Limits, Timestamp};
use leasehold_store::{Candidate, Journal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::{Clock, Condition, Phase, Status};
use crate::calls::{
    Account, Call, CallEnvelope, CallError, Content, Control, Handle, Inbound, Inbox, Replies,
    ReplyEnvelope, call_id, inbox,
};
use crate::events::{Commits, HistoryLimits, Publisher};
use crate::member::{
    Answering, Asking, Lane, Member, Plan, Recovery, Request, Response, StartError,
};
use crate::writer::Output;

use super::spin::{Spin, spin_until};

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub candidate: Candidate,
    pub recovery: Recovery,
    /// After so many bytes of records a snapshot is taken, at the latest.
    pub snapshot_bytes: u64,
    /// The number of events that are remembered for watchers that come back.
    pub events_len_max: usize,
    /// The number of endings that are remembered.
    pub history: HistoryLimits,
}

impl EngineConfig {
    /// The defaults, for a single server.
    pub fn new(seed: u64) -> EngineConfig {
        EngineConfig {
            candidate: Candidate {
                name: "leasehold".into(),
                address: String::new(),
                lease: Duration::from_secs(3),
            },
            recovery: Recovery {
                limits: Limits::default(),
                seed,
                grace: leasehold_core::GracePolicy::Conflicting,
                grace_length: Duration::from_secs(30),
                fence_floor: None,
            },
            snapshot_bytes: 64 * 1024 * 1024,
            events_len_max: 16_384,
            history: HistoryLimits::default(),
        }
    }
}

/// Takes part in the journal's group, and leads it when nobody else does. Calls are answered from the first moment on:
/// until this server leads, with who does.
///
/// The task ends when it is told to stop, or when the store is lost.
pub fn spawn(
    config: EngineConfig,
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
) -> (Handle, Stop) {
    let plan = Plan {
        candidate: config.candidate,
        recovery: config.recovery,
        snapshot_bytes: config.snapshot_bytes,
    };
    let now = clock.now();
    let member = Member::new(plan, journal.caps(), now);
    let publisher = Publisher::new(config.events_len_max, config.history);
    let (inbox_sender, inbox, shed) = inbox();
    let (status_out, status) = watch::channel(member.status(now));
    let (condition_out, condition) = watch::channel(member.status(now).condition());
    let (stop, stopping) = oneshot::channel();
    let (controls, controls_in) = mpsc::unbounded_channel();
    let commits: Arc<Mutex<Commits>> = Arc::default();
    let runner = Runner {
        member,
        clock,
        journal,
        publisher: publisher.clone(),
        status: status_out,
        condition: condition_out,
        replies: Replies::default(),
        outputs: Vec::new(),
        under_way: Default::default(),
        appending: None,
        spin: Spin::default(),
        commits: commits.clone(),
        controls: controls_in,
        stopping: false,
        orphaned: false,
    };
    let task = tokio::spawn(runner.run(inbox, stopping).in_current_span());
    let calls = Arc::new(AtomicU64::new(1));
    let ports = Arc::new(AtomicU32::new(1));
    let handle = Handle {
        inbox: inbox_sender,
        account: Account::anonymous(),
        shed,
        calls,
        ports,
        status: status.clone(),
        condition,
        publisher,
        commits,
        controls,
    };
    (handle, Stop { stop: Some(stop), status, task })
}

/// The way to end an engine in good order.
#[derive(Debug)]
pub struct Stop {
    stop: Option<oneshot::Sender<()>>,
    status: watch::Receiver<Status>,
    task: JoinHandle<Result<(), StartError>>,
}

impl Stop {
    /// Grants nothing more, answers those who wait, writes what is left, and ends.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.task).await;
    }

    /// Waits until it is known who leads: this server, with everything loaded, or another one.
    pub async fn settled(&mut self) -> Result<(), StartError> {
        let settled = self.status.wait_for(|status| status.phase != Phase::Starting).await;
        match settled.map(|status| status.phase) {
            Ok(Phase::Stopped) | Err(_) => self.ended().await,
            Ok(_) => Ok(()),
        }
    }

    /// Waits until the engine ends by itself, because it lost its store.
    pub async fn ended(&mut self) -> Result<(), StartError> {
        (&mut self.task).await.unwrap_or(Ok(()))
    }
}

/// The reason for a turn of the loop.
enum LoopEvent {
    Answered(u64, Response),
    Calls,
    Time,
    Control(Control),
    Stop,
    /// All handles are gone.
    Orphaned,
}

struct Runner {
    member: Member,
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
    publisher: Publisher,
    status: watch::Sender<Status>,
    condition: watch::Sender<Condition>,
    replies: Replies,
    /// The views being built; empty most of the time.
    outputs: Vec<Output>,
    /// The requests to the store, by lane.
    under_way: [Option<(u64, Answering)>; Lane::ALL.len()],
    appending: Option<Appending>,
    spin: Spin,
    commits: Arc<Mutex<Commits>>,
    controls: mpsc::UnboundedReceiver<Control>,
    stopping: bool,
    orphaned: bool,
}

/// A record on its way, to be counted when it is there.
struct Appending {
    since: Instant,
    transitions: usize,
}

impl Runner {
    async fn run(
        mut self,
        mut inbox: Inbox,
        mut stopping: oneshot::Receiver<()>,
    ) -> Result<(), StartError> {
        let mut calls = Vec::new();
        let mut now = self.clock.now();
        loop {
            self.go_on(now);
            if self.member.is_stopped() {
                break;
            }
            let pause = self.member.wake_at(now).map(|at| at.since(now));
            let event = self.wait(pause, &mut inbox, &mut stopping, &mut calls).await;
            // After the calls came in: none of them was sent later than this.
            now = self.clock.now();
            match event {
                LoopEvent::Answered(id, response) => {
                    self.count(&response);
                    self.member.answered(now, id, response);
                }
                LoopEvent::Calls => {
                    self.submit(now, &mut calls);
                    self.refuse(inbox.refused());
                }
                LoopEvent::Time => self.sweep(now),
                LoopEvent::Control(Control::StepDown) => self.member.step_down(now),
                LoopEvent::Control(Control::DelayCampaign(length)) => {
                    self.member.delay_campaign(length)
                }
                LoopEvent::Control(Control::RefreshLeader) => self.member.poll_leader(now),
                LoopEvent::Stop | LoopEvent::Orphaned => {
                    self.orphaned |= matches!(event, LoopEvent::Orphaned);
                    self.stopping = true;
                    self.member.stop(now);
                }
            }
        }
        match self.member.fault() {
            None => Ok(()),
            Some(fault) => {
                tracing::error!(error = %fault, "the engine stops");
                Err(fault.clone())
            }
        }
    }

    /// Ends what is due, and notes how long that took.
    fn sweep(&mut self, now: Timestamp) {
        let due = self.member.due(now);
        let begun = Instant::now();
        self.member.tick(now);
        let Some(due) = due else { return };
        let took = begun.elapsed();
        self.commits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .sweep_seconds
            .observe(took.as_secs_f64());
        tracing::debug!(
            took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            late_ms = u64::try_from(now.since(due).as_millis()).unwrap_or(u64::MAX),
            "processed what was due"
        );
    }

    async fn wait(
        &mut self,
        pause: Option<Duration>,
        inbox: &mut Inbox,
        stopping: &mut oneshot::Receiver<()>,
        calls: &mut Vec<Inbound>,
    ) -> LoopEvent {
        let room = self.member.has_room();
        let until = self.spin_until();
        let [leadership, row, snapshot] = &mut self.under_way;
        tokio::select! {
            biased;
            (id, response) = spin_until(until, answer(row)) => LoopEvent::Answered(id, response),
            (id, response) = answer(leadership) => LoopEvent::Answered(id, response),
            came = inbox.take(room, calls), if !self.orphaned => {
                if came { LoopEvent::Calls } else { LoopEvent::Orphaned }
            }
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => LoopEvent::Time,
            (id, response) = answer(snapshot) => LoopEvent::Answered(id, response),
            Some(control) = self.controls.recv() => LoopEvent::Control(control),
            _ = stopping, if !self.stopping => LoopEvent::Stop,
        }
    }

    /// Until when to poll for the record under way instead of sleeping.
    fn spin_until(&self) -> Option<Instant> {
        let appending = self.appending.as_ref().filter(|_| self.clock.runs_by_itself())?;
        Some(appending.since + self.spin.length(self.member.callers_len()))
    }

    fn submit(&mut self, now: Timestamp, inbounds: &mut Vec<Inbound>) {
        for Inbound { from, content } in inbounds.drain(..) {
            match content {
                Content::Call(CallEnvelope { id, call, reply }) => {
                    match reply {
                        // Its caller has gone already.
                        Some(reply) if reply.is_closed() && is_acquire(&call) => continue,
                        Some(reply) => self.replies.await_reply(id, reply),
                        None => {}
                    }
                    self.member.submit_within(now, id, call, &from.quotas);
                }
                // Nobody is left to read what its reads, which come last, would show.
                Content::Calls(calls) if is_read(&calls.calls) && calls.replies_to.is_closed() => {}
                Content::Calls(calls) => {
                    self.replies.heard_of(&calls);
                    let port = calls.replies_to.port;
                    for (number, call) in calls.calls {
                        let id = call_id(port, number);
                        self.member.submit_within(now, id, call, &from.quotas);
                    }
                }
                Content::Closed { port, undo } => {
                    self.replies.closed(port);
                    for undo in undo {
                        self.member.undelivered(now, undo);
                    }
                }
                Content::Undelivered(undo) => {
                    for undo in undo {
                        self.member.undelivered(now, undo);
                    }
                }
            }
        }
    }

    /// Tells callers that there is too much of what they sent.
    fn refuse(&mut self, inbounds: &mut Vec<Inbound>) {
        for Inbound { content, .. } in inbounds.drain(..) {
            match content {
                Content::Call(CallEnvelope { reply: Some(reply), .. }) => {
                    let _ = reply.send(ReplyEnvelope { reply: Err(CallError::Busy), undo: None });
                }
                Content::Calls(calls) if !calls.replies_to.is_closed() => {
                    self.replies.heard_of(&calls);
                    let port = calls.replies_to.port;
                    for (number, _) in calls.calls {
                        let call = call_id(port, number);
                        let (reply, undo) = (Err(CallError::Busy), None);
                        self.outputs.push(Output::Reply { call, reply, undo });
                    }
                }
                Content::Call(_)
                | Content::Calls(_)
                | Content::Closed { .. }
                | Content::Undelivered(_) => {}
            }
        }
    }

    /// Starts what can be started and shows what may be shown. The next record is on its way before the answers to the
    /// last one are: whoever waits for it does not wait for them as well.
    fn go_on(&mut self, now: Timestamp) {
        // Twice: what could not be delivered is taken back, and what was asked may have changed who leads.
        for _ in 0..2 {
            self.ask_store(now);
            self.deliver(now);
        }
        self.member.draft_next();
        self.set_status(now);
    }

    fn ask_store(&mut self, now: Timestamp) {
        for asking in self.member.take_requests(now) {
            self.ask(asking);
        }
    }

    fn ask(&mut self, Asking { id, request }: Asking) {
        if let Request::Append { transitions, .. } = &request {
            self.journal.spin(self.spin.length(self.member.callers_len()));
            self.appending = Some(Appending { since: Instant::now(), transitions: *transitions });
        }
        let lane = request.lane() as usize;
        self.under_way[lane] = Some((id, request.put_to(&*self.journal)));
    }

    fn count(&mut self, response: &Response) {
        if let Response::SnapshotCommitted(Ok(())) = response {
            let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
            commits.snapshot = Some(Instant::now());
        }
        let Response::Appended(result) = response else { return };
        let Some(appending) = self.appending.take() else { return };
        let took = appending.since.elapsed();
        self.spin.committed(took);
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                commits.seconds.observe(took.as_secs_f64());
                commits.batch_size.observe(appending.transitions as f64);
            }
            Err(_) => commits.failures += 1,
        }
    }

    fn deliver(&mut self, now: Timestamp) {
        // Taking a grant back can free others: go on until nothing more comes of it.
        loop {
            self.member.take_outputs(&mut self.outputs);
            if self.outputs.is_empty() {
                return;
            }
            for output in self.outputs.drain(..) {
                if let Some(undo) = self.replies.give(output, &self.publisher) {
                    self.member.undelivered(now, undo);
                }
            }
            for undo in self.replies.flush(&self.publisher) {
                self.member.undelivered(now, undo);
            }
        }
    }

    fn set_status(&mut self, now: Timestamp) {
        let status = self.member.status(now);
        let condition = status.condition();
        self.condition
            .send_if_modified(|current| std::mem::replace(current, condition) != condition);
        self.status.send_if_modified(|current| {
            // Every commit moves the revision: that alone wakes nobody.
            current.revision = status.revision;
            let changed = *current != status;
            if changed {
                *current = status;
            }
            changed
        });
    }
}

fn is_read(calls: &[(u32, Call)]) -> bool {
    matches!(calls.first(), Some((_, Call::Query(_))))
}

fn is_acquire(call: &Call) -> bool {
    matches!(call, Call::Command(Command::Acquire(_)))
}

/// Awaits what was asked in a lane; for ever, if nothing was.
async fn answer(under_way: &mut Option<(u64, Answering)>) -> (u64, Response) {
    let Some((id, answering)) = under_way else { return std::future::pending().await };
    let (id, response) = (*id, answering.await);
    *under_way = None;
    (id, response)
}
