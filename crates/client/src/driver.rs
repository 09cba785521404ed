//! Drives the machine: one thread with one loop, whatever the program around it does.
//!
//! ```text
//!  workers ──orders──► driver ──batch──► connection ──► server
//!     ▲                  │  ▲                │
//!     └── oneshot/belief─┘  └── replies ─────┘        clock: one alarm for all leases
//! ```
//!
//! The thread is the client's own. A program that blocks its runtime for a while does not lose its locks, a guard may be
//! dropped where there is no runtime, and the blocking interface is the same code.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::grpc::{self, AttachResponse, push};
use leasehold_api::{Code, Problem};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::access::{Access, Complaint, Protocol};
use crate::address::query_value;
use crate::belief::Belief;
use crate::client::Transport;
use crate::clock::{Clock, Sleep};
use crate::error::{Error, LostBy};
use crate::http::{Answered, Ask as HttpAsk, Http};
use crate::machine::{
    Action, Answer, Ask, CallId, Ended, Failure, Key, LinkId, Loss, Machine, Moment, News, Request,
};
use crate::payload::{Granted, Payload};
use crate::stream::{self, Attached, Batch, Told};

/// Between two tries of a request that was not carried out.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What the driver is told to do.
pub(crate) enum Order {
    Acquire {
        item: Box<Item>,
        ask: Ask,
    },
    Release {
        key: Key,
        done: oneshot::Sender<Result<(), Error>>,
    },
    /// Nobody holds the guard any more, or waits for it.
    Abandon(Key),
    /// The caller of an acquire went away before it knew its key.
    AbandonRequest(Arc<Belief>),
    Renew(Key),
    StartHeartbeat(Key),
    /// Wants to hear when somebody waits for what it holds.
    Listen(Key),
    Http {
        ask: HttpAsk,
        done: oneshot::Sender<Result<Answered, Error>>,
    },
    Watch(crate::watch::Feed),
    /// Says when it is that late.
    Sleep {
        until: Moment,
        done: oneshot::Sender<()>,
    },
    /// Says when the connection stands for the first time, or why it does not.
    Connected(oneshot::Sender<Result<(), Error>>),
    /// Gives everything back, and says when that is done.
    Flush(oneshot::Sender<()>),
}

/// What is kept with each lease.
pub(crate) struct Item {
    pub(crate) payload: Arc<Payload>,
    pub(crate) granted: Arc<Granted>,
    pub(crate) belief: Arc<Belief>,
    pub(crate) acquired: Option<oneshot::Sender<Result<Got, Error>>>,
    pub(crate) released: Option<oneshot::Sender<Result<(), Error>>>,
}

/// What the one who asked gets.
pub(crate) struct Got {
    pub(crate) key: Key,
    pub(crate) granted: Arc<Granted>,
}

/// Something that came from the network.
pub(crate) enum Arrived {
    Up(LinkId),
    Down(LinkId, Complaint),
    OutOfPatience,
    AskAgain(Asked),
    Attached(LinkId, Box<Attached>),
    Http { call: CallId, key: Key, request: Request, result: Result<Answered, (Failure, String)> },
}

/// A request of a tool.
pub(crate) struct Asked {
    ask: HttpAsk,
    done: oneshot::Sender<Result<Answered, Error>>,
    until: Moment,
}

/// The stream in use.
struct Open {
    link: LinkId,
    stream: Attached,
    batch: Batch,
}

pub(crate) struct Driver {
    clock: Arc<dyn Clock>,
    machine: Machine<Box<Item>>,
    orders: mpsc::UnboundedReceiver<Order>,
    arrived: mpsc::UnboundedReceiver<Arrived>,
    arrivals: mpsc::UnboundedSender<Arrived>,
    transport: Transport,
    access: Access,
    open: Option<Open>,
    http: Http,
    /// The same, for those who stay longer than one request.
    current: watch::Sender<Http>,
    namespace: String,
    query: String,
    running: HashMap<CallId, AbortHandle>,
    /// Who wants to hear that somebody waits, by lease and token; a session has no token of its own.
    listening: HashMap<(String, u64), Arc<Belief>>,
    /// The connection in use, or the one that is being made.
    link: LinkId,
    connecting: Option<AbortHandle>,
    is_up: bool,
    /// Why the last connection failed.
    complaint: Complaint,
    /// Until when who waits for the first connection goes on waiting.
    up_until: Moment,
    waiting_for_up: Vec<oneshot::Sender<Result<(), Error>>>,
    flushing: Vec<oneshot::Sender<()>>,
    is_out_of_patience: bool,
}

impl Driver {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        machine: Machine<Box<Item>>,
        transport: Transport,
        access: Access,
        namespace: String,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Driver {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let query = format!("?namespace={}", query_value(&namespace));
        let http = Http::new(machine.server().to_string(), access.clone());
        let up_until = clock.now().plus(machine.settings().patience);
        Driver {
            clock,
            machine,
            orders,
            arrived,
            arrivals,
            transport,
            access,
            open: None,
            current: watch::Sender::new(http.clone()),
            http,
            namespace,
            query,
            running: HashMap::new(),
            listening: HashMap::new(),
            link: LinkId(0),
            connecting: None,
            is_up: false,
            complaint: Complaint::passing("no server answered"),
            up_until,
            waiting_for_up: Vec::new(),
            flushing: Vec::new(),
            is_out_of_patience: false,
        }
    }

    /// Runs until nobody can order anything any more and everything is given back.
    pub(crate) async fn run(mut self) {
        let mut orders = Vec::new();
        let mut is_open = true;
        let mut alarm = Alarm::default();
        loop {
            self.act();
            if !is_open && (self.machine.is_empty() || self.is_out_of_patience) {
                return;
            }
            alarm.set(&*self.clock, self.next_wake());
            tokio::select! {
                biased;
                Some(arrived) = self.arrived.recv() => {
                    self.take_in(arrived);
                    while let Ok(arrived) = self.arrived.try_recv() {
                        self.take_in(arrived);
                    }
                }
                message = next_message(&mut self.open) => self.take_in_message(message),
                count = self.orders.recv_many(&mut orders, 256), if is_open => {
                    if count == 0 {
                        is_open = false;
                        self.give_all_back();
                        self.stop_flushing_later();
                    }
                    // What is asked together is counted from the same moment, before any of it is sent.
                    let now = self.clock.now();
                    for order in orders.drain(..) {
                        self.obey(now, order);
                    }
                }
                () = alarm.rings() => {
                    alarm.clear();
                    let now = self.clock.now();
                    self.machine.wake(now);
                    self.give_up_connecting(now, false);
                }
            }
        }
    }

    fn next_wake(&self) -> Option<Moment> {
        let machine = self.machine.next_wake();
        if self.waiting_for_up.is_empty() {
            return machine;
        }
        Some(machine.map_or(self.up_until, |at| at.min(self.up_until)))
    }

    fn obey(&mut self, now: Moment, order: Order) {
        match order {
            Order::Acquire { item, ask } => {
                // The caller may be gone already.
                if item.acquired.as_ref().is_some_and(|sender| !sender.is_closed()) {
                    let belief = item.belief.clone();
                    belief.asked_as(self.machine.acquire(now, item, ask));
                }
            }
            Order::Release { key, done } => self.release(now, key, done),
            Order::Abandon(key) => self.machine.abandon(now, key),
            Order::AbandonRequest(belief) => {
                if let Some(key) = belief.key() {
                    self.machine.abandon(now, key);
                }
            }
            Order::Renew(key) => _ = self.machine.renew(now, key),
            Order::StartHeartbeat(key) => self.machine.start_heartbeat(now, key),
            Order::Listen(key) => {
                if let Some(item) = self.machine.data(key) {
                    self.listening.insert(item.granted.name(), item.belief.clone());
                }
            }
            Order::Http { ask, done } => {
                let until = now.plus(self.machine.settings().patience);
                self.ask_http(Asked { ask, done, until });
            }
            Order::Watch(feed) => drop(tokio::spawn(feed.run(self.current.subscribe()))),
            Order::Sleep { until, done } => {
                let alarm = self.clock.sleep_until(until);
                drop(tokio::spawn(async move {
                    alarm.await;
                    let _ = done.send(());
                }));
            }
            Order::Connected(done) if self.is_up => _ = done.send(Ok(())),
            Order::Connected(done) => self.waiting_for_up.push(done),
            Order::Flush(done) => {
                self.give_all_back();
                self.flushing.push(done);
                self.stop_flushing_later();
            }
        }
    }

    fn release(&mut self, now: Moment, key: Key, done: oneshot::Sender<Result<(), Error>>) {
        let Some(item) = self.machine.data_mut(key) else {
            let _ = done.send(Err(Error::LeaseLost(LostBy::Lapse)));
            return;
        };
        item.belief.lost(LostBy::Released);
        item.released = Some(done);
        if !self.machine.release(now, key)
            && let Some(done) = self.machine.data_mut(key).and_then(|item| item.released.take())
        {
            let _ = done.send(Err(Error::LeaseLost(LostBy::Lapse)));
        }
    }

    fn give_all_back(&mut self) {
        let now = self.clock.now();
        for key in self.machine.keys() {
            if let Some(item) = self.machine.data_mut(key) {
                item.belief.lost(LostBy::Released);
                if let Some(acquired) = item.acquired.take() {
                    let _ = acquired.send(Err(Error::Closed));
                }
            }
            self.machine.abandon(now, key);
        }
    }

    /// What cannot be given back by then lapses by itself.
    fn stop_flushing_later(&self) {
        let (arrivals, patience) = (self.arrivals.clone(), self.machine.settings().patience);
        drop(tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            let _ = arrivals.send(Arrived::OutOfPatience);
        }));
    }

    fn say_if_flushed(&mut self) {
        if self.machine.is_empty() || self.is_out_of_patience {
            for done in self.flushing.drain(..) {
                let _ = done.send(());
            }
        }
    }

    /// Asks the server in use. What certainly was not carried out, or only reads, is asked again while patience lasts.
    fn ask_http(&self, asked: Asked) {
        let (http, arrivals, clock) =
            (self.http.clone(), self.arrivals.clone(), self.clock.clone());
        drop(tokio::spawn(async move {
            let mut asked = asked;
            let answered = tokio::select! {
                answered = http.send(&asked.ask) => answered,
                () = asked.done.closed() => return,
            };
            if clock.now() < asked.until && asked.ask.may_be_repeated(&answered) {
                tokio::time::sleep(ASK_AGAIN).await;
                let _ = arrivals.send(Arrived::AskAgain(asked));
                return;
            }
            let answered = answered.map_err(|(failure, said)| unreachable(failure, said));
            let _ = asked.done.send(answered);
        }));
    }

    /// Does what the machine says, until it has nothing more to say.
    fn act(&mut self) {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Connect { link, address } => self.connect(link, address),
                Action::Send { call, key, request } => self.send(call, key, request),
                Action::Cancel { call, .. } => self.cancel(call),
                Action::Tell { key, news } => self.tell(key, news),
                Action::End { data, how, .. } => self.end(*data, how),
            }
        }
        if let Some(open) = &mut self.open
            && let Some(message) = open.batch.take()
        {
            let _ = open.stream.outgoing.send(message);
        }
        self.say_if_flushed();
    }

    fn connect(&mut self, link: LinkId, address: String) {
        self.is_up = false;
        self.link = link;
        if let Some(before) = self.connecting.take() {
            before.abort();
        }
        for (_, task) in self.running.drain() {
            task.abort();
        }
        self.open = None;
        self.http = Http::new(address.clone(), self.access.clone());
        self.current.send_replace(self.http.clone());
        let (arrivals, transport) = (self.arrivals.clone(), self.transport);
        let (namespace, access) = (self.namespace.clone(), self.access.clone());
        let task = tokio::spawn(async move {
            let arrived = match transport {
                Transport::Http => probe(&access, link, &address).await,
                Transport::Stream => match stream::attach(&access, &address, &namespace).await {
                    Ok(attached) => Arrived::Attached(link, Box::new(attached)),
                    Err(said) => Arrived::Down(link, said),
                },
            };
            let _ = arrivals.send(arrived);
        });
        self.connecting = Some(task.abort_handle());
    }

    fn send(&mut self, call: CallId, key: Key, request: Request) {
        let (Some(open), Some(item)) = (&mut self.open, self.machine.data(key)) else {
            self.send_http(call, key, request);
            return;
        };
        match item.payload.command(call, &request, &item.granted) {
            Some((command, size)) => {
                if let Some(full) = open.batch.push(command, size) {
                    let _ = open.stream.outgoing.send(full);
                }
            }
            None => self.send_http(call, key, request),
        }
    }

    fn send_http(&mut self, call: CallId, key: Key, request: Request) {
        let Some(item) = self.machine.data(key) else { return };
        let asks = item.payload.http(&request, &item.granted, &self.query);
        let (http, arrivals) = (self.http.clone(), self.arrivals.clone());
        let task = tokio::spawn(async move {
            let result = http.send_each(&asks).await;
            let _ = arrivals.send(Arrived::Http { call, key, request, result });
        });
        self.running.insert(call, task.abort_handle());
    }

    fn cancel(&mut self, call: CallId) {
        // A dropped request closes its connection, and the server takes it out of the queue.
        if let Some(task) = self.running.remove(&call) {
            task.abort();
            self.machine.failed(self.clock.now(), call, Failure::Unknown);
        } else if let Some(open) = &mut self.open
            && let Some(full) = open.batch.push(stream::cancel(call), 32)
        {
            let _ = open.stream.outgoing.send(full);
        }
    }

    fn take_in_message(&mut self, message: Result<AttachResponse, String>) {
        let now = self.clock.now();
        let message = match message {
            Ok(message) => message,
            Err(said) => {
                if let Some(open) = self.open.take() {
                    self.take_in(Arrived::Down(open.link, Complaint::passing(said)));
                }
                return;
            }
        };
        for reply in message.replies {
            match stream::read(reply) {
                Told::Answer(call, answer, granted) => {
                    if let (Some(granted), Some(key)) = (granted, self.machine.key_of(call))
                        && let Some(item) = self.machine.data_mut(key)
                    {
                        item.granted = Arc::new(granted);
                    }
                    self.machine.answer(now, call, answer);
                }
                Told::Nonsense(call) => self.machine.failed(now, call, Failure::Unknown),
                Told::Nothing => {}
            }
        }
        for push in message.pushes {
            match push.news {
                Some(push::News::Lost(lost)) => self.take_in_lost(now, &lost),
                Some(push::News::Wanted(wanted)) => self.take_in_wanted(wanted),
                None => {}
            }
        }
    }

    /// It comes with every request that has to wait, and hardly anybody wants to hear it.
    fn take_in_wanted(&self, wanted: grpc::Wanted) {
        if self.listening.is_empty() {
            return;
        }
        let mut name = (wanted.lease_id, wanted.fencing_token);
        let of_grant = self.listening.get(&name);
        name.1 = 0;
        let of_session = self.listening.get(&name);
        of_grant.into_iter().chain(of_session).for_each(|belief| belief.wanted());
    }

    /// It is rare enough to look for it.
    fn take_in_lost(&mut self, now: Moment, lost: &grpc::Lost) {
        for key in self.machine.keys() {
            let Some(item) = self.machine.data(key) else { continue };
            let is_it = item.granted.lease_id == lost.lease_id
                && lost.fencing_token.is_none_or(|token| token == item.granted.token);
            if is_it {
                let problem = Problem::new(Code::LeaseLost, lost.reason.clone());
                self.machine.lost(now, key, Box::new(problem));
            }
        }
    }

    fn take_in(&mut self, arrived: Arrived) {
        let now = self.clock.now();
        match arrived {
            // One that was given up meanwhile.
            Arrived::Attached(link, _) | Arrived::Up(link) | Arrived::Down(link, _)
                if link != self.link => {}
            Arrived::Attached(link, stream) => {
                self.open = Some(Open { link, stream: *stream, batch: Batch::default() });
                self.take_in(Arrived::Up(link));
            }
            Arrived::Up(link) => {
                self.is_up = true;
                self.machine.up(now, link);
                for done in self.waiting_for_up.drain(..) {
                    let _ = done.send(Ok(()));
                }
            }
            Arrived::Down(link, complaint) => {
                self.is_up = false;
                let is_hopeless = complaint.is_lasting && self.machine.servers_len() == 1;
                self.complaint = complaint;
                self.machine.down(now, link);
                self.give_up_connecting(now, is_hopeless);
            }
            Arrived::AskAgain(asked) => {
                self.machine.suspect(now);
                self.act();
                self.ask_http(asked);
            }
            Arrived::OutOfPatience => self.is_out_of_patience = true,
            Arrived::Http { call, key, request, result } => {
                self.running.remove(&call);
                self.take_in_http(now, call, key, &request, result);
            }
        }
    }

    fn give_up_connecting(&mut self, now: Moment, is_hopeless: bool) {
        if is_hopeless || now >= self.up_until {
            for done in self.waiting_for_up.drain(..) {
                let _ = done.send(Err(self.complaint.as_error()));
            }
        }
    }

    fn take_in_http(
        &mut self,
        now: Moment,
        call: CallId,
        key: Key,
        request: &Request,
        result: Result<Answered, (Failure, String)>,
    ) {
        let answered = match result {
            Ok(answered) => answered,
            Err((failure, said)) => {
                self.complaint = Complaint::passing(said);
                self.machine.failed(now, call, failure);
                return;
            }
        };
        let read = self.machine.data(key).and_then(|i| i.payload.read_http(request, &answered));
        match read {
            Some((answer, granted)) => self.answer(now, call, key, answer, granted),
            None => self.machine.failed(now, call, Failure::Unknown),
        }
    }

    pub(crate) fn answer(
        &mut self,
        now: Moment,
        call: CallId,
        key: Key,
        answer: Answer,
        granted: Option<Granted>,
    ) {
        // An answer that nobody waits for any more may tell of an older grant.
        if self.machine.key_of(call) == Some(key)
            && let (Some(granted), Some(item)) = (granted, self.machine.data_mut(key))
        {
            item.granted = Arc::new(granted);
        }
        self.machine.answer(now, call, answer);
    }

    fn tell(&mut self, key: Key, news: News) {
        let Some(item) = self.machine.data_mut(key) else { return };
        match news {
            News::Granted(standing) => {
                item.belief.stands(standing);
                let got = Got { key, granted: item.granted.clone() };
                let taken = item.acquired.take().is_some_and(|sender| sender.send(Ok(got)).is_ok());
                if !taken {
                    self.machine.abandon(self.clock.now(), key);
                }
            }
            News::Renewed(standing) => item.belief.stands(standing),
            News::Jeopardy => item.belief.in_jeopardy(),
            News::GaveUp => {
                if let Some(acquired) = item.acquired.take() {
                    let said = format!("no answer came in time; {}", self.complaint.said);
                    let _ = acquired.send(Err(Error::unanswered(said)));
                }
            }
        }
    }

    fn end(&mut self, mut item: Item, how: Ended) {
        let (belief, released) = match &how {
            Ended::Lost(loss) => {
                let by = lost_by(loss);
                (by.clone(), Err(Error::LeaseLost(by)))
            }
            Ended::Released | Ended::Forgotten => (LostBy::Released, Ok(())),
            Ended::NotReleased(problem) => {
                let by = told_by(problem);
                (by.clone(), Err(Error::LeaseLost(by)))
            }
            Ended::ReleaseUnanswered => {
                let said = format!("no answer came to the release; {}", self.complaint.said);
                (LostBy::Lapse, Err(Error::unanswered(said)))
            }
            Ended::Refused(_) | Ended::Unreachable => (LostBy::Lapse, Ok(())),
        };
        if !self.listening.is_empty() {
            self.listening.remove(&item.granted.name());
        }
        item.belief.lost(belief.clone());
        if let Some(done) = item.released.take() {
            let _ = done.send(released);
        }
        if let Some(acquired) = item.acquired.take() {
            let error = match how {
                Ended::Refused(problem) => Error::Refused(problem),
                Ended::Lost(_) => Error::LeaseLost(belief),
                Ended::Unreachable => self.complaint.as_error(),
                Ended::Released
                | Ended::NotReleased(_)
                | Ended::ReleaseUnanswered
                | Ended::Forgotten => Error::Closed,
            };
            let _ = acquired.send(Err(error));
        }
    }
}

/// Over HTTP there is no connection to speak of: a server that accepts one is there.
async fn probe(access: &Access, link: LinkId, address: &str) -> Arrived {
    match access.connect(address, Protocol::Http1).await {
        Ok(_) => Arrived::Up(link),
        Err(complaint) => Arrived::Down(link, complaint),
    }
}

async fn next_message(open: &mut Option<Open>) -> Result<AttachResponse, String> {
    let Some(open) = open else { return std::future::pending().await };
    match open.stream.incoming.message().await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err("the server ended the stream".into()),
        Err(status) => Err(status.message().to_string()),
    }
}

fn lost_by(loss: &Loss) -> LostBy {
    match loss {
        Loss::Lapsed => LostBy::Lapse,
        Loss::Told(problem) => told_by(problem),
        Loss::SessionClosed => LostBy::SessionClosed,
    }
}

fn told_by(problem: &Problem) -> LostBy {
    LostBy::Server { code: problem.code, detail: problem.detail.clone() }
}

fn unreachable(failure: Failure, said: String) -> Error {
    match failure {
        Failure::Unsent => Error::unsent(said),
        Failure::Unknown => Error::unanswered(said),
    }
}

/// One alarm for the next thing that is due. It may ring too early, never too late: most leases are given back long
/// before their heartbeat is due, and setting an alarm costs more than waking up once for nothing.
#[derive(Default)]
struct Alarm {
    set: Option<(Moment, Sleep)>,
}

impl Alarm {
    fn set(&mut self, clock: &dyn Clock, at: Option<Moment>) {
        let Some(at) = at else { return };
        if self.set.as_ref().is_none_or(|(set, _)| at < *set) {
            self.set = Some((at, clock.sleep_until(at)));
        }
    }

    fn clear(&mut self) {
        self.set = None;
    }

    async fn rings(&mut self) {
        match &mut self.set {
            Some((_, alarm)) => alarm.await,
            None => std::future::pending().await,
        }
    }
}
