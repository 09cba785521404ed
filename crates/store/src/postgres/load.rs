//! Everything back, a page at a time.

use std::sync::Arc;

use leasehold_core::Epoch;

use super::leadership::Complete;
use super::{Inner, signed, unsigned};
use crate::error::{Conflict, Error};
use crate::journal::{Loaded, Page, Position, Seq};
use crate::stored::{PAGE_BYTES, PageWriter, stored_batch, stored_chunk};

const TASK: &str = "the journal cannot be read";

/// So many rows are looked at for one page at most.
const PAGE_ROWS: usize = 4096;

/// What was read of a page before anybody has looked at the bytes.
struct Rows {
    rows: Vec<(i64, Arc<[u8]>)>,
    /// There are no more after these.
    is_last: bool,
}

impl Inner {
    pub(super) async fn load(&self, epoch: Epoch, from: Position) -> Result<Page, Error> {
        let standing = self.standing(TASK).await?;
        standing.check_leader(epoch)?;
        match (from, standing.snapshot) {
            (Position::Start, Some(snapshot)) => self.load_chunks(snapshot, 0).await,
            (Position::Start, None) => self.load_records(Seq(0), standing.last).await,
            (Position::Chunk { as_of, index }, Some(snapshot)) if snapshot.as_of == as_of => {
                self.load_chunks(snapshot, index).await
            }
            (Position::Chunk { as_of, index }, Some(_) | None) => {
                Err(Conflict::OutOfSnapshot { as_of, index }.into())
            }
            (Position::After(seq), _) => self.load_records(seq, standing.last).await,
        }
    }

    async fn load_chunks(&self, snapshot: Complete, from: u32) -> Result<Page, Error> {
        let source = format!("{} WHERE group_id = $1 AND snapshot = $2", self.tables.chunks);
        let values = [self.group.into(), snapshot.id, from.into()];
        let rows = self.read_rows("chunk", &source, "$3", &values).await?;
        let as_of = snapshot.as_of;
        let mut page = PageWriter::default();
        let mut index = from;
        for (found, bytes) in rows.rows {
            if found != i64::from(index) {
                return Err(missing_chunk(as_of, index));
            }
            let len = bytes.len();
            page.push(Loaded::Chunk(stored_chunk(as_of, index, bytes)?), len);
            index += 1;
        }
        if !rows.is_last {
            return Ok(page.until(Position::Chunk { as_of, index }));
        }
        if index != snapshot.chunks {
            return Err(missing_chunk(as_of, index));
        }
        Ok(page.until(Position::After(as_of)))
    }

    async fn load_records(&self, after: Seq, end: Seq) -> Result<Page, Error> {
        // From the record before, which is always kept: if it is not there, others may be missing too.
        let source = format!("{} WHERE group_id = $1", self.tables.journal);
        let values = [self.group.into(), signed(after.0)];
        let mut rows = self.read_rows("seq", &source, "$2", &values).await?;
        if after != Seq(0) {
            match rows.rows.first() {
                Some((first, _)) if *first == signed(after.0) => drop(rows.rows.remove(0)),
                Some(_) | None => return Err(missing_record(after)),
            }
        }
        let count = rows.rows.len();
        let mut page = PageWriter::default();
        let mut last = after;
        for (at, (found, bytes)) in rows.rows.into_iter().enumerate() {
            let seq = last.next();
            if Seq(unsigned(found)) != seq {
                return Err(missing_record(seq));
            }
            let len = bytes.len();
            let is_last = rows.is_last && at + 1 == count;
            page.push(stored_batch(seq, bytes, is_last)?, len);
            last = seq;
        }
        if !rows.is_last {
            return Ok(page.until(Position::After(last)));
        }
        if last < end {
            return Err(missing_record(last.next()));
        }
        Ok(page.end())
    }

    /// Reads until it is a page full: the first row of all, and those before which there is not a page yet.
    async fn read_rows(
        &self,
        key: &str,
        source: &str,
        from: &str,
        values: &[i64],
    ) -> Result<Rows, Error> {
        let query = format!(
            "SELECT {key}::bigint, record, looked_at FROM (
                 SELECT {key}, record, count(*) OVER () AS looked_at,
                     sum(octet_length(record)) OVER (ORDER BY {key}) - octet_length(record) AS before
                 FROM (SELECT {key}, record FROM {source} AND {key} >= {from}
                     ORDER BY {key} LIMIT {PAGE_ROWS}) AS looked
             ) AS counted WHERE before < {PAGE_BYTES} ORDER BY {key}"
        );
        let found = self.others.read(&query, values).await;
        let found = found.map_err(|failure| failure.unavailable(TASK))?;
        let looked_at = found.first().map_or(0, |row| row.get::<_, i64>(2));
        let is_last = signed(found.len() as u64) == looked_at && found.len() < PAGE_ROWS;
        let rows = found.iter().map(|row| (row.get(0), row.get::<_, &[u8]>(1).into()));
        Ok(Rows { rows: rows.collect(), is_last })
    }
}

fn missing_record(seq: Seq) -> Error {
    Error::corrupt(format!("journal record {seq} is missing"))
}

fn missing_chunk(as_of: Seq, index: u32) -> Error {
    Error::corrupt(format!("chunk {index} of the snapshot as of record {as_of} is missing"))
}
