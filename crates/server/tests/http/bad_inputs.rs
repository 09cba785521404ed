//! What is wrong is refused for what is wrong with it, and changes nothing.

use std::time::{Duration, Instant};

use crate::polling::eventually;
use crate::world::{World, config};
use leasehold_server::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ACQUIRE: &str = "/v1/locks/free/acquire";

/// A world in which something is held, so that a change would show.
async fn world() -> World {
    let world = World::start().await;
    world.acquire("held", "a").await;
    world
}

#[tokio::test]
async fn wrong_body_is_refused() {
    let world = world().await;
    let before = world.state().await;
    for body in [
        "",
        "{",
        "null",
        "[]",
        r#"["a",1000]"#,
        "5",
        "\u{feff}{}",
        r#"{"owner_id":"a","ttl_ms":1000} x"#,
        r#"{"ttl_ms":1000}"#,
        r#"{"owner_id":"a"}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"colour":"red"}"#,
        r#"{"owner_id":"a","owner_id":"b","ttl_ms":1000}"#,
        r#"{"owner_id":5,"ttl_ms":1000}"#,
        r#"{"owner_id":"","ttl_ms":1000}"#,
        r#"{"owner_id":"a\u0000b","ttl_ms":1000}"#,
        r#"{"owner_id":"a\nb","ttl_ms":1000}"#,
        r#"{"owner_id":"a\u001b[31m","ttl_ms":1000}"#,
        r#"{"owner_id":"a\u202eb","ttl_ms":1000}"#,
        r#"{"owner_id":"\ud800","ttl_ms":1000}"#,
        r#"{"owner_id":"a","ttl_ms":0}"#,
        r#"{"owner_id":"a","ttl_ms":-1}"#,
        r#"{"owner_id":"a","ttl_ms":1.5}"#,
        r#"{"owner_id":"a","ttl_ms":95.0}"#,
        r#"{"owner_id":"a","ttl_ms":"5"}"#,
        r#"{"owner_id":"a","ttl_ms":null}"#,
        r#"{"owner_id":"a","ttl_ms":18446744073709551616}"#,
        r#"{"owner_id":"a","ttl_ms":1e300}"#,
        r#"{"owner_id":"a","ttl_ms":NaN}"#,
        r#"{"owner_id":"a","ttl_ms":99}"#,
        r#"{"owner_id":"a","ttl_ms":86400001}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"wait_ms":9223372036854775808}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"wait_ms":50001}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"wait_ms":-1}"#,
        r#"{"owner_id":"cafe\u0301","ttl_ms":1000}"#,
        r#"{"owner_id":"a\u3164","ttl_ms":1000}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"mode":"both"}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"mode":"permits"}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"permits":0}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"permits":1000001}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"mode":"shared","permits":2}"#,
        r#"{"owner_id":"a","session_id":"abc"}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"session_id":"0123456789abcdef0123456789abcdef"}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"reclaim_ms":99999999999}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"ticket":"x"}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"request_id":""}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"metadata":[]}"#,
        r#"{"owner_id":"a","ttl_ms":1000,"metadata":{"a":"\u0000"}}"#,
    ] {
        let reply = world.post(ACQUIRE, body).await;
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        reply.problem("invalid_request");
    }
    let large =
        format!(r#"{{"owner_id":"a","ttl_ms":1000,"metadata":{{"a":"{}"}}}}"#, "x".repeat(4096));
    world.post(ACQUIRE, &large).await.problem("invalid_request");
    let deep = format!(
        r#"{{"owner_id":"a","ttl_ms":1000,"metadata":{{"a":{}1{}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    world.post(ACQUIRE, &deep).await.problem("invalid_request");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn wrong_field_is_named() {
    let world = world().await;
    for (body, field) in [
        (r#"{"owner_id":"a","ttl_ms":99}"#, "ttl_ms"),
        (r#"{"owner_id":"a","ttl_ms":"5"}"#, "ttl_ms"),
        (r#"{"owner_id":"","ttl_ms":1000}"#, "owner_id"),
        (r#"{"owner_id":"a","ttl":1000}"#, "ttl"),
        (r#"{"owner_id":"a","ttl_ms":1000,"permits":0}"#, "permits"),
    ] {
        let problem = world.post(ACQUIRE, body).await.problem("invalid_request");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
}

#[tokio::test]
async fn wrong_name_is_refused() {
    let world = world().await;
    let before = world.state().await;
    let body = r#"{"owner_id":"a","ttl_ms":1000}"#;
    for name in [
        "..",
        "a/../b",
        "%2e%2e",
        "a//b",
        "/",
        "a%00b",
        "a%0Ab",
        "a%1Bb",
        "a%E2%80%AEb",
        "%FF",
        "%ED%A0%80",
        "%zz",
        "path:relative",
        "path:/a/../b",
        "path:/**/b",
        "inode:x",
        "inode:1@5..5",
        "inode:1@-1..5",
        "cafe%CC%81",
        "a%EF%B8%8Fb",
        "job/**",
        "Path:/a",
        "path:/a/*",
        &"x".repeat(513),
    ] {
        let reply = world.post(&format!("/v1/locks/{name}/acquire"), body).await;
        assert_eq!(reply.status, 400, "{name}: {reply:?}");
        reply.problem("invalid_lock_name");
        let reply = world.get(&format!("/v1/locks/{name}")).await;
        assert_eq!(reply.status, 400, "{name}: {reply:?}");
    }
    world.post("/v1/locks//acquire", body).await.problem("invalid_lock_name");
    assert_eq!(world.state().await, before);
}

/// The hint says what to write instead.
#[tokio::test]
async fn what_is_most_likely_meant_otherwise_is_refused_with_a_hint() {
    let world = world().await;
    let before = world.state().await;
    let body = r#"{"owner_id":"a","ttl_ms":1000}"#;
    for (name, hint) in [
        ("job/**", "path:/job/**"),
        ("Path:/a", "lower case"),
        ("path:/a/*", "'**'"),
        ("cafe%CC%81", "NFC"),
    ] {
        let problem = world.post(&format!("/v1/locks/{name}/acquire"), body).await;
        let problem = problem.problem("invalid_lock_name");
        assert!(problem["detail"].as_str().unwrap().contains(hint), "{problem}");
    }
    let long = r#"{"owner_id":"a","ttl_ms":1000,"wait_ms":60000}"#;
    let problem = world.post(ACQUIRE, long).await.problem("invalid_request");
    assert_eq!(problem["errors"][0]["field"], "wait_ms");
    assert!(problem["detail"].as_str().unwrap().contains("ticket"), "{problem}");
    let problem = world.get("/v1/locks/m/acquire").await.problem("invalid_request");
    assert!(problem["detail"].as_str().unwrap().contains("POST"), "{problem}");
    assert_eq!(world.get("/v1/locks/m%2Facquire").await.ok()["state"], "free");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for path in ["/lock", "/lock?client=a"] {
        let reply = world.send("POST", path, &form, Some("client=a&ttl=3s")).await;
        let problem = reply.problem("invalid_request");
        assert!(problem["detail"].as_str().unwrap().contains("/lock?client="), "{problem}");
    }
    assert_eq!(world.get("/lock").await.ok()["holder"], "");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn proof_that_is_wrong_in_any_part_releases_nothing() {
    let world = World::start().await;
    let (lease, token) = world.acquire("x", "a").await;
    let before = world.state().await;
    let other = "0123456789abcdef0123456789abcdef";
    world.release("x", "b", &lease, token).await.problem("not_holder");
    world.release("x", "a", other, token).await.problem("not_holder");
    world.release("x", "a", &lease, token + 1).await.problem("not_holder");
    world.release("y", "a", &lease, token).await.problem("not_holder");
    world.release("x", "a", "x", token).await.problem("invalid_request");
    world.release("x", "a", &lease.to_uppercase(), token).await;
    world.release("x", "a", &lease, 1 << 53).await.problem("invalid_request");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn wrong_query_is_refused() {
    let world = world().await;
    for path in [
        "/v1/locks?page_size=0",
        "/v1/locks?page_size=1001",
        "/v1/locks?page_size=x",
        "/v1/locks?pagesize=3",
        "/v1/locks?prefix=a&prefix=b",
        "/v1/locks?prefix=%00",
        "/v1/locks?prefix=%ff",
        "/v1/locks?page_token=zz",
        "/v1/locks?state=free",
        "/v1/locks?namespace=",
        "/v1/locks?session_id=x",
        "/v1/watch?after=-1",
        "/v1/watch?after=x",
        "/v1/events?wait_ms=soon",
        "/v1/graph?format=png",
        "/v1/sessions?page_token=x",
        "/v1/sessions/xyz",
        "/lock?client=a",
    ] {
        let reply = world.get(path).await;
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        reply.problem("invalid_request");
    }
}

#[tokio::test]
async fn what_is_not_there_or_not_done_that_way_is_said_in_the_same_shape() {
    let world = world().await;
    for path in ["/nope", "/v1", "/v1/locksmith", "/../../etc/passwd", "/v1/fences/"] {
        let reply = world.get(path).await;
        assert_eq!(reply.status, 404, "{path}");
        reply.problem("not_found");
    }
    world.post("/v1/locks/x/steal", "{}").await.problem("not_found");
    for (method, path) in [
        ("PUT", ACQUIRE),
        ("PATCH", "/v1/locks"),
        ("DELETE", "/v1/locks/held"),
        ("TRACE", "/v1/locks"),
        ("POST", "/metrics"),
        ("PUT", "/lock"),
    ] {
        let reply = world.send(method, path, &[], None).await;
        assert_eq!(reply.status, 405, "{method} {path}");
        reply.problem("method_not_allowed");
        assert!(reply.header("allow").is_some());
    }
}

#[tokio::test]
async fn body_must_say_that_it_is_json() {
    let world = world().await;
    let body = Some(r#"{"owner_id":"a","ttl_ms":1000}"#);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        let reply = world.send("POST", ACQUIRE, &[("content-type", kind)], body).await;
        reply.problem("unsupported_media_type");
    }
    world.send("POST", ACQUIRE, &[], body).await.problem("unsupported_media_type");
    let spelled = [("content-type", "Application/JSON; charset=utf-8")];
    world.send("POST", ACQUIRE, &spelled, body).await.ok();
}

#[tokio::test]
async fn body_that_is_too_large_is_refused_early() {
    let world = world().await;
    let announced = format!(
        "POST {ACQUIRE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 65537\r\n\r\n"
    );
    world.raw(announced.as_bytes()).await.problem("too_large");
    let mut endless = format!(
        "POST {ACQUIRE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    for _ in 0..70 {
        endless.push_str(&format!("400\r\n{}\r\n", " ".repeat(1024)));
    }
    world.raw(endless.as_bytes()).await.problem("too_large");
}

#[tokio::test]
async fn request_that_could_be_read_in_two_ways_is_refused() {
    let world = world().await;
    let both = format!(
        "POST {ACQUIRE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    let reply = world.raw(both.as_bytes()).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    reply.problem("invalid_request");
    for lengths in
        ["content-length: 1\r\ncontent-length: 2", "content-length: -1", "content-length: x"]
    {
        let text = format!("POST {ACQUIRE} HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n\r\n");
        world.raw(text.as_bytes()).await.problem("invalid_request");
    }
}

/// Attack 50.
#[tokio::test]
async fn host_of_another_name_is_refused_wherever_the_server_listens() {
    let listen = "0.0.0.0:0".parse().unwrap();
    let open = Config { listen, insecure_http: true, insecure_anonymous: true, ..config() };
    let mut open = World::with(open).await;
    open.address = (std::net::Ipv4Addr::LOCALHOST, open.address.port()).into();
    for world in [World::start().await, open] {
        only_own_names_are_answered_to(&world).await;
    }
}

async fn only_own_names_are_answered_to(world: &World) {
    for host in ["10.0.0.1", "[2001:db8::1]:8080", "LOCALHOST:1"] {
        let text = format!("GET /v1/locks HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(world.raw(text.as_bytes()).await.status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example"] {
        let text = format!("GET /v1/locks HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let reply = world.raw(text.as_bytes()).await;
        assert_eq!(reply.status, 421, "{host}");
        let problem = reply.problem("misdirected_request");
        let said = problem["detail"].as_str().unwrap();
        assert!(said.contains(host) && said.contains("`hosts`"), "{said}");
    }
    let none = "GET /v1/locks HTTP/1.1\r\nconnection: close\r\n\r\n";
    world.raw(none.as_bytes()).await.problem("invalid_request");
    let two = "GET /v1/locks HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    world.raw(two.as_bytes()).await.problem("invalid_request");
}

#[tokio::test]
async fn what_is_not_http_is_answered_as_everything_else() {
    let world = world().await;
    let before = world.state().await;
    for bytes in ["garbage\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1\r\nhost: a\r\nx: \0\r\n\r\n"]
    {
        let reply = world.raw(bytes.as_bytes()).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        reply.problem("invalid_request");
    }
    let long = format!(
        "GET /v1/locks?prefix={} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        "x".repeat(9000)
    );
    world.raw(long.as_bytes()).await.problem("uri_too_long");
    let mut many = "GET /v1/locks HTTP/1.1\r\nhost: localhost\r\n".to_string();
    for number in 0..200 {
        many.push_str(&format!("x-{number}: 1\r\n"));
    }
    many.push_str("\r\n");
    world.raw(many.as_bytes()).await.problem("header_too_large");
    let large =
        format!("GET /v1/locks HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(20_000));
    world.raw(large.as_bytes()).await.problem("header_too_large");
    let endless = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "y".repeat(70_000));
    let reply = world.raw(endless.as_bytes()).await;
    assert!(matches!(reply.status, 414 | 431), "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(world.state().await, before);
    world.get("/livez").await.ok();
}

#[tokio::test]
async fn what_is_not_http_after_a_good_request_is_answered_as_everything_else() {
    let world = world().await;
    let mut stream = world.connect().await;
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 4096];
    let len = stream.read(&mut answer).await.unwrap();
    assert!(answer[..len].starts_with(b"HTTP/1.1 200 "));
    stream.write_all(b"garbage\r\n\r\n").await.unwrap();
    let mut refusal = String::new();
    stream.read_to_string(&mut refusal).await.unwrap();
    assert!(refusal.starts_with("HTTP/1.1 400 "), "{refusal}");
    assert!(refusal.contains("application/problem+json"), "{refusal}");
}

#[tokio::test]
async fn request_id_of_the_caller_comes_back_unless_it_is_unfit() {
    let world = world().await;
    let given = world.send("GET", "/nope", &[("x-request-id", "abc-1")], None).await;
    assert_eq!(given.header("x-request-id"), Some("abc-1"));
    given.problem("not_found");
    let unfit = world.send("GET", "/nope", &[("x-request-id", "a\"}{b")], None).await;
    assert_eq!(unfit.header("x-request-id").unwrap().len(), 16);
}

/// With short timeouts, so that the test is short too.
fn hasty() -> Config {
    Config {
        header_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(800),
        ..config()
    }
}

/// How long the server keeps a connection that says this and nothing more; and what it answers.
async fn kept(world: &World, text: &str) -> (Duration, String) {
    let begun = Instant::now();
    let mut stream = world.connect().await;
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(5), reading).await.expect("it is closed");
    (begun.elapsed(), String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn connection_that_takes_too_long_is_closed() {
    let world = World::with(hasty()).await;
    let (silent, _) = kept(&world, "").await;
    assert!((300..700).contains(&silent.as_millis()), "{silent:?}");
    let (slow, _) = kept(&world, "GET /livez HTTP/1.1\r\nhost: local").await;
    assert!((300..700).contains(&slow.as_millis()), "{slow:?}");
    let head =
        format!("POST {ACQUIRE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    let (slow, answer) = kept(&world, &format!("{head}content-length: 10\r\n\r\n{{")).await;
    assert!(slow.as_millis() < 1500, "{slow:?}");
    assert!(answer.contains("408") && answer.contains("request_timeout"), "{answer}");
    let (idle, answer) = kept(&world, "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.contains("alive"), "{answer}");
    assert!((700..1800).contains(&idle.as_millis()), "{idle:?}");
}

#[tokio::test]
async fn header_that_comes_byte_by_byte_is_not_awaited_for_ever() {
    let world = World::with(hasty()).await;
    let mut stream = world.connect().await;
    let begun = Instant::now();
    let head = "GET /livez HTTP/1.1\r\nhost: localhost\r\nx: ".bytes();
    let mut bytes = head.chain(std::iter::repeat(b'y'));
    let is_closed = async || {
        let byte = bytes.next().expect("it never ends");
        stream.write_all(&[byte]).await.is_err()
    };
    eventually("it is closed", is_closed).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn connections_beyond_the_limit_of_one_address_are_turned_away() {
    let world = World::with(Config { connections_per_peer_max: 3, ..config() }).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = world.connect().await;
        // One that was answered is certainly counted.
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        held.push(stream);
    }
    let reply = world.get("/livez").await;
    assert_eq!(reply.status, 429, "{reply:?}");
    assert_eq!(reply.json()["code"], "rate_limited");
    drop(held.pop());
    eventually("there is room", async || world.get("/livez").await.status == 200).await;
}
