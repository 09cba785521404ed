//! A disk that fails, under the real SQLite: nothing that was promised is lost, nothing that was refused is there.
//!
//! A child process writes records and tells what it was answered. `strace` lets one of its system calls fail, or
//! kills it there. Then the file is opened and compared with what was told. Where strace cannot be used these tests
//! say so and pass.
#![allow(clippy::unwrap_used, reason = "in a test the panic is the report")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::*;
use leasehold_core::{Epoch, Transition};
use leasehold_store::conformance::block_on;
use leasehold_store::sqlite::Options;
use leasehold_store::{Batch, Error, Journal, Loaded, Seq};

const RECORDS: u64 = 40;
const SNAPSHOT_EVERY: u64 = 15;

/// The first part of what goes wrong: which calls on the database and its log.
const SYNCS: &str = "fsync,fdatasync";
const WRITES: &str = "pwrite64,write";

/// Runs the child under strace with that fault; what it told. The fault must have happened.
fn run(path: &Path, calls: &str, fault: &str) -> Vec<Told> {
    let trace = path.with_extension("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&trace);
    for suffix in ["", "-wal"] {
        command.arg("-P").arg(format!("{}{suffix}", path.display()));
    }
    command
        .arg("-e")
        .arg(format!("trace={calls}"))
        .arg("-e")
        .arg(format!("inject={calls}:{fault}"))
        .arg(std::env::current_exe().unwrap());
    in_child(&mut command, "writes_records", path);
    let output = command.stderr(Stdio::null()).output().unwrap();
    let traced = fs::read_to_string(&trace).unwrap();
    let happened = ["INJECTED", "+++ killed by SIGKILL"];
    assert!(happened.iter().any(|mark| traced.contains(mark)), "{calls} {fault}: {traced}");
    String::from_utf8_lossy(&output.stdout).lines().filter_map(Told::read).collect()
}

fn strace_works() -> bool {
    let output = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    let works = output.is_ok_and(|status| status.success());
    if !works {
        eprintln!("strace cannot be used here: nothing was tested");
    }
    works
}

/// A line of what the child tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Started,
    /// This attempt at this record was acknowledged.
    Written(u64, u64),
    /// It was certainly not written.
    Refused(u64, u64),
    /// It could not be told before the child gave up.
    Unknown(u64, u64),
    Done,
}

impl Told {
    fn read(line: &str) -> Option<Told> {
        let mut words = line.split_whitespace();
        let word = words.next()?;
        let mut number = || words.next()?.parse().ok();
        Some(match word {
            "started" => Told::Started,
            "written" => Told::Written(number()?, number()?),
            "refused" => Told::Refused(number()?, number()?),
            "unknown" => Told::Unknown(number()?, number()?),
            "done" => Told::Done,
            _ => return None,
        })
    }
}

/// Goes through the records as an engine would: what was refused is tried again with other content.
#[test]
#[ignore = "runs in a process of its own, started by the tests below"]
fn writes_records() {
    let Some(path) = child_file() else { return };
    // So that the log is worked off while records are written, and not only at the end.
    let options = Options { log_pages: 12, ..Options::default() };
    let journal = open_with(&path, options);
    println!("\nstarted");
    let epoch = lead_at_last(&*journal);
    for seq in 1..=RECORDS {
        if !write_one(&*journal, epoch, seq) {
            return;
        }
        if seq % SNAPSHOT_EVERY == 0 {
            try_snapshot(&*journal, epoch, seq);
        }
    }
    println!("done");
}

fn lead_at_last(journal: &dyn Journal) -> Epoch {
    for _ in 0..20 {
        if let Ok(leasehold_store::Campaign::Won(won)) =
            block_on(journal.campaign(candidate(), None))
        {
            return won.epoch;
        }
    }
    panic!("no campaign can be won")
}

fn write_one(journal: &dyn Journal, epoch: Epoch, seq: u64) -> bool {
    for attempt in 0..20 {
        let transition = granted(seq * 100 + attempt);
        let batch = Batch::new(epoch, Seq(seq), [&transition]);
        match block_on(journal.append(batch.clone())) {
            Ok(()) => {
                println!("written {seq} {attempt}");
                return true;
            }
            Err(Error::Unavailable { .. }) => println!("refused {seq} {attempt}"),
            Err(Error::OutcomeUnknown { .. }) => match settle(journal, epoch, &batch) {
                Some(true) => {
                    println!("written {seq} {attempt}");
                    return true;
                }
                Some(false) => println!("refused {seq} {attempt}"),
                None => {
                    println!("unknown {seq} {attempt}");
                    return false;
                }
            },
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. } | Error::Newer { .. })) => {
                panic!("{error:?}")
            }
        }
    }
    false
}

fn settle(journal: &dyn Journal, epoch: Epoch, batch: &Batch) -> Option<bool> {
    for _ in 0..20 {
        match block_on(journal.read_back(epoch, batch.seq())) {
            Ok(found) => return Some(found.as_ref() == Some(batch)),
            Err(Error::Unavailable { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    None
}

/// A snapshot that fails is no harm: the next one will do.
fn try_snapshot(journal: &dyn Journal, epoch: Epoch, as_of: u64) {
    let _ = block_on(async {
        journal.put_chunk(chunk(epoch, as_of, 0, 0..200)).await?;
        journal.commit_snapshot(epoch, Seq(as_of), 1).await?;
        journal.prune(epoch).await
    });
}

/// The file has every record that was acknowledged, and none that was refused.
fn check(path: &Path, told: &[Told], context: &str) {
    let journal = open(path);
    let epoch = lead(&*journal);
    let items = load(&*journal, epoch);
    let mut as_of = 0;
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for item in &items {
        match item {
            Loaded::Chunk(chunk) => as_of = chunk.as_of().0,
            Loaded::Batch(batch) => {
                found.insert(batch.seq().0, attempt(batch));
            }
            Loaded::Torn { .. } => panic!("{context}: {item:?}"),
        }
    }
    for told in told {
        match *told {
            Told::Written(seq, attempt) => assert!(
                seq <= as_of || found.get(&seq) == Some(&attempt),
                "{context}: record {seq} was acknowledged; found {found:?} after {as_of}"
            ),
            Told::Refused(seq, attempt) => assert!(
                found.get(&seq) != Some(&attempt),
                "{context}: attempt {attempt} at record {seq} was refused; found {found:?}"
            ),
            Told::Started | Told::Unknown(..) | Told::Done => {}
        }
    }
    let next = found.keys().last().map_or(as_of, |last| *last) + 1;
    append(&*journal, batch(epoch, next));
}

fn attempt(batch: &Batch) -> u64 {
    match batch.transitions().next() {
        Some(Ok(Transition::Granted(granted))) => granted.fence.get() % 100,
        other => panic!("{other:?}"),
    }
}

/// One failing call at each of these places, then the disk works again: the child gets to the end. How many attempts
/// were refused.
fn survives(calls: &str, error: &str, places: impl Iterator<Item = u32>) -> usize {
    let mut refused = 0;
    for place in places {
        let folder = fast_folder();
        let path = folder.path().join("locks.db");
        // What happens while the file is made is another matter.
        drop(open(&path));
        let fault = format!("error={error}:when={place}");
        let told = run(&path, calls, &fault);
        let context = format!("{calls} {fault}");
        assert_eq!(told.last(), Some(&Told::Done), "{context}: {told:?}");
        refused += told.iter().filter(|told| matches!(told, Told::Refused(..))).count();
        check(&path, &told, &context);
    }
    refused
}

// What was written but not synced is mostly found when the file is opened again, and made durable then. So it
// depends on the place whether anything is refused.
#[test]
fn failing_sync_loses_nothing() {
    if strace_works() {
        survives(SYNCS, "EIO", (1..54).step_by(5));
    }
}

#[test]
fn failing_write_loses_nothing() {
    if strace_works() {
        assert!(survives(WRITES, "EIO", (1..110).step_by(11)) > 0);
    }
}

#[test]
fn write_without_room_loses_nothing() {
    if strace_works() {
        assert!(survives(WRITES, "ENOSPC", (2..110).step_by(11)) > 0);
    }
}

#[test]
fn disk_that_fails_for_good_acknowledges_nothing_more() {
    if !strace_works() {
        return;
    }
    for (calls, error, place) in [(SYNCS, "EIO", 20), (WRITES, "EIO", 45), (WRITES, "ENOSPC", 44)] {
        let folder = fast_folder();
        let path = folder.path().join("locks.db");
        drop(open(&path));
        let fault = format!("error={error}:when={place}+");
        let told = run(&path, calls, &fault);
        let context = format!("{calls} {fault}");
        assert_ne!(told.last(), Some(&Told::Done), "{context}");
        let written = told.iter().filter(|told| matches!(told, Told::Written(..))).count();
        assert!((5..30).contains(&written), "{context}: {told:?}");
        check(&path, &told, &context);
    }
}

#[test]
fn kill_at_any_moment_loses_nothing() {
    if !strace_works() {
        return;
    }
    let places = (1..50).step_by(7);
    let kills = places.flat_map(|place| [(SYNCS, place), (WRITES, place * 2)]);
    for (calls, place) in kills {
        let folder = fast_folder();
        let path = folder.path().join("locks.db");
        drop(open(&path));
        let fault = format!("signal=KILL:when={place}");
        let told = run(&path, calls, &fault);
        assert!(!told.contains(&Told::Done), "{calls} {fault}");
        check(&path, &told, &format!("{calls} {fault}"));
    }
}

#[test]
#[ignore = "takes a minute"]
fn fault_at_every_single_place_loses_nothing() {
    if strace_works() {
        assert!(survives(SYNCS, "EIO", 1..54) > 0);
        assert!(survives(WRITES, "EIO", 1..110) > 0);
        assert!(survives(WRITES, "ENOSPC", 1..110) > 0);
    }
}
