//! Everything back, a page at a time.

use std::sync::Arc;

use leasehold_core::Epoch;
use rusqlite::{Connection, Params, params};

use super::snapshot::{Complete, complete};
use super::writer::{Writer, signed, unsigned};
use crate::error::{Conflict, Error};
use crate::journal::{Loaded, Page, Position, Seq};
use crate::stored::{PAGE_BYTES, PageWriter, stored_batch, stored_chunk};

/// A row as it was read: its number and its bytes.
type Stored = (i64, Arc<[u8]>);

/// A page as it was read, before the bytes are checked.
struct Rows {
    rows: Vec<Stored>,
    /// There are no more after these.
    is_last: bool,
}

impl Writer {
    pub(super) fn load(&mut self, epoch: Epoch, from: Position) -> Result<Page, Error> {
        const WHAT: &str = "the journal cannot be read";
        match from {
            Position::Start => match self.read(epoch, WHAT, complete)? {
                Some(snapshot) => self.load_chunks(epoch, snapshot, 0),
                None => self.load_records(epoch, Seq(0)),
            },
            Position::Chunk { as_of, index } => match self.read(epoch, WHAT, complete)? {
                Some(snapshot) if snapshot.as_of == as_of => {
                    self.load_chunks(epoch, snapshot, index)
                }
                Some(_) | None => Err(Conflict::OutOfSnapshot { as_of, index }.into()),
            },
            Position::After(seq) => self.load_records(epoch, seq),
        }
    }

    fn load_chunks(&mut self, epoch: Epoch, snapshot: Complete, from: u32) -> Result<Page, Error> {
        let what = "the snapshot cannot be read";
        let rows = self.read(epoch, what, |connection| {
            read_rows(
                connection,
                "SELECT chunk, record FROM chunks WHERE snapshot = ?1 AND chunk >= ?2 ORDER BY chunk",
                params![snapshot.id, from],
            )
        })?;
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

    fn load_records(&mut self, epoch: Epoch, after: Seq) -> Result<Page, Error> {
        let what = "the journal cannot be read";
        // From the record before, which is always kept: if it is not there, others may be missing too.
        let mut rows = self.read(epoch, what, |connection| {
            read_rows(
                connection,
                "SELECT seq, record FROM journal WHERE seq >= ?1 ORDER BY seq",
                params![signed(after.0)],
            )
        })?;
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
        Ok(if rows.is_last { page.end() } else { page.until(Position::After(last)) })
    }
}

/// Reads until it is a page full.
fn read_rows(connection: &Connection, query: &str, params: impl Params) -> rusqlite::Result<Rows> {
    let mut statement = connection.prepare_cached(query)?;
    let mut found = statement.query(params)?;
    let mut rows: Vec<Stored> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = found.next()? {
        if bytes >= PAGE_BYTES {
            return Ok(Rows { rows, is_last: false });
        }
        let record = row.get_ref(1)?.as_blob()?;
        bytes += record.len();
        rows.push((row.get(0)?, record.into()));
    }
    Ok(Rows { rows, is_last: true })
}

fn missing_record(seq: Seq) -> Error {
    Error::corrupt(format!("journal record {seq} is missing"))
}

fn missing_chunk(as_of: Seq, index: u32) -> Error {
    Error::corrupt(format!("chunk {index} of the snapshot as of record {as_of} is missing"))
}
