//! When a snapshot is due, and getting it to the store bit by bit while the service goes on.

use leasehold_core::{Epoch, LockTable, Millis, Timestamp, planted};
use leasehold_store::{Chunk, ChunkWriter, Pruned, Seq};

use super::{LoadedBytes, Request};

/// A server that takes over has to load the records first, which takes about a second for 32 MiB. So in a store that
/// others share the next snapshot of a small table is due for few of them...
const RECORDS_MIN: u64 = 4 << 20;
const RECORDS_MAX: u64 = 32 << 20;
/// ...but not for less than so many times what the last one took.
const WORTH_ANEW: u64 = 4;
/// However small a record is, to load it takes as long as so many bytes of a large one.
const RECORD_MIN: u64 = 256;
/// To remove records costs as much for a few as for many snapshots, so it waits for so many times as much, if that is no more
/// than the most.
const PRUNE_EVERY: u64 = 8;
/// The number of entries that are taken from the table at a time: a short pause each.
const ENTRIES_AT_ONCE: usize = 256;
/// The age at which a change is due for a snapshot, so that readers of the store by other means find it there...
const AGE_MAX: Millis = Millis::from_secs(60);
/// ...but not before the records are worth it: this part of what the last snapshot took.
const WORTH: u64 = 8;
/// The pause after a snapshot that failed.
const RETRY_AFTER: Millis = Millis::from_secs(5);

/// The life of one snapshot after another.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// So many bytes of records are due for a snapshot, however large it is.
    bytes_max: u64,
    /// Others may have to load it at any time.
    is_shared: bool,
    /// Of records that neither the last snapshot nor the one that is being written has.
    bytes_since: u64,
    /// Of records that are in the store, as far as is known.
    bytes_kept: u64,
    /// Whether records go when the one that is being written is there.
    prunes: bool,
    /// When the last one began, or the first record without one came.
    since: Timestamp,
    /// The same two for the one that is being written: if nothing comes of it, they count again.
    begun_with: Option<(u64, Timestamp)>,
    /// The size of the last one, or of the one that is being written.
    size: u64,
    not_before: Timestamp,
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
    /// Those of a new leader, which has loaded a snapshot and records of this size. What others have left counts as if it
    /// had been written now: leaders that follow each other quickly would else never get to a snapshot.
    pub(crate) fn new(
        bytes_max: u64,
        is_shared: bool,
        now: Timestamp,
        loaded: LoadedBytes,
    ) -> Snapshots {
        let mut snapshots = Snapshots {
            bytes_max,
            is_shared,
            bytes_since: 0,
            bytes_kept: 0,
            prunes: true,
            since: now,
            begun_with: None,
            size: loaded.snapshot,
            not_before: now,
            stage: Stage::Idle,
        };
        if !planted!("journal-counted-anew") {
            snapshots.count(loaded.records, loaded.records_len);
        }
        snapshots
    }

    pub(crate) fn appended(&mut self, now: Timestamp, bytes: usize) {
        if self.bytes_since == 0 {
            self.since = self.since.max(now);
        }
        self.count(bytes as u64, 1);
    }

    /// So many bytes in so many records are in the store. Where others have to load them, none of them is small.
    fn count(&mut self, bytes: u64, len: u64) {
        let bytes = if self.is_shared { bytes.max(len * RECORD_MIN) } else { bytes };
        self.bytes_since += bytes;
        self.bytes_kept += bytes;
    }

    /// When a snapshot is due although nothing more is written.
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        let age_max = match self.bytes_since {
            0 => None,
            bytes if bytes >= self.bytes_due() => Some(Millis::ZERO),
            bytes => (bytes >= self.size / WORTH).then_some(AGE_MAX),
        };
        let is_idle = matches!(self.stage, Stage::Idle);
        age_max.filter(|_| is_idle).map(|age| self.since.plus(age).max(self.not_before))
    }

    /// The bytes of records at which a snapshot is due. A large table is not written over and over, and the records of a
    /// small one are loaded quickly.
    fn bytes_due(&self) -> u64 {
        if !self.is_shared {
            return self.bytes_max;
        }
        let few = (self.size * WORTH_ANEW).clamp(RECORDS_MIN, RECORDS_MAX);
        self.size.max(few).min(self.bytes_max)
    }

    /// Whether so much has gathered that some of it should go. In quiet times it costs nobody anything.
    fn has_to_prune(&self) -> bool {
        let due = self.bytes_due();
        let is_quiet = self.bytes_since < due;
        is_quiet || !self.is_shared || self.bytes_kept >= (due * PRUNE_EVERY).min(RECORDS_MAX)
    }

    /// Begins a snapshot if one is due. Called when the journal is up to the table with this record, which may still be
    /// on its way: the snapshot is as of it.
    pub(crate) fn begin_if_due(&mut self, now: Timestamp, table: &mut LockTable, record: Seq) {
        if self.due_at().is_some_and(|at| at <= now) {
            self.prunes = self.has_to_prune();
            self.begun_with = Some((self.bytes_since, self.since));
            (self.bytes_since, self.since, self.size) = (0, now, 0);
            table.begin_snapshot();
            self.stage = Stage::Writing { as_of: record, index: 0 };
        }
    }

    /// The next request to the store, if any. `durable` is the last record that is.
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
                self.size += chunk.bytes().len() as u64;
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
        self.begun_with = None;
        self.stage = if self.prunes { Stage::Pruning } else { Stage::Idle };
    }

    pub(crate) fn pruned(&mut self, pruned: Pruned) {
        match pruned {
            Pruned::Partial => {}
            Pruned::Done => (self.stage, self.bytes_kept) = (Stage::Idle, self.bytes_since),
        }
    }

    /// The record that it may be as of was not written and will be written with more in it: then the snapshot is of a
    /// moment that the journal never knew, and begins anew with that record.
    pub(crate) fn unsealed(&mut self, seq: Seq) {
        let is_of_it = matches!(self.stage, Stage::Writing { as_of, .. } if as_of == seq);
        if is_of_it && !planted!("snapshot-of-a-record-never-written") {
            self.count_again();
        }
    }

    /// Given up; the next one begins a while later.
    pub(crate) fn failed(&mut self, now: Timestamp) {
        self.not_before = now.plus(RETRY_AFTER);
        self.count_again();
    }

    fn count_again(&mut self) {
        if let Some((bytes, since)) = self.begun_with.take() {
            (self.bytes_since, self.since) = (self.bytes_since + bytes, since);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1000);

    /// Whether a leader that found a snapshot and records of this size takes the next one at once.
    fn is_due(bytes_max: u64, is_shared: bool, snapshot: u64, records: u64) -> bool {
        let loaded = LoadedBytes { snapshot, records, records_len: 1 };
        Snapshots::new(bytes_max, is_shared, NOW, loaded).due_at() == Some(NOW)
    }

    const fn mib(count: u64) -> u64 {
        count << 20
    }

    #[test]
    fn records_are_due_when_they_are_as_much_as_the_last_snapshot() {
        let is_due = |snapshot, records| is_due(mib(64), true, snapshot, records);
        assert!(!is_due(0, mib(4) - 1), "so few are loaded quickly");
        assert!(is_due(0, mib(4)));
        assert!(is_due(mib(1), mib(4)));
        assert!(!is_due(mib(2), mib(8) - 1), "it should be worth it");
        assert!(is_due(mib(2), mib(8)));
        assert!(is_due(mib(30), mib(32)));
        assert!(!is_due(mib(40), mib(40) - 1), "a large table is not written again and again");
        assert!(is_due(mib(40), mib(40)));
        assert!(is_due(mib(400), mib(64)), "more than that is never left");
    }

    #[test]
    fn nobody_takes_over_from_a_server_with_a_store_of_its_own() {
        assert!(!is_due(mib(64), false, 0, mib(64) - 1));
        assert!(is_due(mib(64), false, 0, mib(64)));
    }

    #[test]
    fn small_records_count_for_what_it_takes_to_load_them() {
        let is_due = |is_shared: bool, found: u64, written: u64| {
            let loaded = LoadedBytes { snapshot: 0, records: found * 80, records_len: found };
            let mut snapshots = Snapshots::new(mib(64), is_shared, NOW, loaded);
            (0..written).for_each(|_| snapshots.appended(NOW, 80));
            snapshots.due_at() == Some(NOW)
        };
        let half = mib(4) / RECORD_MIN / 2;
        assert!(!is_due(true, half, half - 1));
        assert!(is_due(true, half, half));
        assert!(!is_due(false, half, half), "nobody takes over from this one");
    }

    /// The number of ten snapshots of a small table under load that are followed by a pruning.
    fn prunings_of_ten(bytes_max: u64, is_shared: bool) -> usize {
        let loaded = LoadedBytes::default();
        let mut snapshots = Snapshots::new(bytes_max, is_shared, NOW, loaded);
        let mut prunings = 0;
        for _ in 0..10 {
            let due = snapshots.bytes_due();
            snapshots.appended(NOW, usize::try_from(due).expect("it is small"));
            snapshots.begin_if_due(NOW, &mut table(), Seq(1));
            snapshots.committed();
            if matches!(snapshots.stage, Stage::Pruning) {
                prunings += 1;
                snapshots.pruned(Pruned::Partial);
                snapshots.pruned(Pruned::Done);
            }
            assert!(matches!(snapshots.stage, Stage::Idle));
        }
        prunings
    }

    fn table() -> LockTable {
        LockTable::new(leasehold_core::Limits::default(), 1)
    }

    #[test]
    fn records_go_less_often_than_snapshots_come() {
        assert_eq!(prunings_of_ten(mib(64), true), 1);
        assert_eq!(prunings_of_ten(2000, true), 1);
        assert_eq!(prunings_of_ten(mib(64), false), 10);
    }

    #[test]
    fn records_go_in_quiet_times() {
        let loaded = LoadedBytes { snapshot: 0, records: 1000, records_len: 1 };
        let mut snapshots = Snapshots::new(mib(64), true, NOW, loaded);
        snapshots.begin_if_due(NOW.plus(AGE_MAX), &mut table(), Seq(1));
        snapshots.committed();
        assert!(matches!(snapshots.stage, Stage::Pruning));
    }

    #[test]
    fn fewer_records_can_be_wished_for() {
        assert!(!is_due(2000, true, 0, 1999));
        assert!(is_due(2000, true, 0, 2000));
    }
}
