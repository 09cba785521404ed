//! The one thing that has to be fast, and certain.
//!
//! # Why a late append does no harm
//!
//! An append whose answer was lost may still be on its way: in a socket, in a pooler, or waiting for the row. The row
//! of the group has an attempt number, and an append takes effect only under the number it was made with. `read_back`
//! raises it, which settles the matter for good. Either the append came first: then `read_back` waited for it, since
//! both change the same row, and sees that the last record is the one asked for. Or it comes later: then it finds
//! another attempt, and nothing to move.
//!
//! `read_back` is a commit like any other. When it is durable, so is everything that was committed before.

use std::sync::atomic::Ordering;

use leasehold_core::Epoch;

use super::connection::{Failure, bytes_expression};
use super::{Inner, Known, signed, unsigned};
use crate::error::{Conflict, Error};
use crate::journal::{Loaded, Seq};
use crate::record::Batch;
use crate::stored::stored_batch;

impl Inner {
    pub(super) async fn append(
        &self,
        batch: Batch,
        attempt: i64,
        known: Known,
    ) -> Result<(), Error> {
        if batch.bytes().len() > super::RECORD_BYTES_MAX {
            return Err(Error::unavailable("the record is too large"));
        }
        let statement = match known.torn {
            Some(torn) if torn == batch.seq() => self.replacement(&batch, attempt),
            Some(_) | None => self.addition(&batch, attempt),
        };
        if !self.written(&statement).await.map_err(|failure| failure.of_append())? {
            return Err(self.not_appended(&batch, attempt).await);
        }
        self.known(|known| known.torn = None);
        Ok(())
    }

    /// Whether a statement did anything.
    async fn written(&self, statement: &str) -> Result<bool, Failure> {
        Ok(!self.appends.write(statement).await?.is_empty())
    }

    fn addition(&self, batch: &Batch, attempt: i64) -> String {
        format!(
            "SELECT 1 WHERE {}({}, {}, {attempt}, {}, {}, {})",
            self.tables.append,
            self.group,
            signed(batch.epoch().0),
            signed(batch.seq().0),
            bytes_expression(batch.bytes()),
            self.wait_ms,
        )
    }

    /// The same in the place of a record whose bytes do not hold: once, after a crash.
    fn replacement(&self, batch: &Batch, attempt: i64) -> String {
        format!(
            "WITH moved AS (UPDATE {} SET last_seq = {seq} WHERE group_id = {} AND leads
             AND epoch = {epoch} AND attempt = {attempt} AND last_seq + 1 = {seq} RETURNING group_id)
             INSERT INTO {} (group_id, seq, epoch, record)
             SELECT group_id, {seq}, {epoch}, {} FROM moved
             ON CONFLICT (group_id, seq) DO UPDATE SET epoch = EXCLUDED.epoch, record = EXCLUDED.record
             RETURNING seq",
            self.tables.leadership,
            self.group,
            self.tables.journal,
            bytes_expression(batch.bytes()),
            seq = signed(batch.seq().0),
            epoch = signed(batch.epoch().0),
        )
    }

    /// Finds out why there was nothing to move.
    async fn not_appended(&self, batch: &Batch, attempt: i64) -> Error {
        let leader_row = match self.leader_row("the journal cannot be read").await {
            Ok(leader_row) => leader_row,
            Err(error) => return error,
        };
        if let Err(conflict) = leader_row.check_leader(batch.epoch()) {
            return conflict.into();
        }
        if leader_row.attempt != attempt {
            // A `read_back` that was given up has arrived late. All appends made before this one have an older
            // attempt and are refused for ever, so the next one may go on from here.
            self.attempt.fetch_max(leader_row.attempt, Ordering::AcqRel);
            return Error::unavailable("the record was sent before a record was read back");
        }
        Conflict::OutOfOrder { seq: batch.seq(), next: leader_row.last.next() }.into()
    }

    pub(super) async fn read_back(&self, epoch: Epoch, seq: Seq) -> Result<Option<Batch>, Error> {
        let task = "the record cannot be read back";
        let statement = format!(
            "UPDATE {} SET attempt = attempt + 1 WHERE group_id = {} AND leads AND epoch = {}
             RETURNING attempt, last_seq",
            self.tables.leadership,
            self.group,
            signed(epoch.0)
        );
        let rows = self.appends.write(&statement).await;
        let rows = rows.map_err(|failure| failure.unavailable(task))?;
        let Some(row) = rows.first() else {
            self.leader_row(task).await?.check_leader(epoch)?;
            return Err(Error::unavailable(task));
        };
        let number = |at| row.get(at).and_then(|text: &str| text.parse::<i64>().ok());
        let (Some(attempt), Some(last)) = (number(0), number(1)) else {
            return Err(Error::corrupt("the attempt is no number"));
        };
        self.attempt.fetch_max(attempt, Ordering::AcqRel);
        if Seq(unsigned(last)) < seq {
            return Ok(None);
        }
        self.stored(seq).await
    }

    async fn stored(&self, seq: Seq) -> Result<Option<Batch>, Error> {
        let query =
            format!("SELECT record FROM {} WHERE group_id = $1 AND seq = $2", self.tables.journal);
        let rows = self.appends.read(&query, &[self.group.into(), signed(seq.0)]).await;
        let rows = rows.map_err(|failure| failure.unavailable("the record cannot be read back"))?;
        let Some(row) = rows.first() else { return Ok(None) };
        match stored_batch(seq, row.get::<_, &[u8]>(0).into(), false)? {
            Loaded::Batch(batch) => Ok(Some(batch)),
            Loaded::Torn { .. } | Loaded::Chunk(_) => Ok(None),
        }
    }
}
