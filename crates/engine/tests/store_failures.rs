//! What callers see when the store is slow, full, or does not say what it did.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Mood, MoodyJournal, acquire, release, renew, scope};
use leasehold_core::{Answer, LockState, Namespace, Refusal, RequestId, Revision, Wait};
use leasehold_engine::{
    CallError, Clock, Handle, Query, Recovery, Runner, Stop, SystemClock, View, recover, start,
};
use leasehold_store::{Campaign, Journal};

async fn engine(journal: &Arc<MoodyJournal>) -> (Handle, Stop) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (handle, mut stop) = start(Runner::new(7), clock, journal.clone());
    stop.settled().await.expect("an empty journal can be taken over");
    (handle, stop)
}

async fn state(handle: &Handle, lock: &str) -> LockState {
    let query = Query::Get { namespace: Namespace::default(), scope: scope(lock) };
    match handle.query(query).await {
        Ok(View::Lock(view)) => view.state,
        other => panic!("a lock was asked for: {other:?}"),
    }
}

fn is_unavailable<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::StoreUnavailable { .. }))
}

/// Lets the engine's task run until there is nothing left to do.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
async fn a_grant_is_answered_only_once_it_is_durable() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    journal.set(Mood::Hangs);
    let asking = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("a", "job/x", Wait::Never)).await }
    });
    settle().await;
    assert!(!asking.is_finished());
    journal.set(Mood::Works);
    assert!(asking.await.unwrap().is_ok());
}

#[tokio::test]
async fn requests_that_come_during_a_commit_share_the_next_one() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    settle().await;
    journal.set(Mood::Hangs);
    let asking: Vec<_> = (0..50)
        .map(|number| {
            let handle = handle.clone();
            tokio::spawn(async move {
                handle.acquire(acquire("a", &format!("job/{number}"), Wait::Never)).await
            })
        })
        .collect();
    settle().await;
    journal.appends.lock().unwrap().clear();
    journal.set(Mood::Works);
    for asked in asking {
        asked.await.unwrap().unwrap();
    }
    let appends = journal.appends.lock().unwrap().clone();
    assert_eq!(appends.iter().sum::<usize>(), 50);
    assert!(appends.len() <= 2, "{appends:?}");
}

#[tokio::test]
async fn renewals_and_releases_do_not_wait_for_a_slow_store() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let other = handle.acquire(acquire("a", "job/y", Wait::Never)).await.unwrap();
    journal.set(Mood::Hangs);
    let asking = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("b", "job/z", Wait::Never)).await }
    });
    settle().await;
    assert!(matches!(handle.command(renew("job/x", &held)).await, Ok(Answer::Renewed(_))));
    assert!(matches!(handle.command(release("job/y", &other)).await, Ok(Answer::Released { .. })));
    let refused = handle.acquire(acquire("b", "job/x", Wait::Never)).await;
    assert!(matches!(refused, Err(CallError::Refused(Refusal::Held(_)))));
    assert!(!asking.is_finished());
    journal.set(Mood::Works);
    assert!(asking.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_release_that_is_not_durable_is_shown_to_nobody_else() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.set(Mood::Hangs);
    handle.command(release("job/x", &held)).await.unwrap();
    let looking = tokio::spawn({
        let handle = handle.clone();
        async move { state(&handle, "job/x").await }
    });
    let elsewhere = state(&handle, "job/y").await;
    assert_eq!(elsewhere, LockState::Free);
    settle().await;
    assert!(!looking.is_finished());
    journal.set(Mood::Works);
    assert_eq!(looking.await.unwrap(), LockState::Free);
}

#[tokio::test]
async fn a_lost_lease_is_reported_only_once_that_is_durable() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.set(Mood::Hangs);
    handle.command(release("job/x", &held)).await.unwrap();
    let renewing = tokio::spawn({
        let handle = handle.clone();
        async move { handle.command(renew("job/x", &held)).await }
    });
    settle().await;
    assert!(!renewing.is_finished());
    journal.set(Mood::Works);
    assert_eq!(renewing.await.unwrap(), Err(CallError::Refused(Refusal::LeaseLost)));
}

#[tokio::test]
async fn a_full_disk_refuses_grants_and_nothing_else() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.set(Mood::Full);
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/y", Wait::Never)).await));
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/z", Wait::Forever)).await));
    assert!(matches!(handle.command(renew("job/x", &held)).await, Ok(Answer::Renewed(_))));
    assert!(!handle.status().is_ready());
    journal.set(Mood::Works);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(handle.status().is_ready());
    assert_eq!(state(&handle, "job/y").await, LockState::Free);
    assert_eq!(state(&handle, "job/x").await, LockState::Held);
    assert!(handle.acquire(acquire("b", "job/y", Wait::Never)).await.is_ok());
}

#[tokio::test]
async fn a_waiter_is_served_when_the_store_is_back() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("b", "job/x", Wait::Forever)).await }
    });
    settle().await;
    journal.set(Mood::Full);
    assert!(is_unavailable(&handle.acquire(acquire("c", "job/y", Wait::Never)).await));
    handle.command(release("job/x", &held)).await.unwrap();
    settle().await;
    assert!(!waiting.is_finished());
    journal.set(Mood::Works);
    let granted = waiting.await.unwrap().unwrap();
    assert!(granted.fence > held.fence);
}

/// Whatever the store did not say, the table afterwards is the fold of what it kept.
async fn journal_folds_to_the_table(journal: &Arc<MoodyJournal>, handle: Handle, stop: Stop) {
    let Ok(View::Stats(stats)) = handle.query(Query::Stats).await else { panic!("stats") };
    stop.stop().await;
    let candidate = Runner::new(7).candidate;
    let Campaign::Won(lead) = journal.campaign(candidate, None).await.expect("it answers") else {
        panic!("nobody else leads")
    };
    let recovery: Recovery = Runner::new(7).recovery;
    let now = SystemClock::new().now();
    let recovered = recover(&**journal, lead.epoch, now, recovery).await.expect("it loads");
    let again = recovered.table.stats();
    assert_eq!((again.grants, again.fence), (stats.grants, stats.fence));
    assert_eq!(again.revision, Revision(stats.revision.0 + recovered.unwritten.len() as u64));
}

#[tokio::test]
async fn an_unknown_outcome_that_was_written_is_taken_back() {
    let journal = MoodyJournal::new();
    let (handle, stop) = engine(&journal).await;
    handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.set(Mood::LostAfter);
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/y", Wait::Never)).await));
    journal.set(Mood::Works);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(state(&handle, "job/y").await, LockState::Free);
    let granted = handle.acquire(acquire("c", "job/y", Wait::Never)).await.unwrap();
    assert_eq!(
        granted.fence.get(),
        3,
        "the fence of the grant that was taken back is not used again"
    );
    journal_folds_to_the_table(&journal, handle, stop).await;
}

#[tokio::test]
async fn an_unknown_outcome_that_was_not_written_is_written_again() {
    let journal = MoodyJournal::new();
    let (handle, stop) = engine(&journal).await;
    journal.set(Mood::LostBefore);
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/y", Wait::Never)).await));
    journal.set(Mood::Works);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(state(&handle, "job/y").await, LockState::Free);
    handle.acquire(acquire("c", "job/y", Wait::Never)).await.unwrap();
    journal_folds_to_the_table(&journal, handle, stop).await;
}

#[tokio::test]
async fn a_caller_that_went_away_while_waiting_is_never_granted() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("b", "job/x", Wait::Forever)).await }
    });
    settle().await;
    waiting.abort();
    settle().await;
    handle.command(release("job/x", &held)).await.unwrap();
    assert_eq!(state(&handle, "job/x").await, LockState::Free);
}

#[tokio::test]
async fn a_grant_that_nobody_takes_delivery_of_is_released_at_once() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    journal.set(Mood::Hangs);
    let asking = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("a", "job/x", Wait::Never)).await }
    });
    settle().await;
    asking.abort();
    settle().await;
    journal.set(Mood::Works);
    settle().await;
    assert_eq!(state(&handle, "job/x").await, LockState::Free);
}

#[tokio::test]
async fn a_grant_with_a_request_id_waits_for_its_retry() {
    let journal = MoodyJournal::new();
    let (handle, _stop) = engine(&journal).await;
    let mut request = acquire("a", "job/x", Wait::Never);
    request.request_id = Some(RequestId::new("once").unwrap());
    journal.set(Mood::Hangs);
    let asking = tokio::spawn({
        let (handle, request) = (handle.clone(), request.clone());
        async move { handle.acquire(request).await }
    });
    settle().await;
    asking.abort();
    journal.set(Mood::Works);
    settle().await;
    let again = handle.acquire(request).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.fence.get(), 1);
}

#[tokio::test]
async fn stopping_answers_those_who_wait() {
    let journal = MoodyJournal::new();
    let (handle, stop) = engine(&journal).await;
    handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("b", "job/x", Wait::Forever)).await }
    });
    settle().await;
    stop.stop().await;
    assert_eq!(waiting.await.unwrap(), Err(CallError::Draining));
}

#[tokio::test]
async fn leases_and_fences_survive_a_restart() {
    let journal = MoodyJournal::new();
    let (handle, stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    stop.stop().await;
    let (handle, _stop) = engine(&journal).await;
    assert_eq!(state(&handle, "job/x").await, LockState::Recovering);
    let refused = handle.acquire(acquire("b", "job/x", Wait::Never)).await;
    assert!(matches!(refused, Err(CallError::Refused(Refusal::GracePeriod { .. }))));
    assert!(matches!(handle.command(renew("job/x", &held)).await, Ok(Answer::Renewed(_))));
    assert_eq!(state(&handle, "job/x").await, LockState::Held);
    let next = handle.acquire(acquire("b", "job/y", Wait::Never)).await.unwrap();
    assert!(next.fence > held.fence);
}

#[tokio::test]
async fn snapshots_are_taken_while_the_service_goes_on() {
    let journal = MoodyJournal::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut runner = Runner::new(7);
    runner.snapshot_bytes = 2000;
    let (handle, mut stop) = start(runner, clock, journal.clone());
    stop.settled().await.unwrap();
    for round in 0..400 {
        let lock = format!("job/{round}");
        let held = handle.acquire(acquire("a", &lock, Wait::Never)).await.unwrap();
        if round % 2 == 0 {
            handle.command(release(&lock, &held)).await.unwrap();
        }
    }
    settle().await;
    journal_folds_to_the_table(&journal, handle, stop).await;
}
