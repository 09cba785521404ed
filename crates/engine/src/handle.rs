//! The way in: cheap to clone, one for every connection.
//!
//! There are two lanes. Renewals, releases and everything else that ends something have one of their own, so that a
//! flood of waiters cannot make a holder expire.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Acquire, Answer, CallId, Cancel, Command, Event, Grant, LeaseId, Namespace};
use tokio::sync::{mpsc, oneshot, watch};

use crate::call::{Call, CallError, Query, Reply, View};
use crate::counts::{Commits, Counts};
use crate::history::Remembered;
use crate::publish::{Notice, Publisher, Watch};
use crate::status::Status;

/// How an engine is spoken to.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) urgent: mpsc::Sender<Asked>,
    pub(crate) ordinary: mpsc::Sender<Asked>,
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) publisher: Publisher,
    pub(crate) commits: Arc<Mutex<Commits>>,
}

/// One call on its way to the engine.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: CallId,
    pub(crate) call: Call,
    /// `None` when nobody awaits the answer.
    pub(crate) reply: Option<oneshot::Sender<Result<Reply, CallError>>>,
}

impl Handle {
    /// Asks for scopes, waiting as long as the request says. Dropping the future leaves the queue; a grant that nobody
    /// takes delivery of is given back at once, unless the request has an id by which a retry will find it.
    pub async fn acquire(&self, mut acquire: Acquire) -> Result<Grant, CallError> {
        let id = self.next_call();
        acquire.call = id;
        let mut leaving =
            Leaving { handle: self, namespace: acquire.namespace.clone(), id, armed: true };
        let call = Call::Command(Command::Acquire(acquire));
        let reply = self.send(&self.ordinary, id, call).await;
        leaving.armed = false;
        match reply? {
            Reply::Answer(Answer::Granted(grant)) => Ok(*grant),
            Reply::Answer(_) | Reply::View(_) => {
                unreachable!("an acquire is answered with a grant")
            }
        }
    }

    /// Everything else that can be asked of the table.
    pub async fn command(&self, command: Command) -> Result<Answer, CallError> {
        let lane = if is_urgent(&command) { &self.urgent } else { &self.ordinary };
        match self.send(lane, self.next_call(), Call::Command(command)).await? {
            Reply::Answer(answer) => Ok(answer),
            Reply::View(_) => unreachable!("a command is answered, not viewed"),
        }
    }

    pub async fn query(&self, query: Query) -> Result<View, CallError> {
        match self.send(&self.ordinary, self.next_call(), Call::Query(query)).await? {
            Reply::View(view) => Ok(view),
            Reply::Answer(_) => unreachable!("a query is viewed, not answered"),
        }
    }

    /// How the engine is doing now.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Changes of the status, for those who wait for one.
    pub fn status_changes(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Events from after `after` on, or from now on.
    pub fn watch(
        &self,
        after: Option<leasehold_core::Revision>,
    ) -> Result<Watch, crate::Compacted> {
        self.publisher.watch(after)
    }

    /// Everything the holder of this lease should hear without asking, from now on.
    pub fn follow(&self, namespace: Namespace, lease: LeaseId) -> mpsc::Receiver<Notice> {
        self.publisher.follow(namespace, lease)
    }

    /// The grants that ended last, as far as they are remembered.
    pub fn endings(&self, wanted: impl Fn(&Event) -> bool, len_max: usize) -> Remembered {
        self.publisher.history.endings(wanted, len_max)
    }

    /// The deadlocks that were refused last, as far as they are remembered.
    pub fn deadlocks(&self, wanted: impl Fn(&Event) -> bool, len_max: usize) -> Remembered {
        self.publisher.history.deadlocks(wanted, len_max)
    }

    /// What has happened since the start.
    pub fn counts(&self) -> Counts {
        self.publisher.counts()
    }

    /// What the store was asked to keep since the start.
    pub fn commits(&self) -> Commits {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn next_call(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    async fn send(
        &self,
        lane: &mpsc::Sender<Asked>,
        id: CallId,
        call: Call,
    ) -> Result<Reply, CallError> {
        let (reply, answer) = oneshot::channel();
        let asked = Asked { id, call, reply: Some(reply) };
        match lane.try_send(asked) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(CallError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(CallError::Stopped),
        }
        answer.await.unwrap_or(Err(CallError::Stopped))
    }
}

/// Whether a command gives something back or keeps something alive.
fn is_urgent(command: &Command) -> bool {
    match command {
        Command::Renew(_)
        | Command::Release(_)
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
        | Command::OpenSession(_)
        | Command::AcceptFence(_)
        | Command::BeginEpoch(_)
        | Command::Jump(_)
        | Command::Suspend
        | Command::Resume => false,
    }
}

/// Leaves the queue when the caller goes before its answer has come.
struct Leaving<'a> {
    handle: &'a Handle,
    namespace: Namespace,
    id: CallId,
    armed: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.armed {
            let cancel = Cancel { namespace: self.namespace.clone(), call: self.id };
            let call = Call::Command(Command::Cancel(cancel));
            let asked = Asked { id: self.handle.next_call(), call, reply: None };
            // If the lane is full the engine still finds out: nobody takes delivery of the grant.
            let _ = self.handle.urgent.try_send(asked);
        }
    }
}
