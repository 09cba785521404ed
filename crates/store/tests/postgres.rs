//! PostgreSQL, the real one: the suite that every store passes, directly and behind a pooler; and what only such a
//! store can suffer.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_store::conformance::servers::{Pgbouncer, Postgres};
use leasehold_store::conformance::{Harm, Harness, Mishap, Step};
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
    match Location::parse(url).expect("it is an address") {
        Location::Postgres(location) => location,
        other => panic!("{other} is no PostgreSQL"),
    }
}

/// Each has a schema of its own.
struct Database {
    schema: String,
    url: String,
    journal: Mutex<Weak<PostgresJournal>>,
}

impl Database {
    fn new(port: u16) -> Database {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let schema = format!("Test \"{}\"", COUNT.fetch_add(1, Ordering::Relaxed));
        let parameter = schema.replace(' ', "%20").replace('"', "%22");
        let url = Postgres::url_on(port, &format!("schema={parameter}&timeout_ms=20000"));
        Database { schema, url, journal: Mutex::default() }
    }

    fn table(&self, name: &str) -> String {
        format!("\"{}\".{name}", self.schema.replace('"', "\"\""))
    }

    fn journal(&self) -> Arc<PostgresJournal> {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.upgrade().expect("the journal is open")
    }

    fn harm_row(&self, table: &str, key: &str, at: u64, what: Harm) {
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
            let journal = Arc::new(opened.expect("it can be opened"));
            *self.journal.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&journal);
            journal as Arc<dyn Journal>
        })
    }

    fn lose_answer<'a>(&'a self, _: &'a Arc<dyn Journal>, mishap: Mishap) -> Step<'a, ()> {
        Box::pin(async move { self.journal().mishap(mishap) })
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

    fn harm(&self, what: Harm) -> Step<'_, ()> {
        match what {
            Harm::CutRecord(Seq(at))
            | Harm::FlipRecord(Seq(at))
            | Harm::RemoveRecord(Seq(at))
            | Harm::NewerRecord(Seq(at)) => self.harm_row("journal", "seq", at, what),
            Harm::FlipChunk(at) => self.harm_row("chunks", "chunk", at.into(), what),
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
