//! What only SQLite promises: one server a file, one plain file, readable with plain SQL.
#![allow(clippy::unwrap_used, reason = "in a test the panic is the report")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use common::*;
use leasehold_core::{
    Adapter, ByteRange, Ending, Entry, Epoch, Mode, OnDisconnect, Owner, PieceEntry, Principal,
    SessionEntry, SessionTerms, Timestamp,
};
use leasehold_store::conformance::block_on;
use leasehold_store::sqlite::{Options, SqliteJournal};
use leasehold_store::{Batch, Chunk, Error, Journal, OpenError, Pruned, Seq};
use rusqlite::Connection;
use rusqlite::types::Value;

fn refusal(path: &Path) -> String {
    match SqliteJournal::open(path, Options::default()) {
        Ok(_) => panic!("{} should be refused", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn second_server_in_the_same_process_is_refused() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let first = open(&path);
    let refusal = refusal(&path);
    let me = std::process::id();
    let expected = format!("is in use by another server (process {me})");
    assert!(refusal.ends_with(&expected), "{refusal}");
    let epoch = lead(&*first);
    append(&*first, batch(epoch, 1));
    drop(first);
    drop(open(&path));
}

#[test]
fn waiting_for_a_program_that_has_the_file_locked_is_counted() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    let epoch = lead(&*journal);
    let before = leasehold_store::sqlite::busy_total();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ending = std::thread::spawn(move || {
        while leasehold_store::sqlite::busy_total() < before + 2 {
            std::thread::yield_now();
        }
        other.execute_batch("COMMIT").unwrap();
    });
    append(&*journal, batch(epoch, 1));
    ending.join().unwrap();
    let met = leasehold_store::sqlite::busy_total() - before;
    assert!(met >= 2, "SQLite was busy {met} times");
}

#[test]
fn second_server_in_another_process_is_refused() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let _journal = open(&path);
    let output = child("opens_the_file", &path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("is in use by another server"), "{text}");
}

#[test]
fn file_is_free_again_when_its_server_was_killed() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let mut holder = child("opens_the_file", &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(holder.stdout.take().unwrap());
    let opened = output.lines().any(|line| line.is_ok_and(|line| line.contains("opened")));
    assert!(opened);
    assert!(refusal(&path).contains("in use"), "it is held");
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(open(&path));
}

#[test]
#[ignore = "runs in a process of its own, started by the tests above"]
fn opens_the_file() {
    let Some(path) = child_file() else { return };
    match SqliteJournal::open(&path, Options::default()) {
        Ok(_journal) => {
            println!("opened");
            // Until the parent goes or kills us.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        Err(error) => println!("{error}"),
    }
}

#[cfg(unix)]
#[test]
fn another_name_of_the_same_file_is_refused() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let _journal = open(&path);
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(refusal(&link).contains("in use"));
}

#[cfg(unix)]
#[test]
fn nobody_else_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    append(&*journal, batch(lead(&*journal), 1));
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?}", entry.path());
    }
}

/// Everything in the folder but the lock file, with its bytes.
fn contents(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| !entry.file_name().to_string_lossy().ends_with(".lock"))
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn newer_schema_is_refused_and_left_alone() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    drop(open(&path));
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let before = contents(folder.path());
    let refusal = refusal(&path);
    assert!(refusal.contains("has schema 2, this build knows schemas up to 1"), "{refusal}");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn newer_schema_that_is_only_in_the_log_is_refused() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    drop(open(&path));
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    let copy = folder.path().join("copy.db");
    // As a crash leaves it: the change is in the log, not yet in the file.
    for (from, to) in [("locks.db", "copy.db"), ("locks.db-wal", "copy.db-wal")] {
        fs::copy(folder.path().join(from), folder.path().join(to)).unwrap();
    }
    drop(connection);
    let before = (fs::read(&copy).unwrap(), fs::read(folder.path().join("copy.db-wal")).unwrap());
    assert!(refusal(&copy).contains("has schema 2"));
    let after = (fs::read(&copy).unwrap(), fs::read(folder.path().join("copy.db-wal")).unwrap());
    assert!(before == after, "the file or its log was changed");
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let folder = fast_folder();
    let text = folder.path().join("text.db");
    fs::write(&text, "not a database, but long enough to be taken for one: ".repeat(10)).unwrap();
    let other = folder.path().join("other.db");
    let connection = Connection::open(&other).unwrap();
    connection.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(connection);
    let before = contents(folder.path());
    assert!(refusal(&text).ends_with("it is not an SQLite file"));
    assert!(refusal(&other).ends_with("it is the SQLite file of another program"));
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn truncated_file_is_refused_or_found_corrupt() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    let epoch = lead(&*journal);
    for seq in 1..=2000 {
        append(&*journal, batch(epoch, seq));
    }
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for keep in [whole.len() / 2, 4096, 1000, 50] {
        fs::write(&path, &whole[..keep]).unwrap();
        match SqliteJournal::open(&path, Options::default()) {
            Err(OpenError::Failed { .. } | OpenError::Foreign { .. }) => {}
            Err(other) => panic!("{other:?}"),
            Ok(journal) => {
                let led = block_on(journal.campaign(candidate(), None));
                let loaded = led.map(|_| block_on(journal.load(Epoch(2), Default::default())));
                match loaded {
                    Err(Error::Corrupt { .. }) | Ok(Err(Error::Corrupt { .. })) => {}
                    other => panic!("{keep} bytes of {}: {other:?}", whole.len()),
                }
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn file_that_was_moved_away_takes_no_records_until_it_is_back() {
    let folder = fast_folder();
    let (path, away) = (folder.path().join("locks.db"), folder.path().join("away.db"));
    let journal = open(&path);
    let epoch = lead(&*journal);
    append(&*journal, batch(epoch, 1));
    let unavailable = |answer: Result<(), Error>| match answer {
        Err(Error::Unavailable { what, .. }) => assert!(what.contains("moved away"), "{what}"),
        other => panic!("{other:?}"),
    };
    fs::rename(&path, &away).unwrap();
    unavailable(block_on(journal.append(batch(epoch, 2))));
    unavailable(block_on(journal.confirm(epoch)));
    fs::copy(&away, &path).unwrap();
    unavailable(block_on(journal.append(batch(epoch, 2))));
    fs::rename(&away, &path).unwrap();
    append(&*journal, batch(epoch, 2));
    assert_eq!(load(&*journal, epoch).len(), 2);
}

#[test]
fn folder_that_is_not_there_is_named() {
    let folder = fast_folder();
    let path = folder.path().join("none").join("locks.db");
    let refusal = refusal(&path);
    assert!(refusal.contains("none/locks.db cannot be opened"), "{refusal}");
}

#[test]
fn crash_while_the_file_is_made_leaves_one_that_can_be_made() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let connection = Connection::open(&path).unwrap();
    // Marked as ours, in the mode we use, but without a table.
    connection
        .execute_batch("PRAGMA auto_vacuum = 2; PRAGMA application_id = 0x4c484c44; PRAGMA journal_mode = WAL;")
        .unwrap();
    drop(connection);
    let journal = open(&path);
    append(&*journal, batch(lead(&*journal), 1));
}

fn rows(connection: &Connection, query: &str) -> Vec<String> {
    let mut statement = connection.prepare(query).unwrap();
    let columns = statement.column_count();
    let rows = statement
        .query_map([], |row| {
            let values = (0..columns).map(|column| {
                let value: Value = row.get(column)?;
                Ok(match value {
                    Value::Null => "-".into(),
                    Value::Integer(number) => number.to_string(),
                    Value::Text(text) => text,
                    other @ (Value::Real(_) | Value::Blob(_)) => {
                        format!("{other:?}")
                    }
                })
            });
            values.collect::<rusqlite::Result<Vec<String>>>()
        })
        .unwrap();
    rows.map(|row| row.unwrap().join(" ")).collect()
}

#[test]
fn locks_can_be_read_with_plain_sql_while_the_server_runs() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    let epoch = lead(&*journal);
    append(&*journal, batch(epoch, 1));
    let reader = Connection::open(&path).unwrap();
    assert_eq!(rows(&reader, "SELECT * FROM locks"), Vec::<String>::new());

    let mut session = lease_entry(7);
    session.session = Some(SessionEntry {
        opened_at: Timestamp::from_millis(5),
        terms: SessionTerms {
            number: 12,
            adapter: Adapter::new("fuse").unwrap(),
            on_disconnect: OnDisconnect::Release,
            request: None,
            metadata: None,
        },
    });
    session.pieces = vec![PieceEntry {
        inode: 42,
        range: ByteRange::half_open(100, Some(200)).unwrap(),
        owner: Owner::of(&Principal::new("k8s/prod").unwrap(), "worker-1").unwrap(),
        mode: Mode::Shared,
        tokens: vec![fence(3), fence(9)],
        granted_at: Timestamp::from_millis(6),
        reclaim_window: leasehold_core::Millis::new(500),
        metadata: Some("by hand".into()),
    }];
    let mut lapsed = lease_entry(8);
    lapsed.lapsed = Some(Ending::Expired);
    let entries =
        [counters(epoch, 77), Entry::Lease(Box::new(session)), Entry::Lease(Box::new(lapsed))];
    let chunk = Chunk::new(epoch, Seq(1), 0, &entries);
    block_on(journal.put_chunk(chunk)).unwrap();
    assert_eq!(rows(&reader, "SELECT * FROM locks"), Vec::<String>::new());
    block_on(journal.commit_snapshot(epoch, Seq(1), 1)).unwrap();

    assert_eq!(
        rows(&reader, "SELECT * FROM locks"),
        [
            "default job/7 worker-1 anonymous exclusive 7 1700000000007 30000 0 held 12 -",
            "default inode:42@100..200 worker-1 k8s/prod shared 9 6 30000 500 held 12 by hand",
            "default job/8 worker-1 anonymous exclusive 8 1700000000008 30000 0 reclaim_window - -",
        ]
    );
    let as_of = "SELECT revision, record, rows, left_out FROM locks_as_of";
    assert_eq!(rows(&reader, as_of), ["77 1 3 0"]);
}

#[test]
fn table_of_locks_is_bounded_and_says_what_it_leaves_out() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let options = Options { locks_rows_max: 1500, ..Options::default() };
    let journal = open_with(&path, options);
    let epoch = lead(&*journal);
    append(&*journal, batch(epoch, 1));
    snapshot(&*journal, epoch, 1, 4000);
    append(&*journal, batch(epoch, 2));
    snapshot(&*journal, epoch, 2, 3000);
    let reader = Connection::open(&path).unwrap();
    let as_of = "SELECT record, rows, left_out FROM locks_as_of";
    assert_eq!(rows(&reader, as_of), ["2 1500 1500"]);
    assert_eq!(rows(&reader, "SELECT count(*) FROM locks"), ["1500"]);
    // Of the snapshot before nothing is left.
    assert_eq!(rows(&reader, "SELECT count(*) FROM lock_rows"), ["1500"]);
    assert_eq!(rows(&reader, "SELECT count(*) FROM chunks"), ["3"]);
    assert_eq!(rows(&reader, "SELECT count(*) FROM snapshots"), ["1"]);
}

#[test]
fn somebody_who_reads_does_not_stop_the_server() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    let epoch = lead(&*journal);
    append(&*journal, batch(epoch, 1));
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM journal").unwrap();
    for seq in 2..=3000 {
        append(&*journal, batch(epoch, seq));
    }
    assert_eq!(rows(&reader, "SELECT count(*) FROM journal"), ["1"]);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&reader, "SELECT count(*) FROM journal"), ["3000"]);
    for seq in 3001..=6000 {
        append(&*journal, batch(epoch, seq));
    }
    let log = folder.path().join("locks.db-wal");
    let log_bytes = fs::metadata(log).unwrap().len();
    assert!(log_bytes < 36 << 20, "the log has {log_bytes} bytes");
}

#[test]
fn somebody_who_writes_makes_the_store_unavailable_for_that_time() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    let epoch = lead(&*journal);
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    match block_on(journal.append(batch(epoch, 1))) {
        Err(Error::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    writer.execute_batch("ROLLBACK").unwrap();
    append(&*journal, batch(epoch, 1));
}

/// Appends that many records of about 500 bytes, with a snapshot now and then; the largest that file and log became.
fn churn(path: &Path, records: u64, per_snapshot: u64) -> (u64, u64) {
    let journal = open(path);
    let epoch = lead(&*journal);
    let (mut file, mut log) = (0, 0);
    for seq in 1..=records {
        let transitions: Vec<_> = (0..10).map(|number| granted(seq * 10 + number)).collect();
        append(&*journal, Batch::new(epoch, Seq(seq), &transitions));
        if seq % per_snapshot == 0 {
            snapshot(&*journal, epoch, seq, 2000);
            let len = |suffix: &str| {
                let path = format!("{}{suffix}", path.display());
                fs::metadata(path).map_or(0, |metadata| metadata.len())
            };
            file = file.max(len(""));
            log = log.max(len("-wal"));
        }
    }
    (file, log)
}

#[test]
fn file_stays_small_however_much_is_written() {
    let folder = fast_folder();
    let (file, log) = churn(&folder.path().join("locks.db"), 20_000, 1000);
    // 20 000 records are 10 MB, and 20 snapshots are 4 MB and as much again for the table of locks.
    assert!(file < 3 << 20, "the file became {file} bytes");
    assert!(log < 8 << 20, "the log became {log} bytes");
}

#[test]
#[ignore = "takes a minute"]
fn file_stays_small_after_a_million_records() {
    let folder = fast_folder();
    let (file, log) = churn(&folder.path().join("locks.db"), 1_000_000, 1000);
    println!("file {file} bytes, log {log} bytes");
    assert!(file < 3 << 20, "the file became {file} bytes");
    assert!(log < 8 << 20, "the log became {log} bytes");
}

#[test]
fn file_shrinks_again_after_a_peak() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    let epoch = lead(&*journal);
    append(&*journal, batch(epoch, 1));
    snapshot(&*journal, epoch, 1, 100_000);
    let peak = fs::metadata(&path).unwrap().len();
    append(&*journal, batch(epoch, 2));
    snapshot(&*journal, epoch, 2, 10);
    drop(journal);
    let rest = fs::metadata(&path).unwrap().len();
    assert!(peak > 8 << 20, "{peak}");
    assert!(rest < 6 << 20, "from {peak} to {rest}");
    let journal = open(&path);
    assert_eq!(load(&*journal, lead(&*journal)).len(), 1);
}

#[test]
fn pruning_removes_what_an_unfinished_snapshot_left() {
    let folder = fast_folder();
    let path = folder.path().join("locks.db");
    let journal = open(&path);
    let epoch = lead(&*journal);
    append(&*journal, batch(epoch, 1));
    for index in 0..3 {
        let chunk = chunk(epoch, 1, index, 0..500);
        block_on(journal.put_chunk(chunk)).unwrap();
    }
    let reader = Connection::open(&path).unwrap();
    while block_on(journal.prune(epoch)).unwrap() == Pruned::Partial {}
    assert_eq!(rows(&reader, "SELECT count(*) FROM chunks"), ["3"]);
    let epoch = lead(&*journal);
    while block_on(journal.prune(epoch)).unwrap() == Pruned::Partial {}
    assert_eq!(rows(&reader, "SELECT count(*) FROM chunks"), ["0"]);
    assert_eq!(rows(&reader, "SELECT count(*) FROM lock_rows"), ["0"]);
    assert_eq!(rows(&reader, "SELECT count(*) FROM snapshots"), ["0"]);
}
