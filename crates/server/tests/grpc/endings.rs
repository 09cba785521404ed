//! What is told of locks that are no longer held, call by call and on the stream.

use leasehold_api::grpc::{
    AcquireRequest, CheckRequest, CloseRequest, CloseSession, GetTokenRequest, KeepAliveRequest,
    StreamAcquire, TokenState, UnlockRequest, command::Ask, reply::Answer,
};
use leasehold_api::{Code, Gone};

use crate::world::{World, acquire, open, problem, refused, release, secs};

#[tokio::test]
async fn a_token_is_looked_up_held_or_ended() {
    let world = World::start().await;
    let grant = world.acquire("job/x", "a").await;
    let ask = GetTokenRequest { fencing_token: grant.fencing_token, ..Default::default() };
    let held = world.locks().get_token(ask.clone()).await.unwrap().into_inner();
    assert_eq!((held.state(), held.holders.len(), held.ended.len()), (TokenState::Held, 1, 0));
    world.release(&grant).await;
    let ended = world.locks().get_token(ask.clone()).await.unwrap().into_inner();
    assert_eq!((ended.state(), ended.namespace.as_str()), (TokenState::Ended, "default"));
    let past = &ended.ended[0];
    assert_eq!((past.lock.as_str(), past.owner_id.as_str()), ("job/x", "a"));
    assert!(past.reason == "released" && past.ended_at.is_some() && past.held.is_some());
    let never = GetTokenRequest { fencing_token: 9000, ..ask };
    assert_eq!(refused(world.locks().get_token(never).await).code, Code::NotFound);
}

#[tokio::test]
async fn a_check_gives_its_reason() {
    let world = World::start().await;
    let grant = world.acquire("job/x", "a").await;
    let ask = |lock: &str| CheckRequest {
        lock: lock.into(),
        fencing_token: grant.fencing_token,
        ..CheckRequest::default()
    };
    let reason = async |lock: &str| {
        let checked = world.locks().check(ask(lock)).await.unwrap().into_inner();
        (checked.valid, checked.reason)
    };
    assert_eq!(reason("job/x").await, (true, String::new()));
    assert_eq!(reason("job/y").await, (false, "other_scope".into()));
    world.release(&grant).await;
    assert_eq!(reason("job/x").await, (false, "released".into()));
    let mut talk = world.attach(open("b")).await;
    let id = talk.ask(Ask::Check(ask("job/x"))).await;
    let Answer::Checked(checked) = talk.answer(id).await else { panic!("it is checked") };
    assert_eq!(checked.reason, "released");
}

#[tokio::test]
async fn bytes_are_unlocked_under_a_plain_lease() {
    let world = World::start().await;
    let grant = world.acquire("inode:5@0..10", "a").await;
    let under = AcquireRequest {
        ttl: None,
        session_id: Some(grant.lease_id.clone()),
        ..acquire("inode:5@10..20", "a")
    };
    let more = world.locks().acquire(under).await.unwrap().into_inner();
    assert_eq!(more.lease_id, grant.lease_id);
    let unlock = UnlockRequest {
        lock: "inode:5@0..15".into(),
        owner_id: "a".into(),
        session_id: grant.lease_id.clone(),
        ..UnlockRequest::default()
    };
    let unlocked = world.locks().unlock(unlock.clone()).await.unwrap().into_inner();
    assert_eq!((unlocked.lock.as_str(), unlocked.changed), ("inode:5@0..15", true));
    let again = world.locks().unlock(unlock.clone()).await.unwrap().into_inner();
    assert!(!again.changed);
    let keep = KeepAliveRequest { session_id: grant.lease_id.clone(), ..Default::default() };
    assert_eq!(world.sessions().keep_alive(keep).await.unwrap().into_inner().ttl, secs(30));
    let close = CloseRequest { session_id: grant.lease_id.clone(), ..Default::default() };
    assert_eq!(world.sessions().close(close).await.unwrap().into_inner().released, 1);
    let gone = refused(world.locks().unlock(unlock).await);
    assert_eq!((gone.code, gone.reason), (Code::SessionNotFound, Some(Gone::Released)));
    let name = UnlockRequest {
        lock: "job".into(),
        owner_id: "a".into(),
        session_id: grant.lease_id,
        ..Default::default()
    };
    assert_eq!(refused(world.locks().unlock(name).await).errors[0].field, "lock");
}

#[tokio::test]
async fn a_stream_unlocks_bytes_of_its_session_and_of_a_plain_lease() {
    let world = World::start().await;
    let mut talk = world.attach(open("a")).await;
    let ask = |lock: &str| {
        Ask::Acquire(Box::new(StreamAcquire { lock: lock.into(), ..StreamAcquire::default() }))
    };
    let id = talk.ask(ask("inode:5@0..10")).await;
    assert!(matches!(talk.answer(id).await, Answer::Granted(_)));
    let unlock =
        || Ask::Unlock(UnlockRequest { lock: "inode:5@0..5".into(), ..UnlockRequest::default() });
    for changed in [true, false] {
        let id = talk.ask(unlock()).await;
        let Answer::Unlocked(unlocked) = talk.answer(id).await else { panic!("it is unlocked") };
        assert_eq!((unlocked.lock.as_str(), unlocked.changed), ("inode:5@0..5", changed));
    }
    let plain = world.acquire("inode:6@0..10", "w").await;
    let under = StreamAcquire {
        lock: "inode:6@10..20".into(),
        owner_id: "w".into(),
        session_id: Some(plain.lease_id.clone()),
        ..StreamAcquire::default()
    };
    let id = talk.ask(Ask::Acquire(Box::new(under))).await;
    let Answer::Granted(grant) = talk.answer(id).await else { panic!("it is granted") };
    assert_eq!(grant.lease_id, plain.lease_id);
    let id = talk
        .ask(Ask::Unlock(UnlockRequest {
            lock: "inode:6".into(),
            owner_id: "w".into(),
            session_id: plain.lease_id,
            ..UnlockRequest::default()
        }))
        .await;
    let Answer::Unlocked(unlocked) = talk.answer(id).await else { panic!("it is unlocked") };
    assert!(unlocked.changed);
    let name = Ask::Unlock(UnlockRequest { lock: "job".into(), ..UnlockRequest::default() });
    let id = talk.ask(name).await;
    problem(talk.answer(id).await, Code::InvalidRequest);
    for replayed in [false, true] {
        let mine = talk.attached.session_id.clone();
        let id = talk.ask(Ask::Close(CloseSession { session_id: mine })).await;
        let Answer::Closed(closed) = talk.answer(id).await else { panic!("it is closed") };
        assert_eq!((closed.released, closed.replayed), (1, replayed));
    }
}

#[tokio::test]
async fn a_repeated_release_is_answered_as_before() {
    let world = World::start().await;
    let grant = world.acquire("job/x", "a").await;
    let first = world.locks().release(release(&grant)).await.unwrap().into_inner();
    world.acquire("job/x", "b").await;
    let again = world.locks().release(release(&grant)).await.unwrap().into_inner();
    assert_eq!((again.held, first.replayed, again.replayed), (first.held, false, true));
    assert_eq!(world.get("job/x").await.holders[0].owner_id, "b");
    assert_eq!(world.get("job/x").await.last_fencing_token, Some(grant.fencing_token + 1));
}
