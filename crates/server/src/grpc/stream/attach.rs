//! The stream of a client: many requests in flight over one port of the engine, answers in batches.
//!
//! ```text
//!  message ──► commands ──► port ──► engine
//!  message ◄── replies  ◄── mailbox ◄──┘
//! ```
//!
//! There is no task and no queue of its own in here: the whole stream is one `poll_next`, called when the peer can take
//! another message. A peer that does not take its answers is not listened to either, and a message is looked at only as
//! far as there is room for its answers, so what a peer can pile up is bounded by what it may have in flight; and as nobody hears its heartbeats, its session runs out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_access::{Object, Operation};
use leasehold_api::Code;
use leasehold_api::grpc::COMMANDS_MAX;
use leasehold_api::grpc::{
    self, Accepted, AttachRequest, AttachResponse, Cancelled, Closed, Command as Asked, Extended,
    Lost, Place, Problem, Push, Released, Reply as Said, StreamAcquire, StreamGrant, Unlocked,
    Wanted, attach::Session as Whose, command::Ask, length, push::News, reply::Answer as Answered,
};
use leasehold_core::{
    self as core, Answer, Cancel, CloseSession, Command, KeepAlive, LeaseId, Namespace, Owner,
    Release, Renew, Timestamp, Under,
};
use leasehold_engine::{Call, CallError, Notice, Phase, Port, PortEvent, Query, Reply, Undo, View};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::slots::{Slot, Slots, Work};
use crate::access::Changes;
use crate::convert;
use crate::grpc::{fences, locks, read, sessions};
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::delivery::{Outbox, is_needed};
use crate::service::operation;
use crate::service::problems::{Failure, unexpected};
use crate::service::streams::Binding;
use crate::service::views::{CheckToken, Test};
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
        letters: VecDeque::new(),
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
    let mut letters = VecDeque::new();
    loop {
        if !std::future::poll_fn(|cx| port.poll_take(cx, &mut letters)).await {
            return Err(CallError::Stopped.into());
        }
        // Nothing else was asked yet; what else comes is news of a session that is lost already.
        let reply = letters.drain(..).find_map(|letter| match letter {
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
    letters: VecDeque<PortEvent>,
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
                if !this.letters.is_empty() {
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
        while self.has_room() && self.poll_letters(cx)? {}
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

    /// Asks what was read, as long as there is room for answers that are known at once.
    fn ask_some(&mut self) {
        while self.weight < MESSAGE_BYTES
            && let Some((_, command)) = self.asked.front()
        {
            let is_query = matches!(command.ask, Some(Ask::Test(_) | Ask::Check(_) | Ask::Get(_)));
            if is_query && self.queries >= QUERIES_IN_FLIGHT_MAX {
                return;
            }
            let Some((watch, command)) = self.asked.pop_front() else { return };
            let (id, op) = (command.id, command.ask.as_ref().and_then(op_of));
            if let Err(failure) = self.ask(watch, command) {
                if let Some(op) = op {
                    self.app.count(op, watch.until(self.answered), Err(failure.code()));
                }
                self.refuse(id, &failure);
            }
        }
    }

    /// Lays one command ready for the engine.
    fn ask(&mut self, watch: Stopwatch, command: Asked) -> Result<(), Failure> {
        let id = command.id;
        let missing = || Failure::field("ask", "is missing: a command has a request");
        let ask = command.ask.ok_or_else(missing)?;
        if self.slots.len() >= IN_FLIGHT_MAX {
            let said = format!("more than {IN_FLIGHT_MAX} commands are in flight on this stream");
            return Err(Failure::new(Code::QuotaExceeded, said));
        }
        let (work, call) = match ask {
            Ask::Acquire(body) => return self.ask_acquire(id, watch, &body),
            Ask::Cancel(body) => {
                self.ask_cancel(id, watch, body.command_id);
                return Ok(());
            }
            Ask::Release(body) => {
                let release = self.release(&body)?;
                (Work::Release(release.lease), Call::Command(Command::Release(release)))
            }
            Ask::Renew(body) => {
                let renew = self.renew(&body)?;
                (Work::Renew(renew.lease), Call::Command(Command::Renew(renew)))
            }
            Ask::Heartbeat(body) => {
                let keep = self.heartbeat(&body)?;
                (Work::Renew(keep.session), Call::Command(Command::KeepAlive(keep)))
            }
            Ask::Close(body) => {
                let session = self.lease("session_id", &body.session_id)?;
                let (namespace, principal) =
                    (self.namespace.clone(), self.caller.principal.clone());
                let close = CloseSession { namespace, principal, session };
                (Work::Close(session), Call::Command(Command::CloseSession(close)))
            }
            Ask::Unlock(body) => {
                let (lock, unlock) = self.unlock(&body)?;
                (Work::Unlock { lock }, Call::Command(Command::Unlock(unlock)))
            }
            Ask::Accept(body) => {
                let accept = {
                    let namespace = self.in_namespace(&body.namespace)?;
                    fences::asked(&self.caller, &body, namespace)?
                };
                (Work::Accept, Call::Command(Command::AcceptFence(accept)))
            }
            Ask::Test(body) => {
                let test = self.test(&body)?;
                let lock = test.claim.scope.to_string();
                (Work::Test { lock }, Call::Query(test.into()))
            }
            Ask::Check(body) => {
                let check = self.check(&body)?;
                let lock = check.scope.to_string();
                let work = Work::Check { lock, fencing_token: body.fencing_token };
                (work, Call::Query(check.into()))
            }
            Ask::Get(body) => {
                let namespace = self.in_namespace(&body.namespace)?;
                let scope = read::scope(&body.lock)?;
                (Work::Get, Call::Query(Query::Get { namespace, scope }))
            }
        };
        match &call {
            Call::Command(command) => self.app.admit(&self.caller, command)?,
            Call::Query(query) => {
                self.app.admit_query(&self.caller, query)?;
                self.queries += 1;
            }
        }
        let number = self.slots.put(Slot { id, watch, work });
        self.port.ask(number, call);
        Ok(())
    }

    fn ask_acquire(
        &mut self,
        id: u64,
        watch: Stopwatch,
        body: &StreamAcquire,
    ) -> Result<(), Failure> {
        let command = Command::Acquire(self.acquire(body)?);
        self.app.admit(&self.caller, &command)?;
        let Command::Acquire(mut acquire) = command else { return Err(unexpected()) };
        let waits = acquire.wait != core::Wait::Never;
        if waits && self.waiting.contains_key(&id) {
            return Err(Failure::field("id", "is that of a request in flight"));
        }
        let work = Work::Acquire {
            kind: operation::kind(&acquire.claims),
            // A lease of its own needs a ttl, a session has one.
            in_session: body.ttl.is_none(),
            respelled: respelled(body, &acquire),
        };
        let number = self.slots.put(Slot { id, watch, work });
        if waits {
            self.waiting.insert(id, number);
        }
        acquire.call = self.port.call_id(number);
        self.port.ask(number, Call::Command(Command::Acquire(acquire)));
        Ok(())
    }

    fn acquire(&self, body: &StreamAcquire) -> Result<core::Acquire, Failure> {
        let claims = if body.locks.is_empty() {
            vec![read::claim(&body.lock, body.mode, body.permits)?]
        } else if body.lock.is_empty() && body.mode == 0 && body.permits.is_none() {
            read::claims(&body.locks)?
        } else {
            return Err(Failure::field("locks", "stand instead of lock, mode and permits"));
        };
        let under = match (&body.session_id, &body.ttl) {
            (None, None) => Under::Session(self.session()?.binding.session()),
            (session, ttl) => read::under(session.as_deref(), *ttl)?,
        };
        let terms = read::Terms {
            owner: self.owner(&body.owner_id)?,
            under,
            wait: body.wait,
            wait_forever: body.wait_forever,
            request_id: body.request_id.as_deref(),
            reclaim_window: body.reclaim_window,
            reclaim: body.reclaim,
            ticket: body.ticket.as_deref(),
            metadata: body.metadata.as_ref(),
        };
        read::acquire(self.namespace.clone(), claims, terms)
    }

    fn release(&self, body: &grpc::StreamRelease) -> Result<Release, Failure> {
        Ok(Release {
            namespace: self.namespace.clone(),
            scope: read::scope(&body.lock)?,
            owner: self.owner(&body.owner_id)?,
            lease: self.lease("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
        })
    }

    fn unlock(&self, body: &grpc::UnlockRequest) -> Result<(String, core::Unlock), Failure> {
        let scope = read::scope(&body.lock)?;
        let namespace = self.in_namespace(&body.namespace)?;
        let owner = self.owner(&body.owner_id)?;
        let session = self.lease("session_id", &body.session_id)?;
        Ok((scope.to_string(), convert::unlock(namespace, &scope, owner, session)?))
    }

    fn renew(&self, body: &grpc::StreamRenew) -> Result<Renew, Failure> {
        Ok(Renew {
            namespace: self.namespace.clone(),
            scope: read::scope(&body.lock)?,
            owner: self.owner(&body.owner_id)?,
            lease: self.lease("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
            ttl: read::length("ttl", body.ttl)?,
        })
    }

    fn heartbeat(&self, body: &grpc::Heartbeat) -> Result<KeepAlive, Failure> {
        Ok(KeepAlive {
            namespace: self.namespace.clone(),
            principal: self.caller.principal.clone(),
            session: self.lease("session_id", &body.session_id)?,
            ttl: read::length("ttl", body.ttl)?,
        })
    }

    fn test(&self, body: &grpc::TestRequest) -> Result<Test, Failure> {
        let claim = read::claim(&body.lock, body.mode, body.permits)?;
        let namespace = self.in_namespace(&body.namespace)?;
        let owner = self.owner(&body.owner_id)?;
        let session = body.session_id.as_deref().unwrap_or_default();
        let named = !session.is_empty() || self.bound.is_some();
        let lease = named.then(|| self.lease("session_id", session)).transpose()?;
        Ok(Test { namespace, owner, lease, claim })
    }

    fn check(&self, body: &grpc::CheckRequest) -> Result<CheckToken, Failure> {
        let lease = body.lease_id.as_deref().map(|id| convert::lease_id("lease_id", id));
        Ok(CheckToken {
            namespace: self.in_namespace(&body.namespace)?,
            scope: read::scope(&body.lock)?,
            fence: convert::fence(body.fencing_token)?,
            lease: lease.transpose()?,
        })
    }

    fn ask_cancel(&mut self, id: u64, watch: Stopwatch, of: u64) {
        let Some(&waiter) = self.waiting.get(&of) else {
            // Answered by now, or never one that waits.
            let answer = Answered::Cancelled(Cancelled { waiting: false });
            return self.push(id, answer, LIGHT_BYTES);
        };
        let number = self.slots.put(Slot { id, watch, work: Work::Cancel { waiter, told: true } });
        self.cancel(number, waiter, false);
    }

    fn session(&self) -> Result<&Bound, Failure> {
        self.bound.as_ref().ok_or_else(|| {
            Failure::field("ttl", "is missing, and the stream is not bound to a session")
        })
    }

    fn owner(&self, text: &str) -> Result<Owner, Failure> {
        match &self.bound {
            Some(bound) if text.is_empty() => Ok(bound.owner.clone()),
            Some(_) | None => convert::owner(&self.caller.principal, text),
        }
    }

    /// A lease by its id, or the stream's session.
    fn lease(&self, field: &str, text: &str) -> Result<LeaseId, Failure> {
        match &self.bound {
            Some(bound) if text.is_empty() => Ok(bound.binding.session()),
            Some(_) | None => convert::lease_id(field, text),
        }
    }

    fn in_namespace(&self, text: &str) -> Result<Namespace, Failure> {
        if text.is_empty() || text == self.namespace.as_str() {
            return Ok(self.namespace.clone());
        }
        Err(Failure::field("namespace", "is the stream's: leave it out"))
    }

    /// The client says nothing more: what waits leaves the queue, and may come back on another stream.
    fn cancel_all(&mut self) {
        for (_, waiter) in std::mem::take(&mut self.waiting) {
            let work = Work::Cancel { waiter, told: false };
            let slot = Slot { id: 0, watch: Stopwatch::start(), work };
            let number = self.slots.put(slot);
            self.cancel(number, waiter, true);
        }
    }

    fn cancel(&mut self, number: u32, waiter: u32, keep_place: bool) {
        let (namespace, call) = (self.namespace.clone(), self.port.call_id(waiter));
        let cancel = Cancel { namespace, call, keep_place };
        self.port.ask(number, Call::Command(Command::Cancel(cancel)));
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

    /// Takes one letter more into the message; false if there is none.
    fn poll_letters(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.letters.is_empty() {
            match self.port.poll_take(cx, &mut self.letters) {
                Poll::Ready(true) => self.answered = Stopwatch::start(),
                Poll::Ready(false) => return Err(CallError::Draining.into()),
                Poll::Pending => return Ok(false),
            }
        }
        let now = self.app.now();
        self.next.replies.reserve(self.letters.len().min(ANSWERS_AT_ONCE));
        while self.has_room()
            && let Some(letter) = self.letters.pop_front()
        {
            match letter {
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

    fn reply(&mut self, now: Timestamp, number: u32, reply: Result<Reply, CallError>) {
        let Some(slot) = self.slots.take(number) else { return };
        if matches!(slot.work, Work::Test { .. } | Work::Check { .. } | Work::Get) {
            self.queries -= 1;
        }
        if !self.waiting.is_empty() && matches!(slot.work, Work::Acquire { .. }) {
            self.waiting.remove(&slot.id);
        }
        match reply {
            Ok(Reply::View(view)) => {
                let view = self.caller.sight(&self.namespace).view(view);
                self.answer(now, &slot, Reply::View(view));
            }
            Ok(reply) => self.answer(now, &slot, reply),
            Err(error) => {
                let failure = self.caller.sight(&self.namespace).failure(error);
                self.count(&slot, Err(&failure));
                if !slot.is_silent() {
                    self.refuse(slot.id, &failure);
                }
            }
        }
    }

    fn answer(&mut self, now: Timestamp, slot: &Slot, reply: Reply) {
        let mut weight = LIGHT_BYTES;
        let answer = match (reply, &slot.work) {
            (
                Reply::Answer(Answer::Granted(grant)),
                Work::Acquire { kind, in_session, respelled },
            ) => {
                if *in_session && !self.is_session(grant.lease) {
                    self.sessions.insert(grant.lease);
                }
                let took = slot.watch.until(self.answered);
                let times = (took, grant.waited);
                self.app.count_acquire(&self.caller, &mut self.acquires, kind, times, Ok(()));
                Answered::Granted(self.granted(now, &grant, respelled.as_deref()))
            }
            (Reply::Answer(Answer::Renewed(renewed)), Work::Renew(lease)) => {
                self.port.follow(*lease);
                Answered::Renewed(Extended {
                    ttl: Some(length(renewed.ttl.as_duration())),
                    expires_in: Some(length(renewed.deadline.since(now))),
                    epoch: self.epoch,
                })
            }
            (Reply::Answer(Answer::Released { held, replayed }), Work::Release(lease)) => {
                self.forget(*lease);
                Answered::Released(Released { held: Some(length(held)), replayed })
            }
            (Reply::Answer(Answer::Unlocked { changed }), Work::Unlock { lock }) => {
                Answered::Unlocked(Unlocked { lock: lock.clone(), changed })
            }
            (Reply::Answer(Answer::SessionClosed { grants, replayed }), Work::Close(lease)) => {
                self.sessions.remove(lease);
                self.forget(*lease);
                Answered::Closed(Closed { released: grants as u64, replayed })
            }
            (Reply::Answer(Answer::Cancelled { waiting }), Work::Cancel { waiter, told }) => {
                if waiting {
                    self.cancelled(*waiter);
                }
                if !told {
                    return;
                }
                Answered::Cancelled(Cancelled { waiting })
            }
            (Reply::Answer(Answer::FenceAccepted { high_water }), Work::Accept) => {
                Answered::Accepted(Accepted { high_water: high_water.get() })
            }
            (Reply::View(View::Tested(found)), Work::Test { lock }) => {
                let tested = locks::tested(&self.app, lock.clone(), &found);
                Answered::Tested(Box::new(tested))
            }
            (Reply::View(View::Checked(check)), Work::Check { lock, fencing_token }) => {
                let checked = locks::checked(&self.app, lock.clone(), *fencing_token, &check);
                Answered::Checked(Box::new(checked))
            }
            (Reply::View(View::Lock(view)), Work::Get) => {
                weight += 512 * (view.holders.len() + view.waiters.len() + 1);
                let lock = grpc::Lock::from(&convert::lock(now, &self.namespace, &view));
                Answered::Lock(Box::new(lock))
            }
            (_, _) => {
                let problem = convert::problem(now, &unexpected());
                Answered::Problem(Box::new(Problem::from(&problem)))
            }
        };
        if !matches!(slot.work, Work::Acquire { .. }) {
            self.count(slot, Ok(()));
        }
        self.push(slot.id, answer, weight);
    }

    fn granted(&self, now: Timestamp, grant: &core::Grant, lock: Option<&str>) -> StreamGrant {
        StreamGrant {
            lease_id: self.lease_text(grant.lease),
            fencing_token: grant.fence.get(),
            ttl: Some(length(grant.ttl.as_duration())),
            expires_in: Some(length(grant.deadline.since(now))),
            waited: (!grant.waited.is_zero()).then(|| length(grant.waited)),
            replayed: grant.replayed,
            epoch: self.epoch,
            lock: lock.unwrap_or_default().into(),
        }
    }

    /// A request that still waited gets no reply any more.
    fn cancelled(&mut self, waiter: u32) {
        if let Some(slot) = self.slots.take(waiter) {
            self.waiting.remove(&slot.id);
            self.count(&slot, Err(&Failure::new(Code::LockHeld, "cancelled")));
        }
    }

    /// A request stands in the queue: its client learns how to come back should this stream break.
    fn queued(&mut self, number: u32, queued: core::Queued) {
        let Some(slot) = self.slots.get(number) else { return };
        let place = Place {
            command_id: slot.id,
            ticket: convert::ticket_text(queued.ticket),
            queue_position: queued.position as u64,
        };
        self.next.pushes.push(Push { news: Some(News::Queued(place)) });
        self.weight += LIGHT_BYTES;
    }

    fn notice(&mut self, lease: LeaseId, notice: Notice) {
        let news = match notice {
            Notice::Lost { fence, ending } => News::Lost(Lost {
                lease_id: self.lease_text(lease),
                fencing_token: fence.map(core::FencingToken::get),
                reason: ending.to_string(),
            }),
            Notice::Wanted { fence, scope } => News::Wanted(Wanted {
                lock: scope.to_string(),
                lease_id: self.lease_text(lease),
                fencing_token: fence.get(),
            }),
        };
        self.next.pushes.push(Push { news: Some(news) });
        self.weight += LIGHT_BYTES;
    }

    /// A lease's id; nothing for the stream's own session.
    fn lease_text(&self, lease: LeaseId) -> String {
        match self.is_session(lease) {
            true => String::new(),
            false => convert::lease_id_text(lease),
        }
    }

    fn is_session(&self, lease: LeaseId) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.binding.session() == lease)
    }

    fn forget(&mut self, lease: LeaseId) {
        if !self.is_session(lease) && !self.sessions.contains(&lease) {
            self.port.forget(lease);
        }
    }

    fn refuse(&mut self, id: u64, failure: &Failure) {
        let mut problem = read::reworded(convert::problem(self.app.now(), failure));
        problem.request_id = self.caller.request_id.as_ref().into();
        let weight = LIGHT_BYTES * 4 * (1 + problem.holders.as_ref().map_or(0, Vec::len));
        self.push(id, Answered::Problem(Box::new(Problem::from(&problem))), weight);
    }

    fn push(&mut self, id: u64, answer: Answered, weight: usize) {
        self.next.replies.push(Said { id, answer: Some(answer) });
        self.weight += weight;
    }

    fn count(&mut self, slot: &Slot, answer: Result<(), &Failure>) {
        let took = slot.watch.until(self.answered);
        let outcome = answer.map_err(Failure::code);
        let op = match &slot.work {
            Work::Acquire { kind, .. } => {
                let waited = answer.err().map_or(Duration::ZERO, Failure::waited);
                let times = (took, waited);
                return self.app.count_acquire(
                    &self.caller,
                    &mut self.acquires,
                    kind,
                    times,
                    outcome,
                );
            }
            Work::Release(_) | Work::Unlock { .. } => Op::Release,
            Work::Renew(_) => Op::Renew,
            Work::Test { .. } => Op::Test,
            Work::Check { .. } => Op::Check,
            Work::Get => Op::Get,
            Work::Accept => Op::Fence,
            Work::Close(_) => Op::Session,
            Work::Cancel { .. } => return,
        };
        self.app.count(op, took, outcome);
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
        let letters = std::mem::take(&mut self.letters).into_iter();
        self.undo.extend(letters.filter_map(PortEvent::into_undo).filter(is_needed));
        if !self.undo.is_empty() {
            self.outbox.put(&mut self.undo);
        }
    }
}

/// The operation that a command is counted as, though it could not be decoded.
fn op_of(ask: &Ask) -> Option<Op> {
    Some(match ask {
        Ask::Acquire(_) => Op::Acquire,
        Ask::Release(_) | Ask::Unlock(_) => Op::Release,
        Ask::Renew(_) | Ask::Heartbeat(_) => Op::Renew,
        Ask::Test(_) => Op::Test,
        Ask::Check(_) => Op::Check,
        Ask::Get(_) => Op::Get,
        Ask::Accept(_) => Op::Fence,
        Ask::Close(_) => Op::Session,
        Ask::Cancel(_) => return None,
    })
}

/// The lock in its canonical spelling, if it was asked for in another.
fn respelled(body: &StreamAcquire, acquire: &core::Acquire) -> Option<Box<str>> {
    let [claim] = &acquire.claims[..] else { return None };
    if let core::Scope::Key(key) = &claim.scope
        && key.text().as_bytes() == body.lock.as_bytes()
    {
        return None;
    }
    let text = claim.scope.to_string();
    (text != body.lock).then(|| text.into())
}
