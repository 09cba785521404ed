//! Watching: nothing is lost between two connections, and who is too slow is told so.

use std::time::Duration;

use crate::polling::eventually;
use crate::world::{World, config};
use leasehold_server::Config;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;

/// A stream of events, read line by line.
struct Stream(Lines<BufReader<TcpStream>>);

impl Stream {
    async fn open(world: &World, path: &str, headers: &str) -> Stream {
        let mut stream = world.connect().await;
        let text = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        Stream(BufReader::new(stream).lines())
    }

    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(Duration::from_secs(5), self.0.next_line());
        line.await.expect("something comes in time").ok().flatten()
    }

    /// The next event of an SSE stream: its id and its data.
    async fn event(&mut self) -> Option<(Option<String>, Value)> {
        let mut id = None;
        loop {
            let line = self.line().await?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_string());
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((id, serde_json::from_str(data).unwrap()));
            }
        }
    }

    async fn event_of_any(&mut self) -> String {
        let (_, event) = self.event().await.expect("the stream goes on");
        event["type"].as_str().unwrap().to_string()
    }

    /// The next event of this kind.
    async fn event_of(&mut self, kind: &str) -> (Option<String>, Value) {
        loop {
            let (id, event) = self.event().await.expect("the stream goes on");
            if event["type"] == kind {
                return (id, event);
            }
        }
    }
}

#[tokio::test]
async fn watcher_that_comes_back_misses_nothing() {
    let world = World::start().await;
    let mut stream = Stream::open(&world, "/v1/watch", "").await;
    let (_, bookmark) = stream.event().await.unwrap();
    assert_eq!(bookmark["type"], "bookmark");
    let (lease, token) = world.acquire("x", "a").await;
    let (id, granted) = stream.event_of("granted").await;
    assert_eq!((&granted["lock"], &granted["owner_id"]), (&"x".into(), &"a".into()));
    assert_eq!(granted["fencing_token"], token);
    assert_eq!(id.as_deref(), granted["cursor"].as_str());
    let epoch = world.get("/v1/cluster").await.ok()["epoch"].clone();
    assert_eq!(id, Some(format!("{epoch}-{}", granted["revision"])));
    assert!(!granted.to_string().contains(&lease));
    drop(stream);

    world.release("x", "a", &lease, token).await.ok();
    world.acquire("y", "b").await;
    let resume = format!("last-event-id: {}\r\n", id.unwrap());
    let mut stream = Stream::open(&world, "/v1/watch", &resume).await;
    let (_, ended) = stream.event_of("ended").await;
    assert_eq!((&ended["lock"], &ended["reason"]), (&"x".into(), &"released".into()));
    let (_, granted) = stream.event_of("granted").await;
    assert_eq!(granted["lock"], "y");
}

#[tokio::test]
async fn locks_of_a_set_share_a_revision_and_only_the_last_has_its_id() {
    let world = World::start().await;
    let mut stream = Stream::open(&world, "/v1/watch", "").await;
    stream.event_of("bookmark").await;
    let body = r#"{"owner_id":"s","ttl_ms":30000,"locks":[{"lock":"a"},{"lock":"b"}]}"#;
    world.post("/v1/sets/acquire", body).await.ok();
    let (first_id, first) = stream.event_of("granted").await;
    let (last_id, last) = stream.event_of("granted").await;
    assert_eq!(first["revision"], last["revision"]);
    assert_eq!((first_id, last_id.as_deref()), (None, last["cursor"].as_str()));
    assert!(last_id.is_some());
}

#[tokio::test]
async fn only_what_the_prefix_and_the_namespace_name_is_told() {
    let world = World::start().await;
    let mut stream =
        Stream::open(&world, "/v1/watch?prefix=job/", "accept: application/x-ndjson\r\n").await;
    world.acquire("other", "a").await;
    let body = r#"{"owner_id":"a","ttl_ms":30000}"#;
    world.post("/v1/locks/job/else/acquire?namespace=n", body).await.ok();
    world.acquire("job/1", "a").await;
    loop {
        let line = stream.line().await.unwrap();
        if line.starts_with('{') && line.contains("granted") {
            let event: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(event["lock"], "job/1");
            return;
        }
    }
}

#[tokio::test]
async fn quiet_stream_has_a_heartbeat() {
    let hasty = Config { watch_heartbeat: Duration::from_millis(100), ..config() };
    let world = World::with(hasty).await;
    let mut stream = Stream::open(&world, "/v1/watch", "").await;
    for _ in 0..3 {
        assert_eq!(stream.event().await.unwrap().1["type"], "bookmark");
    }
}

#[tokio::test]
async fn what_is_forgotten_is_gone() {
    let world = World::with(Config { events_max: 4, ..config() }).await;
    for number in 0..10 {
        world.acquire(&format!("l{number}"), "a").await;
    }
    let reply = world.get("/v1/watch?after=1").await;
    assert_eq!(reply.status, 410);
    let problem = reply.problem("revision_compacted");
    let oldest = problem["oldest_revision"].as_u64().unwrap();
    let page = world.get(&format!("/v1/events?after={oldest}")).await.ok();
    assert_eq!(page["events"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn reader_that_is_too_slow_is_told_to_look_again() {
    let world = World::with(Config { events_max: 128, ..config() }).await;
    let mut stream = Stream::open(&world, "/v1/watch", "").await;
    stream.event_of("bookmark").await;
    // Nobody reads while far more happens than fits into the socket and the backlog.
    let name = "n".repeat(480);
    for round in 0..400 {
        let lock = |number: usize| format!(r#"{{"lock":"{name}-{round}-{number}"}}"#);
        let locks: Vec<String> = (0..64).map(lock).collect();
        let body = format!(r#"{{"owner_id":"a","ttl_ms":30000,"locks":[{}]}}"#, locks.join(","));
        world.post("/v1/sets/acquire", &body).await.ok();
    }
    let mut told = 0;
    while stream.event_of_any().await != "resync" {
        told += 1;
    }
    assert!(told < 400 * 64, "{told}");
}

#[tokio::test]
async fn long_poll_waits_for_the_next_event() {
    let world = World::with(Config { watchers_per_peer_max: 1, ..config() }).await;
    let revision = world.get("/v1/events").await.ok()["revision"].as_u64().unwrap();
    let path = format!("/v1/events?after={revision}&wait_ms=20000");
    let (page, _) = tokio::join!(world.get(&path), async {
        // It waits when there is no place for another watcher.
        let second = format!("/v1/events?after={revision}");
        eventually("it waits", async || world.get(&second).await.status == 429).await;
        world.acquire("x", "a").await
    });
    let page = page.ok();
    assert_eq!(page["events"][0]["type"], "granted");
    assert_eq!(page["revision"], revision + 1);
    let path = format!("/v1/events?after={}&wait_ms=50", revision + 1);
    assert_eq!(world.get(&path).await.ok()["events"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn cursor_that_is_not_of_this_life_is_gone() {
    let world = World::start().await;
    world.acquire("x", "a").await;
    let list = world.get("/v1/locks").await.ok();
    let (revision, cursor) = (list["revision"].as_u64().unwrap(), list["cursor"].as_str().unwrap());
    for after in [cursor.to_string(), revision.to_string()] {
        let page = world.get(&format!("/v1/events?after={after}")).await.ok();
        assert_eq!((&page["cursor"], &page["revision"]), (&list["cursor"], &list["revision"]));
    }
    let epoch: u64 = cursor.split_once('-').unwrap().0.parse().unwrap();
    let (ahead, other) = (revision + 1, epoch + 1);
    for after in [format!("{ahead}"), format!("{epoch}-{ahead}"), format!("{other}-{revision}")] {
        for path in ["/v1/events", "/v1/watch"] {
            let reply = world.get(&format!("{path}?after={after}")).await;
            assert_eq!(reply.status, 410, "{path} {after}");
            reply.problem("revision_compacted");
        }
    }
    for after in ["", "-", "1-", "x", "-1", "1-2-3"] {
        assert_eq!(world.get(&format!("/v1/events?after={after}")).await.status, 400, "{after}");
    }
}
