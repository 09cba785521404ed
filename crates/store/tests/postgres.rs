//! PostgreSQL, the real one: the suite that every store passes, directly and behind a pooler; and what only such a
//! store can suffer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

mod common;

use common::certificates::{Certificates, text};
use common::{polling, shared};
use leasehold_store::conformance::servers::{Pgbouncer, Postgres, Proxy};
use leasehold_store::conformance::{Corruption, Harness, Step};
use leasehold_store::postgres::PostgresJournal;
use leasehold_store::{Journal, Location, PostgresLocation, Seq};
use tokio::runtime::Runtime;

/// One server for all tests of this file; it ends with the process.
fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime can be made"))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

fn location(url: &str) -> PostgresLocation {
    let Ok(Location::Postgres(location)) = Location::parse(url) else {
        panic!("{url} is no PostgreSQL")
    };
    location
}

/// Each has a schema of its own.
struct Database {
    schema: String,
    url: String,
}

impl Database {
    fn new(port: u16) -> Database {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let schema = format!("Test \"{}\"", COUNT.fetch_add(1, Ordering::Relaxed));
        let parameter = schema.replace(' ', "%20").replace('"', "%22");
        let url = Postgres::url_on(port, &format!("schema={parameter}&timeout_ms=20000"));
        Database { schema, url }
    }

    fn table(&self, name: &str) -> String {
        format!("\"{}\".{name}", self.schema.replace('"', "\"\""))
    }

    fn corrupt_row(&self, table: &str, key: &str, at: u64, what: Corruption) {
        let table = self.table(table);
        let found = format!("{key} = {at}");
        let hex = server().sql(&format!("SELECT encode(record, 'hex') FROM {table} WHERE {found}"));
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).expect("it is hex"))
            .collect();
        match what.apply(bytes) {
            Some(bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let set = format!("SET record = decode('{hex}', 'hex')");
                server().sql(&format!("UPDATE {table} {set} WHERE {found}"));
            }
            None => drop(server().sql(&format!("DELETE FROM {table} WHERE {found}"))),
        }
    }
}

impl Harness for Database {
    fn open(&self) -> Step<'_, Arc<dyn Journal>> {
        Box::pin(async {
            let opened = PostgresJournal::open(&location(&self.url), 0).await;
            Arc::new(opened.expect("it can be opened")) as Arc<dyn Journal>
        })
    }

    /// The server says what it says when its disk is full.
    fn set_full<'a>(&'a self, _: &'a Arc<dyn Journal>, full: bool) -> Step<'a, ()> {
        let (journal, function) = (self.table("journal"), self.table("refuse"));
        let statements = if full {
            format!(
                "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE 'no space left on device' USING ERRCODE = 'disk_full'; END $$;
                 CREATE TRIGGER full_disk BEFORE INSERT ON {journal}
                 FOR EACH ROW EXECUTE FUNCTION {function}();"
            )
        } else {
            format!("DROP FUNCTION {function} CASCADE")
        };
        Box::pin(async move { drop(server().sql(&statements)) })
    }

    fn corrupt(&self, what: Corruption) -> Step<'_, ()> {
        match what {
            Corruption::CutRecord(Seq(at))
            | Corruption::FlipRecord(Seq(at))
            | Corruption::RemoveRecord(Seq(at))
            | Corruption::NewerRecord(Seq(at)) => self.corrupt_row("journal", "seq", at, what),
            Corruption::FlipChunk(at) => self.corrupt_row("chunks", "chunk", at.into(), what),
        }
        Box::pin(async {})
    }
}

mod direct {
    use super::*;

    leasehold_store::conformance_tests!(Database::new(server().port()), block_on);
}

mod pooled {
    use super::*;

    fn pooler() -> &'static Pgbouncer {
        static POOLER: OnceLock<Pgbouncer> = OnceLock::new();
        POOLER.get_or_init(|| Pgbouncer::start(server()))
    }

    leasehold_store::conformance_tests!(Database::new(pooler().port()), block_on);
}

/// Opens a journal in a schema of its own, whatever stands between.
async fn open_on(port: u16, schema: &str, timeout_ms: u32) -> shared::Store {
    let url = Postgres::url_on(port, &format!("schema={schema}&timeout_ms={timeout_ms}"));
    Arc::new(PostgresJournal::open(&location(&url), 0).await.expect("it can be opened"))
}

async fn open_error(url: &str) -> String {
    let error = PostgresJournal::open(&location(url), 0).await.expect_err("it cannot be opened");
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

#[test]
fn answers_lost_on_the_way_are_settled() {
    block_on(async {
        let proxy = Proxy::start(server().port());
        let store = open_on(proxy.port(), "answers_lost", 500).await;
        let other = open_on(server().port(), "answers_lost", 20_000).await;
        shared::answers_are_lost(&store, &other, &proxy).await;
    });
}

#[test]
fn append_that_arrives_late_is_refused() {
    block_on(async {
        let proxy = Proxy::start(server().port());
        let store = open_on(proxy.port(), "late", 1000).await;
        shared::late_append_is_refused(&store, &proxy, || true).await;
    });
}

#[test]
fn read_back_that_arrives_late_is_no_hindrance() {
    block_on(async {
        let proxy = Proxy::start(server().port());
        let store = open_on(proxy.port(), "late_again", 1000).await;
        shared::late_read_back_is_no_hindrance(&store, &proxy, || true).await;
    });
}

#[test]
fn appends_survive_a_server_that_crashes() {
    let mut own = Postgres::start();
    block_on(async {
        let store = open_on(own.port(), "leasehold", 5000).await;
        shared::appends_survive(&store, async |mut progress| {
            for _ in 0..2 {
                progress.more(50).await;
                tokio::task::block_in_place(|| own.crash());
            }
        })
        .await;
    });
}

/// Their last statement called the function.
fn of_connections_for_appends(schema: &str, what: &str) -> String {
    server().sql(&format!(
        "SELECT {what} FROM pg_stat_activity
         WHERE query LIKE '%\"{schema}\".append(%'
         AND pid <> pg_backend_pid()"
    ))
}

fn connections_for_appends(schema: &str) -> String {
    of_connections_for_appends(schema, "count(*)")
}

fn end_connection_for_appends(schema: &str) {
    let end = || of_connections_for_appends(schema, "count(pg_terminate_backend(pid))");
    assert_eq!(tokio::task::block_in_place(end), "1");
}

#[test]
fn connection_that_ended_between_two_appends_is_no_failure() {
    block_on(async {
        let store = open_on(server().port(), "between", 5000).await;
        let epoch = shared::lead(&store, "node-1").await;
        for seq in 1..=3 {
            store.append(common::batch(epoch, seq)).await.expect("it can be written");
            end_connection_for_appends("between");
            let is_ended =
                || tokio::task::block_in_place(|| connections_for_appends("between") == "0");
            polling::until("the connection has ended", is_ended).await;
        }
    });
}

#[test]
fn appends_survive_connections_that_are_ended() {
    block_on(async {
        let store = open_on(server().port(), "ended", 5000).await;
        shared::appends_survive(&store, async |mut progress| {
            for _ in 0..5 {
                progress.more(20).await;
                end_connection_for_appends("ended");
            }
        })
        .await;
    });
}

/// A server that stands still in the middle of everything, with the row of the group locked.
#[test]
fn row_that_somebody_else_has_locked_is_not_waited_for() {
    block_on(async {
        let store = open_on(server().port(), "locked", 2000).await;
        let epoch = shared::lead(&store, "node-1").await;
        let config = format!(
            "host=127.0.0.1 port={} user={} dbname={}",
            server().port(),
            Postgres::USER,
            Postgres::USER
        );
        let mut config: tokio_postgres::Config = config.parse().expect("it is a configuration");
        config.password(Postgres::PASSWORD);
        let (client, connection) =
            config.connect(tokio_postgres::NoTls).await.expect("it can be reached");
        tokio::spawn(connection);
        let lock = "BEGIN; SELECT * FROM locked.leadership FOR UPDATE";
        client.batch_execute(lock).await.expect("it can be locked");
        let answer = store.append(common::batch(epoch, 1)).await;
        // The server gave up itself: it is certain that nothing was written.
        assert!(matches!(answer, Err(leasehold_store::Error::Unavailable { .. })), "{answer:?}");
        client.batch_execute("ROLLBACK").await.expect("it can be freed");
        store.append(common::batch(epoch, 1)).await.expect("now it can be written");
    });
}

#[test]
fn commits_are_durable_whatever_the_role_was_told() {
    block_on(async {
        let store = open_on(server().port(), "lazy", 20_000).await;
        let epoch = shared::lead(&store, "node-1").await;
        server().sql(&format!(
            "CREATE FUNCTION lazy.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF current_setting('synchronous_commit') <> 'on' OR
                current_setting('transaction_isolation') <> 'read committed'
             THEN RAISE 'a setting is wrong'; END IF; RETURN NEW; END $$;
             CREATE TRIGGER note BEFORE INSERT ON lazy.journal
             FOR EACH ROW EXECUTE FUNCTION lazy.note();
             CREATE ROLE idler SUPERUSER LOGIN PASSWORD '{}';
             ALTER ROLE idler SET synchronous_commit = off;
             ALTER ROLE idler SET default_transaction_isolation = 'serializable';
             ALTER ROLE idler SET standard_conforming_strings = off;
             ALTER ROLE idler SET default_transaction_read_only = on",
            Postgres::PASSWORD
        ));
        store.append(common::batch(epoch, 1)).await.expect("it can be written");
        drop(store);
        let url = server().url("schema=lazy").replace("keeper:", "idler:");
        let opened = PostgresJournal::open(&location(&url), 0).await;
        let store: shared::Store = Arc::new(opened.expect("it can be opened"));
        let epoch = shared::lead(&store, "node-\\'2").await;
        store.append(common::batch(epoch, 2)).await.expect("it can be written");
        assert_eq!(shared::loaded(&store, epoch).await, [1, 2]);
        let leader = store.leader().await.expect("it can be read").expect("there is one");
        assert_eq!(leader.name, "node-\\'2");
    });
}

#[test]
fn groups_do_not_meet() {
    block_on(async {
        let location = location(&server().url("schema=groups"));
        let mut epochs = Vec::new();
        for group in 0..3 {
            let opened = PostgresJournal::open(&location, group).await;
            let store: shared::Store = Arc::new(opened.expect("it can be opened"));
            let epoch = shared::lead(&store, "node-1").await;
            store.append(common::batch(epoch, 1)).await.expect("it can be written");
            epochs.push((store, epoch));
        }
        for (store, epoch) in &epochs {
            assert_eq!(shared::loaded(store, *epoch).await, [1]);
            store.confirm(*epoch).await.expect("it leads");
        }
        shared::documents_are_of_all_groups(&epochs[0].0, &epochs[1].0).await;
    });
}

#[test]
fn tables_may_be_made_by_many_at_once() {
    block_on(async {
        let openings: Vec<_> = (0..8)
            .map(|_| tokio::spawn(async { drop(open_on(server().port(), "many", 20_000).await) }))
            .collect();
        for opening in openings {
            opening.await.expect("each can open it");
        }
    });
}

#[test]
fn opening_says_what_is_wrong() {
    block_on(async {
        let url = server().url("");
        let said = open_error(&url.replace("hush", "hash")).await;
        assert!(said.contains("user or password are wrong"), "{said}");
        assert!(!said.contains("hash"), "{said}");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let said = open_error(&Postgres::url_on(port, "")).await;
        assert!(said.contains("it cannot be reached"), "{said}");
        let said = open_error(&server().url("sslmode=require")).await;
        assert!(said.contains("TLS"), "{said}");
        server()
            .sql("CREATE SCHEMA newer; CREATE TABLE newer.schema_version AS SELECT 9 AS version");
        let said = open_error(&server().url("schema=newer")).await;
        assert!(said.contains("has schema 9, this build knows schemas up to 1"), "{said}");
    });
}

#[test]
fn server_that_does_not_sync_is_refused() {
    let own = Postgres::start_with(&["fsync=off"]);
    let said = block_on(open_error(&own.url("")));
    assert!(said.ends_with("would not be durable: fsync is off, it must be on"), "{said}");
}

#[test]
fn way_is_protected_as_it_was_asked_for() {
    let (known, unknown) = (Certificates::new(), Certificates::new());
    let own = Postgres::start_with_tls(&known.certificate(), &known.key());
    let url = |host: &str, sslmode: &str, authority: &Certificates| {
        let authority = text(&authority.authority());
        let parameters = format!("sslmode={sslmode}&sslrootcert={authority}");
        own.url(&parameters).replace("127.0.0.1", host)
    };
    block_on(async {
        let mut appended = 0;
        for (host, sslmode) in [
            ("127.0.0.1", "verify-full"),
            ("localhost", "verify-full"),
            ("127.0.0.1", "verify-ca"),
            ("127.0.0.1", "require"),
            ("127.0.0.1", "disable"),
        ] {
            let location = location(&url(host, sslmode, &known));
            let opened = PostgresJournal::open(&location, 0).await;
            let store: shared::Store = Arc::new(opened.expect("it can be opened"));
            let epoch = shared::lead(&store, "node-1").await;
            appended += 1;
            store.append(common::batch(epoch, appended)).await.expect("it can be written");
            store.confirm(epoch).await.expect("it leads");
            store.resign(epoch).await.expect("it leads");
        }
        let said = open_error(&url("127.0.0.1", "verify-full", &unknown)).await;
        assert!(said.contains("certificate"), "{said}");
        let said = open_error(&url("127.0.0.1", "verify-ca", &unknown)).await;
        assert!(said.contains("certificate"), "{said}");
        let said = open_error(&url("127.0.0.1", "require", &unknown)).await;
        assert!(said.contains("certificate"), "an authority that is named is asked: {said}");
        let unverified = location(&own.url("sslmode=require"));
        PostgresJournal::open(&unverified, 0).await.expect("nothing is verified");
    });
}

#[test]
fn version_is_told() {
    let database = Database::new(server().port());
    let about = block_on(async {
        let store = PostgresJournal::open(&location(&database.url), 0).await.expect("it opens");
        store.about().await.expect("it is there").expect("it is known")
    });
    assert!(about.version.starts_with("PostgreSQL 1"), "{about:?}");
    assert_eq!(about.warning, None, "{about:?}");
}
