//! Reads everything in a file once: whether it holds, and how far its counters have come.

use leasehold_core::{Entry, Epoch, FencingToken, Transition};
use rusqlite::{Connection, Row};

use super::schema::failed;
use super::snapshot::{Complete, complete};
use super::writer::{signed, unsigned};
use crate::error::Error;
use crate::journal::{Loaded, Seq};
use crate::stored::{stored_batch, stored_chunk};

/// The report on a file without faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Audit {
    /// The last record that holds.
    pub(super) last: Seq,
    /// The highest epoch and fence that anything in it tells of.
    pub(super) epoch: Epoch,
    pub(super) fence: FencingToken,
    /// A last record whose bytes do not hold.
    pub(super) torn: Option<Seq>,
    /// By the wall clock: when a leader, a snapshot or a backup last wrote.
    pub(super) written_at_ms: i64,
}

pub(super) fn audit(connection: &Connection) -> Result<Audit, Error> {
    check_pages(connection)?;
    let mut audit = Audit::default();
    let leadership =
        connection.query_row("SELECT epoch, written_at_ms FROM leadership", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
    let (epoch, written_at_ms) = leadership.map_err(unreadable)?;
    audit.epoch = Epoch(unsigned(epoch));
    audit.written_at_ms = written_at_ms;
    if let Some(snapshot) = complete(connection).map_err(unreadable)? {
        audit.chunks(connection, snapshot)?;
        audit.last = snapshot.as_of;
    }
    audit.records(connection)?;
    Ok(audit)
}

impl Audit {
    fn chunks(&mut self, connection: &Connection, snapshot: Complete) -> Result<(), Error> {
        let mut index = 0;
        let query = "SELECT chunk, record FROM chunks WHERE snapshot = ?1 ORDER BY chunk";
        for_each(connection, query, snapshot.id, |found, bytes| {
            if found == i64::from(index) {
                let chunk = stored_chunk(snapshot.as_of, index, bytes.into())?;
                for entry in chunk.entries() {
                    self.entry(&entry.map_err(|fault| undecodable("chunk", found, &fault))?);
                }
                index += 1;
            }
            Ok(())
        })?;
        if index == snapshot.chunks {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "chunk {index} of the snapshot as of record {} is missing",
            snapshot.as_of
        )))
    }

    fn records(&mut self, connection: &Connection) -> Result<(), Error> {
        let first = signed(self.last.0);
        let end = connection
            .query_row("SELECT coalesce(max(seq), 0) FROM journal", [], |row| row.get::<_, i64>(0))
            .map_err(unreadable)?;
        if end < first {
            return Err(Error::corrupt(format!("journal record {first} is missing")));
        }
        let query = "SELECT seq, record FROM journal WHERE seq > ?1 ORDER BY seq";
        for_each(connection, query, first, |found, bytes| {
            let seq = self.last.next();
            if signed(seq.0) != found {
                return Err(Error::corrupt(format!("journal record {seq} is missing")));
            }
            match stored_batch(seq, bytes.into(), found == end)? {
                Loaded::Batch(batch) => {
                    for transition in batch.transitions() {
                        let transition =
                            transition.map_err(|fault| undecodable("record", found, &fault))?;
                        self.transition(&transition);
                    }
                    self.epoch = self.epoch.max(batch.epoch());
                    self.last = seq;
                }
                Loaded::Torn { seq, .. } => self.torn = Some(seq),
                Loaded::Chunk(_) => {}
            }
            Ok(())
        })
    }

    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Counters { epoch, fence, .. } => self.saw(*epoch, *fence),
            Entry::Lease(_) | Entry::Register { .. } => {}
        }
    }

    // What a register has accepted came from outside and says nothing about our counter.
    fn transition(&mut self, transition: &Transition) {
        match transition {
            Transition::EpochBegan { epoch } => self.saw(*epoch, FencingToken::ZERO),
            Transition::Jumped { epoch, fence } => self.saw(*epoch, *fence),
            Transition::Granted(granted) => self.saw(Epoch(0), granted.fence),
            Transition::SessionOpened(_)
            | Transition::TtlChanged { .. }
            | Transition::LeaseLapsed { .. }
            | Transition::LeaseEnding { .. }
            | Transition::LeaseEnded { .. }
            | Transition::GrantEnded { .. }
            | Transition::KeyEnded { .. }
            | Transition::RangeEnded { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => {}
        }
    }

    fn saw(&mut self, epoch: Epoch, fence: FencingToken) {
        self.epoch = self.epoch.max(epoch);
        self.fence = self.fence.max(fence);
    }
}

fn check_pages(connection: &Connection) -> Result<(), Error> {
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(unreadable)?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(Error::corrupt(verdict))
}

fn for_each(
    connection: &Connection,
    query: &str,
    from: i64,
    mut each: impl FnMut(i64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut statement = connection.prepare(query).map_err(unreadable)?;
    let mut rows = statement.query([from]).map_err(unreadable)?;
    while let Some(row) = rows.next().map_err(unreadable)? {
        let (number, bytes) = number_and_bytes(row).map_err(unreadable)?;
        each(number, bytes)?;
    }
    Ok(())
}

fn number_and_bytes<'a>(row: &'a Row<'_>) -> rusqlite::Result<(i64, &'a [u8])> {
    Ok((row.get(0)?, row.get_ref(1)?.as_blob()?))
}

fn undecodable(what: &str, number: i64, fault: &crate::record::Fault) -> Error {
    Error::corrupt(format!("{what} {number}: {fault}"))
}

fn unreadable(error: rusqlite::Error) -> Error {
    failed("the file cannot be read", error)
}
