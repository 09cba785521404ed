//! Everything back, a page at a time.

use std::sync::Arc;

use leasehold_core::Epoch;

use super::leadership::Complete;
use super::{Inner, signed, unsigned};
use crate::error::{Conflict, Error};
use crate::journal::{Loaded, Page, Position, Seq};
use crate::stored::{PAGE_BYTES, PageWriter, stored_batch, stored_chunk};

const TASK: &str = "the journal cannot be read";

/// So many rows are looked at for one page at most. They have numbers without a gap.
const PAGE_ROWS: usize = 2048;

/// A row as it was read: its number and its bytes.
type Stored = (i64, Arc<[u8]>);

impl Inner {
    pub(super) async fn load(&self, epoch: Epoch, from: Position) -> Result<Page, Error> {
        let leader_row = self.leader_row(TASK).await?;
        leader_row.check_leader(epoch)?;
        match (from, leader_row.snapshot) {
            (Position::Start, Some(snapshot)) => self.load_chunks(snapshot, 0).await,
            (Position::Start, None) => self.load_records(Seq(0), leader_row.last).await,
            (Position::Chunk { as_of, index }, Some(snapshot)) if snapshot.as_of == as_of => {
                self.load_chunks(snapshot, index).await
            }
            (Position::Chunk { as_of, index }, Some(_) | None) => {
                Err(Conflict::OutOfSnapshot { as_of, index }.into())
            }
            (Position::After(seq), _) => self.load_records(seq, leader_row.last).await,
        }
    }

    async fn load_chunks(&self, snapshot: Complete, from: u32) -> Result<Page, Error> {
        let chunks = ["chunk", &self.tables.chunks, "group_id = $1 AND snapshot = $2", "$3"];
        let values = [self.group.into(), snapshot.id, from.into()];
        let rows = self.read_rows(chunks, &values).await?;
        let as_of = snapshot.as_of;
        let mut page = PageWriter::default();
        let mut index = from;
        for (found, bytes) in rows {
            if found != i64::from(index) {
                return Err(missing_chunk(as_of, index));
            }
            let len = bytes.len();
            page.push(Loaded::Chunk(stored_chunk(as_of, index, bytes)?), len);
            index += 1;
        }
        if index == from {
            return Err(missing_chunk(as_of, index));
        }
        Ok(page.until(match index < snapshot.chunks {
            true => Position::Chunk { as_of, index },
            false => Position::After(as_of),
        }))
    }

    async fn load_records(&self, after: Seq, end: Seq) -> Result<Page, Error> {
        // From the record before, which is always kept: if it is not there, others may be missing too.
        let records = ["seq", &self.tables.journal, "group_id = $1", "$2"];
        let values = [self.group.into(), signed(after.0)];
        let mut rows = self.read_rows(records, &values).await?;
        if after != Seq(0) {
            match rows.first() {
                Some((first, _)) if *first == signed(after.0) => drop(rows.remove(0)),
                Some(_) | None => return Err(missing_record(after)),
            }
        }
        let mut page = PageWriter::default();
        let mut last = after;
        for (found, bytes) in rows {
            let seq = last.next();
            if Seq(unsigned(found)) != seq {
                return Err(missing_record(seq));
            }
            let len = bytes.len();
            // After the end there can only be one that was found torn, until another has taken its place.
            page.push(stored_batch(seq, bytes, seq >= end)?, len);
            last = seq;
        }
        match last < end {
            true if last == after => Err(missing_record(last.next())),
            true => Ok(page.until(Position::After(last))),
            false => Ok(page.end()),
        }
    }

    /// Reads until it is a page full: the first row of all, and those before which there is not a page yet. How far that
    /// is comes from the lengths alone, which `OFFSET 0` has taken before anything is sorted, and from numbers on both sides: a
    /// planner that knows nothing of a young table would sort all of it, records and all.
    async fn read_rows(
        &self,
        [key, table, of, from]: [&str; 4],
        values: &[i64],
    ) -> Result<Vec<Stored>, Error> {
        let query = format!(
            "WITH page AS (
                 SELECT max({key}) AS last FROM (
                     SELECT {key}, sum(length) OVER (ORDER BY {key}) - length AS before FROM (
                         SELECT {key}, octet_length(record) AS length FROM {table}
                         WHERE {of} AND {key} >= {from} AND {key} < {from} + {PAGE_ROWS} OFFSET 0
                     ) AS lengths
                 ) AS counted WHERE before < {PAGE_BYTES}
             )
             SELECT {key}::bigint, record FROM page, {table}
             WHERE {of} AND {key} >= {from} AND {key} <= last ORDER BY {key}"
        );
        let found = self.others.read(&query, values).await;
        let found = found.map_err(|failure| failure.unavailable(TASK))?;
        let rows = found.iter().map(|row| (row.get(0), row.get::<_, &[u8]>(1).into()));
        Ok(rows.collect())
    }
}

fn missing_record(seq: Seq) -> Error {
    Error::corrupt(format!("journal record {seq} is missing"))
}

fn missing_chunk(as_of: Seq, index: u32) -> Error {
    Error::corrupt(format!("chunk {index} of the snapshot as of record {as_of} is missing"))
}
