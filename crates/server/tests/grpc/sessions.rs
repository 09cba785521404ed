//! Sessions and fence registers, one call at a time.

use leasehold_api::Code;
use leasehold_api::grpc::{
    AcceptRequest, AcquireRequest, CloseRequest, GetRegisterRequest, GetSessionRequest,
    KeepAliveRequest, ListSessionsRequest, OnDisconnect, OpenRequest,
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
    assert_eq!(refused(world.sessions().close(close).await).code, Code::SessionNotFound);
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
