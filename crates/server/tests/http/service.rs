//! The service itself: the simple interface, health, metrics, restart and end.

use std::time::{Duration, Instant};

use crate::polling::eventually;
use crate::world::{World, config};
use leasehold_server::{Config, Store};

async fn simple(world: &World, method: &str, query: &str) -> (u16, serde_json::Value) {
    let reply = world.send(method, &format!("/lock{query}"), &[], None).await;
    (reply.status, reply.json())
}

#[tokio::test]
async fn simple_lock_goes_through_its_life() {
    let world = World::with(Config { simple_grace: Duration::from_millis(700), ..config() }).await;
    let free = world.get("/lock").await;
    assert_eq!(free.text, r#"{"holder":"","is_expired":true}"#);

    let (status, held) = simple(&world, "POST", "?client=a&ttl=400ms").await;
    assert_eq!((status, &held["holder"]), (200, &"a".into()));
    let (status, renewed) = simple(&world, "POST", "?client=a&ttl=500ms").await;
    assert_eq!(status, 200);
    let end = |answer: &serde_json::Value| {
        answer["expires_at"].as_str().unwrap().parse::<jiff::Timestamp>()
    };
    assert!(end(&renewed).unwrap() > end(&held).unwrap());
    let (_, seen) = simple(&world, "GET", "").await;
    assert_eq!((&seen["holder"], &seen["is_expired"]), (&"a".into(), &false.into()));
    assert_eq!(seen["expires_at"], renewed["expires_at"]);
    let grace: jiff::Timestamp = seen["grace_until"].as_str().unwrap().parse().unwrap();
    assert!(grace > end(&renewed).unwrap());

    let (status, refused) = simple(&world, "POST", "?client=b").await;
    assert_eq!(status, 409);
    assert_eq!(refused["holder"], "a");
    assert_eq!(refused["expires_at"], renewed["expires_at"]);
    assert!(refused["message"].is_string());
    assert_eq!(simple(&world, "DELETE", "?client=b").await.0, 403);

    let is_expired = async || {
        let (_, seen) = simple(&world, "GET", "").await;
        seen["is_expired"] == true
    };
    eventually("the lease is over", is_expired).await;
    let (status, refused) = simple(&world, "POST", "?client=b").await;
    assert_eq!((status, &refused["message"]), (409, &"grace period active".into()));
    assert_eq!(refused["expires_at"], renewed["expires_at"]);
    let (_, seen) = simple(&world, "GET", "").await;
    assert_eq!((&seen["holder"], &seen["is_expired"]), (&"a".into(), &true.into()));
    assert_eq!(simple(&world, "POST", "?client=a&ttl=300ms").await.0, 200);

    eventually("the window is over", async || simple(&world, "GET", "").await.1["holder"] == "")
        .await;
    assert_eq!(simple(&world, "POST", "?client=b&ttl=100ms").await.0, 200);
    eventually("the lease is over", is_expired).await;
    // What it may still take back, the last holder can give up.
    assert_eq!(simple(&world, "DELETE", "?client=a").await.0, 403);
    assert_eq!(simple(&world, "DELETE", "?client=b").await.0, 200);
    assert_eq!(simple(&world, "DELETE", "?client=b").await.0, 403);
    assert_eq!(world.get("/lock").await.text, r#"{"holder":"","is_expired":true}"#);
}

#[tokio::test]
async fn simple_lock_has_its_defaults_and_limits() {
    let world = World::start().await;
    simple(&world, "POST", "?client=a").await;
    let lock = world.get("/v1/locks/lock?namespace=leasehold.simple").await.ok();
    let left = lock["holders"][0]["expires_in_ms"].as_u64().unwrap();
    assert!((29_000..=30_000).contains(&left), "{left}");
    for ttl in ["1h15m30.918s", "1.5h", "%2B5s", "+5s", ".5s", "500000us", "2.5", "1m1m"] {
        let (status, held) = simple(&world, "POST", &format!("?client=a&ttl={ttl}")).await;
        assert_eq!(status, 200, "{ttl}: {held}");
    }
    for (ttl, said) in
        [("1ns", "too short"), ("0", "too short"), ("-5s", "too short"), ("999h", "too long")]
    {
        let reply = world.send("POST", &format!("/lock?client=a&ttl={ttl}"), &[], None).await;
        assert!(
            reply.problem("invalid_request")["errors"][0]["message"]
                .as_str()
                .unwrap()
                .contains(said),
            "{ttl}: {}",
            reply.text
        );
    }
    for query in [
        "",
        "?client=",
        "?client=a%00",
        "?client=a&ttl=0",
        "?client=a&ttl=-5s",
        "?client=a&ttl=2d",
        "?client=a&tll=5s",
    ] {
        let reply = world.send("POST", &format!("/lock{query}"), &[], None).await;
        assert_eq!(reply.status, 400, "{query}");
        reply.problem("invalid_request");
    }
}

#[tokio::test]
async fn simple_lock_has_its_namespace_to_itself_and_a_ttl_within_every_limit() {
    let mut config = config();
    config.limits.lease_ttl_max = Duration::from_secs(10);
    let world = World::with(config).await;
    assert_eq!(simple(&world, "POST", "?client=a").await.0, 200);
    let namespace = "?namespace=leasehold.simple";
    for (path, body) in [
        ("locks/lock/acquire", r#"{"owner_id":"b","ttl_ms":5000,"wait_ms":1000}"#),
        ("locks/other/acquire", r#"{"owner_id":"b","ttl_ms":5000}"#),
        ("sets/acquire", r#"{"owner_id":"b","ttl_ms":5000,"locks":[{"lock":"other"}]}"#),
        ("sessions", r#"{"owner_id":"b","ttl_ms":5000}"#),
        ("fences/x/accept", r#"{"fencing_token":1}"#),
    ] {
        let reply = world.post(&format!("/v1/{path}{namespace}"), body).await;
        assert_eq!(reply.status, 403, "{path}");
        reply.problem("permission_denied");
    }
    let path = format!("/v1/locks/lock/break{namespace}");
    assert_eq!(world.post(&path, r#"{"reason":"stuck"}"#).await.ok()["broken"], 1);
    assert_eq!(simple(&world, "POST", "?client=b").await.0, 200);
}

#[tokio::test]
async fn counts_are_true() {
    let world = World::start().await;
    for number in 0..7 {
        world.acquire(&format!("l{number}"), "a").await;
    }
    for _ in 0..3 {
        let body = r#"{"owner_id":"b","ttl_ms":30000}"#;
        world.post("/v1/locks/l0/acquire", body).await.problem("lock_held");
    }
    world.post("/v1/locks/l0/acquire", "{}").await.problem("invalid_request");
    world.release("l0", "a", "0123456789abcdef0123456789abcdef", 1).await.problem("not_holder");
    let (lease, token) = world.acquire("last", "a").await;
    world.release("last", "a", &lease, token).await.ok();
    for (name, value) in [
        ("lock_acquire_total{result=\"success\"}", 8.0),
        ("lock_acquire_total{result=\"busy\"}", 0.0),
        ("lock_acquire_total{result=\"fail\"}", 4.0),
        ("lock_release_total{result=\"success\"}", 1.0),
        ("lock_release_total{result=\"fail\"}", 1.0),
        ("lock_renew_total{result=\"success\"}", 0.0),
        ("lock_op_latency_ms_count{op=\"acquire\"}", 12.0),
        ("lock_db_busy_total{op=\"acquire\"}", 0.0),
        ("locks_held", 7.0),
        ("lock_expired_total", 0.0),
        ("leasehold_locks_active_count{namespace=\"default\",type=\"named\"}", 7.0),
        (
            "leasehold_locks_acquire_total{namespace=\"default\",type=\"named\",status=\"granted\"}",
            8.0,
        ),
        (
            "leasehold_locks_acquire_total{namespace=\"default\",type=\"named\",status=\"lock_held\"}",
            3.0,
        ),
        ("leasehold_locks_release_total{namespace=\"default\",reason=\"explicit\"}", 1.0),
        ("leasehold_connections_active_count{adapter=\"http\"}", 1.0),
        ("leasehold_leader", 1.0),
    ] {
        let found = world.sample(name).await;
        assert!((found - value).abs() < 0.1, "{name} is {found}, not {value}");
    }
    let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
    let open = world.send("GET", "/metrics", &accept, None).await;
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.text.ends_with("# EOF\n"));
    assert!(!open.text.contains("\"l0\""));
}

#[tokio::test]
async fn service_says_how_it_is() {
    let world = World::start().await;
    assert_eq!(world.get("/livez").await.ok()["status"], "alive");
    assert_eq!(world.get("/readyz").await.ok()["status"], "ready");
    assert_eq!(world.get("/readyz?verbose").await.ok()["checks"].as_array().unwrap().len(), 3);
    assert_eq!(world.get("/healthz").await.ok()["status"], "ok");
    assert_eq!(world.get("/v1/version").await.ok()["name"], "leasehold");
    assert_eq!(world.get("/v1/cluster").await.ok()["role"], "leader");
    assert_eq!(world.get("/openapi.json").await.ok()["openapi"], "3.1.0");
    assert_eq!(world.get("/").await.status, 200);
}

#[tokio::test]
async fn every_path_that_is_described_is_served() {
    let world = World::start().await;
    let description = world.get("/openapi.json").await.ok();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{lock}", "x").replace("{name}", "x").replace("{inode}", "1");
            let path = path.replace("{session_id}", "0123456789abcdef0123456789abcdef");
            if path == "/v1/watch" {
                continue;
            }
            let reply = world.send(&method.to_uppercase(), &path, &[], None).await;
            let is_routed = reply.status != 405
                && (reply.status != 404
                    || reply.json()["detail"]
                        .as_str()
                        .is_some_and(|said| !said.contains("served")));
            assert!(is_routed, "{method} {path}: {reply:?}");
        }
    }
}

/// Queries as the guide has them, pasted.
#[tokio::test]
async fn no_query_of_the_guide_is_refused() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/http.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let world = World::start().await;
    let mut tried = 0;
    for line in guide.lines() {
        let words: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let Some(path) = words.iter().find_map(|word| word.strip_prefix("GET /v1/")) else {
            continue;
        };
        let whole = words.iter().filter_map(|word| word.strip_prefix("GET /v1/"));
        let whole = whole.filter(|word| word.contains('?')).map(ToString::to_string);
        let queries = words.iter().filter(|word| word.starts_with('?') && !word.ends_with('='));
        let added = queries.map(|query| format!("{}{query}", path.replace("{fencing_token}", "1")));
        for query in whole.chain(added).filter(|query| !query.contains('…')) {
            let reply = world.get(&format!("/v1/{query}")).await;
            assert!(matches!(reply.status, 200 | 404 | 410), "{query}: {reply:?}");
            tried += 1;
        }
    }
    assert!(tried > 5, "only {tried} were found");
}

#[tokio::test]
async fn locks_survive_a_restart_and_can_be_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let on_disk = || Config { store: Store::in_directory(directory.path()), ..config() };
    let world = World::with(on_disk()).await;
    let (lease, token) = world.acquire("x", "a").await;
    simple(&world, "POST", "?client=s").await;
    world.server.stop().await;

    let world = World::with(on_disk()).await;
    let seen = world.get("/v1/locks/x").await.ok();
    assert_eq!(
        (&seen["state"], &seen["holders"][0]["owner_id"]),
        (&"recovering".into(), &"a".into())
    );
    let refused = world.post("/v1/locks/x/acquire", r#"{"owner_id":"b","ttl_ms":1000}"#).await;
    assert_eq!(refused.status, 409);
    assert_eq!(refused.problem("lock_held")["holders"][0]["state"], "recovering");
    let body = format!(r#"{{"owner_id":"a","lease_id":"{lease}","fencing_token":{token}}}"#);
    world.post("/v1/locks/x/renew", &body).await.ok();
    assert_eq!(world.get("/v1/locks/x").await.ok()["state"], "held");
    // The same client renews, although nobody but the server ever knew its lease.
    assert_eq!(simple(&world, "POST", "?client=t").await.0, 409);
    assert_eq!(simple(&world, "POST", "?client=s").await.0, 200);
    let (_, next) = world.acquire("y", "b").await;
    assert!(next > token);
}

#[tokio::test]
async fn stopping_tells_those_who_wait_and_takes_no_time() {
    let world = World::start().await;
    world.acquire("x", "a").await;
    let body = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":40000}"#;
    let address = world.address;
    let begun = Instant::now();
    let waiting = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = "POST /v1/locks/x/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    });
    world.wait_for_waiters(1).await;
    world.server.stop().await;
    let answer = waiting.await.unwrap();
    assert!(answer.contains("503") && answer.contains("draining"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn port_that_is_taken_is_said_in_one_line() {
    let world = World::start().await;
    let error =
        leasehold_server::Server::start(Config { listen: world.address.into(), ..config() }).await;
    let said = error.unwrap_err().to_string();
    assert!(said.starts_with(&format!("cannot listen on {}", world.address)), "{said}");
    assert!(!said.contains('\n'));
}
