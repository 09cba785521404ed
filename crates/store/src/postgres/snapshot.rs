//! Snapshots: written piece by piece beside the appends, then made the one that counts, then the rest is removed.
//!
//! Each snapshot that is begun gets the next number from the row of the group, and only the one begun last may be
//! committed. So a commit that arrives late, when a newer one was begun, does nothing; and the pieces of all older ones
//! but the one that counts can be removed at any time.

use leasehold_core::Epoch;

use super::connection::bytes_expression;
use super::{Inner, signed};
use crate::error::{Conflict, Error};
use crate::journal::{Pruned, Seq};
use crate::record::Chunk;

/// The most that one call of `prune` removes.
const PRUNED_RECORDS: i64 = 512;
const PRUNED_CHUNKS: i64 = 64;

/// A snapshot that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSnapshot {
    id: i64,
    epoch: Epoch,
    as_of: Seq,
    chunks: u32,
}

impl Inner {
    pub(super) async fn put_chunk(&self, chunk: &Chunk) -> Result<(), Error> {
        let (epoch, as_of, index) = (chunk.epoch(), chunk.as_of(), chunk.index());
        let open = self.known(|known| known.open);
        let conflict = Conflict::OutOfSnapshot { as_of, index };
        let open = match open {
            Some(open) if (open.epoch, open.as_of, open.chunks) == (epoch, as_of, index) => {
                Some(open)
            }
            Some(_) | None if index == 0 => None,
            Some(_) | None => return Err(self.refused(epoch, conflict).await),
        };
        let statement = match open {
            Some(open) => self.next_chunk(chunk, open.id),
            None => self.first_chunk(chunk),
        };
        let rows = self.others.write(&statement).await;
        let rows = match rows {
            Ok(rows) => rows,
            Err(failure) => {
                // It may be there or not. A snapshot that is begun anew has another number.
                self.known(|known| known.open = None);
                return Err(failure.unavailable("the snapshot cannot be written"));
            }
        };
        let id = rows.first().and_then(|row| row.get(0)).and_then(|text| text.parse().ok());
        let Some(id) = id else { return Err(self.refused(epoch, conflict).await) };
        let open = OpenSnapshot { id, epoch, as_of, chunks: index + 1 };
        self.known(|known| known.open = Some(open));
        Ok(())
    }

    fn first_chunk(&self, chunk: &Chunk) -> String {
        let as_of = signed(chunk.as_of().0);
        format!(
            "WITH begun AS (UPDATE {} SET snapshots_begun = snapshots_begun + 1
             WHERE group_id = {} AND leads AND epoch = {} AND last_seq >= {as_of}
             AND COALESCE(snapshot_as_of, 0) <= {as_of}
             RETURNING group_id, snapshots_begun)
             INSERT INTO {} (group_id, snapshot, chunk, record)
             SELECT group_id, snapshots_begun, 0, {} FROM begun RETURNING snapshot",
            self.tables.leadership,
            self.group,
            signed(chunk.epoch().0),
            self.tables.chunks,
            bytes_expression(chunk.bytes()),
        )
    }

    // Without a lock on the row, so that appends go on: a chunk of a snapshot that can no longer be committed is
    // removed some day, and does no harm until then.
    fn next_chunk(&self, chunk: &Chunk, id: i64) -> String {
        format!(
            "INSERT INTO {} (group_id, snapshot, chunk, record)
             SELECT group_id, {id}, {}, {} FROM {}
             WHERE group_id = {} AND leads AND epoch = {} AND snapshots_begun = {id}
             RETURNING snapshot",
            self.tables.chunks,
            chunk.index(),
            bytes_expression(chunk.bytes()),
            self.tables.leadership,
            self.group,
            signed(chunk.epoch().0),
        )
    }

    pub(super) async fn commit_snapshot(
        &self,
        epoch: Epoch,
        as_of: Seq,
        chunks: u32,
    ) -> Result<(), Error> {
        let task = "the snapshot cannot be committed";
        let conflict = Conflict::OutOfSnapshot { as_of, index: chunks };
        let open = self.known(|known| known.open);
        let open =
            open.filter(|open| (open.epoch, open.as_of, open.chunks) == (epoch, as_of, chunks));
        let Some(open) = open else {
            return self.committed_before(epoch, as_of, chunks).await;
        };
        let statement = format!(
            "UPDATE {leadership} SET snapshot = {id}, snapshot_as_of = {as_of},
             snapshot_chunks = {chunks}, snapshot_epoch = {epoch}
             WHERE group_id = {group} AND leads AND epoch = {epoch} AND snapshots_begun = {id}
             AND {chunks} = (SELECT count(*) FROM {table} WHERE group_id = {group} AND snapshot = {id})
             RETURNING snapshot",
            leadership = self.tables.leadership,
            table = self.tables.chunks,
            id = open.id,
            group = self.group,
            as_of = signed(as_of.0),
            epoch = signed(epoch.0),
        );
        let rows = self.others.write(&statement).await;
        if rows.map_err(|failure| failure.unavailable(task))?.is_empty() {
            return Err(self.refused(epoch, conflict).await);
        }
        self.known(|known| known.open = None);
        Ok(())
    }

    /// An earlier call may have done it although it failed.
    async fn committed_before(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Result<(), Error> {
        let leader_row = self.leader_row("the snapshot cannot be committed").await?;
        leader_row.check_leader(epoch)?;
        let is_it = leader_row.snapshot.is_some_and(|snapshot| {
            (snapshot.epoch, snapshot.as_of, snapshot.chunks) == (epoch, as_of, chunks)
        });
        if is_it {
            return Ok(());
        }
        Err(Conflict::OutOfSnapshot { as_of, index: chunks }.into())
    }

    // The record that the snapshot is as of stays: so a load can tell that nothing is missing after it.
    pub(super) async fn prune(&self, epoch: Epoch) -> Result<Pruned, Error> {
        let task = "what is superfluous cannot be removed";
        let statement = format!(
            "WITH leader AS (SELECT snapshot, snapshot_as_of, snapshots_begun FROM {leadership}
                 WHERE group_id = {group} AND leads AND epoch = {epoch}),
             records AS (DELETE FROM {journal} USING leader WHERE group_id = {group}
                 AND seq < LEAST(snapshot_as_of,
                     (SELECT min(seq) FROM {journal} WHERE group_id = {group}) + {PRUNED_RECORDS})
                 AND snapshot_as_of IS NOT NULL RETURNING seq),
             stale AS (SELECT c.snapshot, c.chunk FROM {table} c, leader WHERE c.group_id = {group}
                 AND c.snapshot < snapshots_begun AND c.snapshot IS DISTINCT FROM leader.snapshot
                 ORDER BY c.snapshot, c.chunk LIMIT {PRUNED_CHUNKS}),
             removed AS (DELETE FROM {table} WHERE group_id = {group}
                 AND (snapshot, chunk) IN (SELECT snapshot, chunk FROM stale) RETURNING chunk)
             SELECT (SELECT count(*) FROM leader), (SELECT count(*) FROM records),
                 (SELECT count(*) FROM removed)",
            leadership = self.tables.leadership,
            journal = self.tables.journal,
            table = self.tables.chunks,
            group = self.group,
            epoch = signed(epoch.0),
        );
        let rows = self.others.write(&statement).await;
        let rows = rows.map_err(|failure| failure.unavailable(task))?;
        let number = |at| {
            let text = rows.first().and_then(|row| row.get(at));
            text.and_then(|text: &str| text.parse::<i64>().ok()).unwrap_or(0)
        };
        if number(0) == 0 {
            self.leader_row(task).await?.check_leader(epoch)?;
            return Err(Error::unavailable(task));
        }
        if number(1) < PRUNED_RECORDS && number(2) < PRUNED_CHUNKS {
            return Ok(Pruned::Done);
        }
        Ok(Pruned::Partial)
    }
}
