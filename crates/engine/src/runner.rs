//! Drives an engine with a real clock and a real journal, in a task of its own.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::{CallId, Epoch, Limits, Millis, Timestamp};
use leasehold_store::{Campaign, Candidate, Error, Journal, Pending, Seq};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::call::{CallError, Reply};
use crate::clock::Clock;
use crate::counts::Commits;
use crate::engine::{Engine, Output, Settings};
use crate::handle::{Asked, Handle};
use crate::history::HistoryLimits;
use crate::publish::{Notice, Publisher};
use crate::recovery::{Recovery, StartError, recover};
use crate::snapshots::{Done, Snapshots};
use crate::status::{Phase, Status};

/// How many calls may lie waiting before callers are told that the server is busy.
const URGENT_LEN_MAX: usize = 100_000;
const ORDINARY_LEN_MAX: usize = 250_000;
/// How many calls are taken at a time.
const TAKEN_AT_ONCE: usize = 1024;
/// With so many transitions unwritten, requests that would add to them wait outside.
const UNWRITTEN_LEN_MAX: usize = 16 * 1024;
/// How often an append that failed is tried again.
const RETRY_AFTER: Millis = Millis::new(200);
/// How long a server that is to stop tries to write what is left.
const DRAIN_MAX: Millis = Millis::from_secs(3);

/// How a server is to run its engine.
#[derive(Clone, Debug)]
pub struct Runner {
    pub candidate: Candidate,
    pub recovery: Recovery,
    /// After so many bytes of records a snapshot is taken.
    pub snapshot_bytes: u64,
    /// How many events are remembered for watchers that come back.
    pub events_len_max: usize,
    /// How far a watcher may fall behind.
    pub watcher_backlog_max: usize,
    /// How much is remembered of what has ended.
    pub history: HistoryLimits,
}

impl Runner {
    /// The defaults, for a single server.
    pub fn new(seed: u64) -> Runner {
        Runner {
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
            events_len_max: 65_536,
            watcher_backlog_max: 4096,
            history: HistoryLimits::default(),
        }
    }
}

/// Takes over what is stored and serves it. The task ends when it is told to stop, or when the store is lost.
pub async fn start(
    runner: Runner,
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
) -> Result<(Handle, Stop), StartError> {
    let epoch = match journal.campaign(runner.candidate.clone(), None).await? {
        Campaign::Won(leadership) => leadership.epoch,
        Campaign::Lost(leader) => return Err(StartError::Led(leader.name)),
    };
    let recovered = recover(&*journal, epoch, clock.now(), runner.recovery.clone()).await?;
    tracing::info!(
        epoch = epoch.0,
        revision = recovered.table.revision().0,
        recovering = recovered.recovering,
        "the table is loaded"
    );
    let settings = Settings {
        record_bytes_max: journal.traits().record_bytes_max,
        store_retry_after: Duration::from_secs(1),
    };
    let publisher =
        Publisher::new(runner.events_len_max, runner.watcher_backlog_max, runner.history);
    publisher.start_after(recovered.table.revision());
    let next_seq = recovered.next_seq;
    let engine = Engine::new(settings, recovered.table, next_seq, recovered.unwritten);
    let (urgent, urgent_in) = mpsc::channel(URGENT_LEN_MAX);
    let (ordinary, ordinary_in) = mpsc::channel(ORDINARY_LEN_MAX);
    let (status_out, status) = watch::channel(status_of(&engine, &*journal, Phase::Starting, None));
    let (stop, stopping) = oneshot::channel();
    let commits: Arc<Mutex<Commits>> = Arc::default();
    let task = Task {
        engine,
        epoch,
        clock,
        journal,
        publisher: publisher.clone(),
        status: status_out,
        failure: None,
        callers: HashMap::new(),
        append: None,
        appending_bytes: 0,
        appending_since: Instant::now(),
        commits: commits.clone(),
        retry_at: None,
        snapshot_call: None,
        snapshots: Snapshots::new(runner.snapshot_bytes),
        draining_until: None,
    };
    let task = tokio::spawn(task.run(urgent_in, ordinary_in, stopping));
    let calls = Arc::new(AtomicU64::new(1));
    let handle = Handle { urgent, ordinary, calls, status, publisher, commits };
    Ok((handle, Stop { stop: Some(stop), task }))
}

/// The way to end an engine in good order.
#[derive(Debug)]
pub struct Stop {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Stop {
    /// Grants nothing more, answers those who wait, writes what is left, and ends.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.task).await;
    }

    /// Waits until the engine ends by itself, because it lost its store.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }
}

/// What happened next.
enum Happened {
    Appended(Result<(), Error>),
    Snapshot(Result<Done, Error>),
    Calls,
    Time,
    Stop,
    /// Nobody can call any more.
    Orphaned,
}

struct Task {
    engine: Engine,
    epoch: Epoch,
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
    publisher: Publisher,
    status: watch::Sender<Status>,
    failure: Option<String>,
    callers: HashMap<CallId, oneshot::Sender<Result<Reply, CallError>>>,
    append: Option<Pending<()>>,
    appending_bytes: usize,
    appending_since: Instant,
    commits: Arc<Mutex<Commits>>,
    /// The store failed; when to try again.
    retry_at: Option<Timestamp>,
    snapshot_call: Option<Pending<Done>>,
    snapshots: Snapshots,
    draining_until: Option<Timestamp>,
}

impl Task {
    async fn run(
        mut self,
        mut urgent: mpsc::Receiver<Asked>,
        mut ordinary: mpsc::Receiver<Asked>,
        mut stopping: oneshot::Receiver<()>,
    ) {
        let mut calls = Vec::new();
        self.go_on();
        loop {
            let happened = self.wait(&mut urgent, &mut ordinary, &mut stopping, &mut calls).await;
            let now = self.clock.now();
            match happened {
                Happened::Appended(result) => {
                    if let Err(error) = self.appended(now, result) {
                        tracing::error!(error = %error, "the engine stops: the store is no longer ours");
                        self.failure = Some(error.to_string());
                        break;
                    }
                }
                Happened::Snapshot(result) => self.snapshot_went_on(result),
                Happened::Calls => self.submit(now, &mut calls),
                Happened::Time => self.engine.tick(now),
                Happened::Stop => self.drain(now),
                Happened::Orphaned => self.drain(now),
            }
            self.go_on();
            if self.is_drained(now) {
                break;
            }
        }
        let _ = self.journal.resign(self.epoch).await;
        self.set_status(Phase::Stopped);
    }

    /// Everything is written, or it has been tried for long enough: a restart brings back what is not.
    fn is_drained(&self, now: Timestamp) -> bool {
        let written = self.append.is_none() && self.engine.unwritten_len() == 0;
        self.draining_until.is_some_and(|until| written || until < now)
    }

    async fn wait(
        &mut self,
        urgent: &mut mpsc::Receiver<Asked>,
        ordinary: &mut mpsc::Receiver<Asked>,
        stopping: &mut oneshot::Receiver<()>,
        calls: &mut Vec<Asked>,
    ) -> Happened {
        let room = self.append.is_none() || self.engine.unwritten_len() < UNWRITTEN_LEN_MAX;
        let moments = [self.engine.next_deadline(), self.retry_at, self.draining_until];
        let deadline = moments.into_iter().flatten().min();
        let pause = deadline.map(|deadline| deadline.since(self.clock.now()));
        tokio::select! {
            biased;
            result = poll(&mut self.append) => {
                self.append = None;
                Happened::Appended(result)
            }
            asked = urgent.recv() => {
                gather(asked, calls, urgent, ordinary, room)
            }
            asked = ordinary.recv(), if room => {
                gather(asked, calls, urgent, ordinary, room)
            }
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => Happened::Time,
            result = poll(&mut self.snapshot_call) => {
                self.snapshot_call = None;
                Happened::Snapshot(result)
            }
            _ = stopping, if self.draining_until.is_none() => Happened::Stop,
        }
    }

    fn submit(&mut self, now: Timestamp, calls: &mut Vec<Asked>) {
        for asked in calls.drain(..) {
            if let Some(reply) = asked.reply {
                self.callers.insert(asked.id, reply);
            }
            self.engine.submit(now, asked.id, asked.call);
        }
    }

    /// Shows what may be shown and starts what can be started.
    fn go_on(&mut self) {
        self.deliver();
        if self.append.is_none() && self.retry_at.is_none_or(|at| at <= self.clock.now()) {
            self.retry_at = None;
            if let Some(batch) = self.engine.seal() {
                if self.engine.sealed_all() {
                    self.snapshots.begin_if_due(self.engine.table_mut(), batch.seq());
                }
                self.appending_bytes = batch.bytes().len();
                self.appending_since = Instant::now();
                self.append = Some(self.journal.append(batch));
            }
        }
        if self.snapshot_call.is_none() && !self.engine.is_store_failed() {
            let durable = Seq(self.engine.next_seq().0 - 1);
            let (journal, epoch) = (&*self.journal, self.epoch);
            let table = self.engine.table_mut();
            self.snapshot_call = self.snapshots.next_call(table, journal, epoch, durable);
        }
        self.set_status(if self.draining_until.is_some() {
            Phase::Draining
        } else {
            Phase::Leading
        });
    }

    fn deliver(&mut self) {
        // Taking a grant back can free others: go on until nothing more comes of it.
        loop {
            let outputs = self.engine.take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Reply { call, reply, undo } => {
                        let caller = self.callers.remove(&call);
                        let delivered = caller.is_some_and(|caller| caller.send(reply).is_ok());
                        if !delivered && let Some(undo) = undo {
                            self.engine.undelivered(self.clock.now(), undo);
                        }
                    }
                    Output::Event(event) => self.publisher.publish(event),
                    Output::Lost { namespace, lease, fence, ending } => {
                        let notice = Notice::Lost { fence, ending };
                        self.publisher.notify(namespace, lease, notice);
                    }
                    Output::Wanted { namespace, session, scope } => {
                        self.publisher.notify(namespace, session, Notice::Wanted { scope });
                    }
                }
            }
        }
    }

    /// An error means that somebody else leads, or that the store is not what it was.
    fn appended(&mut self, now: Timestamp, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Ok(()) => {
                self.snapshots.appended(self.appending_bytes);
                self.count_commit();
                if self.failure.take().is_some() {
                    tracing::info!("the store is back");
                }
                self.engine.appended(now);
                Ok(())
            }
            Err(error @ Error::Unavailable { .. }) => {
                self.fail(now, &error);
                self.engine.unseal();
                self.retry_at = Some(now.plus(RETRY_AFTER));
                Ok(())
            }
            Err(error @ Error::OutcomeUnknown { .. }) => {
                self.fail(now, &error);
                self.append =
                    Some(settle(self.journal.clone(), self.epoch, self.engine.next_seq()));
                Ok(())
            }
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. })) => Err(error),
        }
    }

    fn count_commit(&mut self) {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.seconds.observe(self.appending_since.elapsed().as_secs_f64());
        commits.batch_size.observe(self.engine.in_flight_len() as f64);
    }

    fn fail(&mut self, now: Timestamp, error: &Error) {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner).failures += 1;
        if self.failure.is_none() {
            tracing::error!(error = %error, "the store failed; nothing is granted until it is back");
        }
        self.failure = Some(error.to_string());
        self.engine.append_failed(now);
    }

    fn snapshot_went_on(&mut self, result: Result<Done, Error>) {
        match result {
            Ok(done) => self.snapshots.done(&done),
            Err(error) => {
                tracing::warn!(error = %error, "a snapshot was given up");
                self.snapshots.failed();
            }
        }
    }

    fn drain(&mut self, now: Timestamp) {
        self.draining_until = Some(now.plus(DRAIN_MAX));
        self.engine.drain(now);
        // Those who wait are told; those whose commit is under way still get their answer.
        self.engine.refuse_waiters(now);
    }

    fn set_status(&mut self, phase: Phase) {
        let status = status_of(&self.engine, &*self.journal, phase, self.failure.clone());
        self.status.send_if_modified(|current| {
            let changed = *current != status;
            *current = status;
            changed
        });
    }
}

fn status_of(
    engine: &Engine,
    journal: &dyn Journal,
    phase: Phase,
    store_failure: Option<String>,
) -> Status {
    let table = engine.table();
    Status {
        phase,
        epoch: table.epoch(),
        revision: table.revision(),
        grace: table.grace(),
        store: journal.traits().name,
        store_failure,
    }
}

/// Finds out whether a record was written, however long that takes, before anything else is.
fn settle(journal: Arc<dyn Journal>, epoch: Epoch, seq: Seq) -> Pending<()> {
    Box::pin(async move {
        loop {
            match journal.read_back(epoch, seq).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {
                    let what = "the record was not written".into();
                    return Err(Error::Unavailable { what, cause: None });
                }
                Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => {
                    tokio::time::sleep(RETRY_AFTER.as_duration()).await;
                }
                Err(error @ (Error::Conflict(_) | Error::Corrupt { .. })) => return Err(error),
            }
        }
    })
}

/// Whatever else has come by now goes into the same batch, the urgent first.
fn gather(
    first: Option<Asked>,
    calls: &mut Vec<Asked>,
    urgent: &mut mpsc::Receiver<Asked>,
    ordinary: &mut mpsc::Receiver<Asked>,
    room: bool,
) -> Happened {
    let Some(first) = first else { return Happened::Orphaned };
    calls.push(first);
    while calls.len() < TAKEN_AT_ONCE
        && let Ok(asked) = urgent.try_recv()
    {
        calls.push(asked);
    }
    while room
        && calls.len() < TAKEN_AT_ONCE
        && let Ok(asked) = ordinary.try_recv()
    {
        calls.push(asked);
    }
    Happened::Calls
}

/// Awaits a call that may not have been made; then for ever.
async fn poll<T>(call: &mut Option<Pending<T>>) -> Result<T, Error> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}
