//! The one thing that has to be fast, and certain.

use leasehold_core::Epoch;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::schema;
use super::writer::{Writer, deposed, is_refusal, last_seq, signed};
use crate::error::{Conflict, Error};
use crate::journal::{Loaded, Seq};
use crate::record::Batch;
use crate::stored::stored_batch;

/// Leader and number are compared by the statement that writes: there is no moment in between.
const APPEND: &str = "
INSERT INTO journal (seq, epoch, record)
SELECT ?1, ?2, ?3
WHERE ?2 = (SELECT epoch FROM leadership WHERE leads)
AND ?1 = 1 + coalesce((SELECT max(seq) FROM journal), 0)";

/// The same when this connection has itself written the record before, and nobody else can write to the file.
const APPEND_NEXT: &str = "
INSERT INTO journal (seq, epoch, record)
SELECT ?1, ?2, ?3
WHERE ?2 = (SELECT epoch FROM leadership WHERE leads)";

impl Writer {
    pub(super) fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        let torn = self.torn;
        let is_next = self.next == Some(batch.seq());
        let connection = self.connection()?;
        let written = match torn {
            None if is_next => insert(connection, APPEND_NEXT, batch),
            None => insert(connection, APPEND, batch),
            Some(torn) if torn == batch.seq() => replace(connection, batch),
            Some(_) => Ok(false),
        };
        match written {
            Ok(true) => (self.torn, self.next) = (None, Some(batch.seq().next())),
            Ok(false) => return Err(self.conflict(batch)),
            Err(error) if is_refusal(&error) => {
                return Err(schema::failed("the record cannot be written", error));
            }
            Err(error) => self.settle(batch, error)?,
        }
        Ok(())
    }

    /// After an error in the middle of a commit: opens the file anew and looks.
    fn settle(&mut self, batch: &Batch, error: rusqlite::Error) -> Result<(), Error> {
        self.disconnect();
        match self.read_back(batch.epoch(), batch.seq()) {
            Ok(Some(found)) if found == *batch => Ok(()),
            Ok(_) => Err(schema::failed("the record could not be written", error)),
            Err(Error::Conflict(conflict)) => Err(conflict.into()),
            Err(cause) => Err(Error::OutcomeUnknown {
                what: format!("record {} could not be read back after: {error}", batch.seq()),
                cause: None,
            }
            .because(cause)),
        }
    }

    pub(super) fn read_back(&mut self, epoch: Epoch, seq: Seq) -> Result<Option<Batch>, Error> {
        let read = self.read(epoch, "the record cannot be read back", |connection| {
            connection
                .prepare_cached("SELECT record FROM journal WHERE seq = ?1")?
                .query_row([signed(seq.0)], |row| row.get::<_, Vec<u8>>(0))
                .optional()
        })?;
        let Some(bytes) = read else {
            return Ok(None);
        };
        // A record that was found torn is there until one has taken its place.
        let may_be_torn = self.torn == Some(seq);
        match stored_batch(seq, bytes.into(), may_be_torn)? {
            Loaded::Batch(batch) => {
                self.torn = self.torn.filter(|torn| *torn != seq);
                Ok(Some(batch))
            }
            Loaded::Torn { .. } | Loaded::Chunk(_) => Ok(None),
        }
    }

    /// The reason why the statement found nothing to write.
    fn conflict(&mut self, batch: &Batch) -> Error {
        let torn = self.torn;
        let read = self.read(batch.epoch(), "the journal cannot be read", last_seq);
        match read {
            Ok(last) => Error::Conflict(Conflict::OutOfOrder {
                seq: batch.seq(),
                next: torn.unwrap_or(last.next()),
            }),
            Err(error) => error,
        }
    }
}

/// False if epoch or number are not the expected ones.
fn insert(connection: &Connection, how: &str, batch: &Batch) -> rusqlite::Result<bool> {
    let changed = connection.prepare_cached(how)?.execute(params![
        signed(batch.seq().0),
        signed(batch.epoch().0),
        batch.bytes()
    ])?;
    Ok(changed == 1)
}

/// Takes the place of a record whose bytes do not hold.
fn replace(connection: &mut Connection, batch: &Batch) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM journal WHERE seq = ?1", [signed(batch.seq().0)])?;
    let inserted =
        deposed(&transaction, batch.epoch())?.is_none() && insert(&transaction, APPEND, batch)?;
    if inserted {
        transaction.commit()?;
    }
    Ok(inserted)
}
