//! Access documents: a table for all groups, and a row with their version that each change moves by comparing it.

use super::connection::text_expression;
use super::{Inner, PostgresJournal, signed, unsigned};
use crate::access::{
    AccessChange, AccessStore, Changed, DOCUMENTS_MAX, Document, DocumentId, Documents,
};
use crate::error::Error;
use crate::journal::Pending;

impl AccessStore for PostgresJournal {
    fn version(&self) -> Pending<u64> {
        self.0.call(|inner| async move { inner.access_version().await })
    }

    fn documents(&self) -> Pending<Documents> {
        self.0.call(|inner| async move { inner.access_documents().await })
    }

    fn change(&self, expected: u64, change: AccessChange) -> Pending<Changed> {
        self.0.call(|inner| async move { inner.change_access(expected, &change).await })
    }
}

impl Inner {
    async fn access_version(&self) -> Result<u64, Error> {
        let query = format!("SELECT version FROM {}", self.tables.access_version);
        let rows = self.others.read(&query, &[]).await;
        let task = "the version of the access documents cannot be read";
        let rows = rows.map_err(|failure| failure.unavailable(task))?;
        let row = rows.first().ok_or_else(|| Error::corrupt("access_version has no row"))?;
        Ok(unsigned(row.get(0)))
    }

    // One statement sees one moment.
    async fn access_documents(&self) -> Result<Documents, Error> {
        let query = format!(
            "SELECT version, id, body FROM {} LEFT JOIN {} ON true ORDER BY id COLLATE \"C\"",
            self.tables.access_version, self.tables.access
        );
        let rows = self.others.read(&query, &[]).await;
        let rows =
            rows.map_err(|failure| failure.unavailable("the access documents cannot be read"))?;
        let first = rows.first().ok_or_else(|| Error::corrupt("access_version has no row"))?;
        let version = unsigned(first.get(0));
        let mut all = Vec::with_capacity(rows.len());
        for row in &rows {
            let (Some(id), Some(body)) = (row.get::<_, Option<&str>>(1), row.get(2)) else {
                continue;
            };
            let document = DocumentId::new(id).and_then(|id| Document::new(id, body));
            all.push(document.ok_or_else(|| Error::corrupt(format!("access document {id:?}")))?);
        }
        Ok(Documents { version, all })
    }

    async fn change_access(&self, expected: u64, change: &AccessChange) -> Result<Changed, Error> {
        let rows = self.others.write(&self.access_statement(expected, change)).await;
        let rows = rows.map_err(|failure| failure.of_append())?;
        let made = rows.first().and_then(|row| row.get(0)).and_then(|text| text.parse().ok());
        if let Some(version) = made {
            return Ok(Changed::To(version));
        }
        match self.access_version().await? {
            version if version == expected => Ok(Changed::Full),
            version => Ok(Changed::Conflict { version }),
        }
    }

    // Whoever moves the row first wins; the other one waits for it, looks again, and finds nothing to move.
    fn access_statement(&self, expected: u64, change: &AccessChange) -> String {
        let (access, version) = (&self.tables.access, &self.tables.access_version);
        let list = |ids: &mut dyn Iterator<Item = &DocumentId>| {
            let ids: Vec<String> = ids.map(|id| text_expression(id.as_str())).collect();
            if ids.is_empty() { "NULL".into() } else { ids.join(", ") }
        };
        let put_ids = list(&mut change.puts().iter().map(Document::id));
        let removed = list(&mut change.removes().iter());
        let values = change.puts().iter().map(|document| {
            let (id, body) = (document.id().as_str(), document.body());
            format!("({}, {})", text_expression(id), text_expression(body))
        });
        let values: Vec<String> = values.collect();
        let values =
            if values.is_empty() { "(NULL::text, NULL::text)".into() } else { values.join(", ") };
        format!(
            "WITH moved AS (
                 UPDATE {version} SET version = version + 1
                 WHERE version = {expected}
                     AND (SELECT count(*) FROM {access} WHERE id NOT IN ({kept})) + {puts} <= {max}
                 RETURNING version
             ), removed AS (
                 DELETE FROM {access} WHERE id IN ({removed}) AND EXISTS (SELECT FROM moved)
             ), put AS (
                 INSERT INTO {access} (id, body)
                 SELECT new.id, new.body FROM (VALUES {values}) AS new (id, body)
                 WHERE new.id IS NOT NULL AND EXISTS (SELECT FROM moved)
                 ON CONFLICT (id) DO UPDATE SET body = excluded.body
             )
             SELECT version FROM moved",
            expected = signed(expected),
            // Nothing is `NOT IN (NULL)`.
            kept = if change.puts().is_empty() { "''" } else { &put_ids },
            puts = change.puts().len(),
            max = DOCUMENTS_MAX,
        )
    }
}
