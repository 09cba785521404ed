//! The two lanes into the engine, and what comes along them.
//!
//! Renewals, releases and everything else that ends something have a lane of their own, so that a flood of requests
//! cannot make a holder expire. What one caller puts into the urgent lane is never overtaken by what the same caller puts
//! into the ordinary one afterwards.

use std::sync::Arc;

use leasehold_core::{ByOwner, CallId, Command, OwnerAction};
use tokio::sync::{mpsc, oneshot};

use super::{Call, CallError, Reply, ReplyQueue};
use crate::writer::Undo;

/// How much may lie waiting before callers are told that the server is busy.
const URGENT_LEN_MAX: usize = 100_000;
const ORDINARY_LEN_MAX: usize = 250_000;
/// How many ordinary calls are taken at a time.
const TAKEN_AT_ONCE: usize = 1024;

/// Something on its way to the engine.
#[derive(Debug)]
pub(crate) enum Inbound {
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
    /// What the port wants to hear of from now on, and what no longer.
    pub(crate) follow: Vec<leasehold_core::LeaseId>,
    pub(crate) forget: Vec<leasehold_core::LeaseId>,
}

impl Inbound {
    /// How many calls it brings.
    pub(crate) fn len(&self) -> usize {
        match self {
            Inbound::Call(_) => 1,
            Inbound::Calls(calls) => calls.calls.len(),
            Inbound::Closed { undo, .. } | Inbound::Undelivered(undo) => undo.len(),
        }
    }
}

/// The callers' ends.
#[derive(Clone, Debug)]
pub(crate) struct InboxSender {
    pub(crate) urgent: mpsc::Sender<Inbound>,
    pub(crate) ordinary: mpsc::Sender<Inbound>,
}

/// The engine's ends.
#[derive(Debug)]
pub(crate) struct Inbox {
    urgent: mpsc::Receiver<Inbound>,
    ordinary: mpsc::Receiver<Inbound>,
    later: Vec<Inbound>,
}

pub(crate) fn inbox() -> (InboxSender, Inbox) {
    let (urgent, urgent_out) = mpsc::channel(URGENT_LEN_MAX);
    let (ordinary, ordinary_out) = mpsc::channel(ORDINARY_LEN_MAX);
    let inbox = Inbox { urgent: urgent_out, ordinary: ordinary_out, later: Vec::new() };
    (InboxSender { urgent, ordinary }, inbox)
}

impl Inbox {
    /// Waits for something and takes what else has come by then, in the order in which it is to be carried out. Without
    /// `room` the ordinary lane stays closed. False when nobody can ask any more.
    ///
    /// Nothing is lost if the future is dropped before it is ready.
    pub(crate) async fn take(&mut self, room: bool, taken: &mut Vec<Inbound>) -> bool {
        let mut ordinary_len = 0;
        tokio::select! {
            biased;
            inbound = self.urgent.recv() => match inbound {
                Some(inbound) => taken.push(inbound),
                None => return false,
            },
            inbound = self.ordinary.recv(), if room => match inbound {
                Some(inbound) => {
                    ordinary_len += inbound.len();
                    self.later.push(inbound);
                }
                None => return false,
            },
        }
        self.take_the_rest(room, ordinary_len, taken);
        true
    }

    /// Takes what is there, without waiting.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn take_at_once(&mut self, room: bool, taken: &mut Vec<Inbound>) {
        self.take_the_rest(room, 0, taken);
    }

    fn take_the_rest(&mut self, room: bool, mut ordinary_len: usize, taken: &mut Vec<Inbound>) {
        while room
            && ordinary_len < TAKEN_AT_ONCE
            && let Ok(inbound) = self.ordinary.try_recv()
        {
            ordinary_len += inbound.len();
            self.later.push(inbound);
        }
        // Last, and all of it: whatever was sent before one of the ordinary ones is here by now.
        while let Ok(inbound) = self.urgent.try_recv() {
            taken.push(inbound);
        }
        taken.append(&mut self.later);
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
    use leasehold_core::Command;

    fn call(id: u64) -> Inbound {
        Inbound::Call(CallEnvelope {
            id: CallId(id),
            call: Call::Command(Command::Tick),
            reply: None,
        })
    }

    fn ids(taken: &[Inbound]) -> Vec<u64> {
        taken
            .iter()
            .map(|inbound| match inbound {
                Inbound::Call(asked) => asked.id.0,
                Inbound::Calls(_) | Inbound::Closed { .. } | Inbound::Undelivered(_) => {
                    panic!("not sent here")
                }
            })
            .collect()
    }

    #[tokio::test]
    async fn urgent_goes_before_everything_that_lies_there() {
        let (into, mut inbox) = inbox();
        into.ordinary.try_send(call(1)).unwrap();
        into.urgent.try_send(call(2)).unwrap();
        into.ordinary.try_send(call(3)).unwrap();
        into.urgent.try_send(call(4)).unwrap();
        let mut taken = Vec::new();
        assert!(inbox.take(true, &mut taken).await);
        assert_eq!(ids(&taken), [2, 4, 1, 3]);
    }

    #[tokio::test]
    async fn without_room_only_the_urgent_lane_is_open() {
        let (into, mut inbox) = inbox();
        into.ordinary.try_send(call(1)).unwrap();
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
        let (into, mut inbox) = inbox();
        let sending = tokio::task::spawn_blocking(move || {
            for pair in 0..20_000 {
                into.urgent.blocking_send(call(2 * pair)).unwrap();
                into.ordinary.blocking_send(call(2 * pair + 1)).unwrap();
            }
        });
        let (mut taken, mut urgent_seen) = (Vec::new(), 0);
        while inbox.take(true, &mut taken).await {
            for id in ids(&taken) {
                if id % 2 == 0 {
                    urgent_seen = id;
                } else {
                    assert!(urgent_seen >= id - 1, "{id} was taken before {}", id - 1);
                }
            }
            taken.clear();
        }
        assert_eq!(urgent_seen, 2 * 19_999);
        sending.await.unwrap();
    }
}
