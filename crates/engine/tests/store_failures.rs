//! What callers see when the store is slow, full, or does not say what it did.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{NOW, acquire, appended, faulty_journal, release, renew, scope};
use leasehold_core::{
    AcceptFence, Adapter, Answer, Break, BreakSession, ByteRange, CloseSession, Command,
    DeleteFence, FencingToken, Gone, Grant, KeepAlive, ListQuery, LockState, Millis, Mode,
    Namespace, OnDisconnect, OpenSession, Opened, Principal, Refusal, RegisterName, RemoveFile,
    Renew, RequestId, Revision, Under, Unlock, Wait,
};
use leasehold_engine::{
    CallError, Clock, EngineConfig, Handle, Query, Recovery, RuntimeClock, Stop, View, recover,
    spawn,
};
use leasehold_store::conformance::{FaultyJournal, InjectedFault};
use leasehold_store::{Campaign, Journal};

async fn engine(journal: &Arc<FaultyJournal>) -> (Handle, Stop) {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::showing(NOW));
    let (handle, mut stop) = spawn(EngineConfig::new(7), clock, journal.clone());
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

#[tokio::test(start_paused = true)]
async fn a_grant_is_answered_only_once_it_is_durable() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    journal.fail_appends(Some(InjectedFault::Stalled));
    let asking = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("a", "job/x", Wait::Never)).await }
    });
    settle().await;
    assert!(!asking.is_finished());
    journal.fail_appends(None);
    assert!(asking.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_during_a_commit_share_the_next_one() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    settle().await;
    journal.fail_appends(Some(InjectedFault::Stalled));
    let asking: Vec<_> = (0..50)
        .map(|number| {
            let handle = handle.clone();
            tokio::spawn(async move {
                handle.acquire(acquire("a", &format!("job/{number}"), Wait::Never)).await
            })
        })
        .collect();
    settle().await;
    drop(appended(&journal));
    journal.fail_appends(None);
    for asked in asking {
        asked.await.unwrap().unwrap();
    }
    let appends = appended(&journal);
    assert_eq!(appends.iter().sum::<usize>(), 50);
    assert!(appends.len() <= 2, "{appends:?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_and_releases_do_not_wait_for_a_slow_store() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let other = handle.acquire(acquire("a", "job/y", Wait::Never)).await.unwrap();
    journal.fail_appends(Some(InjectedFault::Stalled));
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
    journal.fail_appends(None);
    assert!(asking.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_durable_is_shown_to_nobody_else() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.fail_appends(Some(InjectedFault::Stalled));
    handle.command(release("job/x", &held)).await.unwrap();
    let looking = tokio::spawn({
        let handle = handle.clone();
        async move { state(&handle, "job/x").await }
    });
    let elsewhere = state(&handle, "job/y").await;
    assert_eq!(elsewhere, LockState::Free);
    settle().await;
    assert!(!looking.is_finished());
    journal.fail_appends(None);
    assert_eq!(looking.await.unwrap(), LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_reported_only_once_that_is_durable() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.fail_appends(Some(InjectedFault::Stalled));
    handle.command(release("job/x", &held)).await.unwrap();
    let renewing = tokio::spawn({
        let handle = handle.clone();
        async move { handle.command(renew("job/x", &held)).await }
    });
    settle().await;
    assert!(!renewing.is_finished());
    journal.fail_appends(None);
    assert_eq!(
        renewing.await.unwrap(),
        Err(CallError::Refused(Refusal::LeaseLost(Some(Gone::Released))))
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_grants_and_nothing_else() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.fail_appends(Some(InjectedFault::Unavailable));
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/y", Wait::Never)).await));
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/z", Wait::Forever)).await));
    assert!(matches!(handle.command(renew("job/x", &held)).await, Ok(Answer::Renewed(_))));
    assert!(!handle.status().is_ready());
    journal.fail_appends(None);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(handle.status().is_ready());
    assert_eq!(state(&handle, "job/y").await, LockState::Free);
    assert_eq!(state(&handle, "job/x").await, LockState::Held);
    assert!(handle.acquire(acquire("b", "job/y", Wait::Never)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_served_when_the_store_is_back() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("b", "job/x", Wait::Forever)).await }
    });
    settle().await;
    journal.fail_appends(Some(InjectedFault::Unavailable));
    assert!(is_unavailable(&handle.acquire(acquire("c", "job/y", Wait::Never)).await));
    handle.command(release("job/x", &held)).await.unwrap();
    settle().await;
    assert!(!waiting.is_finished());
    journal.fail_appends(None);
    let granted = waiting.await.unwrap().unwrap();
    assert!(granted.fence > held.fence);
}

/// Whatever the store did not say, the table afterwards is the fold of what it kept.
async fn journal_folds_to_the_table(journal: &Arc<FaultyJournal>, handle: Handle, stop: Stop) {
    let Ok(View::Stats(stats)) = handle.query(Query::Stats).await else { panic!("stats") };
    stop.stop().await;
    let candidate = EngineConfig::new(7).candidate;
    let Campaign::Won(lead) = journal.campaign(candidate, None).await.expect("it answers") else {
        panic!("nobody else leads")
    };
    let recovery: Recovery = EngineConfig::new(7).recovery;
    let now = RuntimeClock::showing(NOW).now();
    let recovered = recover(&**journal, lead.epoch, now, recovery).await.expect("it loads");
    let again = recovered.table.stats();
    assert_eq!((again.grants, again.fence), (stats.grants, stats.fence));
    assert_eq!(again.revision, Revision(stats.revision.0 + recovered.unwritten.len() as u64));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_that_was_written_is_taken_back() {
    let journal = faulty_journal();
    let (handle, stop) = engine(&journal).await;
    handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    journal.fail_appends(Some(InjectedFault::LostAnswer));
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/y", Wait::Never)).await));
    journal.fail_appends(None);
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

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_that_was_not_written_is_written_again() {
    let journal = faulty_journal();
    let (handle, stop) = engine(&journal).await;
    journal.fail_appends(Some(InjectedFault::LostRequest));
    assert!(is_unavailable(&handle.acquire(acquire("b", "job/y", Wait::Never)).await));
    journal.fail_appends(None);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(state(&handle, "job/y").await, LockState::Free);
    handle.acquire(acquire("c", "job/y", Wait::Never)).await.unwrap();
    journal_folds_to_the_table(&journal, handle, stop).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_went_away_while_waiting_is_never_granted() {
    let journal = faulty_journal();
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

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_takes_delivery_of_is_released_at_once() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    journal.fail_appends(Some(InjectedFault::Stalled));
    let asking = tokio::spawn({
        let handle = handle.clone();
        async move { handle.acquire(acquire("a", "job/x", Wait::Never)).await }
    });
    settle().await;
    asking.abort();
    settle().await;
    journal.fail_appends(None);
    settle().await;
    assert_eq!(state(&handle, "job/x").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_grant_with_a_request_id_waits_for_its_retry() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let mut request = acquire("a", "job/x", Wait::Never);
    request.request_id = Some(RequestId::new("once").unwrap());
    journal.fail_appends(Some(InjectedFault::Stalled));
    let asking = tokio::spawn({
        let (handle, request) = (handle.clone(), request.clone());
        async move { handle.acquire(request).await }
    });
    settle().await;
    asking.abort();
    journal.fail_appends(None);
    settle().await;
    let again = handle.acquire(request).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.fence.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn stopping_answers_those_who_wait() {
    let journal = faulty_journal();
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

#[tokio::test(start_paused = true)]
async fn leases_and_fences_survive_a_restart() {
    let journal = faulty_journal();
    let (handle, stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    stop.stop().await;
    let (handle, _stop) = engine(&journal).await;
    assert_eq!(state(&handle, "job/x").await, LockState::Recovering);
    let refused = handle.acquire(acquire("b", "job/x", Wait::Never)).await;
    assert!(matches!(refused, Err(CallError::Refused(Refusal::Held(_)))));
    assert!(matches!(handle.command(renew("job/x", &held)).await, Ok(Answer::Renewed(_))));
    assert_eq!(state(&handle, "job/x").await, LockState::Held);
    let next = handle.acquire(acquire("b", "job/y", Wait::Never)).await.unwrap();
    assert!(next.fence > held.fence);
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_taken_while_the_service_goes_on() {
    let journal = faulty_journal();
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::showing(NOW));
    let mut runner = EngineConfig::new(7);
    runner.snapshot_bytes = 2000;
    let (handle, mut stop) = spawn(runner, clock, journal.clone());
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

/// All that lasts, as readers see it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    holders: Vec<(String, String, Mode, u64, Millis)>,
    sessions: Vec<(u64, Millis)>,
    register: Option<u64>,
}

async fn seen(handle: &Handle) -> Seen {
    let namespace = Namespace::default();
    let list = ListQuery {
        namespace: namespace.clone(),
        prefix: String::new(),
        owner: None,
        session: None,
        within: None,
        inode: None,
        state: None,
        after: None,
        len_max: 100,
        looked_at_max: 100,
    };
    let Ok(View::Page(page)) = handle.query(Query::List(list)).await else { panic!("a list") };
    let holders = page.locks.into_iter().flat_map(|lock| lock.holders).map(|holder| {
        let (scope, owner) = (holder.scope.to_string(), holder.owner.to_string());
        (scope, owner, holder.mode, holder.fence.get(), holder.ttl)
    });
    let sessions = Query::Sessions { namespace: namespace.clone(), after: 0, len_max: 100 };
    let Ok(View::Sessions(sessions)) = handle.query(sessions).await else { panic!("sessions") };
    let register = Query::Register { namespace: namespace.clone(), register: register() };
    let Ok(View::Register(register)) = handle.query(register).await else { panic!("a register") };
    for query in [
        Query::Graph { namespace: namespace.clone(), waits_max: 100 },
        Query::Overview { namespace, len_max: 100 },
    ] {
        handle.query(query).await.expect("it is answered, whatever the store does");
    }
    Seen {
        holders: holders.collect(),
        sessions: sessions.into_iter().map(|session| (session.number, session.ttl)).collect(),
        register: register.map(FencingToken::get),
    }
}

fn register() -> RegisterName {
    RegisterName::new("disk").expect("a good name")
}

/// A lock, a session with bytes of a file, and a register.
struct Held {
    lock: Grant,
    bytes: Grant,
    session: Opened,
}

async fn hold(handle: &Handle) -> Held {
    let lock = handle.acquire(acquire("a", "job/x", Wait::Never)).await.expect("it is free");
    let open = OpenSession {
        namespace: Namespace::default(),
        id: common::lease_id(),
        owner: common::owner("s"),
        ttl: Duration::from_secs(30),
        adapter: Adapter::new("grpc").expect("a good name"),
        on_disconnect: OnDisconnect::Release,
        request_id: None,
        metadata: None,
    };
    let opened = handle.command(Command::OpenSession(open)).await;
    let Ok(Answer::SessionOpened(session)) = opened else { panic!("a session: {opened:?}") };
    let mut bytes = acquire("s", "inode:7@0..100", Wait::Never);
    bytes.under = Under::Session(session.session);
    let bytes = handle.acquire(bytes).await.expect("nobody has them");
    let accept = accept(lock.fence);
    handle.command(accept).await.expect("it is the first");
    Held { lock, bytes, session: *session }
}

fn accept(fence: FencingToken) -> Command {
    Command::AcceptFence(AcceptFence {
        namespace: Namespace::default(),
        register: register(),
        principal: Principal::ANONYMOUS,
        fence,
    })
}

/// Everything that changes something lasting, and is answered only once it is durable.
fn changes(held: &Held) -> Vec<(&'static str, Command)> {
    let (namespace, short) = (Namespace::default(), Some(Duration::from_millis(500)));
    let Command::Renew(renew) = renew("job/x", &held.lock) else { unreachable!("a renewal") };
    let (session, long) = (held.session.session, Some(Duration::from_secs(50)));
    let keep = KeepAlive {
        namespace: namespace.clone(),
        principal: Principal::ANONYMOUS,
        session,
        ttl: short,
    };
    let broken = Break {
        namespace: namespace.clone(),
        scope: scope("job/x"),
        fence: None,
        reason: "test".into(),
    };
    let mut shared = acquire("s", "inode:7@0..50", Wait::Never);
    shared.under = Under::Session(session);
    shared.claims[0].mode = Mode::Shared;
    let number = held.session.number;
    vec![
        ("renew, shorter", Command::Renew(Renew { ttl: short, ..renew.clone() })),
        ("renew, longer", Command::Renew(Renew { ttl: long, ..renew })),
        ("keep alive, shorter", Command::KeepAlive(keep.clone())),
        ("keep alive, longer", Command::KeepAlive(KeepAlive { ttl: long, ..keep })),
        ("accept", accept(held.bytes.fence)),
        (
            "delete a register",
            Command::DeleteFence(DeleteFence {
                namespace: namespace.clone(),
                register: register(),
                reason: "test".into(),
            }),
        ),
        ("break", Command::Break(broken)),
        (
            "break session",
            Command::BreakSession(BreakSession {
                namespace: namespace.clone(),
                number,
                reason: "test".into(),
            }),
        ),
        ("remove file", Command::RemoveFile(RemoveFile { namespace, inode: 7 })),
        ("downgrade", Command::Acquire(shared)),
        ("acquire", Command::Acquire(acquire("b", "job/y", Wait::Never))),
    ]
}

fn not_applied(error: &CallError) -> bool {
    matches!(error, CallError::StoreUnavailable { outcome_unknown: false, .. })
}

async fn works_again(journal: &Arc<FaultyJournal>, handle: &Handle) {
    journal.fail_appends(None);
    for _ in 0..100 {
        if handle.status().is_ready() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the store works, and the engine does not: {:?}", handle.status());
}

/// The first of each kind is in the record that fails; the second comes when the store is known to fail.
#[tokio::test(start_paused = true)]
async fn what_is_refused_as_not_applied_never_happens() {
    for kind in 0..11 {
        let journal = faulty_journal();
        let (handle, stop) = engine(&journal).await;
        let held = hold(&handle).await;
        let before = seen(&handle).await;
        let (name, command) = changes(&held).swap_remove(kind);
        journal.fail_appends(Some(InjectedFault::Unavailable));
        for time in ["first", "second"] {
            let refused = handle.command(command.clone()).await;
            assert!(refused.as_ref().is_err_and(not_applied), "{name}, {time} time: {refused:?}");
            let heartbeat = handle.command(renew("job/x", &held.lock)).await;
            let Ok(Answer::Renewed(renewed)) = heartbeat else { panic!("{name}: {heartbeat:?}") };
            assert_eq!(renewed.ttl, held.lock.ttl, "{name}");
            assert_eq!(seen(&handle).await, before, "{name}, while the store is away");
        }
        works_again(&journal, &handle).await;
        assert_eq!(seen(&handle).await, before, "{name}, when the store is back");
        journal_folds_to_the_table(&journal, handle, stop).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_settled_either_way() {
    for (kind, fault) in (0..10)
        .flat_map(|kind| [(kind, InjectedFault::LostRequest), (kind, InjectedFault::LostAnswer)])
    {
        let journal = faulty_journal();
        let (handle, stop) = engine(&journal).await;
        let held = hold(&handle).await;
        let before = seen(&handle).await;
        let (name, command) = changes(&held).swap_remove(kind);
        journal.fail_appends(Some(fault));
        let refused = handle.command(command).await;
        let unknown = |error: &CallError| {
            matches!(error, CallError::StoreUnavailable { outcome_unknown: true, .. })
        };
        assert!(refused.as_ref().is_err_and(unknown), "{name}: {refused:?}");
        works_again(&journal, &handle).await;
        let after = seen(&handle).await;
        assert_eq!(
            after != before,
            fault == InjectedFault::LostAnswer,
            "{name}, {fault:?}: {after:?}"
        );
        journal_folds_to_the_table(&journal, handle, stop).await;
    }
}

#[tokio::test(start_paused = true)]
async fn endings_go_on_while_the_store_is_away_and_are_shown_when_it_is_back() {
    let journal = faulty_journal();
    let (handle, stop) = engine(&journal).await;
    let held = hold(&handle).await;
    let other = handle.acquire(acquire("a", "job/z", Wait::Never)).await.unwrap();
    let before = seen(&handle).await;
    journal.fail_appends(Some(InjectedFault::Unavailable));
    // Acknowledged in the record that fails, and afterwards.
    let released = handle.command(release("job/x", &held.lock)).await;
    assert!(matches!(released, Ok(Answer::Released { .. })), "{released:?}");
    settle().await;
    assert_eq!(seen(&handle).await, before, "a crash could still bring it back");
    let unlock = Unlock {
        namespace: Namespace::default(),
        session: held.session.session,
        owner: common::owner("s"),
        inode: 7,
        range: ByteRange::inclusive(0, 9).unwrap(),
    };
    let unlocked = handle.command(Command::Unlock(unlock)).await;
    assert_eq!(unlocked, Ok(Answer::Unlocked { changed: true }));
    let released = handle.command(release("job/z", &other)).await;
    assert!(matches!(released, Ok(Answer::Released { .. })), "{released:?}");
    let again = handle.command(renew("job/z", &other)).await;
    assert!(again.as_ref().is_err_and(not_applied), "neither held nor lost: {again:?}");
    let keep = |session| KeepAlive {
        namespace: Namespace::default(),
        principal: Principal::ANONYMOUS,
        session,
        ttl: None,
    };
    let kept = handle.command(Command::KeepAlive(keep(held.session.session))).await;
    assert!(matches!(kept, Ok(Answer::Renewed(_))), "{kept:?}");
    assert_eq!(seen(&handle).await, before);
    works_again(&journal, &handle).await;
    let after = seen(&handle).await;
    let scopes: Vec<&str> = after.holders.iter().map(|(scope, ..)| scope.as_str()).collect();
    assert_eq!(scopes, ["inode:7@10..100"]);
    let close = CloseSession {
        namespace: Namespace::default(),
        principal: Principal::ANONYMOUS,
        session: held.session.session,
    };
    journal.fail_appends(Some(InjectedFault::Unavailable));
    let closed = handle.command(Command::CloseSession(close)).await;
    assert!(matches!(closed, Ok(Answer::SessionClosed { .. })), "{closed:?}");
    settle().await;
    assert_eq!(seen(&handle).await, after);
    works_again(&journal, &handle).await;
    let last = seen(&handle).await;
    assert!(last.holders.is_empty() && last.sessions.is_empty(), "{last:?}");
    journal_folds_to_the_table(&journal, handle, stop).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_repeated_while_the_store_is_away_is_answered_as_before() {
    for fault in [InjectedFault::Unavailable, InjectedFault::LostRequest, InjectedFault::LostAnswer]
    {
        let journal = faulty_journal();
        let (handle, stop) = engine(&journal).await;
        let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
        tokio::time::advance(Duration::from_secs(2)).await;
        journal.fail_appends(Some(fault));
        let released = async || handle.command(release("job/x", &held)).await;
        let first = released().await;
        let Ok(Answer::Released { held: length, replayed: false }) = first else {
            panic!("{fault:?}: {first:?}")
        };
        assert!(length >= Duration::from_secs(2), "{fault:?}: {length:?}");
        let again = Ok(Answer::Released { held: length, replayed: true });
        for _ in 0..3 {
            settle().await;
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(released().await, again, "{fault:?}");
            let look = Query::Get { namespace: Namespace::default(), scope: scope("job/x") };
            // Whatever is shown of the table meanwhile leaves it as it was.
            drop(tokio::time::timeout(Duration::from_millis(1), handle.query(look)).await);
        }
        works_again(&journal, &handle).await;
        assert_eq!(released().await, again, "{fault:?}");
        journal_folds_to_the_table(&journal, handle, stop).await;
    }
}
