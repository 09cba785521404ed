//! Backups, and that no fence is handed out twice after one was restored.
#![allow(clippy::unwrap_used, reason = "in a test the panic is the report")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::*;
use leasehold_core::{Epoch, FencingToken, Transition};
use leasehold_store::conformance::block_on;
use leasehold_store::sqlite::{OldTokens, Restored, backup, restore};
use leasehold_store::{Batch, Error, Loaded, Seq};
use rusqlite::Connection;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A store with a snapshot as of record 5 and records up to 8.
fn fill(path: &Path) -> Epoch {
    let journal = open(path);
    let epoch = lead(&*journal);
    for seq in 1..=8 {
        append(&*journal, batch(epoch, seq));
        if seq == 5 {
            snapshot(&*journal, epoch, 5, 2500);
        }
    }
    epoch
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Makes the backup look as if it had been taken that long ago.
fn age(path: &Path, age: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let then = i64::try_from((now - age).as_millis()).unwrap();
    let connection = Connection::open(path).unwrap();
    let changed = connection.execute("UPDATE leadership SET written_at_ms = ?1", [then]).unwrap();
    assert_eq!(changed, 1);
}

#[test]
fn backup_is_one_plain_file_with_everything_in_it() {
    let folder = fast_folder();
    let (from, to) = (folder.path().join("locks.db"), folder.path().join("copy.db"));
    fill(&from);
    let journal = open(&from);
    let taken = block_on(journal.backup(&to)).unwrap();
    assert_eq!(taken.last, Seq(8));
    assert_eq!(taken.byte_len, fs::metadata(&to).unwrap().len());
    let epoch = lead(&*journal);
    let expected = load(&*journal, epoch);
    drop(journal);
    assert_eq!(names(folder.path()), ["copy.db", "locks.db", "locks.db.lock"]);
    let copy = open(&to);
    assert_eq!(load(&*copy, lead(&*copy)), expected);
}

#[test]
fn backup_shows_one_moment_while_the_server_goes_on() {
    let folder = fast_folder();
    let from = folder.path().join("locks.db");
    let journal = open(&from);
    let epoch = lead(&*journal);
    let written = AtomicU64::new(0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1.. {
                append(&*journal, batch(epoch, seq));
                written.store(seq, Ordering::SeqCst);
                if seq % 500 == 0 {
                    snapshot(&*journal, epoch, seq, 100);
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        for number in 0..8 {
            while written.load(Ordering::SeqCst) < number * 200 + 1 {
                std::thread::yield_now();
            }
            let to = folder.path().join(format!("copy-{number}.db"));
            let before = written.load(Ordering::SeqCst);
            let taken = backup(&from, &to).unwrap();
            let after = written.load(Ordering::SeqCst) + 1;
            assert!((before..=after).contains(&taken.last.0), "{before} {taken:?} {after}");
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn backup_never_overwrites() {
    let folder = fast_folder();
    let (from, to) = (folder.path().join("locks.db"), folder.path().join("copy.db"));
    fill(&from);
    fs::write(&to, "precious").unwrap();
    let refusal = backup(&from, &to).unwrap_err().to_string();
    assert!(refusal.ends_with("copy.db is there already"), "{refusal}");
    assert_eq!(fs::read(&to).unwrap(), b"precious");
}

#[test]
fn backup_of_a_corrupt_store_is_refused_and_leaves_nothing() {
    let folder = fast_folder();
    let (from, to) = (folder.path().join("locks.db"), folder.path().join("copy.db"));
    fill(&from);
    let connection = Connection::open(&from).unwrap();
    connection.execute("UPDATE journal SET record = x'0101' WHERE seq = 7", []).unwrap();
    drop(connection);
    match backup(&from, &to) {
        Err(error @ Error::Corrupt { .. }) => {
            assert!(error.to_string().contains("record 7"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let left = names(folder.path());
    assert!(left.iter().all(|name| !name.starts_with("copy")), "{left:?}");
}

fn restored(folder: &Path) -> (Restored, Epoch) {
    let (from, taken) = (folder.join("locks.db"), folder.join("copy.db"));
    let epoch = fill(&from);
    backup(&from, &taken).unwrap();
    let restored = restore(&taken, &folder.join("new.db"), None, OldTokens::Keep).unwrap();
    (restored, epoch)
}

#[test]
fn restored_store_has_everything_and_a_jump_behind_it() {
    let folder = fast_folder();
    let (restored, epoch) = restored(folder.path());
    assert_eq!(restored.last, Seq(8));
    let journal = open(&folder.path().join("new.db"));
    let new = lead(&*journal);
    let items = load(&*journal, new);
    let mut jumps = Vec::new();
    let mut records = Vec::new();
    for item in &items {
        match item {
            Loaded::Batch(batch) => {
                records.push(batch.seq().0);
                for transition in batch.transitions() {
                    if let Transition::Jumped { epoch, fence } = transition.unwrap() {
                        jumps.push((epoch, fence));
                    }
                }
            }
            Loaded::Chunk(chunk) => assert_eq!(chunk.epoch(), epoch),
            Loaded::Torn { .. } => panic!("{item:?}"),
        }
    }
    // The jump is not the last record: that is the only one that could ever be left out.
    assert_eq!(records, [6, 7, 8, 9, 10]);
    assert_eq!(jumps, [(restored.epoch, restored.fence)]);
    assert!(new > restored.epoch, "{new:?} {restored:?}");
    append(&*journal, batch(new, 11));
}

#[test]
fn restored_counters_are_above_all_that_can_have_been_handed_out_since() {
    let folder = fast_folder();
    let (restored_now, epoch) = restored(folder.path());
    assert!(restored_now.fence.get() >= 8 + (1 << 32));
    assert!(restored_now.epoch.0 >= epoch.0 + 1000);
    let old = folder.path().join("copy.db");
    for (number, days) in [1, 7, 365].into_iter().enumerate() {
        age(&old, DAY * days);
        let to = folder.path().join(format!("new-{number}.db"));
        let restored = restore(&old, &to, None, OldTokens::Keep).unwrap();
        let seconds = u64::from(days) * DAY.as_secs();
        // More than a million grants and a hundred starts for every second that has passed.
        assert!(restored.fence.get() > seconds * 1_000_000, "{restored:?}");
        assert!(restored.epoch.0 > seconds * 100, "{restored:?}");
        assert!(restored.age >= DAY * days);
    }
}

#[test]
fn restoring_twice_goes_higher_each_time() {
    let folder = fast_folder();
    let (first, _) = restored(folder.path());
    let second_backup = folder.path().join("second.db");
    backup(&folder.path().join("new.db"), &second_backup).unwrap();
    let second =
        restore(&second_backup, &folder.path().join("newer.db"), None, OldTokens::Keep).unwrap();
    assert!(second.fence > first.fence && second.epoch > first.epoch);
    assert_eq!(second.last, Seq(10));
}

#[test]
fn backup_that_seems_very_old_needs_a_fence_to_stay_above() {
    let folder = fast_folder();
    let (from, taken) = (folder.path().join("locks.db"), folder.path().join("copy.db"));
    fill(&from);
    backup(&from, &taken).unwrap();
    age(&taken, DAY * 500);
    let to = folder.path().join("new.db");
    let refusal = restore(&taken, &to, None, OldTokens::Keep).unwrap_err().to_string();
    assert!(refusal.contains("500 days old"), "{refusal}");
    // An empty file would be taken for a new store.
    assert!(!to.exists());
    let above = FencingToken::new(1 << 50).unwrap();
    let restored = restore(&taken, &to, Some(above), OldTokens::Keep).unwrap();
    assert_eq!(restored.fence, above);
}

#[test]
fn fences_that_would_run_out_are_refused() {
    let folder = fast_folder();
    let (from, to) = (folder.path().join("locks.db"), folder.path().join("new.db"));
    let journal = open(&from);
    let epoch = lead(&*journal);
    let jumped = Transition::Jumped { epoch, fence: FencingToken::MAX };
    append(&*journal, Batch::new(epoch, Seq(1), [&jumped]));
    drop(journal);
    let refusal = restore(&from, &to, None, OldTokens::Keep).unwrap_err().to_string();
    assert!(refusal.contains("leaves too few"), "{refusal}");
    assert!(!to.exists());
}

#[test]
fn restore_above_a_token_that_leaves_too_few_is_refused_before_anything_is_written() {
    let folder = fast_folder();
    let (from, to) = (folder.path().join("locks.db"), folder.path().join("new.db"));
    fill(&from);
    let before = names(folder.path());
    for above in [FencingToken::MAX, FencingToken::new(FencingToken::JUMP_MAX.get() + 1).unwrap()] {
        let refusal = restore(&from, &to, Some(above), OldTokens::Keep).unwrap_err().to_string();
        assert!(refusal.contains("leaves too few"), "{refusal}");
        assert_eq!(names(folder.path()), before);
    }
    let restored = restore(&from, &to, Some(FencingToken::JUMP_MAX), OldTokens::Keep).unwrap();
    assert_eq!(restored.fence, FencingToken::JUMP_MAX);
}

#[test]
fn restore_never_overwrites() {
    let folder = fast_folder();
    let (from, taken) = (folder.path().join("locks.db"), folder.path().join("copy.db"));
    fill(&from);
    backup(&from, &taken).unwrap();
    let before = fs::read(&from).unwrap();
    let refusal = restore(&taken, &from, None, OldTokens::Keep).unwrap_err().to_string();
    assert!(refusal.ends_with("locks.db is there already"), "{refusal}");
    assert_eq!(fs::read(&from).unwrap(), before);
}

#[test]
fn restore_leaves_the_backup_as_it_is() {
    let folder = fast_folder();
    let taken = folder.path().join("copy.db");
    restored(folder.path());
    let before = fs::read(&taken).unwrap();
    restore(&taken, &folder.path().join("again.db"), None, OldTokens::Keep).unwrap();
    assert_eq!(fs::read(&taken).unwrap(), before);
}

#[test]
fn torn_last_record_of_a_backup_is_left_out() {
    let folder = fast_folder();
    let (from, to) = (folder.path().join("locks.db"), folder.path().join("new.db"));
    fill(&from);
    let connection = Connection::open(&from).unwrap();
    connection.execute("UPDATE journal SET record = x'0101' WHERE seq = 8", []).unwrap();
    drop(connection);
    let restored = restore(&from, &to, None, OldTokens::Keep).unwrap();
    assert_eq!(restored.last, Seq(7));
    let journal = open(&to);
    let items = load(&*journal, lead(&*journal));
    assert!(items.iter().all(|item| !matches!(item, Loaded::Torn { .. })));
    append(&*journal, batch(lead(&*journal), 10));
}
