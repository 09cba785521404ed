//! Spans of traced requests, as a collector of our own takes them.

use std::sync::Arc;

use leasehold_server::{Config, TraceConfig};
use serde_json::Value;

use crate::collector::{Collector, attribute};
use crate::polling::eventually;
use crate::world::{World, config};

/// The traces of three requests, and one that is not sampled.
const HOLDER: &str = "11111111111111111111111111111111";
const WAITER: &str = "22222222222222222222222222222222";
const RELEASER: &str = "33333333333333333333333333333333";
const PARENT: &str = "00f067aa0ba902b7";

async fn traced(world: &World, path: &str, trace: &str, flags: &str, body: &str) -> Value {
    let parent = format!("00-{trace}-{PARENT}-{flags}");
    let headers = [("content-type", "application/json"), ("traceparent", parent.as_str())];
    world.send("POST", path, &headers, Some(body)).await.ok()
}

#[tokio::test]
async fn a_wait_is_a_span_that_is_linked_to_the_release_that_ended_it() {
    let (collector, address) = Collector::start().await;
    let trace = TraceConfig { endpoint: Some(format!("http://{address}")), names: false };
    let world = Arc::new(World::with(Config { trace, ..config() }).await);
    let held = "{\"owner_id\":\"ann\",\"ttl_ms\":60000}";
    let held = traced(&world, "/v1/locks/secret/acquire", HOLDER, "00", held).await;
    let waiting = tokio::spawn({
        let world = world.clone();
        let asked = "{\"owner_id\":\"bob\",\"ttl_ms\":60000,\"wait_ms\":30000}";
        async move { traced(&world, "/v1/locks/secret/acquire", WAITER, "01", asked).await }
    });
    world.wait_for_waiters(1).await;
    let release = format!(
        "{{\"owner_id\":\"ann\",\"lease_id\":{},\"fencing_token\":{}}}",
        held["lease_id"], held["fencing_token"]
    );
    traced(&world, "/v1/locks/secret/release", RELEASER, "01", &release).await;
    waiting.await.unwrap();
    let told = async |trace, name| collector.find(trace, name).await.is_some();
    eventually("the acquire is told", async || told(WAITER, "leasehold.acquire").await).await;
    eventually("the release is told", async || told(RELEASER, "leasehold.release").await).await;

    let acquire = collector.find(WAITER, "leasehold.acquire").await.unwrap();
    let release = collector.find(RELEASER, "leasehold.release").await.unwrap();
    assert_eq!(acquire["parentSpanId"], PARENT);
    assert_eq!(acquire["links"][0]["traceId"], RELEASER, "{acquire}");
    assert_eq!(acquire["links"][0]["spanId"], release["spanId"], "{acquire}");
    assert_eq!(attribute(&acquire, "leasehold.result"), "ok");
    assert_eq!(attribute(&acquire, "leasehold.lock"), &Value::Null, "names are not told");
    let [wait, commit] = ["leasehold.wait", "leasehold.commit"];
    let wait = collector.find(WAITER, wait).await.unwrap();
    let commit = collector.find(WAITER, commit).await.unwrap();
    for inner in [&wait, &commit] {
        assert_eq!(inner["parentSpanId"], acquire["spanId"], "{inner}");
    }
    assert_eq!(wait["endTimeUnixNano"], commit["startTimeUnixNano"]);
    // What is not sampled is not told.
    assert!(collector.all().await.iter().all(|span| span["traceId"] != HOLDER));
}

#[tokio::test]
async fn names_are_told_if_they_are_to_be_and_a_refusal_is_an_answer() {
    let (collector, address) = Collector::start().await;
    let trace = TraceConfig { endpoint: Some(format!("http://{address}/")), names: true };
    let world = World::with(Config { trace, ..config() }).await;
    world.acquire("secret", "ann").await;
    let parent = format!("00-{WAITER}-{PARENT}-01");
    let headers = [("content-type", "application/json"), ("traceparent", parent.as_str())];
    let asked = "{\"owner_id\":\"bob\",\"ttl_ms\":60000}";
    let refused = world.send("POST", "/v1/locks/secret/acquire", &headers, Some(asked)).await;
    refused.problem("lock_held");
    let told = async || collector.find(WAITER, "leasehold.acquire").await.is_some();
    eventually("the refusal is told", told).await;
    let span = collector.find(WAITER, "leasehold.acquire").await.unwrap();
    assert_eq!(attribute(&span, "leasehold.lock"), "secret");
    assert_eq!(attribute(&span, "leasehold.result"), "lock_held");
    assert_eq!(attribute(&span, "network.protocol.name"), "http");
    assert_eq!(span["status"], serde_json::json!({}), "an expected no is no failure");
    assert!(collector.find(WAITER, "leasehold.commit").await.is_none());
}

#[tokio::test]
async fn collector_that_is_away_holds_nothing_up() {
    let trace = TraceConfig { endpoint: Some("http://127.0.0.1:1".into()), names: false };
    let world = World::with(Config { trace, ..config() }).await;
    for number in 0..20 {
        let path = format!("/v1/locks/job{number}/acquire");
        traced(&world, &path, WAITER, "01", "{\"owner_id\":\"ann\",\"ttl_ms\":60000}").await;
    }
    world.server.stop().await;
}
