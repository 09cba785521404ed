//! Leadership. The lock file has settled it already; the epoch is what lasts of it.

use std::time::Duration;

use leasehold_core::Epoch;
use rusqlite::{Connection, params};

use super::snapshot::complete;
use super::writer::{Writer, last_seq, signed, unsigned, wall_clock_ms};
use crate::error::Error;
use crate::journal::{Campaign, Candidate, Heartbeat, Leader, Leadership, Loaded, Seq};
use crate::stored::{check_jump, stored_batch};

impl Writer {
    pub(super) fn leader(&mut self) -> Result<Option<Leader>, Error> {
        let read = self.connection()?.query_row(
            "SELECT leads, epoch, name, address, lease_ms FROM leadership",
            [],
            |row| {
                let epoch = Epoch(unsigned(row.get(1)?));
                let leader = Leader {
                    beat: Heartbeat { epoch, count: 0 },
                    name: row.get(2)?,
                    address: row.get(3)?,
                    lease: Duration::from_millis(unsigned(row.get(4)?)),
                };
                Ok(row.get::<_, bool>(0)?.then_some(leader))
            },
        );
        read.map_err(|error| self.failed("the leader cannot be read", error))
    }

    pub(super) fn campaign(&mut self, candidate: &Candidate) -> Result<Campaign, Error> {
        self.open_snapshot = None;
        let lease_ms = i64::try_from(candidate.lease.as_millis()).unwrap_or(i64::MAX);
        // Not with RETURNING: it gives the row before the commit, and a commit that fails would go unnoticed.
        let (epoch, torn) =
            self.transaction_of_anybody("the epoch cannot be raised", |transaction| {
                transaction.execute(
                    "UPDATE leadership SET epoch = epoch + 1, leads = 1, name = ?1, address = ?2, lease_ms = ?3,
                     written_at_ms = ?4",
                    params![candidate.name, candidate.address, lease_ms, wall_clock_ms()],
                )?;
                let epoch: i64 =
                    transaction.query_row("SELECT epoch FROM leadership", [], |row| row.get(0))?;
                Ok((epoch, torn(transaction)?))
            })?;
        self.torn = torn;
        Ok(Campaign::Won(Leadership { epoch: Epoch(unsigned(epoch)), lease: None }))
    }

    pub(super) fn confirm(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.read(epoch, "the leader cannot be read", |_| Ok(()))
    }

    pub(super) fn resign(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.transaction(epoch, "the leadership cannot be given up", |transaction| {
            transaction.execute("UPDATE leadership SET leads = 0", [])?;
            Ok(())
        })
    }

    pub(super) fn jump_epoch(&mut self, epoch: Epoch, to: Epoch) -> Result<(), Error> {
        check_jump(epoch, to)?;
        self.open_snapshot = None;
        self.transaction(epoch, "the epoch cannot be raised", |transaction| {
            transaction.execute("UPDATE leadership SET epoch = ?1", [signed(to.0)])?;
            Ok(())
        })
    }
}

/// The last record, if its bytes do not hold and no snapshot makes up for it.
fn torn(connection: &Connection) -> rusqlite::Result<Option<Seq>> {
    let seq = last_seq(connection)?;
    let needed_after = complete(connection)?.map_or(Seq(0), |snapshot| snapshot.as_of);
    if seq <= needed_after {
        return Ok(None);
    }
    let bytes: Vec<u8> = connection.query_row(
        "SELECT record FROM journal WHERE seq = ?1",
        [signed(seq.0)],
        |row| row.get(0),
    )?;
    match stored_batch(seq, bytes.into(), true) {
        Ok(Loaded::Torn { seq, .. }) => Ok(Some(seq)),
        // Anything worse is told by the load.
        Ok(Loaded::Batch(_) | Loaded::Chunk(_)) | Err(_) => Ok(None),
    }
}
