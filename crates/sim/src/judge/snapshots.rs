//! Every snapshot, compared with what the records before it come to.

use std::collections::VecDeque;

use leasehold_core::{Limits, LockTable};
use leasehold_store::{Batch, Loaded, Seq};

use super::{Judge, Verdict};
use crate::time::Moment;

/// What lies behind the last snapshot, as a leader that loads everything would find it.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// The table as of the last snapshot, made from records alone.
    table: LockTable,
    records: VecDeque<Batch>,
    bytes: usize,
}

impl Snapshots {
    pub(super) fn new(limits: Limits) -> Snapshots {
        Snapshots { table: LockTable::new(limits, 1), records: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn written(&mut self, batch: &Batch) {
        self.bytes += batch.bytes().len();
        self.records.push_back(batch.clone());
    }

    pub(super) fn forget(&mut self) {
        *self = Snapshots::new(self.table.limits().clone());
    }

    /// Bytes of records that the last snapshot does not have.
    pub(super) fn bytes_behind(&self) -> usize {
        self.bytes
    }
}

impl Judge {
    /// A snapshot is the one that will be loaded from now on.
    pub fn snapshotted(
        &mut self,
        now: Moment,
        as_of: Seq,
        items: &[Loaded],
    ) -> Result<(), Verdict> {
        const PROMISE: &str = "a snapshot is what the records before it come to";
        let verdict = |seen: String| Verdict::new(now, PROMISE, seen);
        let Snapshots { table, records, bytes } = &mut self.snapshots;
        while let Some(batch) = records.pop_front_if(|batch| batch.seq() <= as_of) {
            *bytes -= batch.bytes().len();
            for transition in batch.transitions().flatten() {
                table.apply(&transition).map_err(|unfit| verdict(unfit.to_string()))?;
            }
        }
        let mut loaded = LockTable::new(table.limits().clone(), 1);
        for item in items {
            let Loaded::Chunk(chunk) = item else { continue };
            for entry in chunk.entries() {
                let entry = entry.map_err(|fault| verdict(fault.to_string()))?;
                loaded.add_entry(entry).map_err(|unfit| verdict(unfit.to_string()))?;
            }
        }
        if loaded.digest() != table.digest() {
            return Err(verdict(format!("as of record {as_of}")));
        }
        Ok(())
    }
}
