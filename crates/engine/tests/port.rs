//! A stream's way in: many calls in flight, nothing overtaken, nothing given to nobody.

mod common;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use common::{NOW, acquire, appended, faulty_journal, release, scope};
use leasehold_core::{
    Acquire, Answer, Break, Cancel, Command, Grant, LockState, Namespace, Refusal, RequestId, Wait,
};
use leasehold_engine::{
    Call, CallError, Clock, EngineConfig, Handle, Notice, Port, PortEvent, Query, Reply,
    RuntimeClock, Stop, View, spawn,
};
use leasehold_store::conformance::{FaultyJournal, InjectedFault};
use tokio::time::Instant;

async fn engine(journal: &Arc<FaultyJournal>) -> (Handle, Stop) {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::showing(NOW));
    let (handle, mut stop) = spawn(EngineConfig::new(7), clock, journal.clone());
    stop.settled().await.expect("an empty journal can be taken over");
    (handle, stop)
}

fn ask_acquire(port: &mut Port, number: u32, mut acquire: Acquire) {
    acquire.call = port.call_id(number);
    port.ask(number, Call::Command(Command::Acquire(acquire)));
}

fn send(port: &mut Port) {
    port.send(|number, error| panic!("{number} was not taken: {error}"));
}

/// What comes next, but for tickets.
async fn take(port: &mut Port) -> Vec<PortEvent> {
    loop {
        let mut taken = take_all(port).await;
        taken.retain(|reply| !matches!(reply, PortEvent::Queued { .. }));
        if !taken.is_empty() {
            return taken;
        }
    }
}

async fn take_all(port: &mut Port) -> Vec<PortEvent> {
    let mut taken = VecDeque::new();
    let taking = poll_fn(|cx| port.poll_take(cx, &mut taken));
    let more = tokio::time::timeout(Duration::from_secs(10), taking).await;
    assert!(more.expect("something comes in time"), "the engine is there");
    taken.into()
}

/// The one reply that comes next.
async fn reply(port: &mut Port) -> (u32, Result<Reply, CallError>) {
    let mut taken = take(port).await;
    assert_eq!(taken.len(), 1, "{taken:?}");
    match taken.remove(0) {
        PortEvent::Reply { number, reply, .. } => (number, reply),
        other @ (PortEvent::Queued { .. } | PortEvent::Notice { .. }) => {
            panic!("a reply was expected: {other:?}")
        }
    }
}

fn granted(reply: Result<Reply, CallError>) -> Grant {
    match reply {
        Ok(Reply::Answer(Answer::Granted(grant))) => *grant,
        other => panic!("a grant was expected: {other:?}"),
    }
}

async fn state(handle: &Handle, lock: &str) -> (LockState, usize) {
    let query = Query::Get { namespace: Namespace::default(), scope: scope(lock) };
    match handle.query(query).await {
        Ok(View::Lock(view)) => (view.state, view.waiters_len),
        other => panic!("a lock was asked for: {other:?}"),
    }
}

async fn until_free(handle: &Handle, lock: &str) {
    let free = async {
        while state(handle, lock).await != (LockState::Free, 0) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), free).await.expect("it comes free");
}

#[tokio::test(start_paused = true)]
async fn calls_sent_together_are_answered_together() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let mut port = handle.port();
    for number in 0..100 {
        ask_acquire(&mut port, number, acquire("a", &format!("job/{number}"), Wait::Never));
    }
    send(&mut port);
    let taken = take(&mut port).await;
    let mut numbers: Vec<u32> = taken
        .into_iter()
        .map(|reply| match reply {
            PortEvent::Reply { number, reply, .. } => {
                granted(reply);
                number
            }
            other @ (PortEvent::Queued { .. } | PortEvent::Notice { .. }) => {
                panic!("only replies were expected: {other:?}")
            }
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let appends = appended(&journal);
    assert!(appends.len() <= 3, "all of them went into one record: {appends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_is_not_overtaken_by_the_acquire_behind_it() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let mut port = handle.port();
    ask_acquire(&mut port, 0, acquire("a", "job/x", Wait::Never));
    send(&mut port);
    let mut held = granted(reply(&mut port).await.1);
    for _ in 0..50 {
        port.ask(1, Call::Command(release("job/x", &held)));
        ask_acquire(&mut port, 2, acquire("b", "job/x", Wait::Never));
        send(&mut port);
        let mut next = None;
        while next.is_none() {
            for reply in take(&mut port).await {
                if let PortEvent::Reply { number: 2, reply, .. } = reply {
                    next = Some(granted(reply));
                }
            }
        }
        held = next.expect("it was granted");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_told_its_ticket_which_keeps_its_place_when_the_port_is_gone() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let mut gone = handle.port();
    ask_acquire(&mut gone, 1, acquire("b", "job/x", Wait::Forever));
    send(&mut gone);
    let told = take_all(&mut gone).await;
    let [PortEvent::Queued { number: 1, queued }] = told[..] else { panic!("{told:?}") };
    assert_eq!(queued.position, 1);
    let mut other = handle.port();
    ask_acquire(&mut other, 1, acquire("c", "job/x", Wait::Forever));
    send(&mut other);
    take_all(&mut other).await;
    let (namespace, call) = (Namespace::default(), gone.call_id(1));
    let left = Cancel { namespace, call, keep_place: true };
    gone.ask(2, Call::Command(Command::Cancel(left)));
    drop(gone);

    let mut back = handle.port();
    let again = Acquire { ticket: Some(queued.ticket), ..acquire("b", "job/x", Wait::Forever) };
    ask_acquire(&mut back, 7, again);
    send(&mut back);
    let told = take_all(&mut back).await;
    assert!(
        matches!(told[..], [PortEvent::Queued { number: 7, queued: q }] if q == queued),
        "it stands where it stood: {told:?}"
    );
    handle.command(release("job/x", &held)).await.unwrap();
    assert_eq!(granted(reply(&mut back).await.1).owner.as_str(), "b");
}

#[tokio::test(start_paused = true)]
async fn what_waits_can_be_cancelled_and_gets_no_answer() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let mut port = handle.port();
    ask_acquire(&mut port, 1, acquire("b", "job/x", Wait::Forever));
    let (namespace, call) = (Namespace::default(), port.call_id(1));
    let cancel = Cancel { namespace, call, keep_place: false };
    port.ask(2, Call::Command(Command::Cancel(cancel.clone())));
    send(&mut port);
    let (number, answer) = reply(&mut port).await;
    assert_eq!(number, 2);
    assert_eq!(answer, Ok(Reply::Answer(Answer::Cancelled { waiting: true })));
    handle.command(release("job/x", &held)).await.unwrap();
    port.ask(3, Call::Command(Command::Cancel(cancel)));
    send(&mut port);
    let (number, answer) = reply(&mut port).await;
    assert_eq!(number, 3, "the cancelled one is never answered");
    assert_eq!(answer, Ok(Reply::Answer(Answer::Cancelled { waiting: false })));
    until_free(&handle, "job/x").await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_a_port_that_is_gone_is_taken_back_unless_a_retry_can_find_it() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    journal.fail_appends(Some(InjectedFault::Stalled));
    let mut port = handle.port();
    ask_acquire(&mut port, 1, acquire("a", "job/x", Wait::Never));
    let known = Acquire {
        request_id: Some(RequestId::new("r").unwrap()),
        ..acquire("a", "job/y", Wait::Never)
    };
    ask_acquire(&mut port, 2, known.clone());
    send(&mut port);
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(port);
    journal.fail_appends(None);
    until_free(&handle, "job/x").await;
    assert_eq!(state(&handle, "job/y").await.0, LockState::Held);
    assert!(handle.acquire(known).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_lies_unread_when_the_port_goes_is_taken_back() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let mut port = handle.port();
    ask_acquire(&mut port, 1, acquire("a", "job/x", Wait::Never));
    send(&mut port);
    while state(&handle, "job/x").await.0 != LockState::Held {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(port);
    until_free(&handle, "job/x").await;
}

#[tokio::test(start_paused = true)]
async fn the_port_that_acquired_a_lease_hears_when_it_is_lost() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let mut port = handle.port();
    ask_acquire(&mut port, 1, acquire("a", "job/x", Wait::Never));
    send(&mut port);
    let held = granted(reply(&mut port).await.1);
    let broken = Break {
        namespace: Namespace::default(),
        scope: scope("job/x"),
        fence: None,
        reason: "stuck".into(),
    };
    handle.command(Command::Break(broken)).await.unwrap();
    let taken = take(&mut port).await;
    assert!(
        matches!(&taken[..], [PortEvent::Notice { lease, notice: Notice::Lost { .. } }] if *lease == held.lease),
        "{taken:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_call_of_a_port_is_answered_when_the_engine_stops() {
    let journal = faulty_journal();
    let (handle, stop) = engine(&journal).await;
    let held = handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let mut port = handle.port();
    ask_acquire(&mut port, 1, acquire("b", "job/x", Wait::Forever));
    send(&mut port);
    while state(&handle, "job/x").await.1 == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    stop.stop().await;
    let (number, answer) = reply(&mut port).await;
    assert_eq!((number, answer), (1, Err(CallError::Draining)));
    let mut rest = VecDeque::new();
    assert!(!poll_fn(|cx| port.poll_take(cx, &mut rest)).await, "nothing more comes");
    let mut refused = Vec::new();
    port.ask(2, Call::Command(release("job/x", &held)));
    port.send(|number, error| refused.push((number, error)));
    assert_eq!(refused, [(2, CallError::Stopped)]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_comes_back_under_its_number() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    handle.acquire(acquire("a", "job/x", Wait::Never)).await.unwrap();
    let mut port = handle.port();
    ask_acquire(&mut port, 41, acquire("b", "job/x", Wait::Never));
    send(&mut port);
    let (number, answer) = reply(&mut port).await;
    assert_eq!(number, 41);
    assert!(matches!(answer, Err(CallError::Refused(Refusal::Held(_)))), "{answer:?}");
}

/// The answer to a caller of its own lies ready, and the caller goes without taking it.
#[tokio::test(start_paused = true)]
async fn grant_that_came_at_the_last_moment_is_given_back() {
    let journal = faulty_journal();
    let (handle, _stop) = engine(&journal).await;
    let mut asking = Box::pin(handle.acquire(acquire("a", "job/x", Wait::Never)));
    let is_pending = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending, "it is on its way");
    while state(&handle, "job/x").await.0 != LockState::Held {}
    drop(asking);
    let begun = Instant::now();
    until_free(&handle, "job/x").await;
    assert!(begun.elapsed() < Duration::from_secs(1), "long before the lease is over");
}
