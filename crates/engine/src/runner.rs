//! Drives a member with a real clock and a real journal, in a task of its own.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::{Command, Limits, Timestamp};
use leasehold_store::{Candidate, Journal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::call::Call;
use crate::clock::Clock;
use crate::counts::Commits;
use crate::engine::{Output, Portion};
use crate::handle::{Handle, Wish};
use crate::history::HistoryLimits;
use crate::lanes::{Asked, Lanes, Parcel, lanes};
use crate::lull::{Lulls, SLOW};
use crate::member::{Member, Plan};
use crate::port::call_id;
use crate::publish::Publisher;
use crate::recovery::{Recovery, StartError};
use crate::replies::Replies;
use crate::request::{Answering, Asking, Lane, Request, Response};
use crate::status::{Condition, Phase, Status};

/// A store that can be as quick as that is worth staying awake for: to be woken up would take about as long as half a
/// sync.
const QUICK: Duration = Duration::from_micros(250);
/// For so long. It is not always as quick as it can be, and who falls asleep just before the answer has lost both.
const AWAKE: Duration = Duration::from_micros(500);
/// When many wait for the record, it is also worth it for a store that can only be as quick as that: for twice as long as it
/// takes at its best.
const QUICK_FOR_MANY: Duration = Duration::from_millis(1);

/// A store that takes no longer is the memory: there is nothing to keep it busy for.
const AT_ONCE: Duration = Duration::from_micros(20);

/// How much of a crowd is remembered with each record: a large one counts for some thousand records.
const CROWD_KEPT: f64 = 0.9998;

/// A record with so many transitions is one that many wait for.
const MANY: usize = 16;

/// How a server is to run its engine.
#[derive(Clone, Debug)]
pub struct Runner {
    pub candidate: Candidate,
    pub recovery: Recovery,
    /// After so many bytes of records a snapshot is taken, at the latest.
    pub snapshot_bytes: u64,
    /// How many events are remembered for watchers that come back.
    pub events_len_max: usize,
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
            history: HistoryLimits::default(),
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
    let publisher = Publisher::new(runner.events_len_max, runner.history);
    let (lanes_in, lanes) = lanes();
    let (status_out, status) = watch::channel(member.status(now));
    let (condition_out, condition) = watch::channel(member.status(now).condition());
    let (stop, stopping) = oneshot::channel();
    let (wishes, wishes_in) = mpsc::unbounded_channel();
    let commits: Arc<Mutex<Commits>> = Arc::default();
    let task = Task {
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
        last: None,
        pace: SLOW,
        crowd: 0.0,
        lulls: Lulls::default(),
        commits: commits.clone(),
        wishes: wishes_in,
        stopping: false,
        orphaned: false,
    };
    let task = tokio::spawn(task.run(lanes, stopping));
    let calls = Arc::new(AtomicU64::new(1));
    let ports = Arc::new(AtomicU32::new(1));
    let handle = Handle {
        lanes: lanes_in,
        calls,
        ports,
        status: status.clone(),
        condition,
        publisher,
        commits,
        wishes,
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

/// What happened next.
enum Happened {
    Answered(u64, Response),
    Calls,
    Time,
    /// Those who were answered have had the time to ask again.
    LullOver,
    Wish(Wish),
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
    condition: watch::Sender<Condition>,
    replies: Replies,
    /// What is being shown; empty most of the time.
    outputs: Vec<Output>,
    /// What the store was asked, by lane.
    under_way: [Option<(u64, Answering)>; Lane::ALL.len()],
    appending: Option<Appending>,
    last: Option<Appended>,
    /// What the quickest of the last few records took.
    pace: Duration,
    /// The most that waited for one record, lately.
    crowd: f64,
    lulls: Lulls,
    commits: Arc<Mutex<Commits>>,
    wishes: mpsc::UnboundedReceiver<Wish>,
    stopping: bool,
    orphaned: bool,
}

/// A record on its way, to be counted when it is there.
struct Appending {
    since: Instant,
    transitions: usize,
}

/// The last record that was answered.
#[derive(Clone, Copy)]
struct Appended {
    at: Instant,
    took: Duration,
}

impl Task {
    async fn run(
        mut self,
        mut lanes: Lanes,
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
            let happened = self.wait(pause, &mut lanes, &mut stopping, &mut calls).await;
            // After the calls came in: none of them was sent later than this.
            now = self.clock.now();
            match happened {
                Happened::Answered(id, response) => {
                    let of_many = self.count(&response) >= MANY;
                    self.member.answered(now, id, response);
                    if of_many {
                        self.take_in(&mut lanes, &mut calls).await;
                        now = self.clock.now();
                    }
                }
                Happened::Calls => self.submit(now, &mut calls),
                Happened::Time => self.sweep(now),
                Happened::LullOver => self.lulls.end(),
                Happened::Wish(Wish::HandOver) => self.member.hand_over(now),
                Happened::Wish(Wish::Hesitate(length)) => self.member.hesitate(length),
                Happened::Wish(Wish::Look) => self.member.look(now),
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
        lanes: &mut Lanes,
        stopping: &mut oneshot::Receiver<()>,
        calls: &mut Vec<Parcel>,
    ) -> Happened {
        let room = self.member.has_room();
        let awake_until = self.awake_until();
        let lull_until = self.lull_until();
        let spins = self.clock.runs_by_itself();
        let [leadership, row, snapshot] = &mut self.under_way;
        tokio::select! {
            biased;
            (id, response) = awake(awake_until, answer(row)) => Happened::Answered(id, response),
            (id, response) = answer(leadership) => Happened::Answered(id, response),
            came = lanes.take(room, calls), if !self.orphaned => {
                if came { Happened::Calls } else { Happened::Orphaned }
            }
            () = stay_awake(lull_until, spins), if lull_until.is_some() => Happened::LullOver,
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => Happened::Time,
            (id, response) = answer(snapshot) => Happened::Answered(id, response),
            Some(wish) = self.wishes.recv() => Happened::Wish(wish),
            _ = stopping, if !self.stopping => Happened::Stop,
        }
    }

    /// Until when it pays to stay awake for the record under way.
    fn awake_until(&self) -> Option<Instant> {
        let appending = self.appending.as_ref().filter(|_| self.clock.runs_by_itself())?;
        let length = if self.pace < QUICK {
            AWAKE
        } else if self.pace < QUICK_FOR_MANY && appending.transitions >= MANY {
            self.pace * 2
        } else {
            return None;
        };
        Some(appending.since + length)
    }

    /// Until when it pays to stay awake for those who were just answered: somebody waits for them, or they are many.
    fn lull_until(&self) -> Option<Instant> {
        self.lulls.missing_until(if self.member.awaited_len() > 0 { 0 } else { MANY })
    }

    /// A quick store that has nothing to do need not wait for the answers to go out: what some ask for is on its way here
    /// while others are answered. Only what comes at once is taken in.
    async fn take_in(&mut self, lanes: &mut Lanes, calls: &mut Vec<Parcel>) {
        if self.pace < AT_ONCE {
            return;
        }
        // Twice: answers of before have to go out first, and those who get them to run.
        for _ in 0..2 {
            if self.lulls.is_on() || self.member.awaited_len() > 0 {
                return;
            }
            let_others_run().await;
            lanes.take_at_once(self.member.has_room(), calls);
            self.submit(self.clock.now(), calls);
        }
    }

    fn submit(&mut self, now: Timestamp, parcels: &mut Vec<Parcel>) {
        self.lulls.asked(parcels.iter().map(Parcel::len).sum());
        for parcel in parcels.drain(..) {
            match parcel {
                Parcel::Call(Asked { id, call, reply }) => {
                    match reply {
                        // Its caller has gone already, and with it the wish.
                        Some(reply) if reply.is_closed() && is_acquire(&call) => continue,
                        Some(reply) => self.replies.await_reply(id, reply),
                        None => {}
                    }
                    self.member.submit(now, id, call);
                }
                Parcel::Calls(calls) => {
                    self.replies.heard_of(&calls);
                    let port = calls.mailbox.port;
                    for (number, call) in calls.calls {
                        self.member.submit(now, call_id(port, number), call);
                    }
                }
                Parcel::Closed { port, undo } => {
                    self.replies.closed(port);
                    for undo in undo {
                        self.member.undelivered(now, undo);
                    }
                }
            }
        }
    }

    /// Starts what can be started and shows what may be shown. The next record is on its way before the answers to the
    /// last one are: whoever waits for it does not wait for them as well.
    fn go_on(&mut self, now: Timestamp) {
        if self.lulls.is_on() {
            self.deliver(now);
        }
        // Twice: what could not be delivered is taken back, and what was asked may have changed who leads.
        for _ in 0..2 {
            self.ask_store(now);
            self.deliver(now);
        }
        self.member.draft_next();
        self.set_status(now);
    }

    fn ask_store(&mut self, now: Timestamp) {
        let portion = match self.appending {
            Some(_) => Some(Portion::Whole),
            None if self.lulls.lasts(Instant::now()) => None,
            None => Some(self.portion()),
        };
        for asking in self.member.take_requests(now, portion) {
            self.ask(asking);
        }
    }

    /// Half of it, if the store has been idle for longer than it took for the last record and about everybody waits. Then all
    /// were answered at once and ask again at once: in two halves, one can ask while the other is written. With a quick
    /// store two halves are idle for about as long as that as well, and a slow one has its lull.
    fn portion(&mut self) -> Portion {
        let waiting = self.member.awaited_len() as f64;
        let Some(Appended { at, took }) = self.last.filter(|_| waiting > 0.0) else {
            return Portion::Whole;
        };
        self.crowd = waiting.max(self.crowd * CROWD_KEPT);
        let rest = if self.pace < QUICK { took * 7 / 4 } else { took };
        let has_rested = (AT_ONCE..SLOW).contains(&self.lulls.usual())
            && (rest..took * 4).contains(&at.elapsed());
        if has_rested && waiting > 0.75 * self.crowd { Portion::Half } else { Portion::Whole }
    }

    fn ask(&mut self, Asking { id, request }: Asking) {
        if let Request::Append { transitions, .. } = &request {
            self.lulls.end();
            self.appending = Some(Appending { since: Instant::now(), transitions: *transitions });
        }
        let lane = request.lane() as usize;
        self.under_way[lane] = Some((id, request.put_to(&*self.journal)));
    }

    /// How many transitions are written with that.
    fn count(&mut self, response: &Response) -> usize {
        let Response::Appended(result) = response else { return 0 };
        let Some(appending) = self.appending.take() else { return 0 };
        let took = appending.since.elapsed();
        self.last = Some(Appended { at: Instant::now(), took });
        self.pace = took.min(self.pace * 9 / 8);
        self.lulls.written(Instant::now(), took);
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                commits.seconds.observe(took.as_secs_f64());
                commits.batch_size.observe(appending.transitions as f64);
                appending.transitions
            }
            Err(_) => {
                commits.failures += 1;
                0
            }
        }
    }

    fn deliver(&mut self, now: Timestamp) {
        // Taking a grant back can free others: go on until nothing more comes of it.
        loop {
            self.member.take_outputs(&mut self.outputs);
            if self.outputs.is_empty() {
                return;
            }
            let is_answer = |output: &&Output| matches!(output, Output::Reply { .. });
            self.lulls.answered(self.outputs.iter().filter(is_answer).count());
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

/// Stays awake for an answer that is to come soon. Whoever is awake need not be woken up, which would cost the one who
/// answers a call to the system.
async fn awake<T>(until: Option<Instant>, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    while is_before(until) {
        let looked = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(answer) = looked {
            return answer;
        }
        let_others_run().await;
    }
    answer.await
}

async fn stay_awake(until: Option<Instant>, spins: bool) {
    if !spins && let Some(until) = until {
        return tokio::time::sleep_until(until).await;
    }
    while is_before(until) {
        let_others_run().await;
    }
}

fn is_before(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

/// Here, and on this processor.
async fn let_others_run() {
    std::thread::yield_now();
    tokio::task::yield_now().await;
}
