//! Snapshots: written piece by piece between the appends, then made the one that counts, then the rest is removed.

use leasehold_core::{Entry, Epoch};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::locks_table::{LockRows, insert_lock_rows};
use super::writer::{Writer, last_seq, signed, unsigned, wall_clock_ms};
use crate::error::{Conflict, Error};
use crate::journal::{Pruned, Seq};
use crate::record::Chunk;

/// The most that one call of `prune` removes: a few milliseconds of work.
const PRUNED_RECORDS: i64 = 512;
const PRUNED_CHUNKS: i64 = 16;
const PRUNED_LOCK_ROWS: i64 = 2000;
const PRUNED_PAGES: i64 = 128;
/// Free pages are given back only when they are more than that, and more than a quarter of the file.
const FREE_PAGES_KEPT: i64 = 500;

/// A snapshot that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSnapshot {
    id: i64,
    epoch: Epoch,
    as_of: Seq,
    chunks: u32,
    revision: u64,
    locks: LockRows,
}

/// The snapshot that a load begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complete {
    pub(super) id: i64,
    pub(super) as_of: Seq,
    pub(super) chunks: u32,
    pub(super) epoch: Epoch,
}

pub(super) fn complete(connection: &Connection) -> rusqlite::Result<Option<Complete>> {
    connection
        .prepare_cached(
            "SELECT id, as_of, chunks, epoch FROM snapshots WHERE complete ORDER BY id DESC LIMIT 1",
        )?
        .query_row([], |row| {
            Ok(Complete {
                id: row.get(0)?,
                as_of: Seq(unsigned(row.get(1)?)),
                chunks: row.get(2)?,
                epoch: Epoch(unsigned(row.get(3)?)),
            })
        })
        .optional()
}

impl Writer {
    pub(super) fn put_chunk(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let (epoch, as_of, index) = (chunk.epoch(), chunk.as_of(), chunk.index());
        let entries: Vec<Entry> = chunk
            .entries()
            .collect::<Result<_, _>>()
            .map_err(|fault| Error::corrupt(format!("a chunk to be written: {fault}")))?;
        let rows_max = self.options.locks_rows_max;
        let open = match self.open_snapshot {
            Some(open) if (open.epoch, open.as_of, open.chunks) == (epoch, as_of, index) => {
                Some(open)
            }
            Some(_) | None => None,
        };
        let put = self.transaction(epoch, "the snapshot cannot be written", |transaction| {
            let mut open = match open {
                Some(open) => open,
                None if index == 0 && may_begin(transaction, as_of)? => {
                    begin(transaction, epoch, as_of)?
                }
                None => return Ok(None),
            };
            insert_chunk(transaction, &mut open, chunk)?;
            open.revision = revision(&entries).unwrap_or(open.revision);
            open.locks = insert_lock_rows(transaction, open.id, open.locks, &entries, rows_max)?;
            Ok(Some(open))
        })?;
        match put {
            Some(open) => self.open_snapshot = Some(open),
            None => return Err(Conflict::OutOfSnapshot { as_of, index }.into()),
        }
        Ok(())
    }

    pub(super) fn commit_snapshot(
        &mut self,
        epoch: Epoch,
        as_of: Seq,
        chunks: u32,
    ) -> Result<(), Error> {
        let open = self
            .open_snapshot
            .filter(|open| (open.epoch, open.as_of, open.chunks) == (epoch, as_of, chunks));
        let what = "the snapshot cannot be committed";
        let committed = self.transaction(epoch, what, |transaction| match open {
            Some(open) => finish(transaction, &open).map(|()| true),
            // An earlier call may have done it although it failed.
            None => Ok(complete(transaction)?.is_some_and(|snapshot| {
                (snapshot.epoch, snapshot.as_of, snapshot.chunks) == (epoch, as_of, chunks)
            })),
        })?;
        if !committed {
            let index = chunks;
            return Err(Conflict::OutOfSnapshot { as_of, index }.into());
        }
        if open.is_some() {
            self.open_snapshot = None;
        }
        Ok(())
    }

    pub(super) fn prune(&mut self, epoch: Epoch) -> Result<Pruned, Error> {
        let open = self.open_snapshot.map_or(0, |open| open.id);
        let what = "what is superfluous cannot be removed";
        let removed = self.transaction(epoch, what, |transaction| {
            let (id, as_of) = match complete(transaction)? {
                Some(snapshot) => (snapshot.id, snapshot.as_of),
                None => (0, Seq(0)),
            };
            let records = prune_records(transaction, as_of)?;
            let snapshots = prune_snapshots(transaction, id, open)?;
            Ok(both(records, snapshots))
        })?;
        let vacuumed = vacuum(self.connection()?);
        let vacuumed =
            vacuumed.map_err(|error| self.failed("free space cannot be given back", error))?;
        Ok(both(removed, vacuumed))
    }
}

/// Not of records to come, and not behind the snapshot that counts: the records from there on may be gone.
fn may_begin(transaction: &Transaction<'_>, as_of: Seq) -> rusqlite::Result<bool> {
    let goes_back = complete(transaction)?.is_some_and(|last| as_of < last.as_of);
    Ok(!goes_back && as_of <= last_seq(transaction)?)
}

fn begin(
    transaction: &Transaction<'_>,
    epoch: Epoch,
    as_of: Seq,
) -> rusqlite::Result<OpenSnapshot> {
    transaction.execute(
        "INSERT INTO snapshots (as_of, epoch, complete, chunks, revision, lock_rows, locks_left_out, taken_at_ms)
         VALUES (?1, ?2, 0, 0, 0, 0, 0, ?3)",
        params![signed(as_of.0), signed(epoch.0), wall_clock_ms()],
    )?;
    Ok(OpenSnapshot {
        id: transaction.last_insert_rowid(),
        epoch,
        as_of,
        chunks: 0,
        revision: 0,
        locks: LockRows::default(),
    })
}

fn insert_chunk(
    transaction: &Transaction<'_>,
    open: &mut OpenSnapshot,
    chunk: &Chunk,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO chunks (snapshot, chunk, record) VALUES (?1, ?2, ?3)")?
        .execute(params![open.id, chunk.index(), chunk.bytes()])?;
    open.chunks += 1;
    Ok(())
}

/// Snapshot and table of locks come into force in the same moment.
fn finish(transaction: &Transaction<'_>, open: &OpenSnapshot) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE snapshots SET complete = 1, chunks = ?2, revision = ?3, lock_rows = ?4, locks_left_out = ?5
         WHERE id = ?1",
        params![
            open.id,
            open.chunks,
            signed(open.revision),
            open.locks.written,
            open.locks.left_out
        ],
    )?;
    transaction.execute("UPDATE leadership SET written_at_ms = ?1", [wall_clock_ms()])?;
    Ok(())
}

fn revision(entries: &[Entry]) -> Option<u64> {
    entries.iter().find_map(|entry| match entry {
        Entry::Counters { revision, .. } => Some(revision.0),
        Entry::Lease(_) | Entry::Register { .. } => None,
    })
}

fn both(one: Pruned, other: Pruned) -> Pruned {
    match (one, other) {
        (Pruned::Done, Pruned::Done) => Pruned::Done,
        (Pruned::Partial, _) | (_, Pruned::Partial) => Pruned::Partial,
    }
}

/// Done when fewer were removed than could have been.
fn pruned(removed: usize, limit: i64) -> Pruned {
    if i64::try_from(removed).is_ok_and(|removed| removed < limit) {
        Pruned::Done
    } else {
        Pruned::Partial
    }
}

// The record that the snapshot is as of stays: so the next number is always that of the last record plus one.
fn prune_records(transaction: &Transaction<'_>, as_of: Seq) -> rusqlite::Result<Pruned> {
    let removed = transaction
        .prepare_cached(
            "DELETE FROM journal WHERE seq < min(?1, (SELECT min(seq) FROM journal) + ?2)",
        )?
        .execute([signed(as_of.0), PRUNED_RECORDS])?;
    Ok(pruned(removed, PRUNED_RECORDS))
}

/// Some of the oldest snapshot that is neither the complete nor the open one.
fn prune_snapshots(
    transaction: &Transaction<'_>,
    complete: i64,
    open: i64,
) -> rusqlite::Result<Pruned> {
    let stale = transaction
        .prepare_cached("SELECT min(id) FROM snapshots WHERE id NOT IN (?1, ?2)")?
        .query_row([complete, open], |row| row.get::<_, Option<i64>>(0))?;
    let Some(stale) = stale else {
        return Ok(Pruned::Done);
    };
    let chunks = transaction
        .prepare_cached(
            "DELETE FROM chunks WHERE snapshot = ?1
             AND chunk < (SELECT min(chunk) FROM chunks WHERE snapshot = ?1) + ?2",
        )?
        .execute([stale, PRUNED_CHUNKS])?;
    let rows = transaction
        .prepare_cached(
            "DELETE FROM lock_rows WHERE snapshot = ?1
             AND number < (SELECT min(number) FROM lock_rows WHERE snapshot = ?1) + ?2",
        )?
        .execute([stale, PRUNED_LOCK_ROWS])?;
    if both(pruned(chunks, PRUNED_CHUNKS), pruned(rows, PRUNED_LOCK_ROWS)) == Pruned::Done {
        transaction.execute("DELETE FROM snapshots WHERE id = ?1", [stale])?;
    }
    // There may be other stale ones.
    Ok(Pruned::Partial)
}

/// Gives back some of the free pages, if there are so many that the file will hardly need them again.
fn vacuum(connection: &Connection) -> rusqlite::Result<Pruned> {
    let number =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let free = number("freelist_count")?;
    if free <= FREE_PAGES_KEPT || free <= number("page_count")? / 4 {
        return Ok(Pruned::Done);
    }
    connection.execute_batch(&format!("PRAGMA incremental_vacuum({PRUNED_PAGES})"))?;
    Ok(Pruned::Partial)
}
