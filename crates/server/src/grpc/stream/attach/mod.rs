//! The stream of a client: many requests in flight over one port of the engine, answers in batches.
//!
//! ```text
//!  message ──► commands ──► port ──► engine
//!  message ◄── replies  ◄── reply queue ◄──┘
//! ```
//!
//! There is no task and no queue of its own in here: the whole stream is one `poll_next`, called when the peer can take
//! another message. A peer that does not take its answers is not listened to either, and a message is looked at only as
//! far as there is room for its answers, so what a peer can pile up is bounded by what it may have in flight; its heartbeats are
//! not read either, so its session expires.

mod commands;
mod answers;

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_access::{Object, Operation};
use leasehold_api::Code;
use leasehold_api::grpc::attach::Session as Whose;
use leasehold_api::grpc::{
    self, AttachRequest, AttachResponse, COMMANDS_MAX, Command as Asked, length,
};
use leasehold_core::{LeaseId, Namespace, Owner};
use leasehold_engine::{CallError, Phase, Port, PortEvent, Query, Undo};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Status, Streaming};

use crate::access::Changes;
use crate::convert;
use crate::grpc::stream::slots::Slots;
use crate::grpc::{read, sessions};
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::delivery::{Outbox, is_needed};
use crate::service::operation;
use crate::service::problems::Failure;
use crate::service::streams::Binding;
use crate::telemetry::metrics::{Acquires, Op, Stopwatch};

/// So many commands one stream may have in flight; more are refused one by one.
const IN_FLIGHT_MAX: usize = 32 * 1024;
/// So many questions about locks one stream may have in flight: their answers can be large. More are asked later.
const QUERIES_IN_FLIGHT_MAX: usize = 32;
/// So many messages are read before answers have their turn.
const MESSAGES_AT_ONCE: usize = 16;
/// A message is full when its answers are about this large; readers refuse messages over 4 MiB.
const MESSAGE_BYTES: usize = 256 * 1024;
/// So many answers go out before the rest is put together: their receiver can go on meanwhile.
const ANSWERS_AT_ONCE: usize = 32;
/// The number of times in a row that a stream reports itself empty before its frames are flushed: once for the encoder,
/// once for the connection to have its turn.
const GIVES_WAY: u8 = 2;
/// The bytes of an answer of a few numbers, roughly.
const LIGHT_BYTES: usize = 64;

/// Reads the first message and binds the stream to what it says.
pub(in crate::grpc) async fn attach(
    app: &Arc<App>,
    caller: Caller,
    commands: Streaming<AttachRequest>,
) -> Result<Attached, Failure> {
    let attaching = begin(app, &caller, commands);
    let (mut attached, first) = app.counted(&caller, Op::Session, attaching).await?;
    attached.take_in(first)?;
    Ok(attached)
}

async fn begin(
    app: &Arc<App>,
    caller: &Caller,
    mut commands: Streaming<AttachRequest>,
) -> Result<(Attached, Vec<Asked>), Failure> {
    // First of all: what changes from here on is heard of.
    let changes = app.authenticator.changes_for(caller);
    let mut caller = caller.clone();
    app.authenticator.again(app.now(), &mut caller)?;
    let first = tokio::time::timeout(app.config.body_timeout, commands.message()).await;
    let late = || Failure::new(Code::RequestTimeout, "the first message did not come in time");
    let missing =
        || Failure::field("attach", "is missing: the first message names what to bind to");
    let Some(mut first) = first.map_err(|_| late())?.map_err(|status| unread(&status))? else {
        return Err(missing());
    };
    let asked = first.attach.take().ok_or_else(missing)?;
    let namespace = read::namespace(&asked.namespace)?;
    caller.resolve(&namespace);
    if !matches!(asked.session, Some(Whose::SessionId(_))) {
        caller.may(Operation::OpenSession, Object::Namespace(&namespace))?;
    }
    operation::not_reserved(&namespace)?;
    let engine = app.engine_for(&caller, &namespace);
    let mut port = engine.port();
    let outbox = Outbox::new(&engine);
    let (bound, hello) = bind(app, &caller, &outbox, &mut port, &namespace, asked.session).await?;
    let condition = engine.condition_changes();
    let ending = Box::pin(async move {
        let mut condition = condition;
        let ended = condition.wait_for(|condition| condition.phase != Phase::Leading).await;
        ended.map_or(Phase::Stopped, |condition| condition.phase)
    });
    let attached = Attached {
        app: app.clone(),
        caller,
        changes,
        commands,
        port,
        acquires: Acquires::new(&namespace),
        namespace,
        epoch: hello.epoch,
        bound,
        sessions: HashSet::new(),
        slots: Slots::default(),
        asked: VecDeque::new(),
        queries: 0,
        waiting: HashMap::new(),
        events: VecDeque::new(),
        outbox,
        undo: Vec::new(),
        answered: Stopwatch::start(),
        next: AttachResponse { attached: Some(hello), ..AttachResponse::default() },
        weight: LIGHT_BYTES,
        gives_way: 0,
        heard_out: false,
        over: false,
        ending,
    };
    Ok((attached, first.commands))
}

/// A fault in the bytes of a message.
fn unread(status: &Status) -> Failure {
    Failure::new(Code::InvalidRequest, status.message())
}

/// The session that a stream is bound to.
#[derive(Debug)]
struct Bound {
    binding: Binding,
    owner: Owner,
}

/// Binds a new session, one that is there already, or none.
async fn bind(
    app: &Arc<App>,
    caller: &Caller,
    outbox: &Outbox,
    port: &mut Port,
    namespace: &Namespace,
    whose: Option<Whose>,
) -> Result<(Option<Bound>, grpc::Attached), Failure> {
    let session = match whose {
        None => {
            // Whoever does not lead says so now, not with the first command.
            app.engine(namespace).query(Query::Stats).await?;
            let hello = grpc::Attached { epoch: app.epoch(namespace), ..Default::default() };
            return Ok((None, hello));
        }
        Some(Whose::SessionId(id)) => convert::lease_id("session_id", &id)?,
        Some(Whose::Open(open)) => {
            if !open.namespace.is_empty() && open.namespace != namespace.as_str() {
                return Err(Failure::field("open.namespace", "is another than the stream's"));
            }
            let open = sessions::asked(caller, &open, namespace.clone())?;
            let (opened, undo) = app.open(caller, open).await?;
            outbox.put(&mut undo.into_iter().filter(is_needed).collect());
            opened.session
        }
    };
    let binding = Binding::new(app, caller, port, 0, (namespace.clone(), session));
    let mut events = VecDeque::new();
    loop {
        if !std::future::poll_fn(|cx| port.poll_take(cx, &mut events)).await {
            return Err(CallError::Stopped.into());
        }
        // Nothing else was asked yet; what else comes is news of a session that is lost already.
        let reply = events.drain(..).find_map(|event| match event {
            PortEvent::Reply { reply, .. } => Some(reply),
            PortEvent::Queued { .. } | PortEvent::Notice { .. } => None,
        });
        if let Some(reply) = reply {
            reply?;
            break;
        }
    }
    let view = app.session(caller, namespace.clone(), session).await?;
    let hello = grpc::Attached {
        session_id: convert::lease_id_text(session),
        session: view.number,
        owner_id: view.owner.to_string(),
        ttl: Some(length(view.ttl.as_duration())),
        expires_in: Some(length(view.deadline.since(app.now()))),
        epoch: app.epoch(namespace),
        locks: view.grants as u64,
    };
    Ok((Some(Bound { binding, owner: view.owner }), hello))
}

/// The server's side of a stream.
pub(in crate::grpc) struct Attached {
    app: Arc<App>,
    caller: Caller,
    /// Of its rights.
    changes: Option<Changes>,
    commands: Streaming<AttachRequest>,
    port: Port,
    namespace: Namespace,
    /// A stream never outlives it.
    epoch: u64,
    bound: Option<Bound>,
    /// Others under which something was granted here: to give one of their locks back does not end them.
    sessions: HashSet<LeaseId>,
    slots: Slots,
    /// Commands that were read and not looked at yet: a message full of answers goes out first.
    asked: VecDeque<(Stopwatch, Asked)>,
    /// Questions about locks in flight.
    queries: usize,
    /// Requests that may have to wait, by the client's id: those can be cancelled.
    waiting: HashMap<u64, u32>,
    acquires: Acquires,
    /// The engine's events that were not sent yet.
    events: VecDeque<PortEvent>,
    /// The grants in the messages that are on their way, and in the one that is being put together.
    outbox: Outbox,
    undo: Vec<Undo>,
    /// When that was taken up: what was asked is answered then.
    answered: Stopwatch,
    /// The message that is being put together.
    next: AttachResponse,
    weight: usize,
    /// So often it says yet that it has nothing, although it has.
    gives_way: u8,
    /// The client will say nothing more.
    heard_out: bool,
    over: bool,
    ending: Pin<Box<dyn Future<Output = Phase> + Send>>,
}

impl Stream for Attached {
    type Item = Result<AttachResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        if this.gives_way > 0 {
            this.gives_way -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match this.poll_step(cx) {
            Ok(true) => {
                this.weight = 0;
                if !this.events.is_empty() {
                    this.gives_way = GIVES_WAY;
                }
                if !this.undo.is_empty() {
                    this.outbox.put(&mut this.undo);
                }
                Poll::Ready(Some(Ok(std::mem::take(&mut this.next))))
            }
            Ok(false) if this.heard_out && this.slots.is_empty() => {
                this.over = true;
                Poll::Ready(None)
            }
            Ok(false) => Poll::Pending,
            Err(failure) => {
                this.over = true;
                let problem = convert::problem(this.app.now(), &failure);
                Poll::Ready(Some(Err(grpc::status(&problem))))
            }
        }
    }
}

impl Attached {
    pub(in crate::grpc) fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }

    /// Takes in what was asked and puts together what can be answered. Whether there is something to send.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.changes.as_mut().is_some_and(Changes::is_due) {
            self.app.authenticator.again(self.app.now(), &mut self.caller)?;
            self.port.set_account(&self.caller.account);
        }
        let mut read = 0;
        loop {
            self.ask_some();
            let is_enough = read == MESSAGES_AT_ONCE || self.heard_out || !self.asked.is_empty();
            if is_enough || !self.poll_message(cx)? {
                break;
            }
            read += 1;
        }
        self.send();
        while self.has_room() && self.poll_events(cx)? {}
        if self.weight > 0 {
            return Ok(true);
        }
        self.poll_ending(cx)?;
        if read == MESSAGES_AT_ONCE {
            // There may be more, and nobody will say so again.
            cx.waker().wake_by_ref();
        }
        Ok(false)
    }

    /// Reads one message, if one is there.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        match Pin::new(&mut self.commands).poll_next(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Some(Ok(message))) => {
                if message.attach.is_some() {
                    return Err(Failure::field("attach", "belongs in the first message only"));
                }
                self.take_in(message.commands)?;
                Ok(true)
            }
            Poll::Ready(Some(Err(status))) => Err(unread(&status)),
            Poll::Ready(None) => {
                self.heard_out = true;
                self.cancel_all();
                Ok(false)
            }
        }
    }

    /// Whether the stream has to end although nobody ended it.
    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        if let Some(bound) = &mut self.bound
            && Pin::new(&mut bound.binding.replaced).poll(cx).is_ready()
        {
            let said = "another stream is bound to this session now";
            return Err(Failure::new(Code::Interrupted, said));
        }
        while let Some(changes) = &mut self.changes
            && changes.poll(cx).is_ready()
        {
            self.app.authenticator.again(self.app.now(), &mut self.caller)?;
            self.port.set_account(&self.caller.account);
        }
        match self.ending.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Phase::Draining | Phase::Stopped) => Err(CallError::Draining.into()),
            Poll::Ready(_) => {
                Err(Failure::new(Code::NotLeader, "this server is no longer the leader"))
            }
        }
    }

    // What is asked.

    fn take_in(&mut self, commands: Vec<Asked>) -> Result<(), Failure> {
        if commands.len() > COMMANDS_MAX {
            let said = format!("has {} commands, the limit is {COMMANDS_MAX}", commands.len());
            return Err(Failure::field("commands", said));
        }
        let watch = Stopwatch::start();
        self.asked.extend(commands.into_iter().map(|command| (watch, command)));
        Ok(())
    }

    fn send(&mut self) {
        let mut refused = Vec::new();
        self.port.send(|number, error| refused.push((number, error)));
        for (number, error) in refused {
            self.reply(self.app.now(), number, Err(error));
        }
    }

    // What is answered.

    /// Whether another answer goes into the message.
    fn has_room(&self) -> bool {
        self.weight < MESSAGE_BYTES && self.next.replies.len() < ANSWERS_AT_ONCE
    }

    /// Takes one event more into the message; false if there is none.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.events.is_empty() {
            match self.port.poll_take(cx, &mut self.events) {
                Poll::Ready(true) => self.answered = Stopwatch::start(),
                Poll::Ready(false) => return Err(CallError::Draining.into()),
                Poll::Pending => return Ok(false),
            }
        }
        let now = self.app.now();
        self.next.replies.reserve(self.events.len().min(ANSWERS_AT_ONCE));
        while self.has_room()
            && let Some(event) = self.events.pop_front()
        {
            match event {
                PortEvent::Reply { number, reply, undo } => {
                    self.undo.extend(undo.filter(is_needed));
                    self.reply(now, number, reply);
                }
                PortEvent::Queued { number, queued } => self.queued(number, queued),
                PortEvent::Notice { lease, notice } => self.notice(lease, notice),
            }
        }
        Ok(true)
    }
}

impl Drop for Attached {
    /// Takes waiters out of the queue, but for their places; the port gives back grants that were not delivered, the binding
    /// ends the session.
    fn drop(&mut self) {
        for (_, waiter) in std::mem::take(&mut self.waiting) {
            self.cancel(u32::MAX, waiter, true);
        }
        // Answers that were taken and did not become part of a message that is out.
        let events = std::mem::take(&mut self.events).into_iter();
        self.undo.extend(events.filter_map(PortEvent::into_undo).filter(is_needed));
        if !self.undo.is_empty() {
            self.outbox.put(&mut self.undo);
        }
    }
}
