//! A journal around another one that fails when it is told to.
//!
//! The suite, the engine's tests and the simulated store put their faults in here, so that no store has any of its own.

use std::sync::Arc;

use leasehold_core::Epoch;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::error::Error;
use crate::journal::{
    Campaign, Candidate, Heartbeat, Journal, JournalCaps, Leader, Page, Pending, Position, Pruned,
    Seq, ready,
};
use crate::record::{Batch, Chunk};

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The store refuses it, and nothing is written.
    Unavailable,
    /// It never arrives, and no answer comes.
    LostRequest,
    /// It is carried out, and no answer comes.
    LostAnswer,
    /// It waits until appends have another fault or none.
    Stalled,
}

/// The effect of a call on the journal behind, whatever was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEffect {
    Appended(Batch),
    ReadBack { epoch: Epoch, seq: Seq },
    SnapshotCommitted { epoch: Epoch, as_of: Seq },
}

/// Clones are the same journal, with the same faults.
#[derive(Clone, Debug)]
pub struct FaultyJournal {
    inner: Arc<dyn Journal>,
    state: Arc<Mutex<Faults>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Faults {
    /// Of the next call, whichever it is.
    next: Option<InjectedFault>,
    /// Of every append.
    appends: Option<InjectedFault>,
    effects: Vec<JournalEffect>,
}

impl FaultyJournal {
    /// Without any fault as yet.
    pub fn new(inner: Arc<dyn Journal>) -> FaultyJournal {
        FaultyJournal { inner, state: Arc::default(), changed: Arc::default() }
    }

    /// Sets what becomes of the next call, before any fault that appends have.
    pub fn fail_next(&self, fault: Option<InjectedFault>) {
        self.state().next = fault;
    }

    /// Sets what becomes of every append from now on.
    pub fn fail_appends(&self, fault: Option<InjectedFault>) {
        self.state().appends = fault;
        self.changed.notify_waiters();
    }

    /// Takes the effects since the last time, in order.
    pub fn take_effects(&self) -> Vec<JournalEffect> {
        std::mem::take(&mut self.state().effects)
    }

    fn state(&self) -> MutexGuard<'_, Faults> {
        self.state.lock()
    }

    fn through<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Journal) -> Pending<T>,
    ) -> Pending<T> {
        let fault = self.state().next.take();
        self.with(fault, call)
    }

    fn with<T: Send + 'static>(
        &self,
        fault: Option<InjectedFault>,
        call: impl FnOnce(&dyn Journal) -> Pending<T>,
    ) -> Pending<T> {
        match fault {
            None => call(&*self.inner),
            Some(InjectedFault::Unavailable) => {
                ready(Err(Error::unavailable("it was told to fail")))
            }
            Some(InjectedFault::LostRequest | InjectedFault::Stalled) => ready(Err(unanswered())),
            Some(InjectedFault::LostAnswer) => {
                let answer = call(&*self.inner);
                Box::pin(async move {
                    drop(answer.await);
                    Err(unanswered())
                })
            }
        }
    }

    /// The same answer, and the effect noted if there was one.
    fn noting<T: Send + 'static>(&self, effect: JournalEffect, answer: Pending<T>) -> Pending<T> {
        let journal = self.clone();
        Box::pin(async move {
            let answer = answer.await?;
            journal.state().effects.push(effect);
            Ok(answer)
        })
    }

    /// The fault of an append that waits for as long as appends are stalled.
    async fn fault_of_append(&self) -> Option<InjectedFault> {
        loop {
            let changed = self.changed.notified();
            let fault = self.state().appends;
            if fault != Some(InjectedFault::Stalled) {
                return fault;
            }
            changed.await;
        }
    }

    fn append_with(&self, fault: Option<InjectedFault>, batch: Batch) -> Pending<()> {
        self.with(fault, |inner| {
            self.noting(JournalEffect::Appended(batch.clone()), inner.append(batch))
        })
    }
}

fn unanswered() -> Error {
    Error::OutcomeUnknown { what: "no answer came".into(), cause: None }
}

impl Journal for FaultyJournal {
    fn caps(&self) -> JournalCaps {
        self.inner.caps()
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        self.through(|inner| inner.leader())
    }

    fn campaign(&self, candidate: Candidate, overdue: Option<Heartbeat>) -> Pending<Campaign> {
        self.through(|inner| inner.campaign(candidate, overdue))
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        self.through(|inner| inner.confirm(epoch))
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        self.through(|inner| inner.resign(epoch))
    }

    fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Pending<()> {
        self.through(|inner| inner.jump_epoch(epoch, to))
    }

    fn append(&self, batch: Batch) -> Pending<()> {
        let next = self.state().next.take();
        let fault = next.or(self.state().appends);
        if fault != Some(InjectedFault::Stalled) {
            return self.append_with(fault, batch);
        }
        let journal = self.clone();
        Box::pin(async move {
            let fault = journal.fault_of_append().await;
            journal.append_with(fault, batch).await
        })
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        self.through(|inner| {
            self.noting(JournalEffect::ReadBack { epoch, seq }, inner.read_back(epoch, seq))
        })
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.through(|inner| inner.put_chunk(chunk))
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        self.through(|inner| {
            let committed = inner.commit_snapshot(epoch, as_of, chunks);
            self.noting(JournalEffect::SnapshotCommitted { epoch, as_of }, committed)
        })
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        self.through(|inner| inner.prune(epoch))
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        self.through(|inner| inner.load(epoch, from))
    }
}
