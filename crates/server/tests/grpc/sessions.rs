//! Sessions and fence registers, one call at a time.

use leasehold_api::Code;
use leasehold_api::grpc::{
    AcceptRequest, AcquireRequest, CloseRequest, DeleteRegisterRequest, GetRegisterRequest,
    GetSessionRequest, KeepAliveRequest, ListRegistersRequest, ListSessionsRequest, OnDisconnect,
    OpenRequest,
};

use crate::world::{World, acquire, millis, open, refused, secs};

#[tokio::test]
async fn a_session_holds_many_locks_and_ends_with_all() {
    let world = World::start().await;
    let opened = world.sessions().open(open("a")).await.unwrap().into_inner();
    assert_eq!((opened.adapter.as_str(), opened.ttl), ("grpc", secs(30)));
    for lock in ["x", "y"] {
        let under = AcquireRequest {
            ttl: None,
            session_id: Some(opened.session_id.clone()),
            ..acquire(lock, "a")
        };
        world.locks().acquire(under).await.unwrap();
    }
    let look = GetSessionRequest { session_id: opened.session_id.clone(), ..Default::default() };
    let seen = world.sessions().get(look.clone()).await.unwrap().into_inner();
    assert_eq!((seen.locks, seen.session, seen.attached), (2, opened.session, false));
    let keep = KeepAliveRequest {
        session_id: opened.session_id.clone(),
        ttl: secs(60),
        ..Default::default()
    };
    assert_eq!(world.sessions().keep_alive(keep).await.unwrap().into_inner().ttl, secs(60));
    let close = CloseRequest { session_id: opened.session_id, ..Default::default() };
    assert_eq!(world.sessions().close(close.clone()).await.unwrap().into_inner().released, 2);
    let again = world.sessions().close(close).await.unwrap().into_inner();
    assert_eq!((again.released, again.replayed), (2, true));
    assert_eq!(refused(world.sessions().get(look).await).code, Code::SessionNotFound);
}

#[tokio::test]
async fn a_session_opened_twice_under_one_request_id_is_one() {
    let world = World::start().await;
    let asked = OpenRequest { request_id: Some("r1".into()), ..open("a") };
    let first = world.sessions().open(asked.clone()).await.unwrap().into_inner();
    let again = world.sessions().open(asked.clone()).await.unwrap().into_inner();
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(first.session_id, again.session_id);
    // A stream that comes back without knowing its session finds it by the same request.
    let talk = world.attach(asked.clone()).await;
    assert_eq!(talk.attached.session_id, first.session_id);
    let other = OpenRequest { ttl: secs(20), ..asked };
    assert_eq!(refused(world.sessions().open(other).await).code, Code::RequestIdReused);
    let list = ListSessionsRequest::default();
    assert_eq!(world.sessions().list(list).await.unwrap().into_inner().sessions.len(), 1);
}

#[tokio::test]
async fn lists_show_everything_but_the_id() {
    let world = World::start().await;
    let kept = OpenRequest {
        on_disconnect: OnDisconnect::Keep.into(),
        disconnect_ttl: millis(1500),
        ..open("a")
    };
    let opened = world.sessions().open(kept).await.unwrap().into_inner();
    world.sessions().open(open("b")).await.unwrap();
    let list = ListSessionsRequest { page_size: 1, ..ListSessionsRequest::default() };
    let page = world.sessions().list(list).await.unwrap().into_inner();
    assert_eq!(page.sessions.len(), 1);
    assert_eq!(page.sessions[0].disconnect_ttl, millis(1500));
    assert!(!format!("{page:?}").contains(&opened.session_id));
    let next = ListSessionsRequest { page_token: page.next_page_token, ..Default::default() };
    assert_eq!(world.sessions().list(next).await.unwrap().into_inner().sessions[0].owner_id, "b");
    let wrong = ListSessionsRequest { page_token: "x".into(), ..Default::default() };
    assert_eq!(refused(world.sessions().list(wrong).await).code, Code::InvalidRequest);
}

#[tokio::test]
async fn a_stale_token_is_refused_by_the_register() {
    let world = World::start().await;
    let accept = |token| AcceptRequest {
        name: "disk".into(),
        fencing_token: token,
        ..AcceptRequest::default()
    };
    let look = GetRegisterRequest { name: "disk".into(), ..Default::default() };
    assert_eq!(refused(world.fences().get(look.clone()).await).code, Code::NotFound);
    assert_eq!(world.fences().accept(accept(7)).await.unwrap().into_inner().high_water, 7);
    let stale = refused(world.fences().accept(accept(6)).await);
    assert_eq!((stale.code, stale.high_water), (Code::StaleFence, Some(7)));
    assert_eq!(world.fences().get(look).await.unwrap().into_inner().high_water, 7);
}

#[tokio::test]
async fn registers_are_listed_and_deleted_and_take_issued_tokens_only() {
    let world = World::start().await;
    let accept = |name: &str, fencing_token| AcceptRequest {
        name: name.into(),
        fencing_token,
        ..AcceptRequest::default()
    };
    let unissued = world.fences().accept(accept("a", (1 << 53) - 1)).await;
    assert_eq!(unissued.as_ref().unwrap_err().code(), tonic::Code::InvalidArgument);
    assert_eq!(refused(unissued).code, Code::InvalidRequest);
    for name in ["a", "b"] {
        world.fences().accept(accept(name, 7)).await.unwrap();
    }
    let list = ListRegistersRequest { page_size: 1, ..Default::default() };
    let page = world.fences().list(list).await.unwrap().into_inner();
    assert_eq!((page.registers[0].name.as_str(), page.registers[0].high_water), ("a", 7));
    let next = ListRegistersRequest { page_token: page.next_page_token, ..Default::default() };
    let page = world.fences().list(next).await.unwrap().into_inner();
    assert_eq!((page.registers.len(), page.next_page_token.as_str()), (1, ""));
    let delete = |reason: &str| DeleteRegisterRequest {
        name: "a".into(),
        reason: reason.into(),
        ..Default::default()
    };
    assert_eq!(refused(world.fences().delete(delete("")).await).code, Code::InvalidRequest);
    let deleted = world.fences().delete(delete("moved")).await.unwrap().into_inner();
    assert_eq!(deleted.high_water, 7);
    assert_eq!(refused(world.fences().delete(delete("moved")).await).code, Code::NotFound);
}
