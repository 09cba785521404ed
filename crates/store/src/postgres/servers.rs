//! The number of groups, the list of servers, and the version of PostgreSQL.

use super::connection::text_expression;
use super::{Inner, signed, unsigned};
use crate::error::Error;
use crate::journal::{About, Peer};

/// Nothing newer is used, and nothing older was tried.
const OLDEST: i64 = 110_000;

impl Inner {
    pub(super) async fn about(&self) -> Result<Option<About>, Error> {
        let query = "SELECT current_setting('server_version'), \
            current_setting('server_version_num')::int8";
        let rows = self.others.read(query, &[]).await;
        let rows = rows.map_err(|failure| failure.unavailable("the version cannot be read"))?;
        let row = rows.first().ok_or_else(|| Error::corrupt("the version is missing"))?;
        let (text, number): (String, i64) = (row.get(0), row.get(1));
        let warning = (number < OLDEST)
            .then(|| "it is older than what Leasehold can use: PostgreSQL 11 or later".into());
        Ok(Some(About { version: format!("PostgreSQL {text}"), warning }))
    }

    pub(super) async fn groups(&self, wanted: u32) -> Result<u32, Error> {
        let statement = format!(
            "UPDATE {} SET groups = CASE groups WHEN 0 THEN {wanted} ELSE groups END
             WHERE group_id = {} RETURNING groups",
            self.tables.leadership, self.group
        );
        let rows = self.others.write(&statement).await;
        let rows = rows.map_err(|failure| failure.unavailable("the groups cannot be read"))?;
        let found = rows.first().and_then(|row| row.get(0)).and_then(|text| text.parse().ok());
        found.ok_or_else(|| Error::corrupt("the number of groups is missing in leadership"))
    }

    pub(super) async fn announce(&self, server: &Peer) -> Result<(), Error> {
        let (name, address) = (text_expression(&server.name), text_expression(&server.address));
        let statement = format!(
            "INSERT INTO {} (group_id, name, address, count) VALUES ({}, {name}, {address}, {count})
             ON CONFLICT (group_id, name) DO UPDATE SET address = {address}, count = {count}",
            self.tables.servers,
            self.group,
            count = signed(server.count),
        );
        let done = self.others.write(&statement).await;
        done.map(|_| ()).map_err(|failure| failure.unavailable("the server cannot be announced"))
    }

    pub(super) async fn forget(&self, name: &str) -> Result<(), Error> {
        let statement = format!(
            "DELETE FROM {} WHERE group_id = {} AND name = {}",
            self.tables.servers,
            self.group,
            text_expression(name)
        );
        let done = self.others.write(&statement).await;
        done.map(|_| ()).map_err(|failure| failure.unavailable("a server cannot be forgotten"))
    }

    pub(super) async fn servers(&self) -> Result<Vec<Peer>, Error> {
        let query = format!(
            "SELECT name, address, count FROM {} WHERE group_id = $1 ORDER BY name COLLATE \"C\"",
            self.tables.servers
        );
        let rows = self.others.read(&query, &[self.group.into()]).await;
        let rows = rows.map_err(|failure| failure.unavailable("the servers cannot be read"))?;
        let server = |row: &tokio_postgres::Row| Peer {
            name: row.get(0),
            address: row.get(1),
            count: unsigned(row.get(2)),
        };
        Ok(rows.iter().map(server).collect())
    }
}
