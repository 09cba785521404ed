//! The two lanes into the engine, and what comes along them.
//!
//! Renewals, releases and everything else that ends something have a lane of their own, so that a flood of requests
//! cannot make a holder expire. What one caller puts into the urgent lane is never overtaken by what the same caller puts
//! into the ordinary one afterwards.

use std::sync::Arc;

use leasehold_core::{ByOwner, CallId, Command, OwnerAction};
use tokio::sync::{mpsc, oneshot};

use super::{Call, CallError, Mailbox, Reply};
use crate::writer::Undo;

/// How much may lie waiting before callers are told that the server is busy.
const URGENT_LEN_MAX: usize = 100_000;
const ORDINARY_LEN_MAX: usize = 250_000;
/// How many ordinary calls are taken at a time.
const TAKEN_AT_ONCE: usize = 1024;

/// Something on its way to the engine.
#[derive(Debug)]
pub(crate) enum Parcel {
    Call(Asked),
    Calls(Calls),
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
pub(crate) struct Asked {
    pub(crate) id: CallId,
    pub(crate) call: Call,
    /// `None` when nobody awaits the answer.
    pub(crate) reply: Option<oneshot::Sender<Letter>>,
}

/// An answer on its way to a caller of its own, and how to take it back should it not arrive.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) reply: Result<Reply, CallError>,
    pub(crate) undo: Option<Undo>,
}

/// Calls of one port, in order.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) calls: Vec<(u32, Call)>,
    /// What the port wants to hear of from now on, and what no longer.
    pub(crate) follow: Vec<leasehold_core::LeaseId>,
    pub(crate) forget: Vec<leasehold_core::LeaseId>,
}

impl Parcel {
    /// How many calls it brings.
    pub(crate) fn len(&self) -> usize {
        match self {
            Parcel::Call(_) => 1,
            Parcel::Calls(calls) => calls.calls.len(),
            Parcel::Closed { undo, .. } | Parcel::Undelivered(undo) => undo.len(),
        }
    }
}

/// The callers' ends.
#[derive(Clone, Debug)]
pub(crate) struct LanesIn {
    pub(crate) urgent: mpsc::Sender<Parcel>,
    pub(crate) ordinary: mpsc::Sender<Parcel>,
}

/// The engine's ends.
#[derive(Debug)]
pub(crate) struct Lanes {
    urgent: mpsc::Receiver<Parcel>,
    ordinary: mpsc::Receiver<Parcel>,
    later: Vec<Parcel>,
}

pub(crate) fn lanes() -> (LanesIn, Lanes) {
    let (urgent, urgent_out) = mpsc::channel(URGENT_LEN_MAX);
    let (ordinary, ordinary_out) = mpsc::channel(ORDINARY_LEN_MAX);
    let lanes = Lanes { urgent: urgent_out, ordinary: ordinary_out, later: Vec::new() };
    (LanesIn { urgent, ordinary }, lanes)
}

impl Lanes {
    /// Waits for something and takes what else has come by then, in the order in which it is to be carried out. Without
    /// `room` the ordinary lane stays closed. False when nobody can ask any more.
    ///
    /// Nothing is lost if the future is dropped before it is ready.
    pub(crate) async fn take(&mut self, room: bool, taken: &mut Vec<Parcel>) -> bool {
        let mut ordinary_len = 0;
        tokio::select! {
            biased;
            parcel = self.urgent.recv() => match parcel {
                Some(parcel) => taken.push(parcel),
                None => return false,
            },
            parcel = self.ordinary.recv(), if room => match parcel {
                Some(parcel) => {
                    ordinary_len += parcel.len();
                    self.later.push(parcel);
                }
                None => return false,
            },
        }
        self.take_the_rest(room, ordinary_len, taken);
        true
    }

    /// Takes what is there, without waiting.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn take_at_once(&mut self, room: bool, taken: &mut Vec<Parcel>) {
        self.take_the_rest(room, 0, taken);
    }

    fn take_the_rest(&mut self, room: bool, mut ordinary_len: usize, taken: &mut Vec<Parcel>) {
        while room
            && ordinary_len < TAKEN_AT_ONCE
            && let Ok(parcel) = self.ordinary.try_recv()
        {
            ordinary_len += parcel.len();
            self.later.push(parcel);
        }
        // Last, and all of it: whatever was sent before one of the ordinary ones is here by now.
        while let Ok(parcel) = self.urgent.try_recv() {
            taken.push(parcel);
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

    fn call(id: u64) -> Parcel {
        Parcel::Call(Asked { id: CallId(id), call: Call::Command(Command::Tick), reply: None })
    }

    fn ids(taken: &[Parcel]) -> Vec<u64> {
        taken
            .iter()
            .map(|parcel| match parcel {
                Parcel::Call(asked) => asked.id.0,
                Parcel::Calls(_) | Parcel::Closed { .. } | Parcel::Undelivered(_) => {
                    panic!("not sent here")
                }
            })
            .collect()
    }

    #[tokio::test]
    async fn urgent_goes_before_everything_that_lies_there() {
        let (into, mut lanes) = lanes();
        into.ordinary.try_send(call(1)).unwrap();
        into.urgent.try_send(call(2)).unwrap();
        into.ordinary.try_send(call(3)).unwrap();
        into.urgent.try_send(call(4)).unwrap();
        let mut taken = Vec::new();
        assert!(lanes.take(true, &mut taken).await);
        assert_eq!(ids(&taken), [2, 4, 1, 3]);
    }

    #[tokio::test]
    async fn without_room_only_the_urgent_lane_is_open() {
        let (into, mut lanes) = lanes();
        into.ordinary.try_send(call(1)).unwrap();
        into.urgent.try_send(call(2)).unwrap();
        let mut taken = Vec::new();
        assert!(lanes.take(false, &mut taken).await);
        assert_eq!(ids(&taken), [2]);
        taken.clear();
        drop(into);
        assert!(!lanes.take(false, &mut taken).await, "nobody is left to ask");
    }

    /// One caller sends urgent, then ordinary, as fast as it can: the second is never seen before the first.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ordinary_never_overtakes_what_was_sent_before_it() {
        let (into, mut lanes) = lanes();
        let sending = tokio::task::spawn_blocking(move || {
            for pair in 0..20_000 {
                into.urgent.blocking_send(call(2 * pair)).unwrap();
                into.ordinary.blocking_send(call(2 * pair + 1)).unwrap();
            }
        });
        let (mut taken, mut urgent_seen) = (Vec::new(), 0);
        while lanes.take(true, &mut taken).await {
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
