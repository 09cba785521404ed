//! Drives the machine: takes orders, batches what is to be sent, reads what comes back, and sets one alarm for all leases.
//!
//! ```text
//!  workers ──orders──► driver ──batch──► connection ──► server
//!     ▲                  │  ▲                │
//!     └── oneshot/view─┘  └── replies ─────┘        clock: one alarm for all leases
//! ```
//!
//! The driver is a value that is polled, by a task on the caller's runtime or by the client's own thread: see [`shared`].

mod shared;
mod orders;
mod sending;
mod arrivals;
mod telling;
mod alarm;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold_api::grpc::AttachResponse;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tonic::codegen::tokio_stream::Stream;
use tracing::Span;

use crate::access::{Access, ConnectError};
use crate::address::query_value;
use crate::client::Transport;
use crate::clock::Clock;
use crate::error::Error;
use crate::http::{Answered, Ask as HttpAsk, Http};
use crate::machine::{Action, CallId, Failure, Key, LinkId, Machine, Moment, Request};
use crate::payload::{Granted, Payload};
use crate::stream::{Attached, Batch};
use crate::surroundings::Place;
use crate::view::LeaseView;
use alarm::Alarm;
pub(crate) use orders::Order;
pub(crate) use shared::{Attention, SharedDriver};

/// State kept with each lease.
pub(crate) struct Item {
    pub(crate) payload: Arc<Payload>,
    pub(crate) granted: Arc<Granted>,
    pub(crate) view: Arc<LeaseView>,
    pub(crate) acquired: Option<ReplySender<Got>>,
    pub(crate) released: Option<ReplySender<()>>,
}

/// The receiver of a request's result.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, Error>>;

/// Result of an acquire.
pub(crate) struct Got {
    pub(crate) key: Key,
    pub(crate) granted: Arc<Granted>,
}

/// Event from the network.
pub(crate) enum Arrived {
    Up(LinkId),
    Down(LinkId, ConnectError),
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
    done: ReplySender<Answered>,
    until: Moment,
}

/// Orders that are taken at a time.
const ORDERS_MAX: usize = 256;
/// Messages that are read before what follows from them is done.
const MESSAGES_MAX: usize = 8;
/// Rounds in which other tasks may order more before a batch is sent. Requests that leave together are answered
/// together, and their commits share a write.
const GATHER_MAX: u32 = 8;

/// The stream in use.
struct Open {
    link: LinkId,
    stream: Attached,
    batch: Batch,
}

pub(crate) struct Driver {
    clock: Arc<dyn Clock>,
    /// Of all that is logged about this client.
    span: Span,
    machine: Machine<Box<Item>>,
    place: Place,
    orders: mpsc::UnboundedReceiver<Order>,
    /// Reused: what was ordered and is not yet obeyed.
    ordered: Vec<Order>,
    /// True until all clients and leases are dropped.
    is_open: bool,
    /// Rounds since the first order that is not sent yet.
    gathered: u32,
    alarm: Alarm,
    arrived: mpsc::UnboundedReceiver<Arrived>,
    arrivals: mpsc::UnboundedSender<Arrived>,
    transport: Transport,
    access: Access,
    open: Option<Open>,
    /// HTTP connections of this place.
    http: Http,
    /// The same for requests of tools and for watches, which run on the guard's runtime.
    tools: watch::Sender<Http>,
    tools_runtime: Handle,
    namespace: String,
    query: String,
    running: HashMap<CallId, AbortHandle>,
    /// Views that are told of waiters, by lease and token; a session has no token of its own.
    listening: HashMap<(String, u64), Arc<LeaseView>>,
    /// The connection in use, or the one that is being made.
    link: LinkId,
    connecting: Option<AbortHandle>,
    is_up: bool,
    /// The reason why the last connection failed.
    connect_error: ConnectError,
    /// End of the wait for the first connection.
    up_until: Moment,
    waiting_for_up: Vec<ReplySender<()>>,
    flushing: Vec<oneshot::Sender<()>>,
    /// End of the flush: a lease not released by then lapses.
    flush_until: Option<Moment>,
    sleeping: Vec<(Moment, oneshot::Sender<()>)>,
    /// Results for callers, gathered until all messages that arrived together are read.
    acquired: Vec<(ReplySender<Got>, Got)>,
    released: Vec<(ReplySender<()>, Result<(), Error>)>,
}

impl Driver {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        machine: Machine<Box<Item>>,
        transport: Transport,
        (access, place): (Access, Place),
        namespace: String,
        orders: mpsc::UnboundedReceiver<Order>,
        tools_runtime: Handle,
    ) -> Driver {
        let access = access.at(place);
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let query = format!("?namespace={}", query_value(&namespace));
        let http = Http::new(machine.server().to_string(), access.clone());
        let up_until = clock.now().plus(machine.settings().patience);
        Driver {
            clock,
            span: tracing::debug_span!("leasehold", namespace),
            machine,
            place,
            orders,
            ordered: Vec::new(),
            is_open: true,
            gathered: 0,
            alarm: Alarm::default(),
            arrived,
            arrivals,
            transport,
            access,
            open: None,
            tools: watch::Sender::new(http.clone()),
            tools_runtime,
            http,
            namespace,
            query,
            running: HashMap::new(),
            listening: HashMap::new(),
            link: LinkId(0),
            connecting: None,
            is_up: false,
            connect_error: ConnectError::passing("no server answered"),
            up_until,
            waiting_for_up: Vec::new(),
            flushing: Vec::new(),
            flush_until: None,
            sleeping: Vec::new(),
            acquired: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Takes in what came, carries out what follows, and sends. The waker of the context is called for the next input.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        loop {
            let has_heard = self.take_in_what_arrived(context) | self.take_in_messages(context);
            let has_orders = self.take_orders(context);
            let rings = self.alarm.poll(context);
            if rings {
                self.wake();
            }
            self.act();
            if has_orders && self.place == Place::Caller && self.gathered < GATHER_MAX {
                self.gathered += 1;
                return Poll::Ready(Step::Yield);
            }
            self.gathered = 0;
            self.flush();
            if !self.is_open && (self.machine.is_empty() || self.is_out_of_patience()) {
                return Poll::Ready(Step::End);
            }
            let is_set = self.alarm.set(&*self.clock, self.next_wake());
            if !(has_heard || has_orders || rings || is_set) {
                return Poll::Pending;
            }
        }
    }

    fn take_in_what_arrived(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_any = false;
        while let Poll::Ready(Some(arrived)) = self.arrived.poll_recv(context) {
            self.take_in(arrived);
            is_any = true;
        }
        is_any
    }

    fn take_in_messages(&mut self, context: &mut Context<'_>) -> bool {
        for number in 0..MESSAGES_MAX {
            match poll_message(&mut self.open, context) {
                Poll::Ready(message) => self.take_in_message(message),
                Poll::Pending => return number > 0,
            }
        }
        true
    }

    fn take_orders(&mut self, context: &mut Context<'_>) -> bool {
        if !self.is_open {
            return false;
        }
        let mut orders = std::mem::take(&mut self.ordered);
        let taken = self.orders.poll_recv_many(context, &mut orders, ORDERS_MAX);
        let Poll::Ready(count) = taken else {
            self.ordered = orders;
            return false;
        };
        if count == 0 {
            self.is_open = false;
            self.give_all_back();
            self.stop_flushing_later();
        }
        // What is asked together is counted from the same moment, before any of it is sent.
        let now = self.clock.now();
        for order in orders.drain(..) {
            self.obey(now, order);
        }
        self.ordered = orders;
        true
    }

    /// Works off what is due.
    fn wake(&mut self) {
        let now = self.clock.now();
        self.machine.wake(now);
        self.give_up_connecting(now, false);
        for (_, done) in self.sleeping.extract_if(.., |(until, _)| *until <= now) {
            let _ = done.send(());
        }
    }

    fn next_wake(&self) -> Option<Moment> {
        let up = (!self.waiting_for_up.is_empty()).then_some(self.up_until);
        let sleeper = self.sleeping.iter().map(|(until, _)| *until).min();
        let flush = self.flush_until.filter(|_| !self.machine.is_empty());
        [self.machine.next_wake(), up, sleeper, flush].into_iter().flatten().min()
    }

    fn is_out_of_patience(&self) -> bool {
        self.flush_until.is_some_and(|until| until <= self.clock.now())
    }

    /// Goes on in another place: what belongs to the runtime of the one before is replaced.
    fn move_to(&mut self, place: Place) {
        tracing::debug!(?place, "the driver moves");
        // What has come already need not be asked for again.
        let mut context = Context::from_waker(Waker::noop());
        self.take_in_what_arrived(&mut context);
        self.take_in_messages(&mut context);
        self.place = place;
        self.alarm.clear();
        self.access = self.access.at(place);
        self.machine.relink(self.clock.now());
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
        self.say_if_flushed();
    }

    /// Sends what was gathered.
    fn flush(&mut self) {
        if let Some(open) = &mut self.open
            && let Some(message) = open.batch.take()
        {
            let _ = open.stream.outgoing.send(message);
        }
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

/// Outcome of a poll that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Let others run, and poll again: they may have more to send.
    Yield,
    /// All clients are dropped, and all leases are released.
    End,
}

fn poll_message(
    open: &mut Option<Open>,
    context: &mut Context<'_>,
) -> Poll<Result<AttachResponse, String>> {
    let Some(open) = open else { return Poll::Pending };
    Pin::new(&mut open.stream.incoming).poll_next(context).map(|message| match message {
        Some(Ok(message)) => Ok(message),
        None => Err("the server ended the stream".into()),
        Some(Err(status)) => Err(status.message().to_string()),
    })
}
