//! What several of these tests need.
#![allow(dead_code, reason = "no test needs all of it")]

pub(crate) mod certificates;
pub(crate) mod polling;
pub(crate) mod shared;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Claim, Entry, Epoch, FencingToken, GrantEntry, Granted, LeaseEntry, LeaseId, Millis, Mode,
    Namespace, Owner, Revision, Scope, Timestamp, Transition,
};
use leasehold_store::conformance::block_on;
use leasehold_store::sqlite::{Options, SqliteJournal};
use leasehold_store::{Batch, Campaign, Candidate, Chunk, Journal, Loaded, Position, Pruned, Seq};
use tempfile::TempDir;

/// A folder for tests that write much and cut no power: in memory where there is such a place.
pub(crate) fn fast_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    folder.expect("a folder can be made")
}

pub(crate) fn open(path: &Path) -> Arc<SqliteJournal> {
    open_with(path, Options::default())
}

pub(crate) fn open_with(path: &Path, options: Options) -> Arc<SqliteJournal> {
    Arc::new(SqliteJournal::open(path, options).expect("the file can be opened"))
}

pub(crate) fn candidate() -> Candidate {
    Candidate {
        name: "node-1".into(),
        address: "node-1.example:7420".into(),
        lease: Duration::from_secs(10),
    }
}

pub(crate) fn lead(journal: &dyn Journal) -> Epoch {
    match block_on(journal.campaign(candidate(), None)).expect("a campaign can be held") {
        Campaign::Won(leadership) => leadership.epoch,
        Campaign::Lost(leader) => panic!("{leader:?} leads"),
    }
}

pub(crate) fn scope(number: u64) -> Scope {
    Scope::parse(&format!("job/{number}")).expect("it is a scope")
}

pub(crate) fn owner() -> Owner {
    Owner::new("worker-1").expect("it is a name")
}

pub(crate) fn fence(number: u64) -> FencingToken {
    FencingToken::new(number).expect("numbers in tests are small")
}

pub(crate) fn granted(number: u64) -> Transition {
    Transition::Granted(Granted {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(number)),
        opens: Some(Millis::from_secs(30)),
        owner: owner(),
        claims: vec![Claim { scope: scope(number), mode: Mode::Exclusive }],
        fence: fence(number),
        granted_at: Timestamp::from_millis(1_700_000_000_000 + number),
        reclaim_window: Millis::ZERO,
        request: None,
        metadata: None,
    })
}

pub(crate) fn batch(epoch: Epoch, seq: u64) -> Batch {
    Batch::new(epoch, Seq(seq), [&granted(seq)])
}

pub(crate) fn append(journal: &dyn Journal, batch: Batch) {
    let seq = batch.seq();
    let done = block_on(journal.append(batch));
    done.unwrap_or_else(|error| panic!("record {seq} should be written: {error:?}"));
}

pub(crate) fn counters(epoch: Epoch, number: u64) -> Entry {
    Entry::Counters { epoch, fence: fence(number), revision: Revision(number) }
}

pub(crate) fn lease_entry(number: u64) -> LeaseEntry {
    let Scope::Key(key) = scope(number) else { unreachable!("a plain name is a key") };
    LeaseEntry {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(number)),
        owner: owner(),
        ttl: Millis::from_secs(30),
        session: None,
        lapsed: None,
        ending: None,
        grants: vec![GrantEntry {
            key,
            owner: owner(),
            mode: Mode::Exclusive,
            fence: fence(number),
            granted_at: Timestamp::from_millis(1_700_000_000_000 + number),
            reclaim_window: Millis::ZERO,
            request: None,
            metadata: None,
        }],
        pieces: Vec::new(),
        sets: Vec::new(),
        requests: Vec::new(),
    }
}

pub(crate) fn chunk(epoch: Epoch, as_of: u64, index: u32, leases: std::ops::Range<u64>) -> Chunk {
    let mut entries: Vec<Entry> =
        leases.map(|number| Entry::Lease(Box::new(lease_entry(number)))).collect();
    entries.push(counters(epoch, as_of));
    Chunk::new(epoch, Seq(as_of), index, &entries)
}

/// Writes a snapshot of that many leases and prunes behind it.
pub(crate) fn snapshot(journal: &dyn Journal, epoch: Epoch, as_of: u64, leases: u64) {
    let mut index = 0;
    for first in (0..leases.max(1)).step_by(1000) {
        let chunk = chunk(epoch, as_of, index, first..leases.min(first + 1000));
        block_on(journal.put_chunk(chunk)).expect("a chunk can be written");
        index += 1;
    }
    let committed = block_on(journal.commit_snapshot(epoch, Seq(as_of), index));
    committed.expect("a whole snapshot can be committed");
    while block_on(journal.prune(epoch)).expect("it can be pruned") == Pruned::Partial {}
}

pub(crate) fn load(journal: &dyn Journal, epoch: Epoch) -> Vec<Loaded> {
    let mut items = Vec::new();
    let mut next = Some(Position::Start);
    while let Some(position) = next {
        let page = block_on(journal.load(epoch, position)).expect("it can be loaded");
        items.extend(page.items);
        next = page.next;
    }
    items
}

/// This test program again, to run one of its ignored tests in a process of its own.
pub(crate) fn child(test: &str, file: &Path) -> Command {
    let program = std::env::current_exe().expect("the test knows its own program");
    let mut command = Command::new(program);
    in_child(&mut command, test, file);
    command
}

pub(crate) fn in_child(command: &mut Command, test: &str, file: &Path) {
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(FILE, file);
}

const FILE: &str = "LEASEHOLD_TEST_FILE";

/// The file that a child is to work on; `None` if nobody started it as one.
pub(crate) fn child_file() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}
