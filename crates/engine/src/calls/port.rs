//! A way in for a stream: many calls sent as one, and their replies taken as one.
//!
//! A call of a [`Handle`](crate::Handle) costs a channel of its own and a place in a map. A port has one reply queue for all
//! its calls, and a call's id says which port it belongs to, so that nothing has to be kept for it.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_core::{CallId, Command, LeaseId, Queued};
use tokio::sync::mpsc::error::TrySendError;

use super::sync::{Mutex, MutexGuard};
use super::{Account, Call, CallBatch, CallError, Class, Content, Inbound, InboxSender, Reply};
use crate::events::Notice;
use crate::writer::Undo;

/// The mark of calls that came through a port.
const PORT: u64 = 1 << 63;
/// The most unread notices that a request waits. Further ones are dropped: the port does not read them.
pub(crate) const WANTED_LEN_MAX: usize = 1024;

/// An event for a port: a reply, or a notice about a lease it follows.
#[derive(Debug)]
pub enum PortEvent {
    Reply {
        /// The number that the call was asked with.
        number: u32,
        reply: Result<Reply, CallError>,
        /// The compensation to send if the reply cannot be delivered.
        undo: Option<Undo>,
    },
    /// A call waits, and has a ticket: its reply comes later.
    Queued {
        /// The number that the call was asked with.
        number: u32,
        queued: Queued,
    },
    /// For the holder of a lease that was granted through this port, or that it follows.
    Notice { lease: LeaseId, notice: Notice },
}

/// The queue of a port's replies until it takes them.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    pub(crate) port: u32,
    queue: Mutex<ReplyQueueState>,
}

#[derive(Debug, Default)]
struct ReplyQueueState {
    delivered: VecDeque<PortEvent>,
    /// The number of those that only say that a request waits.
    wanted: usize,
    waker: Option<Waker>,
    closed: bool,
    /// The engine is gone.
    orphaned: bool,
}

impl ReplyQueue {
    pub(crate) fn new(port: u32) -> ReplyQueue {
        ReplyQueue { port: port & 0x7fff_ffff, queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, ReplyQueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in what `gathered` has. It stays there if nobody will take it any more.
    pub(crate) fn put(&self, gathered: &mut VecDeque<PortEvent>) {
        let mut queue = self.queue();
        if queue.closed {
            return;
        }
        if gathered.iter().any(PortEvent::is_wanted) {
            gathered.retain(|reply| {
                let is_wanted = reply.is_wanted();
                queue.wanted += usize::from(is_wanted);
                !is_wanted || queue.wanted <= WANTED_LEN_MAX
            });
        }
        if queue.delivered.is_empty() {
            std::mem::swap(&mut queue.delivered, gathered);
        } else {
            queue.delivered.append(gathered);
        }
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether its port is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Nothing more will come.
    pub(crate) fn orphan(&self) {
        let mut queue = self.queue();
        queue.orphaned = true;
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }
}

impl PortEvent {
    fn is_wanted(&self) -> bool {
        matches!(self, PortEvent::Notice { notice: Notice::Wanted { .. }, .. })
    }
}

/// The port and the number of a call, if it came through a port.
pub(crate) fn port_of(call: CallId) -> Option<(u32, u32)> {
    #[expect(clippy::cast_possible_truncation, reason = "each half is meant to be cut off")]
    let parts = ((call.0 >> 32) as u32 & 0x7fff_ffff, call.0 as u32);
    (call.0 & PORT != 0).then_some(parts)
}

pub(crate) fn call_id(port: u32, number: u32) -> CallId {
    CallId(PORT | u64::from(port) << 32 | u64::from(number))
}

/// One stream's way in. When it is dropped, grants that nobody has taken are given back; whoever asked through it must
/// cancel what still waits.
#[derive(Debug)]
pub struct Port {
    inbox: InboxSender,
    account: Arc<Account>,
    replies_to: Arc<ReplyQueue>,
    urgent: Vec<(u32, Call)>,
    ordinary: Vec<(u32, Call)>,
    reads: Vec<(u32, Call)>,
    follow: Vec<LeaseId>,
    forget: Vec<LeaseId>,
}

impl Port {
    pub(crate) fn new(inbox: InboxSender, account: Arc<Account>, number: u32) -> Port {
        Port {
            inbox,
            account,
            replies_to: Arc::new(ReplyQueue::new(number)),
            urgent: Vec::new(),
            ordinary: Vec::new(),
            reads: Vec::new(),
            follow: Vec::new(),
            forget: Vec::new(),
        }
    }

    /// The id under which a request that waits can be cancelled. An acquire has to carry it.
    pub fn call_id(&self, number: u32) -> CallId {
        call_id(self.replies_to.port, number)
    }

    /// Lays a call ready under a number of the caller's; no two in flight may have the same.
    pub fn ask(&mut self, number: u32, call: Call) {
        let calls = match Class::of(&call) {
            // Behind what it cancels, which is ordinary.
            Class::Urgent if matches!(call, Call::Command(Command::Cancel(_))) => {
                &mut self.ordinary
            }
            Class::Urgent => &mut self.urgent,
            Class::Ordinary => &mut self.ordinary,
            Class::Reads => &mut self.reads,
        };
        calls.push((number, call));
    }

    /// Sets the account on whose behalf further calls are sent.
    pub fn set_account(&mut self, account: &Arc<Account>) {
        self.account = account.clone();
    }

    /// From now on this port hears of what becomes of a lease that it did not acquire.
    pub fn follow(&mut self, lease: LeaseId) {
        self.follow.push(lease);
    }

    /// A lease is over as far as this port is concerned.
    pub fn forget(&mut self, lease: LeaseId) {
        self.forget.push(lease);
    }

    /// Sends all that lies ready. `refused` hears of calls that were not taken.
    pub fn send(&mut self, mut refused: impl FnMut(u32, CallError)) {
        if !self.urgent.is_empty() || !self.follow.is_empty() || !self.forget.is_empty() {
            let content = Content::Calls(CallBatch {
                replies_to: self.replies_to.clone(),
                calls: taken(&mut self.urgent),
                follow: std::mem::take(&mut self.follow),
                forget: std::mem::take(&mut self.forget),
            });
            let inbound = Inbound { from: self.account.clone(), content };
            not_taken(self.inbox.urgent.try_send(inbound), &mut refused);
        }
        let others =
            [(&self.inbox.ordinary, &mut self.ordinary), (&self.inbox.reads, &mut self.reads)];
        for (lane, calls) in others.into_iter().filter(|(_, calls)| !calls.is_empty()) {
            let content = Content::Calls(CallBatch {
                replies_to: self.replies_to.clone(),
                calls: taken(calls),
                follow: Vec::new(),
                forget: Vec::new(),
            });
            let inbound = Inbound { from: self.account.clone(), content };
            not_taken(lane.try_send(inbound), &mut refused);
        }
    }

    /// Takes what has come, in place of what is in `taken`. `Ready(false)` when the engine is gone and nothing more comes.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        taken: &mut VecDeque<PortEvent>,
    ) -> Poll<bool> {
        taken.clear();
        let mut queue = self.replies_to.queue();
        if !queue.delivered.is_empty() {
            std::mem::swap(&mut queue.delivered, taken);
            queue.wanted = 0;
            return Poll::Ready(true);
        }
        if queue.orphaned {
            return Poll::Ready(false);
        }
        match &mut queue.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => queue.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// All of it. The next ones will be about as many.
fn taken(calls: &mut Vec<(u32, Call)>) -> Vec<(u32, Call)> {
    let next = Vec::with_capacity(calls.len());
    std::mem::replace(calls, next)
}

fn not_taken(sent: Result<(), TrySendError<Inbound>>, refused: &mut impl FnMut(u32, CallError)) {
    let (inbound, error) = match sent {
        Ok(()) => return,
        Err(TrySendError::Full(inbound)) => (inbound, CallError::Busy),
        Err(TrySendError::Closed(inbound)) => (inbound, CallError::Stopped),
    };
    if let Content::Calls(calls) = inbound.content {
        for (number, _) in calls.calls {
            refused(number, error.clone());
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // What was laid ready last, cancellations above all.
        self.send(|_, _| {});
        let mut queue = self.replies_to.queue();
        queue.closed = true;
        let unread = std::mem::take(&mut queue.delivered);
        drop(queue);
        let undo = unread.into_iter().filter_map(PortEvent::into_undo).collect();
        let content = Content::Closed { port: self.replies_to.port, undo };
        let closed = Inbound { from: self.account.clone(), content };
        // In the ordinary lane, behind everything that was sent. Should it be full, the other one is better than nothing.
        if let Err(TrySendError::Full(closed)) = self.inbox.ordinary.try_send(closed) {
            let _ = self.inbox.urgent.try_send(closed);
        }
    }
}

impl PortEvent {
    /// The compensation, if it has to be possible.
    pub fn into_undo(self) -> Option<Undo> {
        match self {
            PortEvent::Reply { undo, .. } => undo,
            PortEvent::Queued { .. } | PortEvent::Notice { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_says_which_port_it_came_through() {
        for (port, number) in [(0, 0), (1, u32::MAX), (0x7fff_ffff, 7)] {
            assert_eq!(port_of(call_id(port, number)), Some((port, number)));
        }
        assert_eq!(port_of(CallId(7)), None);
    }
}
