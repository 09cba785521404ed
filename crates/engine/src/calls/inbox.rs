//! The three classes of calls, and the queue that each account has in them.
//!
//! Urgent: renewals, releases and everything else that ends something, so that a flood of requests cannot make a holder
//! expire. Ordinary: what asks for something. Reads. Callers send along a channel for each class; the engine sorts what
//! has come into queues by account (`fair.rs`) and takes of each class as much as a turn allows. So an account that sends
//! more than its share waits for itself alone. Within a class, what one account sent first is carried out first; and what
//! it sent as urgent is never overtaken by what it sent as ordinary afterwards.

use std::sync::Arc;

use leasehold_core::{ByOwner, CallId, Command, OwnerAction};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::fair::FairQueue;
use super::load::{Load, Shed, Shedding};
use super::{Account, Call, CallError, Query, Reply, ReplyQueue};
use crate::writer::Undo;

/// The most calls in a channel, and in the queues of its class, before callers are told that the server is busy.
const URGENT_LEN_MAX: usize = 100_000;
const ORDINARY_LEN_MAX: usize = 250_000;
/// The most calls that one account may have queued in a class. The anonymous account has no such limit.
const ACCOUNT_LEN_MAX: usize = 20_000;

/// The share of one account in a turn: calls, or for reads the steps that they take.
const QUANTUM: usize = 64;
const READS_QUANTUM: usize = 1000;
/// The most of each class that is taken at a time.
const URGENT_AT_ONCE: usize = 8192;
const ORDINARY_AT_ONCE: usize = 1024;
const READ_STEPS_AT_ONCE: usize = 20_000;

/// The classes in the order in which they are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Urgent,
    Ordinary,
    Reads,
}

impl Class {
    pub(crate) fn of(call: &Call) -> Class {
        match call {
            Call::Command(command) if is_urgent(command) => Class::Urgent,
            Call::Command(_) => Class::Ordinary,
            Call::Query(_) => Class::Reads,
        }
    }
}

/// Something on its way to the engine, and on whose behalf.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) from: Arc<Account>,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    Call(CallEnvelope),
    Calls(CallBatch),
    /// A port is gone; with what nobody has taken delivery of.
    Closed {
        port: u32,
        undo: Vec<Undo>,
    },
    /// Answers that were taken, but did not reach whom they were for.
    Undelivered(Vec<Undo>),
}

/// One call of a caller of its own.
#[derive(Debug)]
pub(crate) struct CallEnvelope {
    pub(crate) id: CallId,
    pub(crate) call: Call,
    /// `None` when nobody awaits the answer.
    pub(crate) reply: Option<oneshot::Sender<ReplyEnvelope>>,
}

/// An answer on its way to a caller of its own, and how to take it back should it not arrive.
#[derive(Debug)]
pub(crate) struct ReplyEnvelope {
    pub(crate) reply: Result<Reply, CallError>,
    pub(crate) undo: Option<Undo>,
}

/// Calls of one port, in order.
#[derive(Debug)]
pub(crate) struct CallBatch {
    pub(crate) replies_to: Arc<ReplyQueue>,
    pub(crate) calls: Vec<(u32, Call)>,
    /// The leases that the port follows from now on, and those it no longer does.
    pub(crate) follow: Vec<leasehold_core::LeaseId>,
    pub(crate) forget: Vec<leasehold_core::LeaseId>,
}

impl Content {
    /// The number of calls in it.
    fn len(&self) -> usize {
        match self {
            Content::Call(_) => 1,
            Content::Calls(calls) => calls.calls.len(),
            Content::Closed { undo, .. } | Content::Undelivered(undo) => undo.len(),
        }
    }

    /// Its cost in its class: calls, or the steps that its reads may take.
    fn cost(&self) -> usize {
        let cost = match self {
            Content::Call(envelope) => cost_of(&envelope.call),
            Content::Calls(calls) => calls.calls.iter().map(|(_, call)| cost_of(call)).sum(),
            Content::Closed { .. } | Content::Undelivered(_) => self.len(),
        };
        cost.max(1)
    }

    /// Whether its callers can be told that the server is too busy for it.
    fn may_be_refused(&self) -> bool {
        match self {
            Content::Call(_) | Content::Calls(_) => true,
            Content::Closed { .. } | Content::Undelivered(_) => false,
        }
    }
}

fn cost_of(call: &Call) -> usize {
    match call {
        Call::Command(_) => 1,
        Call::Query(query) => match query {
            Query::Get { .. }
            | Query::Test { .. }
            | Query::Check { .. }
            | Query::Session { .. }
            | Query::Register { .. }
            | Query::Token { .. } => 10,
            Query::List(list) => list.looked_at_max,
            Query::Tree(tree) => tree.looked_at_max,
            Query::Sessions { len_max, .. } | Query::Registers { len_max, .. } => *len_max,
            Query::Stats => READS_QUANTUM,
            Query::Graph { .. } | Query::Overview { .. } => READ_STEPS_AT_ONCE / 2,
        },
    }
}

/// The callers' ends.
#[derive(Clone, Debug)]
pub(crate) struct InboxSender {
    pub(crate) urgent: mpsc::Sender<Inbound>,
    pub(crate) ordinary: mpsc::Sender<Inbound>,
    pub(crate) reads: mpsc::Sender<Inbound>,
}

impl InboxSender {
    pub(crate) fn lane(&self, class: Class) -> &mpsc::Sender<Inbound> {
        match class {
            Class::Urgent => &self.urgent,
            Class::Ordinary => &self.ordinary,
            Class::Reads => &self.reads,
        }
    }
}

/// The engine's ends.
#[derive(Debug)]
pub(crate) struct Inbox {
    urgent: mpsc::Receiver<Inbound>,
    ordinary: mpsc::Receiver<Inbound>,
    reads: mpsc::Receiver<Inbound>,
    queues: Queues,
}

/// The calls that have come in and are not carried out yet.
#[derive(Debug)]
struct Queues {
    urgent: FairQueue<Queued>,
    ordinary: FairQueue<Queued>,
    reads: FairQueue<Queued>,
    load: Load,
    shed: Arc<Shed>,
    /// Too much of an account, or too late: to be told so.
    refused: Vec<Inbound>,
}

/// With the moment at which it came in.
type Queued = (Instant, Inbound);

pub(crate) fn inbox() -> (InboxSender, Inbox, Arc<Shed>) {
    let (urgent, urgent_out) = mpsc::channel(URGENT_LEN_MAX);
    let (ordinary, ordinary_out) = mpsc::channel(ORDINARY_LEN_MAX);
    let (reads, reads_out) = mpsc::channel(ORDINARY_LEN_MAX);
    let shed = Arc::new(Shed::default());
    let queues = Queues {
        urgent: FairQueue::new(QUANTUM),
        ordinary: FairQueue::new(QUANTUM),
        reads: FairQueue::new(READS_QUANTUM),
        load: Load::new(),
        shed: shed.clone(),
        refused: Vec::new(),
    };
    let inbox = Inbox { urgent: urgent_out, ordinary: ordinary_out, reads: reads_out, queues };
    (InboxSender { urgent, ordinary, reads }, inbox, shed)
}

impl Inbox {
    /// Waits for something and takes what may be carried out by then, in the order in which it is to be carried out.
    /// Without `room` only the urgent class is served. False when nobody can ask any more.
    ///
    /// Nothing is lost if the future is dropped before it is ready.
    pub(crate) async fn take(&mut self, room: bool, taken: &mut Vec<Inbound>) -> bool {
        if self.queues.has_work(room) {
            // What is left of the last turn must not keep the callers of this thread from running.
            tokio::task::yield_now().await;
        } else {
            let (class, inbound) = tokio::select! {
                biased;
                inbound = self.urgent.recv() => (Class::Urgent, inbound),
                inbound = self.ordinary.recv(), if room => (Class::Ordinary, inbound),
                inbound = self.reads.recv(), if room => (Class::Reads, inbound),
            };
            let Some(inbound) = inbound else { return false };
            self.queues.put(Instant::now(), class, inbound);
        }
        self.take_the_rest(room, taken);
        true
    }

    /// The calls that are refused without having been carried out.
    pub(crate) fn refused(&mut self) -> &mut Vec<Inbound> {
        &mut self.queues.refused
    }

    /// Takes what is there, without waiting.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn take_at_once(&mut self, room: bool, taken: &mut Vec<Inbound>) {
        self.take_the_rest(room, taken);
    }

    fn take_the_rest(&mut self, room: bool, taken: &mut Vec<Inbound>) {
        let now = Instant::now();
        let queues = &mut self.queues;
        while room
            && queues.reads.len() < ORDINARY_LEN_MAX
            && let Ok(inbound) = self.reads.try_recv()
        {
            queues.put(now, Class::Reads, inbound);
        }
        while room
            && queues.ordinary.cost() < ORDINARY_LEN_MAX
            && let Ok(inbound) = self.ordinary.try_recv()
        {
            queues.put(now, Class::Ordinary, inbound);
        }
        // Last, and all of it: whatever was sent before one of the ordinary ones is here by now.
        while let Ok(inbound) = self.urgent.try_recv() {
            queues.put(now, Class::Urgent, inbound);
        }
        queues.hand_out(now, room, taken);
    }
}

impl Queues {
    fn has_work(&self, room: bool) -> bool {
        !self.urgent.is_empty() || room && !(self.ordinary.is_empty() && self.reads.is_empty())
    }

    fn put(&mut self, now: Instant, class: Class, inbound: Inbound) {
        let (account, calls) = (inbound.from.number(), inbound.content.len());
        let queue = match class {
            Class::Urgent => &mut self.urgent,
            Class::Ordinary => &mut self.ordinary,
            Class::Reads => &mut self.reads,
        };
        let cost = inbound.content.cost();
        let queued = match class {
            Class::Urgent | Class::Ordinary => queue.cost_of(account) + cost,
            Class::Reads => queue.len_of(account) + 1,
        };
        let is_full = queued > ACCOUNT_LEN_MAX && !inbound.from.is_anonymous();
        // All callers without a credential share the anonymous account: it is never shed, and full only with the queue.
        let is_shed = match (class, self.load.shedding()) {
            _ if inbound.from.is_anonymous() => false,
            (Class::Urgent, _) | (_, Shedding::Nothing) | (Class::Ordinary, Shedding::Reads) => {
                false
            }
            (Class::Ordinary | Class::Reads, Shedding::All) => queue.cost_of(account) > 0,
            (Class::Ordinary | Class::Reads, _) => queue.is_above_share(account),
        };
        if !inbound.content.may_be_refused() || !(is_full || is_shed) {
            queue.push(account, cost, (now, inbound));
            return;
        }
        match class {
            _ if is_full => self.shed.count_full(calls),
            Class::Reads => self.shed.count_reads(calls),
            Class::Urgent | Class::Ordinary => self.shed.count_ordinary(calls),
        }
        self.refused.push(inbound);
    }

    fn hand_out(&mut self, now: Instant, room: bool, taken: &mut Vec<Inbound>) {
        let Queues { urgent, ordinary, reads, load, .. } = self;
        urgent.take(URGENT_AT_ONCE, |_| false, |(_, inbound)| taken.push(inbound));
        if room {
            let mut give = |(since, inbound): Queued| {
                load.note(now - since, inbound.content.len());
                taken.push(inbound);
            };
            let has_urgent = |account| urgent.cost_of(account) > 0;
            ordinary.take(ORDINARY_AT_ONCE, has_urgent, &mut give);
            reads.take(READ_STEPS_AT_ONCE, |_| false, &mut give);
            if load.judge(now, ordinary.is_empty() && reads.is_empty()) {
                ordinary.begin_window();
                reads.begin_window();
            }
            self.shed.set_level(load.shedding());
        }
    }
}

/// Whether a command gives something back or keeps something alive.
pub(crate) fn is_urgent(command: &Command) -> bool {
    match command {
        Command::Renew(_)
        | Command::Release(_)
        | Command::ByOwner(ByOwner { action: OwnerAction::Release, .. })
        | Command::Unlock(_)
        | Command::Cancel(_)
        | Command::KeepAlive(_)
        | Command::CloseSession(_)
        | Command::Attach(_)
        | Command::Disconnect(_)
        | Command::Break(_)
        | Command::BreakSession(_)
        | Command::RemoveFile(_)
        | Command::Withdraw(_)
        | Command::Tick => true,
        Command::Acquire(_)
        | Command::ByOwner(ByOwner { action: OwnerAction::Hold { .. }, .. })
        | Command::OpenSession(_)
        | Command::AcceptFence(_)
        | Command::DeleteFence(_)
        | Command::BeginEpoch(_)
        | Command::Jump(_)
        | Command::Suspend
        | Command::Resume => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{Command, Namespace, Principal, Quotas, RegisterName};

    fn account(name: &str) -> Arc<Account> {
        Account::of(&Principal::new(name).unwrap(), Quotas::UNLIMITED)
    }

    fn call_of(from: &Arc<Account>, id: u64) -> Inbound {
        let (id, call) = (CallId(id), Call::Command(Command::Tick));
        Inbound {
            from: from.clone(),
            content: Content::Call(CallEnvelope { id, call, reply: None }),
        }
    }

    fn call(id: u64) -> Inbound {
        call_of(&Account::anonymous(), id)
    }

    fn ids(taken: &[Inbound]) -> Vec<u64> {
        taken
            .iter()
            .map(|inbound| match &inbound.content {
                Content::Call(asked) => asked.id.0,
                Content::Calls(_) | Content::Closed { .. } | Content::Undelivered(_) => {
                    panic!("not sent here")
                }
            })
            .collect()
    }

    #[tokio::test]
    async fn urgent_goes_before_everything_that_lies_there_and_reads_behind() {
        let (into, mut inbox, _) = inbox();
        into.reads.try_send(call(5)).unwrap();
        into.ordinary.try_send(call(1)).unwrap();
        into.urgent.try_send(call(2)).unwrap();
        into.ordinary.try_send(call(3)).unwrap();
        into.urgent.try_send(call(4)).unwrap();
        let mut taken = Vec::new();
        assert!(inbox.take(true, &mut taken).await);
        assert_eq!(ids(&taken), [2, 4, 1, 3, 5]);
    }

    #[tokio::test]
    async fn without_room_only_the_urgent_lane_is_open() {
        let (into, mut inbox, _) = inbox();
        into.ordinary.try_send(call(1)).unwrap();
        into.reads.try_send(call(3)).unwrap();
        into.urgent.try_send(call(2)).unwrap();
        let mut taken = Vec::new();
        assert!(inbox.take(false, &mut taken).await);
        assert_eq!(ids(&taken), [2]);
        taken.clear();
        drop(into);
        assert!(!inbox.take(false, &mut taken).await, "nobody is left to ask");
    }

    /// One caller sends urgent, then ordinary, as fast as it can: the second is never seen before the first.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ordinary_never_overtakes_what_was_sent_before_it() {
        let (into, mut inbox, _) = inbox();
        let sending = tokio::task::spawn_blocking(move || {
            for pair in 0..20_000 {
                into.urgent.blocking_send(call(2 * pair)).unwrap();
                into.ordinary.blocking_send(call(2 * pair + 1)).unwrap();
            }
        });
        let (mut taken, mut urgent_seen, mut len) = (Vec::new(), 0, 0);
        while inbox.take(true, &mut taken).await {
            for id in ids(&taken) {
                len += 1;
                if id % 2 == 0 {
                    urgent_seen = id;
                } else {
                    assert!(urgent_seen >= id - 1, "{id} was taken before {}", id - 1);
                }
            }
            taken.clear();
        }
        assert_eq!((urgent_seen, len), (2 * 19_999, 40_000));
        sending.await.unwrap();
    }

    /// In no class does a flood delay what another account sends by more than a turn.
    #[tokio::test]
    async fn flood_of_one_account_stays_behind_the_first_call_of_another() {
        let (into, mut inbox, _) = inbox();
        let (red, blue) = (account("red"), account("blue"));
        for class in [Class::Urgent, Class::Ordinary, Class::Reads] {
            for id in 0..15_000 {
                into.lane(class).try_send(call_of(&red, id)).unwrap();
            }
            into.lane(class).try_send(call_of(&blue, 99_999)).unwrap();
        }
        let mut taken = Vec::new();
        assert!(inbox.take(true, &mut taken).await);
        let all = ids(&taken);
        let blue: Vec<usize> =
            all.iter().enumerate().filter(|(_, id)| **id == 99_999).map(|(at, _)| at).collect();
        assert_eq!(blue.len(), 3, "one in each class");
        assert!(blue[0] <= QUANTUM, "{blue:?}");
        // Its urgent calls are not all done: its ordinary ones have to wait, and those of nobody else.
        assert_eq!(blue[1], URGENT_AT_ONCE, "{blue:?}");
    }

    #[tokio::test]
    async fn full_queue_refuses_its_own_account_alone() {
        let (into, mut inbox, shed) = inbox();
        let (red, blue) = (account("red"), account("blue"));
        for id in 0..25_000 {
            into.ordinary.try_send(call_of(&red, id)).unwrap();
        }
        into.ordinary.try_send(call_of(&blue, 99_999)).unwrap();
        let closed = Content::Closed { port: 1, undo: Vec::new() };
        into.ordinary.try_send(Inbound { from: red, content: closed }).unwrap();
        let mut taken = Vec::new();
        assert!(inbox.take(true, &mut taken).await);
        assert_eq!(ids(inbox.refused()), (20_000..25_000).collect::<Vec<_>>());
        assert_eq!(shed.counts().full, 5000);
        assert!(ids(&taken).contains(&99_999));
        let mut closed = 0;
        while inbox.queues.has_work(true) {
            taken.clear();
            inbox.take(true, &mut taken).await;
            closed += taken.iter().filter(|i| matches!(i.content, Content::Closed { .. })).count();
        }
        assert_eq!(closed, 1, "a port that is gone is never refused");
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_too_long_sheds_those_above_their_share_first() {
        let (into, mut inbox, shed) = inbox();
        let (red, blue) = (account("red"), account("blue"));
        let mut taken = Vec::new();
        let mut id = 0;
        // Each turn takes 200 ms, and more comes than it carries out.
        for _ in 0..16 {
            for _ in 0..1500 {
                id += 1;
                into.ordinary.try_send(call_of(&red, id)).unwrap();
            }
            into.ordinary.try_send(call_of(&blue, 999_999)).unwrap();
            assert!(inbox.take(true, &mut taken).await);
            assert!(!ids(inbox.refused()).contains(&999_999), "below its share");
            inbox.refused().clear();
            tokio::time::advance(std::time::Duration::from_millis(200)).await;
        }
        assert!(shed.counts().ordinary > 0, "{:?}", shed.counts());
        into.urgent.try_send(call_of(&red, 7)).unwrap();
        taken.clear();
        assert!(inbox.take(true, &mut taken).await);
        assert_eq!(ids(&taken)[0], 7, "never refused");
    }

    #[test]
    fn query_costs_what_it_may_look_at() {
        let namespace = Namespace::default;
        let register = RegisterName::new("tape").unwrap();
        let cost = |query| cost_of(&Call::Query(query));
        assert_eq!(cost(Query::Register { namespace: namespace(), register }), 10);
        assert_eq!(cost(Query::Sessions { namespace: namespace(), after: 0, len_max: 77 }), 77);
        assert_eq!(cost(Query::Graph { namespace: namespace(), waits_max: 1 }), 10_000);
    }
}
