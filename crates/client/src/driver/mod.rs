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

mod orders;
mod sending;
mod arrivals;
mod telling;
mod alarm;

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_api::grpc::AttachResponse;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::access::{Access, Complaint};
use crate::address::query_value;
use crate::belief::Belief;
use crate::client::Transport;
use crate::clock::Clock;
use crate::error::Error;
use crate::http::{Answered, Ask as HttpAsk, Http};
use crate::machine::{Action, CallId, Failure, Key, LinkId, Machine, Moment, Request};
use crate::payload::{Granted, Payload};
use crate::stream::{Attached, Batch};
use alarm::Alarm;
pub(crate) use orders::Order;

/// What is kept with each lease.
pub(crate) struct Item {
    pub(crate) payload: Arc<Payload>,
    pub(crate) granted: Arc<Granted>,
    pub(crate) belief: Arc<Belief>,
    pub(crate) acquired: Option<Caller<Got>>,
    pub(crate) released: Option<Caller<()>>,
}

/// Somebody who waits for what comes of a request.
pub(crate) type Caller<T> = oneshot::Sender<Result<T, Error>>;

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
    /// A watch could not connect to this server.
    Unreachable(String),
    Attached(LinkId, Box<Attached>),
    Http {
        call: CallId,
        key: Key,
        request: Request,
        result: Result<Answered, (Failure, String)>,
    },
}

/// A request of a tool.
pub(crate) struct Asked {
    ask: HttpAsk,
    done: Caller<Answered>,
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
    waiting_for_up: Vec<Caller<()>>,
    flushing: Vec<oneshot::Sender<()>>,
    is_out_of_patience: bool,
    /// What callers wait for, gathered until all that arrived together is read.
    acquired: Vec<(Caller<Got>, Got)>,
    released: Vec<(Caller<()>, Result<(), Error>)>,
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
            acquired: Vec::new(),
            released: Vec::new(),
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

    /// Does what the machine says, until it has nothing more to say.
    fn act(&mut self) {
        loop {
            while let Some(action) = self.machine.next_action() {
                self.carry_out(action);
            }
            if self.acquired.is_empty() && self.released.is_empty() {
                break;
            }
            self.hand_over();
        }
        if let Some(open) = &mut self.open
            && let Some(message) = open.batch.take()
        {
            let _ = open.stream.outgoing.send(message);
        }
        self.say_if_flushed();
    }

    fn carry_out(&mut self, action: Action<Box<Item>>) {
        match action {
            Action::Connect { link, address } => self.connect(link, address),
            Action::Send { call, key, request } => self.send(call, key, request),
            Action::Cancel { call, .. } => self.cancel(call),
            Action::Tell { key, news } => self.tell(key, news),
            Action::End { data, how, .. } => self.end(*data, how),
        }
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
