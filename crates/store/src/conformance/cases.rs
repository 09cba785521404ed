//! The cases. Each is the sentence that its name is.

use leasehold_core::{Ending, Epoch, Granted, LeaseId, Millis, Namespace, Transition};

use super::steps::*;
use super::{Corruption, Harness, InjectedFault};
use crate::error::Error;
use crate::journal::{Campaign, Loaded, Pruned, Seq};
use crate::record::Batch;

pub async fn records_come_back_in_order(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_eq!(loaded(&store, epoch).await, []);
    append_all(&store, epoch, 1, 20).await;
    let (items, _) = load(&store, epoch).await.expect("the load works");
    let expected: Vec<Loaded> = (1..=20).map(|seq| Loaded::Batch(batch(epoch, seq))).collect();
    assert_eq!(items, expected);
}

pub async fn records_are_there_after_reopening(harness: &dyn Harness) {
    let store = harness.open().await;
    append_all(&store, lead(&store).await, 1, 3).await;
    drop(store);
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_eq!(loaded(&store, epoch).await, records(1, 3));
    append(&store, batch(epoch, 4)).await;
    drop(store);
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_eq!(loaded(&store, epoch).await, records(1, 4));
}

pub async fn every_kind_of_transition_comes_back(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    let written = several_transitions(epoch);
    append(&store, Batch::new(epoch, Seq(1), &written)).await;
    let (items, _) = load(&store, epoch).await.expect("the load works");
    let [Loaded::Batch(found)] = items.as_slice() else {
        panic!("there should be one record: {items:?}")
    };
    let found: Result<Vec<Transition>, _> = found.transitions().collect();
    assert_eq!(found.as_ref(), Ok(&written));
}

fn several_transitions(epoch: Epoch) -> Vec<Transition> {
    let Transition::Granted(plain) = granted(7) else { unreachable!("it is a grant") };
    let rich = Granted {
        opens: None,
        reclaim_window: Millis::from_secs(5),
        metadata: Some("ünïcode \u{1f512}".into()),
        ..plain.clone()
    };
    let lease = LeaseId::from_u128(u128::MAX);
    vec![
        Transition::EpochBegan { epoch },
        Transition::Granted(plain),
        Transition::Granted(rich),
        Transition::TtlChanged {
            namespace: Namespace::default(),
            lease,
            ttl: Millis::new(u32::MAX),
        },
        Transition::LeaseEnded {
            namespace: Namespace::default(),
            lease,
            ending: Ending::Revoked("a reason".into()),
        },
    ]
}

pub async fn large_journal_is_loaded_in_pages(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    for seq in 1..=12 {
        append(&store, large_batch(epoch, seq, 400_000)).await;
    }
    let (items, pages) = load(&store, epoch).await.expect("the load works");
    assert_eq!(items.len(), 12);
    assert!(pages > 2, "5 MB came in {pages} pages");
    assert_eq!(loaded(&store, epoch).await, records(1, 12));
}

/// More than any store looks at for one page.
pub async fn journal_of_many_small_records_is_loaded_whole(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 2100).await;
    assert_eq!(loaded(&store, epoch).await, records(1, 2100));
}

pub async fn record_out_of_order_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_out_of_order(store.append(batch(epoch, 0)).await, 1);
    assert_out_of_order(store.append(batch(epoch, 2)).await, 1);
    append_all(&store, epoch, 1, 2).await;
    for seq in [0, 1, 2, 4, u64::MAX] {
        assert_out_of_order(store.append(batch(epoch, seq)).await, 3);
    }
    assert_eq!(loaded(&store, epoch).await, records(1, 2));
}

pub async fn record_of_an_epoch_that_never_led_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    assert_deposed(store.append(batch(Epoch(0), 1)).await);
    let epoch = lead(&store).await;
    for wrong in [0, epoch.0 + 1, u64::MAX] {
        assert_deposed(store.append(batch(Epoch(wrong), 1)).await);
    }
    assert_eq!(loaded(&store, epoch).await, []);
}

pub async fn each_campaign_raises_the_epoch(harness: &dyn Harness) {
    let store = harness.open().await;
    let first = lead(&store).await;
    let second = lead(&store).await;
    let third = lead(&store).await;
    assert!(Epoch(0) < first && first < second && second < third);
}

pub async fn epoch_goes_on_after_reopening(harness: &dyn Harness) {
    let store = harness.open().await;
    let first = lead(&store).await;
    drop(store);
    let store = harness.open().await;
    assert!(lead(&store).await > first);
}

pub async fn deposed_leader_commits_nothing(harness: &dyn Harness) {
    let store = harness.open().await;
    let old = lead(&store).await;
    append_all(&store, old, 1, 2).await;
    snapshot(&store, old, 1, 1).await;
    let new = lead(&store).await;
    assert_can_do_nothing(&store, old).await;
    assert_eq!(loaded(&store, new).await, [chunks(1, 1), records(2, 2)].concat());
    append(&store, batch(new, 3)).await;
    assert_can_do_nothing(&store, old).await;
    assert_eq!(loaded(&store, new).await, [chunks(1, 1), records(2, 3)].concat());
}

pub async fn leader_that_resigned_commits_nothing(harness: &dyn Harness) {
    let store = harness.open().await;
    let old = lead(&store).await;
    append_all(&store, old, 1, 2).await;
    store.resign(old).await.expect("a leader may resign");
    assert_can_do_nothing(&store, old).await;
    assert_deposed(store.resign(old).await);
    let new = lead(&store).await;
    assert!(new > old);
    assert_eq!(loaded(&store, new).await, records(1, 2));
}

async fn assert_can_do_nothing(store: &Store, epoch: Epoch) {
    for seq in 1..=4 {
        assert_deposed(store.append(batch(epoch, seq)).await);
    }
    assert_deposed(store.confirm(epoch).await);
    assert_deposed(store.read_back(epoch, Seq(1)).await);
    assert_deposed(store.put_chunk(chunk(epoch, 2, 0)).await);
    assert_deposed(store.commit_snapshot(epoch, Seq(2), 1).await);
    assert_deposed(store.prune(epoch).await);
    assert_deposed(load(store, epoch).await);
}

pub async fn campaign_against_a_live_leader_is_lost(harness: &dyn Harness) {
    let store = harness.open().await;
    if !store.caps().shared {
        return;
    }
    let other = harness.open().await;
    let epoch = lead(&store).await;
    let stale = silent_leader(&other).await;
    store.confirm(epoch).await.expect("a leader can confirm");
    for overdue in [None, stale] {
        let campaign = other.campaign(candidate("node-2"), overdue).await;
        match campaign.expect("a campaign can be held") {
            Campaign::Lost(leader) => assert_eq!(leader.name, "node-1"),
            Campaign::Won(_) => panic!("won against a leader that was there"),
        }
    }
    append(&store, batch(epoch, 1)).await;
}

pub async fn campaign_against_an_overdue_leader_is_won(harness: &dyn Harness) {
    let store = harness.open().await;
    if !store.caps().shared {
        return;
    }
    let other = harness.open().await;
    let old = lead(&store).await;
    store.confirm(old).await.expect("a leader can confirm");
    let new = lead(&other).await;
    assert!(new > old);
    assert_deposed(store.append(batch(old, 1)).await);
    append(&other, batch(new, 1)).await;
}

pub async fn leader_is_known_until_it_resigns(harness: &dyn Harness) {
    let store = harness.open().await;
    assert_eq!(store.leader().await.expect("it can be read"), None);
    let epoch = lead(&store).await;
    store.confirm(epoch).await.expect("a leader can confirm");
    let leader = store.leader().await.expect("it can be read");
    let leader = leader.expect("there is a leader");
    assert_eq!(leader.beat.epoch, epoch);
    let shown = candidate("node-1");
    assert_eq!(
        (leader.name, leader.address, leader.lease),
        (shown.name, shown.address, shown.lease)
    );
    store.resign(epoch).await.expect("a leader may resign");
    assert_eq!(store.leader().await.expect("it can be read"), None);
}

pub async fn epoch_that_was_jumped_is_gone_on_from(harness: &dyn Harness) {
    let store = harness.open().await;
    let old = lead(&store).await;
    append(&store, batch(old, 1)).await;
    let jumped = Epoch(old.0 + 1000);
    store.jump_epoch(old, jumped).await.expect("it leads");
    assert_unavailable(store.jump_epoch(jumped, old).await);
    assert_can_do_nothing(&store, old).await;
    append(&store, batch(jumped, 2)).await;
    snapshot(&store, jumped, 2, 2).await;
    drop(store);
    let store = harness.open().await;
    let new = lead(&store).await;
    assert!(new > jumped);
    assert_eq!(loaded(&store, new).await, chunks(2, 2));
}

pub async fn torn_last_record_is_left_out(harness: &dyn Harness) {
    for harm in [Corruption::CutRecord(Seq(3)), Corruption::FlipRecord(Seq(3))] {
        let store = harness.open().await;
        let epoch = lead(&store).await;
        if loaded(&store, epoch).await.is_empty() {
            append_all(&store, epoch, 1, 3).await;
        }
        drop(store);
        harness.corrupt(harm).await;
        let store = harness.open().await;
        let epoch = lead(&store).await;
        let (items, _) = load(&store, epoch).await.expect("the load works");
        let Some(Loaded::Torn { seq, fence_jump }) = items.last() else {
            panic!("the last record is torn: {items:?}")
        };
        assert_eq!(*seq, Seq(3));
        assert!(*fence_jump >= 1 << 20);
        assert_eq!(items.len(), 3);
    }
}

pub async fn torn_last_record_is_replaced_by_the_next(harness: &dyn Harness) {
    let store = harness.open().await;
    append_all(&store, lead(&store).await, 1, 3).await;
    drop(store);
    harness.corrupt(Corruption::CutRecord(Seq(3))).await;
    let store = harness.open().await;
    let epoch = lead(&store).await;
    let torn = [records(1, 2), vec![Item::Torn(3)]].concat();
    assert_eq!(loaded(&store, epoch).await, torn);
    assert_out_of_order(store.append(batch(epoch, 4)).await, 3);
    append_all(&store, epoch, 3, 4).await;
    assert_eq!(loaded(&store, epoch).await, records(1, 4));
}

pub async fn torn_last_record_is_found_wherever_the_leader_was_last_confirmed(
    harness: &dyn Harness,
) {
    for behind in 0..3 {
        let store = harness.open().await;
        let epoch = lead(&store).await;
        let last = loaded(&store, epoch).await.len() as u64 + 5;
        append_all(&store, epoch, last - 4, last - behind).await;
        store.confirm(epoch).await.expect("it leads");
        append_all(&store, epoch, last - behind + 1, last).await;
        drop(store);
        harness.corrupt(Corruption::CutRecord(Seq(last))).await;
        let store = harness.open().await;
        let epoch = lead(&store).await;
        let torn = [records(1, last - 1), vec![Item::Torn(last)]].concat();
        assert_eq!(loaded(&store, epoch).await, torn);
        append(&store, batch(epoch, last)).await;
        assert_eq!(loaded(&store, epoch).await, records(1, last));
    }
}

pub async fn lost_replacement_of_a_torn_record_is_settled_by_reading_back(harness: &dyn Harness) {
    for fault in [InjectedFault::LostRequest, InjectedFault::LostAnswer] {
        let store = harness.open().await;
        let epoch = lead(&store).await;
        let last = loaded(&store, epoch).await.len() as u64 + 1;
        append(&store, batch(epoch, last)).await;
        drop(store);
        harness.corrupt(Corruption::CutRecord(Seq(last))).await;
        let store = harness.open().await;
        let epoch = lead(&store).await;
        assert_unknown(append_with(&store, fault, batch(epoch, last)).await);
        let found = store.read_back(epoch, Seq(last)).await.expect("it can be read");
        let is_there = fault == InjectedFault::LostAnswer;
        assert_eq!(found, is_there.then(|| batch(epoch, last)));
        if !is_there {
            append(&store, batch(epoch, last)).await;
        }
        append(&store, batch(epoch, last + 1)).await;
        assert_eq!(loaded(&store, epoch).await, records(1, last + 1));
    }
}

pub async fn torn_record_behind_the_snapshot_does_not_matter(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 3).await;
    snapshot(&store, epoch, 3, 1).await;
    drop(store);
    harness.corrupt(Corruption::FlipRecord(Seq(3))).await;
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_eq!(loaded(&store, epoch).await, chunks(3, 1));
    assert_out_of_order(store.append(batch(epoch, 3)).await, 4);
    append(&store, batch(epoch, 4)).await;
}

pub async fn corrupt_record_in_the_middle_stops_the_load(harness: &dyn Harness) {
    let store = harness.open().await;
    append_all(&store, lead(&store).await, 1, 5).await;
    drop(store);
    harness.corrupt(Corruption::FlipRecord(Seq(3))).await;
    // Nothing puts it right by itself: it is the same the second time.
    for _ in 0..2 {
        let store = harness.open().await;
        let epoch = lead(&store).await;
        let error = load_error(&store, epoch).await;
        assert!(error.contains("record 3"), "{error}");
    }
}

pub async fn missing_record_stops_the_load(harness: &dyn Harness) {
    let store = harness.open().await;
    append_all(&store, lead(&store).await, 1, 40).await;
    drop(store);
    // Wherever it was in a page, and however many are missing behind it.
    for missing in (1..40).rev() {
        harness.corrupt(Corruption::RemoveRecord(Seq(missing))).await;
        let store = harness.open().await;
        let epoch = lead(&store).await;
        let error = load_error(&store, epoch).await;
        assert!(error.contains(&format!("record {missing} is missing")), "{error}");
    }
}

pub async fn record_of_a_newer_version_stops_the_load(harness: &dyn Harness) {
    let store = harness.open().await;
    append_all(&store, lead(&store).await, 1, 2).await;
    drop(store);
    harness.corrupt(Corruption::NewerRecord(Seq(2))).await;
    let store = harness.open().await;
    let epoch = lead(&store).await;
    let Err(error @ Error::Newer { .. }) = load(&store, epoch).await else {
        panic!("the load should find a newer record")
    };
    let newer = format!("format version {}", crate::VERSION + 1);
    assert!(error.to_string().contains(&newer), "{error}");
}

pub async fn corrupt_chunk_stops_the_load(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 2).await;
    snapshot(&store, epoch, 2, 3).await;
    drop(store);
    harness.corrupt(Corruption::FlipChunk(2)).await;
    let store = harness.open().await;
    let epoch = lead(&store).await;
    let error = load_error(&store, epoch).await;
    assert!(error.contains("chunk 2"), "{error}");
}

pub async fn snapshot_takes_the_place_of_the_records_before_it(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 5).await;
    snapshot(&store, epoch, 4, 3).await;
    assert_eq!(loaded(&store, epoch).await, [chunks(4, 3), records(5, 5)].concat());
    append(&store, batch(epoch, 6)).await;
    snapshot(&store, epoch, 6, 2).await;
    assert_eq!(loaded(&store, epoch).await, chunks(6, 2));
    let (items, _) = load(&store, epoch).await.expect("the load works");
    assert_eq!(items[1], Loaded::Chunk(chunk(epoch, 6, 1)));
}

pub async fn pruned_journal_loads_the_same(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 9).await;
    assert_eq!(prune(&store, epoch).await, 1);
    snapshot(&store, epoch, 3, 2).await;
    snapshot(&store, epoch, 7, 2).await;
    let before = load(&store, epoch).await.expect("the load works").0;
    prune(&store, epoch).await;
    assert_eq!(load(&store, epoch).await.expect("the load works").0, before);
    drop(store);
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_eq!(load(&store, epoch).await.expect("the load works").0, before);
}

pub async fn pruned_journal_goes_on_with_the_next_number(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 5).await;
    snapshot(&store, epoch, 5, 1).await;
    prune(&store, epoch).await;
    assert_out_of_order(store.append(batch(epoch, 1)).await, 6);
    drop(store);
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_out_of_order(store.append(batch(epoch, 1)).await, 6);
    append(&store, batch(epoch, 6)).await;
    assert_eq!(loaded(&store, epoch).await, [chunks(5, 1), records(6, 6)].concat());
}

pub async fn pruning_goes_in_short_steps(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 1100).await;
    snapshot(&store, epoch, 1100, 1).await;
    let calls = prune(&store, epoch).await;
    assert!(calls > 1, "1100 records were pruned in {calls} call");
    assert_eq!(store.prune(epoch).await.expect("it works"), Pruned::Done);
}

pub async fn appends_go_on_while_a_snapshot_is_written(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 3).await;
    for index in 0..3 {
        // Both are under way at the same time.
        let put = store.put_chunk(chunk(epoch, 3, index));
        let appended = store.append(batch(epoch, 4 + u64::from(index)));
        appended.await.expect("a record can be written");
        put.await.expect("a chunk can be written");
    }
    let committed = store.commit_snapshot(epoch, Seq(3), 3).await;
    committed.expect("a whole snapshot can be committed");
    prune(&store, epoch).await;
    assert_eq!(loaded(&store, epoch).await, [chunks(3, 3), records(4, 6)].concat());
}

pub async fn large_snapshot_is_loaded_in_pages(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append(&store, batch(epoch, 1)).await;
    let entries: Vec<_> = (0..4000).map(lease_entry).collect();
    for index in 0..10 {
        let chunk = crate::record::Chunk::new(epoch, Seq(1), index, &entries);
        store.put_chunk(chunk).await.expect("it can be written");
    }
    let committed = store.commit_snapshot(epoch, Seq(1), 10).await;
    committed.expect("it can be committed");
    append(&store, batch(epoch, 2)).await;
    let (_, pages) = load(&store, epoch).await.expect("the load works");
    assert!(pages > 2, "more than 1 MB came in {pages} pages");
    assert_eq!(loaded(&store, epoch).await, [chunks(1, 10), records(2, 2)].concat());
}

pub async fn unfinished_snapshot_is_ignored(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 5).await;
    snapshot(&store, epoch, 2, 2).await;
    for index in 0..2 {
        let put = store.put_chunk(chunk(epoch, 5, index)).await;
        put.expect("a chunk can be written");
    }
    prune(&store, epoch).await;
    assert_eq!(loaded(&store, epoch).await, [chunks(2, 2), records(3, 5)].concat());
}

pub async fn unfinished_snapshot_is_ignored_after_reopening(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 5).await;
    for index in 0..2 {
        let put = store.put_chunk(chunk(epoch, 5, index)).await;
        put.expect("a chunk can be written");
    }
    drop(store);
    let store = harness.open().await;
    let epoch = lead(&store).await;
    assert_eq!(loaded(&store, epoch).await, records(1, 5));
    assert_out_of_snapshot(store.put_chunk(chunk(epoch, 5, 2)).await);
    assert_out_of_snapshot(store.commit_snapshot(epoch, Seq(5), 2).await);
    prune(&store, epoch).await;
    snapshot(&store, epoch, 5, 1).await;
    assert_eq!(loaded(&store, epoch).await, chunks(5, 1));
}

pub async fn new_snapshot_may_begin_before_the_last_is_finished(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 5).await;
    for index in 0..3 {
        let put = store.put_chunk(chunk(epoch, 2, index)).await;
        put.expect("a chunk can be written");
    }
    snapshot(&store, epoch, 4, 2).await;
    assert_out_of_snapshot(store.commit_snapshot(epoch, Seq(2), 3).await);
    assert_eq!(loaded(&store, epoch).await, [chunks(4, 2), records(5, 5)].concat());
    prune(&store, epoch).await;
    assert_eq!(loaded(&store, epoch).await, [chunks(4, 2), records(5, 5)].concat());
}

pub async fn chunk_out_of_order_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 2).await;
    assert_out_of_snapshot(store.put_chunk(chunk(epoch, 2, 1)).await);
    let put = store.put_chunk(chunk(epoch, 2, 0)).await;
    put.expect("the first chunk can be written");
    assert_out_of_snapshot(store.put_chunk(chunk(epoch, 2, 2)).await);
}

pub async fn snapshot_of_records_to_come_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 2).await;
    assert_out_of_snapshot(store.put_chunk(chunk(epoch, 3, 0)).await);
    assert_eq!(loaded(&store, epoch).await, records(1, 2));
}

pub async fn snapshot_behind_the_last_one_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 5).await;
    snapshot(&store, epoch, 4, 2).await;
    assert_out_of_snapshot(store.put_chunk(chunk(epoch, 3, 0)).await);
    assert_out_of_snapshot(store.commit_snapshot(epoch, Seq(3), 1).await);
    prune(&store, epoch).await;
    assert_eq!(loaded(&store, epoch).await, [chunks(4, 2), records(5, 5)].concat());
    snapshot(&store, epoch, 4, 1).await;
    assert_eq!(loaded(&store, epoch).await, [chunks(4, 1), records(5, 5)].concat());
}

pub async fn commit_of_a_snapshot_with_missing_chunks_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 2).await;
    assert_out_of_snapshot(store.commit_snapshot(epoch, Seq(2), 0).await);
    let put = store.put_chunk(chunk(epoch, 2, 0)).await;
    put.expect("a chunk can be written");
    assert_out_of_snapshot(store.commit_snapshot(epoch, Seq(2), 2).await);
    assert_out_of_snapshot(store.commit_snapshot(epoch, Seq(1), 1).await);
    assert_eq!(loaded(&store, epoch).await, records(1, 2));
}

pub async fn commit_of_a_snapshot_may_be_repeated(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append_all(&store, epoch, 1, 2).await;
    snapshot(&store, epoch, 2, 2).await;
    let again = store.commit_snapshot(epoch, Seq(2), 2).await;
    again.expect("it is committed already");
    assert_eq!(loaded(&store, epoch).await, chunks(2, 2));
}

pub async fn snapshot_begun_by_a_deposed_leader_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    let old = lead(&store).await;
    append_all(&store, old, 1, 2).await;
    let put = store.put_chunk(chunk(old, 2, 0)).await;
    put.expect("a chunk can be written");
    let new = lead(&store).await;
    assert_out_of_snapshot(store.put_chunk(chunk(new, 2, 1)).await);
    assert_out_of_snapshot(store.commit_snapshot(new, Seq(2), 1).await);
    assert_eq!(loaded(&store, new).await, records(1, 2));
}

/// Appends until there is no room; the number that was refused.
async fn fill(harness: &dyn Harness, store: &Store, epoch: Epoch) -> u64 {
    append(store, batch(epoch, 1)).await;
    harness.set_full(store, true).await;
    for seq in 2..10_000 {
        if let Err(error) = store.append(large_batch(epoch, seq, 10_000)).await {
            assert_unavailable(Err(error));
            return seq;
        }
    }
    panic!("the store never was full")
}

pub async fn full_store_refuses_records(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    let refused = fill(harness, &store, epoch).await;
    assert_unavailable(store.append(large_batch(epoch, refused, 10_000)).await);
    match store.read_back(epoch, Seq(refused)).await {
        Err(Error::Unavailable { .. }) if store.caps().shared => {}
        found => assert_eq!(found.expect("it can be read"), None),
    }
    // It still leads, even if there is not even room to say so.
    match store.confirm(epoch).await {
        Ok(()) => {}
        unconfirmed => assert_unavailable(unconfirmed),
    }
    assert_eq!(loaded(&store, epoch).await, records(1, refused - 1));
}

pub async fn store_works_again_when_there_is_room(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    let refused = fill(harness, &store, epoch).await;
    harness.set_full(&store, false).await;
    append(&store, large_batch(epoch, refused, 10_000)).await;
    append(&store, batch(epoch, refused + 1)).await;
    assert_eq!(loaded(&store, epoch).await, records(1, refused + 1));
}

pub async fn lost_answer_is_settled_by_reading_back(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append(&store, batch(epoch, 1)).await;
    assert_unknown(append_with(&store, InjectedFault::LostAnswer, batch(epoch, 2)).await);
    let found = store.read_back(epoch, Seq(2)).await;
    assert_eq!(found.expect("it can be read"), Some(batch(epoch, 2)));
    append(&store, batch(epoch, 3)).await;
    assert_eq!(loaded(&store, epoch).await, records(1, 3));
}

pub async fn lost_request_is_settled_by_reading_back(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append(&store, batch(epoch, 1)).await;
    assert_unknown(append_with(&store, InjectedFault::LostRequest, batch(epoch, 2)).await);
    let found = store.read_back(epoch, Seq(2)).await;
    assert_eq!(found.expect("it can be read"), None);
    let instead = large_batch(epoch, 2, 100);
    append(&store, instead.clone()).await;
    let found = store.read_back(epoch, Seq(2)).await;
    assert_eq!(found.expect("it can be read"), Some(instead));
}

pub async fn dropped_append_leaves_the_journal_whole(harness: &dyn Harness) {
    let store = harness.open().await;
    let epoch = lead(&store).await;
    append(&store, batch(epoch, 1)).await;
    drop(store.append(batch(epoch, 2)));
    let found = store.read_back(epoch, Seq(2)).await;
    let next = match found.expect("it can be read") {
        Some(found) => {
            assert_eq!(found, batch(epoch, 2));
            3
        }
        None => 2,
    };
    append(&store, batch(epoch, next)).await;
    assert_eq!(loaded(&store, epoch).await, records(1, next));
}
