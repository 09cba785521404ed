//! A journal that measures the one it wraps.

use std::sync::Arc;
use std::time::Instant;

use leasehold_core::Epoch;
use leasehold_store::{
    Batch, Beat, Campaign, Candidate, Chunk, Journal, Leader, Page, Pending, Position, Pruned, Seq,
    Traits,
};

use crate::metrics::Metrics;

/// Tells the metrics how long commits take and how much goes into one.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Journal for Metered {
    fn append(&self, batch: Batch) -> Pending<()> {
        #[expect(clippy::cast_precision_loss, reason = "a batch has far fewer than 2^52 changes")]
        let size = batch.transitions().count() as f64;
        let metrics = self.metrics.clone();
        let begun = Instant::now();
        let pending = self.journal.append(batch);
        Box::pin(async move {
            let result = pending.await;
            metrics.commit_seconds.observe(begun.elapsed().as_secs_f64());
            metrics.commit_batch_size.observe(size);
            result
        })
    }

    fn traits(&self) -> Traits {
        self.journal.traits()
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        self.journal.leader()
    }

    fn campaign(&self, candidate: Candidate, overdue: Option<Beat>) -> Pending<Campaign> {
        self.journal.campaign(candidate, overdue)
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        self.journal.confirm(epoch)
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        self.journal.resign(epoch)
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        self.journal.read_back(epoch, seq)
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.journal.put_chunk(chunk)
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        self.journal.commit_snapshot(epoch, as_of, chunks)
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        self.journal.prune(epoch)
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        self.journal.load(epoch, from)
    }
}
