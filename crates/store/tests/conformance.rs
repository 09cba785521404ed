//! Every store, the same promises.

use std::sync::{Arc, Weak};

use leasehold_store::conformance::{Corruption, Harness, Step, block_on};
use leasehold_store::sqlite::{Options, SqliteJournal};
use leasehold_store::{Journal, MemoryJournal, Seq};
use parking_lot::Mutex;
use tempfile::TempDir;

mod common;

mod memory {
    use super::*;

    leasehold_store::conformance_tests!(Memory(MemoryJournal::new()), block_on);

    mod shared {
        use super::*;

        leasehold_store::conformance_tests!(Memory(MemoryJournal::shared()), block_on);
    }

    struct Memory(MemoryJournal);

    impl Harness for Memory {
        fn open(&self) -> Step<'_, Arc<dyn Journal>> {
            let journal: Arc<dyn Journal> = Arc::new(self.0.clone());
            Box::pin(async { journal })
        }

        fn set_full<'a>(&'a self, _: &'a Arc<dyn Journal>, full: bool) -> Step<'a, ()> {
            let bytes_max = full.then_some(100_000);
            Box::pin(async move { self.0.set_size_max(bytes_max) })
        }

        fn corrupt(&self, what: Corruption) -> Step<'_, ()> {
            Box::pin(async move { self.0.corrupt(what) })
        }
    }
}

mod sqlite {
    use super::*;

    leasehold_store::conformance_tests!(Sqlite::new(), block_on);

    struct Sqlite {
        folder: TempDir,
        journal: Mutex<Weak<SqliteJournal>>,
    }

    impl Sqlite {
        fn new() -> Sqlite {
            Sqlite { folder: common::fast_folder(), journal: Mutex::default() }
        }

        fn path(&self) -> std::path::PathBuf {
            self.folder.path().join("locks.db")
        }

        fn journal(&self) -> Arc<SqliteJournal> {
            let journal = self.journal.lock();
            journal.upgrade().expect("the journal is open")
        }
    }

    impl Harness for Sqlite {
        fn open(&self) -> Step<'_, Arc<dyn Journal>> {
            let opened = SqliteJournal::open(&self.path(), Options::default());
            let journal = Arc::new(opened.expect("the file can be opened"));
            *self.journal.lock() = Arc::downgrade(&journal);
            Box::pin(async { journal as Arc<dyn Journal> })
        }

        fn set_full<'a>(&'a self, _: &'a Arc<dyn Journal>, full: bool) -> Step<'a, ()> {
            let bytes_max = full.then_some(500_000);
            Box::pin(async move {
                let done = self.journal().set_size_max(bytes_max).await;
                done.expect("the writer is there");
            })
        }

        fn corrupt(&self, what: Corruption) -> Step<'_, ()> {
            let connection = rusqlite::Connection::open(self.path()).expect("it can be opened");
            let done = match what {
                Corruption::CutRecord(Seq(at))
                | Corruption::FlipRecord(Seq(at))
                | Corruption::RemoveRecord(Seq(at))
                | Corruption::NewerRecord(Seq(at)) => {
                    corrupt_row(&connection, "journal", "seq", at, what)
                }
                Corruption::FlipChunk(at) => {
                    corrupt_row(&connection, "chunks", "chunk", at.into(), what)
                }
            };
            done.expect("it can be harmed");
            Box::pin(async {})
        }
    }

    fn corrupt_row(
        connection: &rusqlite::Connection,
        table: &str,
        key: &str,
        at: u64,
        what: Corruption,
    ) -> rusqlite::Result<usize> {
        let at = i64::try_from(at).expect("numbers in the suite are small");
        let select = format!("SELECT record FROM {table} WHERE {key} = ?1");
        let bytes = connection.query_row(&select, [at], |row| row.get(0))?;
        match what.apply(bytes) {
            Some(bytes) => {
                let update = format!("UPDATE {table} SET record = ?2 WHERE {key} = ?1");
                connection.execute(&update, rusqlite::params![at, bytes])
            }
            None => connection.execute(&format!("DELETE FROM {table} WHERE {key} = ?1"), [at]),
        }
    }
}
