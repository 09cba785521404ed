//! When a snapshot is due, and getting it to the store bit by bit while the service goes on.

use leasehold_core::{Epoch, LockTable, planted};
use leasehold_store::{Chunk, ChunkWriter, Pruned, Seq};

use crate::request::Request;

/// How many entries are taken from the table at a time: a short pause each.
const ENTRIES_AT_ONCE: usize = 256;

/// The life of one snapshot after another.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// How many bytes of records are due for a snapshot.
    bytes_max: u64,
    bytes_since: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Writing {
        as_of: Seq,
        index: u32,
    },
    /// All chunks are there.
    Committing {
        as_of: Seq,
        chunks: u32,
    },
    Pruning,
}

impl Snapshots {
    pub(crate) fn new(bytes_max: u64) -> Snapshots {
        Snapshots { bytes_max, bytes_since: 0, stage: Stage::Idle }
    }

    pub(crate) fn appended(&mut self, bytes: usize) {
        self.bytes_since += bytes as u64;
    }

    /// Begins a snapshot if one is due. Called when a record is sealed that brings the journal up to the table: the
    /// snapshot is as of that record.
    pub(crate) fn begin_if_due(&mut self, table: &mut LockTable, sealed: Seq) {
        if matches!(self.stage, Stage::Idle) && self.bytes_since >= self.bytes_max {
            self.bytes_since = 0;
            table.begin_snapshot();
            self.stage = Stage::Writing { as_of: sealed, index: 0 };
        }
    }

    /// What to ask of the store next, if anything. `durable` is the last record that is.
    pub(crate) fn next_request(
        &mut self,
        table: &mut LockTable,
        epoch: Epoch,
        durable: Seq,
    ) -> Option<Request> {
        match self.stage {
            Stage::Idle => None,
            // Nothing of a snapshot goes out before the record it is as of: that one may still fail.
            Stage::Writing { as_of, .. } | Stage::Committing { as_of, .. } if durable < as_of => {
                None
            }
            Stage::Writing { as_of, index } => {
                let chunk = next_chunk(table, epoch, as_of, index);
                self.stage = if table.is_snapshotting() {
                    Stage::Writing { as_of, index: index + 1 }
                } else {
                    Stage::Committing { as_of, chunks: index + 1 }
                };
                Some(Request::PutChunk(chunk))
            }
            Stage::Committing { as_of, chunks } => {
                Some(Request::CommitSnapshot { epoch, as_of, chunks })
            }
            Stage::Pruning => Some(Request::Prune(epoch)),
        }
    }

    /// The snapshot is the one that will be loaded: what lies before it can go.
    pub(crate) fn committed(&mut self) {
        self.stage = Stage::Pruning;
    }

    pub(crate) fn pruned(&mut self, pruned: Pruned) {
        self.stage = match pruned {
            Pruned::More => Stage::Pruning,
            Pruned::Done => Stage::Idle,
        };
    }

    /// The record that it may be as of was not written and will be written with more in it: then the snapshot is of a
    /// moment that the journal never knew, and begins anew with that record.
    pub(crate) fn unsealed(&mut self, seq: Seq) {
        let is_of_it = matches!(self.stage, Stage::Writing { as_of, .. } if as_of == seq);
        if is_of_it && !planted!("snapshot-of-a-record-never-written") {
            self.bytes_since = self.bytes_max;
            self.stage = Stage::Idle;
        }
    }

    /// Given up; the next one begins when it is due again.
    pub(crate) fn failed(&mut self) {
        self.bytes_since = self.bytes_max / 2;
        self.stage = Stage::Idle;
    }
}

fn next_chunk(table: &mut LockTable, epoch: Epoch, as_of: Seq, index: u32) -> Chunk {
    let mut writer = ChunkWriter::new(epoch, as_of, index);
    while !writer.is_full() && table.is_snapshotting() {
        for entry in table.snapshot_next(ENTRIES_AT_ONCE) {
            writer.push(&entry);
        }
    }
    writer.seal()
}
