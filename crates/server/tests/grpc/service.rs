//! Watching, health, reflection, and what is counted.

use leasehold_api::Code;
use leasehold_api::grpc::{WatchRequest, event::News};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use crate::polling::eventually;
use crate::world::{PATIENCE, World, config, refused};

/// The text of `/metrics`, over plain HTTP on the same port.
pub(crate) async fn metrics(world: &World) -> String {
    let mut stream = tokio::net::TcpStream::connect(world.server.address()).await.unwrap();
    let ask = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn events_are_told_as_they_happen_and_from_a_revision_on() {
    let world = World::start().await;
    let ask = WatchRequest { prefix: "job/".into(), ..WatchRequest::default() };
    let mut watch = world.watch().watch(ask.clone()).await.unwrap().into_inner();
    let hello = watch.message().await.unwrap().unwrap().events;
    assert!(matches!(hello[0].news, Some(News::Bookmark(_))));
    world.acquire("other", "w").await;
    let grant = world.acquire("job/x", "a").await;
    world.release(&grant).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let told = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap();
        seen.extend(told.unwrap().unwrap().events);
    }
    let Some(News::Granted(granted)) = &seen[0].news else { panic!("{seen:?}") };
    assert_eq!((granted.lock.as_str(), granted.fencing_token), ("job/x", grant.fencing_token));
    let Some(News::Ended(ended)) = &seen[1].news else { panic!("{seen:?}") };
    assert_eq!(ended.reason, "released");
    assert!(seen[0].last_of_revision && seen[0].at.is_some());
    let resumed = WatchRequest { after: Some(seen[0].revision), ..ask };
    let mut watch = world.watch().watch(resumed).await.unwrap().into_inner();
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(watch.message().await.unwrap().unwrap().events);
    }
    assert!(matches!(events[1].news, Some(News::Ended(_))), "{events:?}");
}

#[tokio::test]
async fn one_watch_too_many_is_refused() {
    let world =
        World::with(leasehold_server::Config { watchers_per_peer_max: 1, ..config() }).await;
    let first = world.watch().watch(WatchRequest::default()).await.unwrap();
    let problem = refused(world.watch().watch(WatchRequest::default()).await);
    assert_eq!(problem.code, Code::QuotaExceeded);
    drop(first);
    let mut watch = world.watch();
    let is_taken = async || watch.watch(WatchRequest::default()).await.is_ok();
    eventually("its place is free again", is_taken).await;
}

#[tokio::test]
async fn a_watch_from_too_far_back_is_refused() {
    let few = leasehold_server::Config { events_max: 4, ..config() };
    let world = World::with(few).await;
    for _ in 0..10 {
        let grant = world.acquire("job/x", "a").await;
        world.release(&grant).await;
    }
    let old = WatchRequest { after: Some(1), ..WatchRequest::default() };
    let problem = refused(world.watch().watch(old).await);
    assert_eq!(problem.code, Code::RevisionCompacted);
    assert!(problem.oldest_revision.is_some());
}

#[tokio::test]
async fn health_is_served() {
    let world = World::start().await;
    let mut health = HealthClient::new(world.channel.clone());
    for service in ["", "leasehold.v1.Locks", "leasehold.v1.Sessions"] {
        let ask = HealthCheckRequest { service: service.into() };
        let answer = health.check(ask).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = health.check(HealthCheckRequest { service: "nobody".into() }).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let world = World::start().await;
    let mut reflection = ServerReflectionClient::new(world.channel.clone());
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection
        .server_reflection_info(tonic::codegen::tokio_stream::once(ask))
        .await
        .unwrap()
        .into_inner();
    let ServerReflectionResponse { message_response, .. } =
        answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = message_response else {
        panic!("{message_response:?}")
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for service in ["Locks", "Sessions", "Watch", "Fences", "Inodes", "Cluster"] {
        assert!(names.contains(&format!("leasehold.v1.{service}").as_str()), "{names:?}");
    }
    for name in [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    // Older tools ask in the older way.
    let mut reflection =
        v1alpha::server_reflection_client::ServerReflectionClient::new(world.channel.clone());
    let list = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let ask = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let asked = reflection.server_reflection_info(tonic::codegen::tokio_stream::once(ask)).await;
    let answer = asked.unwrap().into_inner().message().await.unwrap().unwrap();
    let names = format!("{:?}", answer.message_response);
    assert!(
        names.contains("leasehold.v1.Locks") && names.contains("grpc.reflection.v1."),
        "{names}"
    );
}

#[tokio::test]
async fn connections_are_counted_by_what_they_speak() {
    let world = World::start().await;
    world.acquire("job/x", "a").await;
    let text = metrics(&world).await;
    assert!(text.contains("leasehold_connections_active_count{adapter=\"grpc\"} 1"), "{text}");
    assert!(text.contains("leasehold_connections_active_count{adapter=\"http\"} 1"), "{text}");
    assert!(text.contains("lock_acquire_total{result=\"success\"} 1"), "{text}");
}
