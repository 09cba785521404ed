//! The way in: cheap to clone, one for every connection.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{
    Acquire, Answer, CallId, Cancel, Command, Event, Grant, LeaseId, Namespace, OpenSession, Opened,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Account, Call, CallEnvelope, CallError, Class, Content, Inbound, InboxSender, Port, Query,
    Reply, ReplyEnvelope, Shed, ShedCounts, View,
};
use crate::events::{Commits, Counts, Cursor, Notice, Publisher, Remembered, Totals, Watch};
use crate::runner::{Condition, Status};
use crate::writer::Undo;

/// The way to send calls to an engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) inbox: InboxSender,
    pub(crate) account: Arc<Account>,
    pub(crate) shed: Arc<Shed>,
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) ports: Arc<AtomicU32>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) condition: watch::Receiver<Condition>,
    pub(crate) publisher: Publisher,
    pub(crate) commits: Arc<Mutex<Commits>>,
    pub(crate) controls: mpsc::UnboundedSender<Control>,
}

/// Orders from the rest of this server about its part in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    StepDown,
    DelayCampaign(Duration),
    RefreshLeader,
}

impl Handle {
    /// The same engine for the calls of an account.
    #[must_use]
    pub fn on_behalf_of(&self, account: &Arc<Account>) -> Handle {
        Handle { account: account.clone(), ..self.clone() }
    }

    /// Asks for scopes, waiting as long as the request says. Dropping the future leaves the queue; the place is kept for a
    /// while if the request has a ticket or an id by which a retry can find it. A grant that nobody
    /// takes delivery of is given back at once, unless the request has an id by which a retry will find it.
    pub async fn acquire(&self, acquire: Acquire) -> Result<Grant, CallError> {
        self.acquire_to_deliver(acquire).await.map(|(grant, _)| grant)
    }

    /// The same for a caller that hands the grant on: with what is to be told to [`Handle::undelivered`] if it does not
    /// arrive.
    pub async fn acquire_to_deliver(
        &self,
        mut acquire: Acquire,
    ) -> Result<(Grant, Option<Undo>), CallError> {
        let id = self.next_call();
        acquire.call = id;
        let namespace = acquire.namespace.clone();
        let keep_place = acquire.ticket.is_some() || acquire.request_id.is_some();
        let cancel = Some(Cancel { namespace, call: id, keep_place });
        let call = Call::Command(Command::Acquire(acquire));
        let (Answer::Granted(grant), undo) = self.awaited(id, call, cancel).await? else {
            unreachable!("an acquire is answered with a grant")
        };
        Ok((*grant, undo))
    }

    /// Opens a session, to be handed on as a grant is.
    pub async fn open_to_deliver(
        &self,
        open: OpenSession,
    ) -> Result<(Opened, Option<Undo>), CallError> {
        let call = Call::Command(Command::OpenSession(open));
        let awaited = self.awaited(self.next_call(), call, None);
        let (Answer::SessionOpened(opened), undo) = awaited.await? else {
            unreachable!("a session is opened, or refused")
        };
        Ok((*opened, undo))
    }

    async fn awaited(
        &self,
        id: CallId,
        call: Call,
        cancel: Option<Cancel>,
    ) -> Result<(Answer, Option<Undo>), CallError> {
        let reply = self.send(id, call)?;
        let mut leaving = Leaving { handle: self, cancel, reply };
        let envelope = (&mut leaving.reply).await.map_err(|_| CallError::Stopped)?;
        match envelope.reply? {
            Reply::Answer(answer) => Ok((answer, envelope.undo)),
            Reply::View(_) => unreachable!("a command is answered, not viewed"),
        }
    }

    /// Everything else that can be asked of the table.
    pub async fn command(&self, command: Command) -> Result<Answer, CallError> {
        match self.ask(Call::Command(command)).await? {
            Reply::Answer(answer) => Ok(answer),
            Reply::View(_) => unreachable!("a command is answered, not viewed"),
        }
    }

    /// Asks without waiting for what comes of it.
    pub fn tell(&self, command: Command) {
        let call = Call::Command(command);
        let lane = self.inbox.lane(Class::of(&call));
        let envelope = CallEnvelope { id: self.next_call(), call, reply: None };
        let _ = lane.try_send(self.inbound(Content::Call(envelope)));
    }

    /// Takes back what answers gave that did not reach their callers after all; what a retry can find is kept.
    pub fn undelivered(&self, undo: Vec<Undo>) {
        if !undo.is_empty() {
            let _ = self.inbox.urgent.try_send(self.inbound(Content::Undelivered(undo)));
        }
    }

    pub async fn query(&self, query: Query) -> Result<View, CallError> {
        match self.ask(Call::Query(query)).await? {
            Reply::View(view) => Ok(view),
            Reply::Answer(_) => unreachable!("a query is viewed, not answered"),
        }
    }

    /// A way in of its own for a stream with many calls in flight.
    pub fn port(&self) -> Port {
        let number = self.ports.fetch_add(1, Ordering::Relaxed);
        Port::new(self.inbox.clone(), self.account.clone(), number)
    }

    /// Lets another server lead, if this one does.
    pub fn step_down(&self) {
        let _ = self.controls.send(Control::StepDown);
    }

    /// With no leader, other servers may campaign first for this long.
    pub fn delay_campaign(&self, length: Duration) {
        let _ = self.controls.send(Control::DelayCampaign(length));
    }

    /// The leader was found not to serve: polls soon whether there is another.
    pub fn refresh_leader(&self) {
        let _ = self.controls.send(Control::RefreshLeader);
    }

    /// The state of the engine at this moment.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Changes of the status, for those who wait for one.
    pub fn status_changes(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Changes of what hardly ever changes.
    pub fn condition_changes(&self) -> watch::Receiver<Condition> {
        self.condition.clone()
    }

    /// The events after a cursor. The caller sees to it that its revision is not above the current one.
    pub fn watch(&self, after: Cursor) -> Result<Watch, crate::Compacted> {
        self.publisher.watch(after)
    }

    /// Everything the holder of this lease should hear without asking, from now on.
    pub fn follow(&self, namespace: Namespace, lease: LeaseId) -> mpsc::Receiver<Notice> {
        self.publisher.follow(namespace, lease)
    }

    /// Events after this revision can still be watched.
    pub fn events_after(&self) -> leasehold_core::Revision {
        self.publisher.complete_after()
    }

    /// The grants that ended last, as far as they are remembered.
    pub fn endings(&self, wanted: impl Fn(&Event) -> bool, len_max: usize) -> Remembered {
        self.publisher.history.endings(wanted, len_max)
    }

    /// The deadlocks that were refused last, as far as they are remembered.
    pub fn deadlocks(&self, wanted: impl Fn(&Event) -> bool, len_max: usize) -> Remembered {
        self.publisher.history.deadlocks(wanted, len_max)
    }

    /// Counts of all events since the start.
    pub fn counts(&self) -> Counts {
        self.publisher.counts()
    }

    /// The same in a few numbers, for those who ask often.
    pub fn totals(&self) -> Totals {
        self.publisher.totals()
    }

    /// Counts of all writes to the store since the start.
    pub fn commits(&self) -> Commits {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts of calls shed because of too many calls, or because they waited too long.
    pub fn shed(&self) -> ShedCounts {
        self.shed.counts()
    }

    fn inbound(&self, content: Content) -> Inbound {
        Inbound { from: self.account.clone(), content }
    }

    fn next_call(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks something whose answer gives nothing that would have to be taken back.
    async fn ask(&self, call: Call) -> Result<Reply, CallError> {
        let awaited = self.send(self.next_call(), call)?;
        awaited.await.map_err(|_| CallError::Stopped)?.reply
    }

    fn send(&self, id: CallId, call: Call) -> Result<oneshot::Receiver<ReplyEnvelope>, CallError> {
        let (reply, awaited) = oneshot::channel();
        let lane = self.inbox.lane(Class::of(&call));
        let envelope = CallEnvelope { id, call, reply: Some(reply) };
        match lane.try_send(self.inbound(Content::Call(envelope))) {
            Ok(()) => Ok(awaited),
            Err(mpsc::error::TrySendError::Full(_)) => Err(CallError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(CallError::Stopped),
        }
    }
}

/// Leaves the queue when the caller goes before its answer has come, and takes back what came at the last moment.
struct Leaving<'a> {
    handle: &'a Handle,
    /// The command that takes it out of the queue, if it may stand in one.
    cancel: Option<Cancel>,
    reply: oneshot::Receiver<ReplyEnvelope>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.reply.is_terminated() {
            return;
        }
        self.reply.close();
        if let Ok(envelope) = self.reply.try_recv() {
            return self.handle.undelivered(envelope.undo.into_iter().collect());
        }
        if let Some(cancel) = self.cancel.take() {
            let call = Call::Command(Command::Cancel(cancel));
            let asked = CallEnvelope { id: self.handle.next_call(), call, reply: None };
            // If the lane is full the engine still finds out: nobody takes delivery of the grant.
            let _ = self.handle.inbox.urgent.try_send(self.handle.inbound(Content::Call(asked)));
        }
    }
}
