//! Drives a member with a real clock and a real journal, in a task of its own.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::{CallId, Limits, Timestamp};
use leasehold_store::{Candidate, Journal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::call::{CallError, Reply};
use crate::clock::Clock;
use crate::counts::Commits;
use crate::engine::Output;
use crate::handle::{Asked, Handle};
use crate::member::{Member, Plan};
use crate::publish::{Notice, Publisher};
use crate::recovery::{Recovery, StartError};
use crate::request::{Answering, Asking, Lane, Request, Response};
use crate::status::{Phase, Status};

/// How many calls may lie waiting before callers are told that the server is busy.
const URGENT_LEN_MAX: usize = 100_000;
const ORDINARY_LEN_MAX: usize = 250_000;
/// How many calls are taken at a time.
const TAKEN_AT_ONCE: usize = 1024;

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
        }
    }
}

/// Takes part in the journal's group, and leads it when nobody else does. Calls are answered from the first moment on:
/// until this server leads, with who does.
///
/// The task ends when it is told to stop, or when the store is lost.
pub fn start(runner: Runner, clock: Arc<dyn Clock>, journal: Arc<dyn Journal>) -> (Handle, Stop) {
    let plan = Plan {
        candidate: runner.candidate,
        recovery: runner.recovery,
        snapshot_bytes: runner.snapshot_bytes,
    };
    let now = clock.now();
    let member = Member::new(plan, journal.traits(), now);
    let publisher = Publisher::new(runner.events_len_max, runner.watcher_backlog_max);
    let (urgent, urgent_in) = mpsc::channel(URGENT_LEN_MAX);
    let (ordinary, ordinary_in) = mpsc::channel(ORDINARY_LEN_MAX);
    let (status_out, status) = watch::channel(member.status(now));
    let (stop, stopping) = oneshot::channel();
    let commits: Arc<Mutex<Commits>> = Arc::default();
    let task = Task {
        member,
        clock,
        journal,
        publisher: publisher.clone(),
        status: status_out,
        callers: HashMap::new(),
        under_way: Default::default(),
        appending: None,
        commits: commits.clone(),
        stopping: false,
        orphaned: false,
    };
    let task = tokio::spawn(task.run(urgent_in, ordinary_in, stopping));
    let calls = Arc::new(AtomicU64::new(1));
    let handle = Handle { urgent, ordinary, calls, status: status.clone(), publisher, commits };
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

/// What happened next.
enum Happened {
    Answered(u64, Response),
    Calls,
    Time,
    Stop,
    /// Nobody can call any more.
    Orphaned,
}

struct Task {
    member: Member,
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
    publisher: Publisher,
    status: watch::Sender<Status>,
    callers: HashMap<CallId, oneshot::Sender<Result<Reply, CallError>>>,
    /// What the store was asked, by lane.
    under_way: [Option<(u64, Answering)>; Lane::ALL.len()],
    appending: Option<Appending>,
    commits: Arc<Mutex<Commits>>,
    stopping: bool,
    orphaned: bool,
}

/// A record on its way, to be counted when it is there.
struct Appending {
    since: Instant,
    transitions: usize,
}

impl Task {
    async fn run(
        mut self,
        mut urgent: mpsc::Receiver<Asked>,
        mut ordinary: mpsc::Receiver<Asked>,
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
            let happened =
                self.wait(pause, &mut urgent, &mut ordinary, &mut stopping, &mut calls).await;
            // After the calls came in: none of them was sent later than this.
            now = self.clock.now();
            match happened {
                Happened::Answered(id, response) => {
                    self.count(&response);
                    self.member.answered(now, id, response);
                }
                Happened::Calls => self.submit(now, &mut calls),
                Happened::Time => self.member.tick(now),
                Happened::Stop | Happened::Orphaned => {
                    self.orphaned |= matches!(happened, Happened::Orphaned);
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

    async fn wait(
        &mut self,
        pause: Option<Duration>,
        urgent: &mut mpsc::Receiver<Asked>,
        ordinary: &mut mpsc::Receiver<Asked>,
        stopping: &mut oneshot::Receiver<()>,
        calls: &mut Vec<Asked>,
    ) -> Happened {
        let room = self.member.has_room();
        let [leadership, row, snapshot] = &mut self.under_way;
        tokio::select! {
            biased;
            (id, response) = answer(row) => Happened::Answered(id, response),
            (id, response) = answer(leadership) => Happened::Answered(id, response),
            asked = urgent.recv(), if !self.orphaned => gather(asked, calls, urgent, ordinary, room),
            asked = ordinary.recv(), if room && !self.orphaned => {
                gather(asked, calls, urgent, ordinary, room)
            }
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => Happened::Time,
            (id, response) = answer(snapshot) => Happened::Answered(id, response),
            _ = stopping, if !self.stopping => Happened::Stop,
        }
    }

    fn submit(&mut self, now: Timestamp, calls: &mut Vec<Asked>) {
        for asked in calls.drain(..) {
            if let Some(reply) = asked.reply {
                self.callers.insert(asked.id, reply);
            }
            self.member.submit(now, asked.id, asked.call);
        }
    }

    /// Shows what may be shown and starts what can be started.
    fn go_on(&mut self, now: Timestamp) {
        self.deliver(now);
        for asking in self.member.take_requests(now) {
            self.ask(asking);
        }
        // What was asked may have changed who leads.
        self.deliver(now);
        self.set_status(now);
    }

    fn ask(&mut self, Asking { id, request }: Asking) {
        if let Request::Append { transitions, .. } = &request {
            self.appending = Some(Appending { since: Instant::now(), transitions: *transitions });
        }
        let lane = request.lane() as usize;
        self.under_way[lane] = Some((id, request.put_to(&*self.journal)));
    }

    fn count(&mut self, response: &Response) {
        let Response::Appended(result) = response else { return };
        let Some(appending) = self.appending.take() else { return };
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                commits.seconds.observe(appending.since.elapsed().as_secs_f64());
                commits.batch_size.observe(appending.transitions as f64);
            }
            Err(_) => commits.failures += 1,
        }
    }

    fn deliver(&mut self, now: Timestamp) {
        // Taking a grant back can free others: go on until nothing more comes of it.
        loop {
            let outputs = self.member.take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                self.show(now, output);
            }
        }
    }

    fn show(&mut self, now: Timestamp, output: Output) {
        match output {
            Output::Reply { call, reply, undo } => {
                let caller = self.callers.remove(&call);
                let delivered = caller.is_some_and(|caller| caller.send(reply).is_ok());
                if !delivered && let Some(undo) = undo {
                    self.member.undelivered(now, undo);
                }
            }
            Output::Event(event) => self.publisher.publish(event),
            Output::Lost { namespace, lease, fence, ending } => {
                self.publisher.notify(namespace, lease, Notice::Lost { fence, ending });
            }
            Output::Wanted { namespace, session, scope } => {
                self.publisher.notify(namespace, session, Notice::Wanted { scope });
            }
            Output::Began(revision) => self.publisher.start_after(revision),
            Output::Ended => self.publisher.end(),
        }
    }

    fn set_status(&mut self, now: Timestamp) {
        let status = self.member.status(now);
        self.status.send_if_modified(|current| {
            let changed = *current != status;
            *current = status;
            changed
        });
    }
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

/// Awaits what was asked in a lane; for ever, if nothing was.
async fn answer(under_way: &mut Option<(u64, Answering)>) -> (u64, Response) {
    let Some((id, answering)) = under_way else { return std::future::pending().await };
    let (id, response) = (*id, answering.await);
    *under_way = None;
    (id, response)
}
