//! Traces of calls over gRPC.

use leasehold_api::grpc::{StreamRelease, command::Ask, reply::Answer};
use leasehold_server::{Config, TraceConfig};
use tonic::Request;

use crate::collector::{Collector, attribute};
use crate::polling::eventually;
use crate::world::{World, acquire, config, open, release, wait_for};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const STREAM_TRACE: &str = "5bf92f3577b34da6a3ce929d0e0e4736";

fn traced<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    request
}

#[tokio::test]
async fn acquire_and_release_are_spans_of_their_callers_trace() {
    let (collector, address) = Collector::start().await;
    let trace = TraceConfig { endpoint: Some(format!("http://{address}")), names: false };
    let world = World::with(Config { trace, ..config() }).await;
    let grant = world.locks().acquire(traced(acquire("job", "ann"))).await.unwrap().into_inner();
    world.locks().release(traced(release(&grant))).await.unwrap();
    for name in ["leasehold.acquire", "leasehold.commit", "leasehold.release"] {
        let told = async || collector.find(TRACE, name).await.is_some();
        eventually(name, told).await;
    }
    let span = collector.find(TRACE, "leasehold.release").await.unwrap();
    assert_eq!(attribute(&span, "network.protocol.name"), "grpc");
    assert_eq!(attribute(&span, "leasehold.result"), "ok");
    assert!(collector.all().await.iter().all(|span| span["name"] != "leasehold.wait"));
}

#[tokio::test]
async fn commands_on_a_stream_are_spans_and_a_wait_is_linked_to_its_end() {
    let (collector, address) = Collector::start().await;
    let trace = TraceConfig { endpoint: Some(format!("http://{address}")), names: false };
    let world = World::with(Config { trace, ..config() }).await;
    let held = world.acquire("job", "ann").await;
    let parent = format!("00-{STREAM_TRACE}-00f067aa0ba902b7-01");
    let mut talk = world.attach(open("bob")).await;
    let Ask::Acquire(mut waiting) = wait_for("job", "bob") else { unreachable!() };
    waiting.traceparent = Some(parent.clone());
    let number = talk.ask(Ask::Acquire(waiting)).await;
    world.wait_for_waiters(1).await;
    world.locks().release(traced(release(&held))).await.unwrap();
    let Answer::Granted(grant) = talk.answer(number).await else { panic!("it is granted") };
    let fencing_token = grant.fencing_token;
    let (lock, traceparent) = ("job".into(), Some(parent));
    let back = StreamRelease { lock, fencing_token, traceparent, ..StreamRelease::default() };
    let number = talk.ask(Ask::Release(back)).await;
    talk.answer(number).await;
    for name in ["leasehold.acquire", "leasehold.wait", "leasehold.commit", "leasehold.release"] {
        let told = async || collector.find(STREAM_TRACE, name).await.is_some();
        eventually(name, told).await;
    }
    let told = async || collector.find(TRACE, "leasehold.release").await.is_some();
    eventually("the release that made way", told).await;
    let acquire = collector.find(STREAM_TRACE, "leasehold.acquire").await.unwrap();
    let made_way = collector.find(TRACE, "leasehold.release").await.unwrap();
    assert_eq!(acquire["links"][0]["spanId"], made_way["spanId"], "{acquire}");
}
