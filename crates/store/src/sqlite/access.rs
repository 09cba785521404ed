//! Access documents: a table of their own and one version, both moved in one transaction.

use rusqlite::{OptionalExtension, Transaction, params};

use super::writer::{Writer, signed, unsigned};
use super::{SqliteJournal, gone, gone_with_an_append};
use crate::access::{
    AccessChange, AccessStore, Changed, DOCUMENTS_MAX, Document, DocumentId, Documents,
};
use crate::error::Error;
use crate::journal::Pending;

impl AccessStore for SqliteJournal {
    fn version(&self) -> Pending<u64> {
        self.ask(gone, Writer::access_version)
    }

    fn documents(&self) -> Pending<Documents> {
        self.ask(gone, Writer::access_documents)
    }

    fn change(&self, expected: u64, change: AccessChange) -> Pending<Changed> {
        self.ask(gone_with_an_append, move |writer| writer.change_access(expected, &change))
    }
}

impl Writer {
    fn access_version(&mut self) -> Result<u64, Error> {
        let read = self
            .connection()?
            .prepare_cached("SELECT version FROM access_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)));
        read.map(unsigned)
            .map_err(|error| self.failed("the version of the access documents", error))
    }

    // One statement sees one moment, and the only connection that writes is this one.
    fn access_documents(&mut self) -> Result<Documents, Error> {
        let version = self.access_version()?;
        let connection = self.connection()?;
        let read = connection.prepare("SELECT id, body FROM access ORDER BY id").and_then(
            |mut statement| {
                let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
            },
        );
        let rows = read.map_err(|error| self.failed("the access documents", error))?;
        let document = |(id, body): &(String, String)| {
            let known = DocumentId::new(id).and_then(|id| Document::new(id, body));
            known.ok_or_else(|| Error::corrupt(format!("access document {id:?}")))
        };
        let all = rows.iter().map(document).collect::<Result<_, Error>>()?;
        Ok(Documents { version, all })
    }

    fn change_access(&mut self, expected: u64, change: &AccessChange) -> Result<Changed, Error> {
        self.transaction_of_anybody("the access documents cannot be changed", |transaction| {
            let version: i64 =
                transaction
                    .query_row("SELECT version FROM access_version", [], |row| row.get(0))?;
            if version != signed(expected) {
                return Ok(Changed::Conflict { version: unsigned(version) });
            }
            if len_after(transaction, change)? > DOCUMENTS_MAX {
                return Ok(Changed::Full);
            }
            for document in change.puts() {
                transaction.execute(
                    "INSERT INTO access (id, body) VALUES (?1, ?2)
                     ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                    params![document.id().as_str(), document.body()],
                )?;
            }
            for id in change.removes() {
                transaction.execute("DELETE FROM access WHERE id = ?1", [id.as_str()])?;
            }
            transaction.execute("UPDATE access_version SET version = version + 1", [])?;
            Ok(Changed::To(unsigned(version) + 1))
        })
    }
}

/// The number of documents there would be if nothing were removed.
fn len_after(transaction: &Transaction<'_>, change: &AccessChange) -> rusqlite::Result<usize> {
    let len: i64 = transaction.query_row("SELECT count(*) FROM access", [], |row| row.get(0))?;
    let mut len = usize::try_from(len).unwrap_or(usize::MAX);
    let mut find = transaction.prepare_cached("SELECT 1 FROM access WHERE id = ?1")?;
    for document in change.puts() {
        let found = find.query_row([document.id().as_str()], |_| Ok(())).optional()?;
        len += usize::from(found.is_none());
    }
    Ok(len)
}
