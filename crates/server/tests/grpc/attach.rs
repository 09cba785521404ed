//! The stream of a client.

use std::time::Duration;

use leasehold_api::grpc::{
    Attach, AttachRequest, BreakRequest, Cancel, CheckRequest, Claim, CloseSession, Command,
    GetRequest, GetSessionRequest, Heartbeat, LockState, OnDisconnect, OpenRequest, StreamAcquire,
    StreamGrant, StreamRelease, StreamRenew, TestRequest, attach, command::Ask, push::News,
    reply::Answer,
};
use leasehold_api::{Code, Gone};

use crate::polling::eventually;
use crate::world::{
    PATIENCE, Talk, World, config, millis, open, problem, refused, secs, try_for, wait_for,
};

#[track_caller]
fn granted(answer: Answer) -> StreamGrant {
    let Answer::Granted(grant) = answer else { panic!("a grant was expected: {answer:?}") };
    grant
}

fn plain(lock: &str, owner: &str) -> StreamAcquire {
    StreamAcquire {
        lock: lock.into(),
        owner_id: owner.into(),
        ttl: secs(30),
        ..StreamAcquire::default()
    }
}

fn keep(owner: &str) -> OpenRequest {
    OpenRequest {
        on_disconnect: OnDisconnect::Keep.into(),
        disconnect_ttl: secs(30),
        ..open(owner)
    }
}

fn again(session_id: &str) -> Attach {
    Attach { session: Some(attach::Session::SessionId(session_id.into())), ..Attach::default() }
}

fn release_of(lock: &str, token: u64) -> Ask {
    Ask::Release(StreamRelease { lock: lock.into(), fencing_token: token, ..Default::default() })
}

#[tokio::test]
async fn what_is_acquired_stands_under_the_session_and_is_released() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    assert_eq!(talk.attached.owner_id, "a");
    assert_eq!(talk.attached.session_id.len(), 32);
    assert_eq!(talk.attached.ttl, secs(30));
    let id = talk.ask(try_for("job/x")).await;
    let grant = granted(talk.answer(id).await);
    assert_eq!(grant.lease_id, "", "the session's, which is known");
    assert!(grant.fencing_token > 0 && grant.epoch > 0);
    let held = world.get("job/x").await;
    assert_eq!(held.holders[0].owner_id, "a");
    assert_eq!(held.holders[0].session, Some(talk.attached.session));
    let id = talk.ask(release_of("job/x", grant.fencing_token)).await;
    let Answer::Released(released) = talk.answer(id).await else { panic!("it is released") };
    let id = talk.ask(release_of("job/x", grant.fencing_token)).await;
    let Answer::Released(again) = talk.answer(id).await else { panic!("it was released") };
    assert_eq!((again.held, again.replayed), (released.held, true));
    let id = talk.ask(release_of("job/x", grant.fencing_token + 1)).await;
    let never = problem(talk.answer(id).await, Code::NotHolder);
    assert_eq!(never.reason, Some(Gone::Unknown));
    assert_eq!(world.get("job/x").await.state(), LockState::Free);
}

#[tokio::test]
async fn many_in_flight_are_answered_whatever_their_order() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let locks = 5000_u64;
    let first = talk.ask(try_for("first")).await;
    granted(talk.answer(first).await);
    for chunk in 0..10 {
        let asks = (0..locks / 10).map(|at| try_for(&format!("job/{}", chunk * (locks / 10) + at)));
        talk.ask_all(asks.collect::<Vec<_>>()).await;
    }
    let mut tokens = Vec::new();
    for id in first + 1..=first + locks {
        tokens.push(granted(talk.answer(id).await).fencing_token);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len() as u64, locks, "every grant has a token of its own");
    assert_eq!(world.cluster().await.locks_held, locks + 1);
    let id = talk.ask(Ask::Close(CloseSession::default())).await;
    let Answer::Closed(closed) = talk.answer(id).await else { panic!("it is closed") };
    assert_eq!(closed.released, locks + 1);
}

#[tokio::test]
async fn leases_of_their_own_outlive_the_stream() {
    let world = World::start().await;
    let mut talk = world.bind(Attach::default()).await.unwrap();
    assert_eq!(talk.attached.session_id, "", "no session was asked for");
    let id = talk.ask(Ask::Acquire(Box::new(plain("job/x", "w1")))).await;
    let grant = granted(talk.answer(id).await);
    assert_eq!(grant.lease_id.len(), 32);
    let renew = StreamRenew {
        lock: "job/x".into(),
        owner_id: "w1".into(),
        lease_id: grant.lease_id.clone(),
        fencing_token: grant.fencing_token,
        ttl: None,
    };
    let id = talk.ask(Ask::Renew(renew.clone())).await;
    assert!(matches!(talk.answer(id).await, Answer::Renewed(_)));
    // A second stream on the same connection ends after it, and its end can be seen.
    let later = world.attach(open("later")).await;
    drop(talk);
    drop(later);
    eventually("the later stream is over", async || world.cluster().await.sessions == 0).await;
    assert_eq!(world.get("job/x").await.state(), LockState::Held);
    let mut talk = world.bind(Attach::default()).await.unwrap();
    let id = talk.ask(Ask::Renew(renew)).await;
    assert!(matches!(talk.answer(id).await, Answer::Renewed(_)));
    let id = talk
        .ask(Ask::Release(StreamRelease {
            lock: "job/x".into(),
            owner_id: "w1".into(),
            lease_id: grant.lease_id,
            fencing_token: grant.fencing_token,
            traceparent: None,
        }))
        .await;
    assert!(matches!(talk.answer(id).await, Answer::Released(_)));
}

#[tokio::test]
async fn without_a_session_an_acquire_needs_a_ttl_and_an_owner() {
    let world = World::start().await;
    let mut talk = world.bind(Attach::default()).await.unwrap();
    let no_ttl = StreamAcquire { ttl: None, ..plain("job/x", "a") };
    let no_owner = StreamAcquire { owner_id: String::new(), ..plain("job/x", "a") };
    let id = talk.ask_all([Ask::Acquire(Box::new(no_ttl)), Ask::Acquire(Box::new(no_owner))]).await;
    assert_eq!(problem(talk.answer(id - 1).await, Code::InvalidRequest).errors[0].field, "ttl");
    assert_eq!(problem(talk.answer(id).await, Code::InvalidRequest).errors[0].field, "owner_id");
}

#[tokio::test]
async fn the_end_of_the_stream_releases_everything_at_once() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let id = talk.ask_all([try_for("job/x"), try_for("job/y")]).await;
    granted(talk.answer(id).await);
    drop(talk);
    world.wait_until_free("job/x").await;
    world.wait_until_free("job/y").await;
    assert_eq!(world.cluster().await.sessions, 0);
}

#[tokio::test]
async fn a_session_that_is_kept_is_found_again() {
    let world = World::start().await;
    let mut talk = world.attach(keep("a")).await;
    let id = talk.ask(try_for("job/x")).await;
    let grant = granted(talk.answer(id).await);
    let session_id = talk.attached.session_id.clone();
    drop(talk);
    let look = GetSessionRequest { session_id: session_id.clone(), ..Default::default() };
    eventually("it is not attached", async || {
        !world.sessions().get(look.clone()).await.unwrap().into_inner().attached
    })
    .await;
    assert_eq!(world.get("job/x").await.state(), LockState::Held);
    let mut talk = world.bind(again(&session_id)).await.unwrap();
    assert_eq!((talk.attached.locks, talk.attached.owner_id.as_str()), (1, "a"));
    let id = talk.ask(release_of("job/x", grant.fencing_token)).await;
    assert!(matches!(talk.answer(id).await, Answer::Released(_)));
}

#[tokio::test]
async fn a_session_that_is_kept_for_a_while_ends_after_it() {
    let world = World::start().await;
    let open = OpenRequest { disconnect_ttl: millis(200), ..keep("a") };
    let mut talk = world.attach(open).await;
    let id = talk.ask(try_for("job/x")).await;
    granted(talk.answer(id).await);
    let session_id = talk.attached.session_id.clone();
    drop(talk);
    world.wait_until_free("job/x").await;
    let gone = world.bind(again(&session_id)).await.map(|_| tonic::Response::new(()));
    assert_eq!(refused(gone).code, Code::SessionNotFound);
}

#[tokio::test]
async fn a_later_stream_takes_the_session_over() {
    let world = World::start().await;
    let mut first = world.attach(open("a")).await;
    let id = first.ask(try_for("job/x")).await;
    let grant = granted(first.answer(id).await);
    let mut second = world.bind(again(&first.attached.session_id.clone())).await.unwrap();
    let ended = first.end().await.expect_err("the first one ends");
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    // The end of the first one is not the end of the session.
    let id = second.ask(Ask::Heartbeat(Heartbeat::default())).await;
    assert!(matches!(second.answer(id).await, Answer::Renewed(_)));
    let id = second.ask(release_of("job/x", grant.fencing_token)).await;
    assert!(matches!(second.answer(id).await, Answer::Released(_)));
}

#[tokio::test]
async fn a_waiter_is_granted_when_the_holder_releases() {
    let world = World::start().await;
    let mut holder = world.attach(open("a")).await;
    let mut waiter = world.attach(open("b")).await;
    let id = holder.ask(try_for("job/x")).await;
    let held = granted(holder.answer(id).await);
    let waiting = waiter.ask(wait_for("job/x", "b")).await;
    let News::Wanted(wanted) = holder.push().await else { panic!("it is wanted") };
    assert_eq!((wanted.lock.as_str(), wanted.lease_id.as_str()), ("job/x", ""));
    assert_eq!(wanted.fencing_token, held.fencing_token);
    // Others are served meanwhile.
    let other = waiter.ask(try_for("job/y")).await;
    granted(waiter.answer(other).await);
    assert!(!waiter.has_answer(waiting));
    holder.ask(release_of("job/x", held.fencing_token)).await;
    let grant = granted(waiter.answer(waiting).await);
    assert!(grant.fencing_token > held.fencing_token);
}

#[tokio::test]
async fn a_wait_runs_out_with_a_ticket_that_keeps_the_place() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut talk = world.attach(open("b")).await;
    let ask = StreamAcquire {
        lock: "job/x".into(),
        owner_id: "b".into(),
        wait: millis(50),
        ..StreamAcquire::default()
    };
    let id = talk.ask(Ask::Acquire(Box::new(ask.clone()))).await;
    let refused = problem(talk.answer(id).await, Code::LockHeld);
    assert_eq!(refused.current_owner_id.as_deref(), Some("a"));
    assert!(refused.waited_ms.unwrap() >= 50 && refused.recommended_retry_ms.is_some());
    assert_eq!(refused.holders.unwrap()[0].owner_id, "a");
    let ticket = refused.ticket.expect("the place is kept");
    let back = StreamAcquire { ticket: Some(ticket), wait: None, wait_forever: true, ..ask };
    let id = talk.ask(Ask::Acquire(Box::new(back))).await;
    world.wait_for_waiters(1).await;
    world.release(&held).await;
    granted(talk.answer(id).await);
}

#[tokio::test]
async fn what_waits_can_be_cancelled() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut talk = world.attach(open("b")).await;
    // In one message: the cancel does not overtake what it cancels.
    let id = talk
        .ask_all([
            wait_for("job/x", "b"),
            Ask::Cancel(Cancel { command_id: 1 }),
            Ask::Cancel(Cancel { command_id: 99 }),
        ])
        .await;
    assert_eq!(id, 3);
    assert!(matches!(talk.answer(2).await, Answer::Cancelled(done) if done.waiting));
    assert!(matches!(talk.answer(3).await, Answer::Cancelled(done) if !done.waiting));
    assert_eq!(world.get("job/x").await.waiters_total, 0);
    world.release(&held).await;
    let id = talk.ask(Ask::Heartbeat(Heartbeat::default())).await;
    assert!(matches!(talk.answer(id).await, Answer::Renewed(_)));
    assert!(!talk.has_answer(1), "it is never answered");
    // Its id may be used again.
    let grant = granted({
        let id = talk.ask(try_for("job/x")).await;
        talk.answer(id).await
    });
    assert!(grant.fencing_token > held.fencing_token);
}

#[tokio::test]
async fn whoever_waits_on_a_stream_that_ends_leaves_the_queue() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut talk = world.attach(open("b")).await;
    talk.ask(wait_for("job/x", "b")).await;
    let own = StreamAcquire { ttl: secs(30), wait: secs(60), ..plain("job/x", "c") };
    talk.ask(Ask::Acquire(Box::new(own))).await;
    world.wait_for_waiters(2).await;
    drop(talk);
    world.wait_for_waiters(0).await;
    world.release(&held).await;
    assert_eq!(world.get("job/x").await.state(), LockState::Free);
}

#[tokio::test]
async fn whoever_waits_is_told_a_ticket_that_leads_back_to_its_place() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let ask = StreamAcquire { wait: secs(60), ..plain("job/x", "b") };
    let mut talk = world.bind(Attach::default()).await.unwrap();
    let id = talk.ask(Ask::Acquire(Box::new(ask.clone()))).await;
    let News::Queued(place) = talk.push().await else { panic!("it waits") };
    assert_eq!((place.command_id, place.queue_position), (id, 1));
    let mut other = world.bind(Attach::default()).await.unwrap();
    let behind = StreamAcquire { wait: secs(60), ..plain("job/x", "c") };
    let behind = other.ask(Ask::Acquire(Box::new(behind))).await;
    let News::Queued(second) = other.push().await else { panic!("it waits") };
    assert_eq!(second.queue_position, 2);
    drop(talk);
    world.wait_for_waiters(1).await;

    let mut talk = world.bind(Attach::default()).await.unwrap();
    let stolen = StreamAcquire { ticket: Some(place.ticket.clone()), ..plain("job/x", "thief") };
    let id = talk.ask(Ask::Acquire(Box::new(stolen))).await;
    problem(talk.answer(id).await, Code::TicketNotFound);
    let back = StreamAcquire { ticket: Some(place.ticket.clone()), ..ask };
    let id = talk.ask(Ask::Acquire(Box::new(back))).await;
    let News::Queued(again) = talk.push().await else { panic!("it waits again") };
    assert_eq!((again.ticket, again.queue_position), (place.ticket, 1));
    world.release(&held).await;
    granted(talk.answer(id).await);
    assert!(!other.has_answer(behind));
}

#[tokio::test]
async fn a_session_that_is_kept_keeps_the_places_of_its_waiters() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut talk = world.attach(keep("b")).await;
    let session = talk.attached.session_id.clone();
    talk.ask(wait_for("job/x", "b")).await;
    let News::Queued(place) = talk.push().await else { panic!("it waits") };
    drop(talk);
    world.wait_for_waiters(0).await;
    let mut talk = world.bind(again(&session)).await.unwrap();
    let back = StreamAcquire {
        lock: "job/x".into(),
        owner_id: "b".into(),
        wait_forever: true,
        ticket: Some(place.ticket),
        ..StreamAcquire::default()
    };
    let id = talk.ask(Ask::Acquire(Box::new(back))).await;
    world.wait_for_waiters(1).await;
    world.release(&held).await;
    granted(talk.answer(id).await);
}

#[tokio::test]
async fn a_client_that_has_said_everything_hears_the_rest() {
    let world = World::start().await;
    world.acquire("job/x", "a").await;
    let mut talk = world.attach(open("b")).await;
    talk.ask_all([try_for("job/y"), wait_for("job/x", "b"), try_for("job/z")]).await;
    let (closed, _) = tokio::sync::mpsc::channel(1);
    talk.say = closed;
    let replies = talk.end().await.expect("the stream ends well");
    let mut ids: Vec<u64> = replies.iter().map(|reply| reply.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 3], "what still waited is not answered: {replies:?}");
    world.wait_for_waiters(0).await;
    world.wait_until_free("job/y").await;
}

#[tokio::test]
async fn a_lease_that_is_lost_is_told() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let own = StreamAcquire { ttl: millis(300), ..plain("job/own", "w") };
    let id = talk.ask_all([try_for("job/x"), Ask::Acquire(Box::new(own))]).await;
    let grant = granted(talk.answer(id - 1).await);
    let own = granted(talk.answer(id).await);
    let breaking =
        BreakRequest { lock: "job/x".into(), reason: "stuck".into(), ..BreakRequest::default() };
    world.locks().r#break(breaking).await.unwrap();
    let News::Lost(lost) = talk.push().await else { panic!("it is lost") };
    assert_eq!((lost.lease_id.as_str(), lost.fencing_token), ("", Some(grant.fencing_token)));
    assert_eq!(lost.reason, "revoked");
    let News::Lost(lost) = talk.push().await else { panic!("it is lost") };
    assert_eq!((lost.lease_id, lost.reason.as_str()), (own.lease_id, "expired"));
}

/// The stream is bound to no session; what it holds stands under one all the same.
#[tokio::test]
async fn the_rest_of_a_session_is_followed_after_a_release() {
    let world = World::start().await;
    let session = world.sessions().open(open("a")).await.unwrap().into_inner().session_id;
    let mut talk = world.bind(Attach::default()).await.unwrap();
    let under = |lock: &str| {
        Ask::Acquire(Box::new(StreamAcquire {
            lock: lock.into(),
            owner_id: "a".into(),
            session_id: Some(session.clone()),
            ..StreamAcquire::default()
        }))
    };
    let id = talk.ask_all([under("job/x"), under("job/y")]).await;
    let (first, second) =
        (granted(talk.answer(id - 1).await), granted(talk.answer(id).await).fencing_token);
    let release = StreamRelease {
        lock: "job/x".into(),
        owner_id: "a".into(),
        lease_id: session.clone(),
        fencing_token: first.fencing_token,
        traceparent: None,
    };
    let id = talk.ask(Ask::Release(release)).await;
    assert!(matches!(talk.answer(id).await, Answer::Released(_)));
    let breaking =
        BreakRequest { lock: "job/y".into(), reason: "stuck".into(), ..BreakRequest::default() };
    world.locks().r#break(breaking).await.unwrap();
    let News::Lost(lost) = talk.push().await else { panic!("it is lost") };
    assert_eq!((lost.lease_id, lost.fencing_token), (session, Some(second)));
}

#[tokio::test]
async fn a_session_without_heartbeats_runs_out_and_is_told() {
    let world = World::start().await;
    let mut talk = world.attach(OpenRequest { ttl: millis(300), ..open("a") }).await;
    let id = talk.ask(try_for("job/x")).await;
    granted(talk.answer(id).await);
    let News::Lost(lost) = talk.push().await else { panic!("it is lost") };
    assert_eq!((lost.lease_id.as_str(), lost.fencing_token), ("", None));
    let id = talk.ask(Ask::Heartbeat(Heartbeat::default())).await;
    problem(talk.answer(id).await, Code::SessionNotFound);
    assert_eq!(world.get("job/x").await.state(), LockState::Free);
}

#[tokio::test]
async fn a_set_is_one_grant() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let claim = |lock: &str| Claim { lock: lock.into(), ..Claim::default() };
    let set = StreamAcquire { locks: vec![claim("a"), claim("b")], ..StreamAcquire::default() };
    let id = talk.ask(Ask::Acquire(Box::new(set.clone()))).await;
    let grant = granted(talk.answer(id).await);
    for lock in ["a", "b"] {
        assert_eq!(world.get(lock).await.last_fencing_token, Some(grant.fencing_token));
    }
    let both = StreamAcquire { lock: "c".into(), ..set };
    let id = talk.ask(Ask::Acquire(Box::new(both))).await;
    problem(talk.answer(id).await, Code::InvalidRequest);
}

#[tokio::test]
async fn repetition_of_a_request_gets_the_same_grant() {
    let world = World::start().await;
    let ask = StreamAcquire { request_id: Some("r1".into()), ..plain("job/x", "a") };
    let mut talk = world.bind(Attach::default()).await.unwrap();
    let id = talk.ask(Ask::Acquire(Box::new(ask.clone()))).await;
    let grant = granted(talk.answer(id).await);
    drop(talk);
    let mut talk = world.bind(Attach::default()).await.unwrap();
    let id = talk.ask(Ask::Acquire(Box::new(ask))).await;
    let again = granted(talk.answer(id).await);
    assert!(again.replayed && !grant.replayed);
    assert_eq!((again.fencing_token, again.lease_id), (grant.fencing_token, grant.lease_id));
}

#[tokio::test]
async fn looking_is_answered_like_asking() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut talk = world.attach(open("b")).await;
    let test = TestRequest { lock: "job/x".into(), ..TestRequest::default() };
    let check = CheckRequest {
        lock: "job/x".into(),
        fencing_token: held.fencing_token,
        ..CheckRequest::default()
    };
    let get = GetRequest { lock: "job/x".into(), ..GetRequest::default() };
    let elsewhere = GetRequest { namespace: "other".into(), ..get.clone() };
    talk.ask_all([Ask::Test(test), Ask::Check(check), Ask::Get(get), Ask::Get(elsewhere)]).await;
    assert!(matches!(talk.answer(1).await, Answer::Tested(tested) if !tested.free));
    assert!(matches!(talk.answer(2).await, Answer::Checked(checked) if checked.valid));
    assert!(matches!(talk.answer(3).await, Answer::Lock(lock) if lock.holders_total == 1));
    problem(talk.answer(4).await, Code::InvalidRequest);
}

#[tokio::test]
async fn wrong_first_messages_are_refused() {
    let world = World::start().await;
    let begin = async |attach: Option<Attach>, commands: Vec<Command>| {
        let first = AttachRequest { attach, commands };
        refused(Talk::begin(world.sessions(), first).await.map(|_| tonic::Response::new(())))
    };
    let command = Command { id: 1, ask: Some(try_for("x")) };
    let missing = begin(None, vec![command]).await;
    assert_eq!((missing.code, missing.errors[0].field.as_str()), (Code::InvalidRequest, "attach"));
    let opening =
        |open| Some(Attach { session: Some(attach::Session::Open(open)), ..Attach::default() });
    let no_ttl = begin(opening(OpenRequest { ttl: None, ..open("a") }), vec![]).await;
    assert_eq!(no_ttl.errors[0].field, "ttl");
    let short = begin(opening(OpenRequest { ttl: millis(1), ..open("a") }), vec![]).await;
    assert_eq!(short.errors[0].field, "ttl");
    let no_owner = begin(opening(open("")), vec![]).await;
    assert_eq!(no_owner.errors[0].field, "owner_id");
    let policy = begin(opening(OpenRequest { on_disconnect: 77, ..open("a") }), vec![]).await;
    assert_eq!(policy.errors[0].field, "on_disconnect");
    assert_eq!(begin(Some(again("nonsense")), vec![]).await.code, Code::InvalidRequest);
    assert_eq!(begin(Some(again(&"0".repeat(32))), vec![]).await.code, Code::SessionNotFound);
    let elsewhere = Attach { namespace: "a\nb".into(), ..Attach::default() };
    assert_eq!(begin(Some(elsewhere), vec![]).await.errors[0].field, "namespace");
    assert_eq!(world.cluster().await.sessions, 0);
}

#[tokio::test]
async fn a_wrong_command_is_refused_and_the_stream_goes_on() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let wrong = [
        (try_for(""), Code::InvalidLockName),
        (try_for("a//b"), Code::InvalidLockName),
        (
            Ask::Acquire(Box::new(StreamAcquire {
                mode: 9,
                lock: "x".into(),
                ..Default::default()
            })),
            Code::InvalidRequest,
        ),
        (
            Ask::Acquire(Box::new(StreamAcquire { ttl: secs(1_000_000), ..plain("x", "a") })),
            Code::InvalidRequest,
        ),
        (
            Ask::Acquire(Box::new(StreamAcquire {
                ttl: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
                ..plain("x", "a")
            })),
            Code::InvalidRequest,
        ),
        (
            Ask::Acquire(Box::new(StreamAcquire {
                wait: Some(prost_types::Duration { seconds: 0, nanos: 1 }),
                ..plain("x", "a")
            })),
            Code::InvalidRequest,
        ),
        (release_of("x", u64::MAX), Code::InvalidRequest),
        (
            Ask::Release(StreamRelease {
                lock: "x".into(),
                lease_id: "abc".into(),
                ..Default::default()
            }),
            Code::InvalidRequest,
        ),
    ];
    for (ask, code) in wrong {
        let said = format!("{ask:?}");
        let id = talk.ask(ask).await;
        let refused = problem(talk.answer(id).await, code);
        assert_eq!(refused.outcome, leasehold_api::RequestOutcome::NotApplied, "{said}");
    }
    talk.say
        .send(AttachRequest { attach: None, commands: vec![Command { id: 500, ask: None }] })
        .await
        .unwrap();
    problem(talk.answer(500).await, Code::InvalidRequest);
    let id = talk.ask(try_for("job/x")).await;
    granted(talk.answer(id).await);
    // Attaching twice is a mistake of the client's that ends the stream.
    let twice = AttachRequest { attach: Some(Attach::default()), commands: vec![] };
    talk.say.send(twice).await.unwrap();
    assert_eq!(talk.end().await.unwrap_err().code(), tonic::Code::InvalidArgument);
    world.wait_until_free("job/x").await;
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_stream() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let long = "x".repeat(200);
    let asks: Vec<Ask> = (0..1000).map(|at| try_for(&format!("{long}{at}"))).collect();
    talk.ask_all(asks).await;
    let ended = talk.end().await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::InvalidArgument, "{ended:?}");
    assert_eq!(world.cluster().await.locks_held, 0);
}

/// Whoever asks and does not read is not listened to for long, and nothing grows without end.
#[tokio::test]
async fn a_reader_that_does_not_read_is_not_listened_to() {
    let world = World::with(leasehold_server::Config { ..config() }).await;
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{}", world.server.address()))
            .unwrap()
            .initial_stream_window_size(65_535)
            .initial_connection_window_size(65_535)
            .connect()
            .await
            .unwrap();
    let sessions = leasehold_api::grpc::sessions_client::SessionsClient::new(channel);
    let attach = Attach { session: Some(attach::Session::Open(open("a"))), ..Attach::default() };
    let first = AttachRequest { attach: Some(attach), commands: vec![] };
    let mut talk = Talk::begin(sessions, first).await.unwrap();
    let held = talk.ask(try_for("job/x")).await;
    granted(talk.answer(held).await);
    // Each of these is answered with a whole lock. Nobody reads the answers: before long nobody reads the questions.
    let get = || Ask::Get(GetRequest { lock: "job/x".into(), ..GetRequest::default() });
    let mut sent = 0;
    let stuck = loop {
        let asks: Vec<Ask> = (0..1000).map(|_| get()).collect();
        match tokio::time::timeout(Duration::from_secs(1), talk.ask_all(asks)).await {
            Ok(_) => sent += 1000,
            Err(_) => break true,
        }
        if sent > 20_000_000 {
            break false;
        }
    };
    assert!(stuck, "{sent} questions were taken in");
    // It has not stopped anybody else, and when it reads again it is answered.
    world.acquire("job/y", "b").await;
    let id = 2;
    let answer = tokio::time::timeout(PATIENCE, talk.answer(id)).await.unwrap();
    assert!(matches!(answer, Answer::Lock(_)));
}

#[tokio::test]
async fn stopping_the_server_ends_the_streams_and_keeps_the_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    let on_disk = || leasehold_server::Config {
        store: leasehold_server::Store::Sqlite(path.clone()),
        ..config()
    };
    let world = World::with(on_disk()).await;
    let mut talk = world.attach(open("a")).await;
    let id = talk.ask(try_for("job/x")).await;
    let grant = granted(talk.answer(id).await);
    let session_id = talk.attached.session_id.clone();
    let waiting = talk
        .ask(Ask::Acquire(Box::new(StreamAcquire { wait_forever: true, ..plain("job/x", "b") })))
        .await;
    world.wait_for_waiters(1).await;
    let (replies, ()) = tokio::join!(talk.end(), world.server.stop());
    let status = replies.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{waiting} {status:?}");
    // The session was not left by its client: the next server knows it.
    let world = World::with(on_disk()).await;
    let mut talk = world.bind(again(&session_id)).await.unwrap();
    assert_eq!(talk.attached.locks, 1);
    let id = talk.ask(release_of("job/x", grant.fencing_token)).await;
    assert!(matches!(talk.answer(id).await, Answer::Released(_)));
}

#[tokio::test]
async fn what_a_stream_asks_is_counted() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let id = talk.ask_all([try_for("job/x"), try_for("job/y")]).await;
    let grant = granted(talk.answer(id).await);
    let id = talk.ask_all([
        release_of("job/y", grant.fencing_token),
        Ask::Heartbeat(Heartbeat::default()),
        try_for("job/x/"),
    ]);
    let id = id.await;
    for id in id - 2..=id {
        talk.answer(id).await;
    }
    let mut other = world.attach(open("b")).await;
    let id = other.ask(try_for("job/x")).await;
    problem(other.answer(id).await, Code::LockHeld);
    let metrics = crate::service::metrics(&world).await;
    for line in [
        "lock_acquire_total{result=\"success\"} 2",
        "lock_acquire_total{result=\"busy\"} 0",
        "lock_acquire_total{result=\"fail\"} 2",
        "lock_release_total{result=\"success\"} 1",
        "lock_renew_total{result=\"success\"} 1",
        "leasehold_locks_acquire_total{namespace=\"default\",type=\"named\",status=\"granted\"} 2",
        "leasehold_connections_active_count{adapter=\"grpc\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn message_with_too_many_commands_ends_the_stream() {
    let world = World::start().await;
    let talk = world.attach(open("a")).await;
    let empty = |id| Command { id, ask: None };
    let commands = (0..4097).map(empty).collect();
    talk.say.send(AttachRequest { attach: None, commands }).await.unwrap();
    let refused = talk.end().await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("4097 commands, the limit is 4096"), "{refused:?}");
}

#[tokio::test]
async fn stream_is_read_only_while_there_is_room_for_its_answers() {
    const MESSAGES: usize = 40;
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let say = talk.say.clone();
    let asking = tokio::spawn(async move {
        for message in 0..MESSAGES as u64 {
            let empty = |at| Command { id: message * 4096 + at, ask: None };
            let commands = (0..4096).map(empty).collect();
            say.send(AttachRequest { attach: None, commands }).await.unwrap();
        }
    });
    asking.await.unwrap();
    let mut answers = 0;
    while answers < MESSAGES * 4096 {
        let heard = tokio::time::timeout(PATIENCE, talk.hear.message()).await.unwrap();
        let heard = heard.unwrap().expect("it goes on");
        let len = prost::Message::encoded_len(&heard);
        assert!(len <= 1024 * 1024, "a message of {len} bytes");
        answers += heard.replies.len();
    }
    // Others are served meanwhile and afterwards, and so is this one.
    let id = talk.ask(try_for("job/x")).await;
    granted(talk.answer(id).await);
}
