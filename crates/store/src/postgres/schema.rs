//! The tables, and the settings without which they would not be durable.

use tokio_postgres::error::SqlState;

use super::connection::{Failure, Lane};
use crate::error::OpenError;

/// The schema that this build writes, and the highest it can read.
pub const SCHEMA: u32 = 1;

/// The most bytes of a row on a page.
const PAGE_BYTES: u32 = 8160;
/// The number of tries to make the tables, when another server makes them in the same moment.
const TRIES: usize = 5;

/// The names of the tables, ready to be put into a statement.
pub(super) struct Tables {
    schema: String,
    version: String,
    pub(super) leadership: String,
    pub(super) journal: String,
    pub(super) chunks: String,
    pub(super) servers: String,
    pub(super) access: String,
    pub(super) access_version: String,
    /// The function that appends a record.
    pub(super) append: String,
}

impl Tables {
    pub(super) fn new(schema: &str) -> Tables {
        let schema = format!("\"{}\"", schema.replace('"', "\"\""));
        Tables {
            version: format!("{schema}.schema_version"),
            leadership: format!("{schema}.leadership"),
            journal: format!("{schema}.journal"),
            chunks: format!("{schema}.chunks"),
            servers: format!("{schema}.servers"),
            access: format!("{schema}.access"),
            access_version: format!("{schema}.access_version"),
            append: format!("{schema}.append"),
            schema,
        }
    }

    // The row of a group changes with every append. It has room beside it on its page for its next versions, so that
    // neither an index nor another page has to be touched. Records are not compressed: they hardly shrink. Those that fit on
    // a page stay with their row; larger ones are cut into many rows of another table.
    fn create(&self) -> String {
        let Tables { schema, version, leadership, journal, chunks, servers, .. } = self;
        let Tables { access, access_version, .. } = self;
        format!(
            "CREATE SCHEMA IF NOT EXISTS {schema};
             CREATE TABLE {version} (version integer NOT NULL);
             CREATE TABLE {leadership} (
                 group_id integer PRIMARY KEY,
                 groups integer NOT NULL DEFAULT 0,
                 epoch bigint NOT NULL DEFAULT 0,
                 leads boolean NOT NULL DEFAULT false,
                 beat bigint NOT NULL DEFAULT 0,
                 attempt bigint NOT NULL DEFAULT 0,
                 last_seq bigint NOT NULL DEFAULT 0,
                 snapshots_begun bigint NOT NULL DEFAULT 0,
                 snapshot bigint,
                 snapshot_as_of bigint,
                 snapshot_chunks integer,
                 snapshot_epoch bigint,
                 lease_ms bigint NOT NULL DEFAULT 0,
                 name text NOT NULL DEFAULT '',
                 address text NOT NULL DEFAULT '',
                 confirmed_at timestamptz NOT NULL DEFAULT now()
             ) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000);
             CREATE TABLE {journal} (
                 group_id integer NOT NULL,
                 seq bigint NOT NULL,
                 epoch bigint NOT NULL,
                 record bytea NOT NULL,
                 PRIMARY KEY (group_id, seq)
             );
             ALTER TABLE {journal} ALTER COLUMN record SET STORAGE EXTERNAL;
             ALTER TABLE {journal} SET (toast_tuple_target = {PAGE_BYTES});
             CREATE TABLE {chunks} (
                 group_id integer NOT NULL,
                 snapshot bigint NOT NULL,
                 chunk integer NOT NULL,
                 record bytea NOT NULL,
                 PRIMARY KEY (group_id, snapshot, chunk)
             );
             ALTER TABLE {chunks} ALTER COLUMN record SET STORAGE EXTERNAL;
             CREATE TABLE {servers} (
                 group_id integer NOT NULL,
                 name text NOT NULL,
                 address text NOT NULL,
                 count bigint NOT NULL,
                 PRIMARY KEY (group_id, name)
             );
             CREATE TABLE {access} (id text PRIMARY KEY, body text NOT NULL);
             CREATE TABLE {access_version} (
                 one boolean PRIMARY KEY DEFAULT true CHECK (one),
                 version bigint NOT NULL
             );
             INSERT INTO {access_version} (version) VALUES (0);
             {function};
             INSERT INTO {version} VALUES ({SCHEMA});",
            function = self.create_append()
        )
    }

    // The plans of what is in a function are kept by whichever connection runs it, and no pooler has to know. An
    // expression costs less than a `PERFORM`.
    fn create_append(&self) -> String {
        let Tables { leadership, journal, append, .. } = self;
        format!(
            "CREATE FUNCTION {append} (of_group integer, of_epoch bigint, of_attempt bigint,
                 of_seq bigint, of_record bytea, wait_ms integer)
             RETURNS boolean LANGUAGE plpgsql AS $append$
             DECLARE
                 setting text;
             BEGIN
                 IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
                     setting := set_config('synchronous_commit', 'on', true);
                 END IF;
                 setting := set_config('lock_timeout', wait_ms::text, true);
                 UPDATE {leadership} SET last_seq = of_seq WHERE group_id = of_group AND leads
                     AND epoch = of_epoch AND attempt = of_attempt AND last_seq + 1 = of_seq;
                 IF NOT FOUND THEN
                     RETURN false;
                 END IF;
                 INSERT INTO {journal} (group_id, seq, epoch, record)
                     VALUES (of_group, of_seq, of_epoch, of_record);
                 RETURN true;
             END $append$"
        )
    }
}

/// Makes what is missing, and looks whether what is there can be used.
pub(super) async fn prepare(
    lane: &Lane,
    tables: &Tables,
    store: &str,
    group: i32,
) -> Result<(), OpenError> {
    let failed = |failure: Failure| failure.of_opening(store);
    check_durable(lane, store).await?;
    match version(lane, tables).await.map_err(failed)? {
        Some(found) if found > i64::from(SCHEMA) => {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(OpenError::NewerSchema { store: store.into(), found, known: SCHEMA });
        }
        Some(_) => {}
        None => create(lane, tables).await.map_err(failed)?,
    }
    let row = format!(
        "INSERT INTO {} (group_id) VALUES ({group}) ON CONFLICT (group_id) DO NOTHING",
        tables.leadership
    );
    lane.write(&row).await.map_err(failed)?;
    Ok(())
}

/// `None` if there are no tables yet.
async fn version(lane: &Lane, tables: &Tables) -> Result<Option<i64>, Failure> {
    let query = format!("SELECT max(version)::bigint FROM {}", tables.version);
    match lane.read(&query, &[]).await {
        Ok(rows) => Ok(rows.first().and_then(|row| row.get::<_, Option<i64>>(0))),
        Err(failure) => match failure.code() {
            Some(code)
                if code == SqlState::UNDEFINED_TABLE || code == SqlState::INVALID_SCHEMA_NAME =>
            {
                Ok(None)
            }
            Some(_) | None => Err(failure),
        },
    }
}

async fn create(lane: &Lane, tables: &Tables) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let Err(failure) = lane.write(&tables.create()).await else { return Ok(()) };
        tries += 1;
        // Another server makes them as well: all of one transaction count, none of the other.
        if tries == TRIES || version(lane, tables).await?.is_some() {
            return match version(lane, tables).await? {
                Some(_) => Ok(()),
                None => Err(failure),
            };
        }
        let is_race = failure.code().is_some_and(|code| {
            code == SqlState::UNIQUE_VIOLATION
                || code == SqlState::DUPLICATE_TABLE
                || code == SqlState::DUPLICATE_SCHEMA
                || code == SqlState::DUPLICATE_OBJECT
        });
        if !is_race {
            return Err(failure);
        }
    }
}

/// Without `fsync` a power cut loses commits that were answered, or the whole database.
async fn check_durable(lane: &Lane, store: &str) -> Result<(), OpenError> {
    let rows = lane
        .read("SELECT current_setting('fsync')", &[])
        .await
        .map_err(|failure| failure.of_opening(store))?;
    let found: String = rows.first().map(|row| row.get(0)).unwrap_or_default();
    if found == "on" {
        return Ok(());
    }
    Err(OpenError::NotDurable { store: store.into(), setting: "fsync", found, wanted: "on" })
}
