//! Locks, one call at a time: what HTTP does, gRPC does.

use std::time::Duration;

use leasehold_api::grpc::{
    AcquireRequest, AcquireSetRequest, BreakRequest, CheckRequest, Claim, CloseRequest,
    GetGraphRequest, KeepAliveRequest, ListRequest, LockState, Mode, ReleaseRequest, RemoveRequest,
    RenewRequest, TestRequest, metadata, metadata_of,
};
use leasehold_api::{Code, Gone};
use tonic::Request;

use crate::world::{World, acquire, millis, refused, release, secs};

#[tokio::test]
async fn a_lock_is_acquired_renewed_and_released() {
    let world = World::start().await;
    let grant = world.acquire("job/x", "a").await;
    assert_eq!((grant.lock.as_str(), grant.owner_id.as_str()), ("job/x", "a"));
    assert_eq!((grant.ttl, grant.mode()), (secs(30), Mode::Exclusive));
    assert!(grant.expires_at.is_some() && grant.acquired_at.is_some() && grant.epoch > 0);
    let renew = RenewRequest {
        lock: "job/x".into(),
        owner_id: "a".into(),
        lease_id: grant.lease_id.clone(),
        fencing_token: grant.fencing_token,
        ttl: secs(60),
        ..RenewRequest::default()
    };
    let renewed = world.locks().renew(renew.clone()).await.unwrap().into_inner();
    assert_eq!(renewed.ttl, secs(60));
    let stale = RenewRequest { fencing_token: grant.fencing_token + 1, ..renew.clone() };
    assert_eq!(refused(world.locks().renew(stale).await).code, Code::NotHolder);
    let released = world.locks().release(release(&grant)).await.unwrap().into_inner();
    assert!(released.held.is_some() && !released.replayed);
    let again = world.locks().release(release(&grant)).await.unwrap().into_inner();
    assert_eq!((again.held, again.replayed), (released.held, true));
    let late = refused(world.locks().renew(renew).await);
    assert_eq!((late.code, late.reason), (Code::LeaseLost, Some(Gone::Released)));
    assert_eq!(world.get("job/x").await.state(), LockState::Free);
}

#[tokio::test]
async fn a_refused_try_says_who_holds_it_and_when_to_come_back() {
    let world = World::start().await;
    let map = serde_json::from_str(r#"{"build":7}"#).unwrap();
    let first = AcquireRequest { metadata: metadata(&map), ..acquire("job/x", "a") };
    world.locks().acquire(first).await.unwrap();
    let problem = refused(world.locks().acquire(acquire("job/x", "b")).await);
    assert_eq!(problem.code, Code::LockHeld);
    assert_eq!(problem.current_owner_id.as_deref(), Some("a"));
    assert!(problem.recommended_retry_ms.is_some_and(|retry| retry > 0));
    let holders = problem.holders.unwrap();
    assert_eq!((holders.len(), &holders[0].metadata), (1, &map));
    let shown = world.get("job/x").await;
    assert_eq!(metadata_of(shown.holders[0].metadata.as_ref().unwrap()), Some(map));
    let test = TestRequest { lock: "job/x".into(), owner_id: "b".into(), ..Default::default() };
    let tested = world.locks().test(test).await.unwrap().into_inner();
    assert_eq!(tested.conflict.unwrap().owner_id, "a");
}

#[tokio::test]
async fn a_call_waits_until_the_lock_is_free() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut locks = world.locks();
    let waiting = tokio::spawn(async move {
        locks.acquire(AcquireRequest { wait_forever: true, ..acquire("job/x", "b") }).await
    });
    world.wait_for_waiters(1).await;
    world.release(&held).await;
    let grant = waiting.await.unwrap().unwrap().into_inner();
    assert!(grant.fencing_token > held.fencing_token);
    let wait = AcquireRequest { wait: millis(30), ..acquire("job/x", "c") };
    let problem = refused(world.locks().acquire(wait).await);
    assert_eq!(problem.code, Code::LockHeld);
    assert!(problem.waited_ms.unwrap() >= 30 && problem.ticket.is_some());
}

#[tokio::test]
async fn a_call_waits_no_longer_than_its_own_deadline() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut call = Request::new(AcquireRequest { wait_forever: true, ..acquire("job/x", "b") });
    call.set_timeout(Duration::from_millis(100));
    let late = world.locks().acquire(call).await.unwrap_err();
    assert!(matches!(late.code(), tonic::Code::DeadlineExceeded | tonic::Code::Cancelled));
    world.wait_for_waiters(0).await;
    world.release(&held).await;
    assert_eq!(world.get("job/x").await.state(), LockState::Free);
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_the_queue() {
    let world = World::start().await;
    let held = world.acquire("job/x", "a").await;
    let mut locks = world.locks();
    let waiting = tokio::spawn(async move {
        locks.acquire(AcquireRequest { wait: secs(60), ..acquire("job/x", "b") }).await
    });
    world.wait_for_waiters(1).await;
    waiting.abort();
    world.wait_for_waiters(0).await;
    world.release(&held).await;
    assert_eq!(world.get("job/x").await.state(), LockState::Free);
}

#[tokio::test]
async fn shared_and_permits_are_held_together() {
    let world = World::start().await;
    for owner in ["a", "b"] {
        let shared = AcquireRequest { mode: Mode::Shared.into(), ..acquire("s", owner) };
        world.locks().acquire(shared).await.unwrap();
        let permits = AcquireRequest { permits: Some(2), ..acquire("p", owner) };
        let grant = world.locks().acquire(permits).await.unwrap().into_inner();
        assert_eq!((grant.mode(), grant.permits), (Mode::Permits, Some(2)));
    }
    assert_eq!(refused(world.locks().acquire(acquire("s", "c")).await).code, Code::LockHeld);
    let other = AcquireRequest { permits: Some(3), ..acquire("p", "c") };
    assert_eq!(refused(world.locks().acquire(other).await).code, Code::LimitMismatch);
}

#[tokio::test]
async fn a_set_is_kept_alive_and_closed_as_one() {
    let world = World::start().await;
    let claim =
        |lock: &str, mode: Mode| Claim { lock: lock.into(), mode: mode.into(), permits: None };
    let set = AcquireSetRequest {
        locks: vec![claim("a", Mode::Exclusive), claim("path:/srv/x", Mode::Shared)],
        owner_id: "a".into(),
        ttl: secs(30),
        ..AcquireSetRequest::default()
    };
    let grant = world.locks().acquire_set(set.clone()).await.unwrap().into_inner();
    assert_eq!(grant.locks[1], claim("path:/srv/x", Mode::Shared));
    let other = AcquireSetRequest { owner_id: "b".into(), ..set };
    assert_eq!(refused(world.locks().acquire_set(other).await).code, Code::LockHeld);
    let keep = KeepAliveRequest { session_id: grant.lease_id.clone(), ..Default::default() };
    assert_eq!(world.sessions().keep_alive(keep).await.unwrap().into_inner().ttl, secs(30));
    let close = CloseRequest { session_id: grant.lease_id, ..Default::default() };
    assert_eq!(world.sessions().close(close).await.unwrap().into_inner().released, 2);
    assert_eq!(world.cluster().await.locks_held, 0);
}

#[tokio::test]
async fn deadlock_is_refused_with_the_circle() {
    let world = World::start().await;
    world.acquire("x", "a").await;
    world.acquire("y", "b").await;
    let mut locks = world.locks();
    let waiting = tokio::spawn(async move {
        locks.acquire(AcquireRequest { wait_forever: true, ..acquire("y", "a") }).await
    });
    world.wait_for_waiters(1).await;
    let graph = world.locks().get_graph(GetGraphRequest::default()).await.unwrap().into_inner();
    assert_eq!((graph.nodes.len(), graph.edges.len()), (3, 2), "{graph:?}");
    let closing = AcquireRequest { wait_forever: true, ..acquire("x", "b") };
    let problem = refused(world.locks().acquire(closing).await);
    assert_eq!(problem.code, Code::Deadlock);
    let cycle = problem.cycle.unwrap();
    assert_eq!(cycle.len(), 2);
    assert!(cycle.iter().any(|edge| edge.waiter == "b" && edge.lock == "x" && edge.blocker == "a"));
    waiting.abort();
}

#[tokio::test]
async fn repetition_gets_the_same_grant_and_another_body_does_not() {
    let world = World::start().await;
    let ask = AcquireRequest { request_id: Some("r1".into()), ..acquire("job/x", "a") };
    let first = world.locks().acquire(ask.clone()).await.unwrap().into_inner();
    let again = world.locks().acquire(ask.clone()).await.unwrap().into_inner();
    assert!(again.replayed && !first.replayed);
    assert_eq!((again.fencing_token, again.lease_id), (first.fencing_token, first.lease_id));
    let other = AcquireRequest { lock: "job/y".into(), ..ask };
    assert_eq!(refused(world.locks().acquire(other).await).code, Code::RequestIdReused);
}

#[tokio::test]
async fn a_token_is_checked_against_its_holder() {
    let world = World::start().await;
    let grant = world.acquire("job/x", "a").await;
    let check = CheckRequest {
        lock: "job/x".into(),
        fencing_token: grant.fencing_token,
        lease_id: Some(grant.lease_id.clone()),
        ..CheckRequest::default()
    };
    assert!(world.locks().check(check.clone()).await.unwrap().into_inner().valid);
    world.release(&grant).await;
    assert!(!world.locks().check(check).await.unwrap().into_inner().valid);
}

#[tokio::test]
async fn lists_come_in_pages_in_the_order_of_the_names() {
    let world = World::start().await;
    for lock in ["b/1", "b/3", "b/2", "a"] {
        world.acquire(lock, "w").await;
    }
    let mut list = ListRequest { prefix: "b/".into(), page_size: 2, ..ListRequest::default() };
    let mut names = Vec::new();
    loop {
        let page = world.locks().list(list.clone()).await.unwrap().into_inner();
        names.extend(page.locks.into_iter().map(|lock| lock.lock));
        if page.next_page_token.is_empty() {
            break;
        }
        list.page_token = page.next_page_token;
    }
    assert_eq!(names, ["b/1", "b/2", "b/3"]);
    for wrong in [
        ListRequest { page_size: 5000, ..ListRequest::default() },
        ListRequest { page_token: "zz".into(), ..ListRequest::default() },
        ListRequest { state: 99, ..ListRequest::default() },
        ListRequest { prefix: "a\n".into(), ..ListRequest::default() },
    ] {
        assert_eq!(refused(world.locks().list(wrong).await).code, Code::InvalidRequest);
    }
}

#[tokio::test]
async fn an_operator_breaks_a_lock_with_a_reason() {
    let world = World::start().await;
    let grant = world.acquire("job/x", "a").await;
    let no_reason = BreakRequest { lock: "job/x".into(), ..BreakRequest::default() };
    assert_eq!(refused(world.locks().r#break(no_reason.clone()).await).code, Code::InvalidRequest);
    let breaking = BreakRequest { reason: "stuck".into(), ..no_reason };
    assert_eq!(world.locks().r#break(breaking).await.unwrap().into_inner().broken, 1);
    let late = refused(world.locks().release(release(&grant)).await);
    assert!(matches!(late.code, Code::NotHolder | Code::LeaseLost), "{late:?}");
}

#[tokio::test]
async fn a_removed_file_has_no_locks() {
    let world = World::start().await;
    world.acquire("inode:42@0..100", "a").await;
    let removed =
        world.inodes().remove(RemoveRequest { inode: 42, ..Default::default() }).await.unwrap();
    assert_eq!(removed.into_inner().released, 1);
}

#[tokio::test]
async fn namespaces_never_meet() {
    let world = World::start().await;
    world.acquire("job/x", "a").await;
    let elsewhere = AcquireRequest { namespace: "other".into(), ..acquire("job/x", "b") };
    let grant = world.locks().acquire(elsewhere).await.unwrap().into_inner();
    let here = ReleaseRequest { namespace: String::new(), ..release(&grant) };
    assert_eq!(refused(world.locks().release(here).await).code, Code::NotHolder);
    let there = ReleaseRequest { namespace: "other".into(), ..release(&grant) };
    world.locks().release(there).await.unwrap();
}
