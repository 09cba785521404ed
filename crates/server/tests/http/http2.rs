//! Peers that misuse HTTP/2 lose their connection or their stream; nobody else notices.

use std::time::{Duration, Instant};

use crate::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, GOAWAY, HEADERS,
    PING, Peer, REFUSED_STREAM, RST_STREAM, header_block, integer, text,
};
use crate::world::{World, config};
use leasehold_server::Config;

const WAIT: &str = r#"{"owner_id":"w","ttl_ms":30000,"wait_ms":50000}"#;

async fn world() -> World {
    let world = World::start().await;
    world.acquire("held", "a").await;
    world
}

/// An acquire on a stream of its own.
fn acquire(lock: &str, stream: u32, body: &str) -> Vec<u8> {
    let json = [("content-type", "application/json")];
    let block = header_block("POST", &format!("/v1/locks/{lock}/acquire"), &json);
    let mut bytes = Frame::new(HEADERS, END_HEADERS, stream, &block).bytes();
    bytes.extend(Frame::new(DATA, END_STREAM, stream, body.as_bytes()).bytes());
    bytes
}

#[tokio::test]
async fn requests_that_are_reset_at_once_end_the_connection() {
    let world = world().await;
    let before = world.state().await;
    let mut peer = Peer::open(&world, &[]).await;
    let block = header_block("GET", "/v1/locks", &[]);
    let mut sent = 0;
    for stream in (1..20_000).step_by(2) {
        let mut bytes = Frame::new(HEADERS, END_HEADERS | END_STREAM, stream, &block).bytes();
        bytes.extend(Frame::new(RST_STREAM, 0, stream, &8_u32.to_be_bytes()).bytes());
        if !peer.send(&bytes).await {
            break;
        }
        sent += 1;
    }
    let frames = peer.until(|frame| frame.kind == GOAWAY).await;
    if let Some(goaway) = frames.iter().find(|frame| frame.kind == GOAWAY) {
        assert_eq!(goaway.code(), ENHANCE_YOUR_CALM, "{goaway:?}");
    }
    println!("{sent} requests were sent and reset");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn header_that_never_ends_ends_the_connection() {
    let world = world().await;
    let before = world.state().await;
    let mut peer = Peer::open(&world, &[]).await;
    let block = header_block("GET", "/v1/locks", &[]);
    assert!(peer.send_frame(HEADERS, END_STREAM, 1, &block).await);
    let part = [&[0][..], &text("x"), &text(&"y".repeat(8000))].concat();
    let mut sent = 0;
    while peer.send_frame(CONTINUATION, 0, 1, &part).await {
        sent += part.len();
        assert!(sent < 64 << 20, "{sent} bytes of header were taken");
    }
    println!("{sent} bytes of header were sent");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn header_that_unfolds_to_a_megabyte_is_refused() {
    let world = world().await;
    let before = world.state().await;
    let mut peer = Peer::open(&world, &[]).await;
    let mut block = header_block("GET", "/v1/locks", &[]);
    // Enters the table once, as the first entry after the 61 that are always there, and is named 280 times.
    block.extend([&[0x40][..], &text("x"), &text(&"y".repeat(3800))].concat());
    for _ in 0..280 {
        block.extend(integer(0x80, 7, 62));
    }
    assert!(peer.send_frame(HEADERS, END_HEADERS | END_STREAM, 1, &block).await);
    let is_answer = |frame: &Frame| matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY);
    let frames = peer.until(is_answer).await;
    if let Some(answer) = frames.iter().find(|frame| frame.kind == HEADERS) {
        // `:status` is number 8 of the table; its value comes as a text, compressed.
        let is_431 = answer.payload.starts_with(&[0x48, 0x83, 0x69, 0x90, 0xff]);
        assert!(is_431, "{answer:?}");
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn body_of_empty_frames_is_not_awaited_for_ever() {
    let hasty = Config { body_timeout: Duration::from_millis(300), ..config() };
    let world = World::with(hasty).await;
    world.acquire("held", "a").await;
    let before = world.state().await;
    let mut peer = Peer::open(&world, &[]).await;
    let json = [("content-type", "application/json")];
    let block = header_block("POST", "/v1/locks/free/acquire", &json);
    assert!(peer.send_frame(HEADERS, END_HEADERS, 1, &block).await);
    let empty = Frame::new(DATA, 0, 1, &[]).bytes().repeat(1000);
    let begun = Instant::now();
    // Either the connection ends, or the request does, and frames for a stream that is gone end the connection.
    while begun.elapsed() < Duration::from_secs(3) && peer.send(&empty).await {
        tokio::task::yield_now().await;
    }
    let mut other = Peer::open(&world, &[]).await;
    assert!(other.send_frame(PING, 0, 0, &[0; 8]).await);
    let frames = other.until(|frame| frame.kind == PING && frame.flags & ACK != 0).await;
    assert!(frames.last().is_some_and(|frame| frame.kind == PING), "{frames:?}");
    drop(peer);
    assert_eq!(world.state().await, before);
}

/// Requests to wait, each on a stream and by an owner of its own.
fn waits(numbers: std::ops::Range<u32>) -> Vec<u8> {
    let one = |number| {
        let body = WAIT.replace("\"w\"", &format!("\"w{number}\""));
        acquire("held", 1 + 2 * number, &body)
    };
    numbers.flat_map(one).collect()
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let world = world().await;
    let mut peer = Peer::open(&world, &[]).await;
    assert!(peer.send(&waits(0..300)).await);
    for _ in 128..300 {
        let frames = peer.until(|frame| matches!(frame.kind, RST_STREAM | GOAWAY)).await;
        let refusal = frames.last().unwrap();
        assert_eq!((refusal.kind, refusal.code()), (RST_STREAM, REFUSED_STREAM), "{refusal:?}");
    }
    world.wait_for_waiters(128).await;
    // Who goes on like this is not served at all any more, and those who waited with it are gone.
    peer.send(&waits(300..1000)).await;
    let frames = peer.until(|frame| frame.kind == GOAWAY).await;
    if let Some(goaway) = frames.last().filter(|frame| frame.kind == GOAWAY) {
        assert_eq!(goaway.code(), ENHANCE_YOUR_CALM, "{goaway:?}");
    }
    drop(peer);
    world.wait_for_waiters(0).await;
}

#[tokio::test]
async fn one_waiter_too_many_is_told_so() {
    const MAX: u32 = 10_000;
    let world = world().await;
    let mut peers = Vec::new();
    for first in (0..MAX).step_by(125) {
        let mut peer = Peer::open(&world, &[]).await;
        let mut all = Vec::new();
        for number in 0..125 {
            let owner = format!("\"w{}\"", first + number);
            all.extend(acquire("held", 1 + 2 * number, &WAIT.replace("\"w\"", &owner)));
        }
        assert!(peer.send(&all).await);
        peers.push(peer);
    }
    world.wait_for_waiters(MAX.into()).await;
    let reply = world.post("/v1/locks/held/acquire", WAIT).await;
    assert_eq!(reply.status, 429, "{reply:?}");
    reply.problem("too_many_waiters");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    // Who does not want to wait is not one too many.
    let now = r#"{"owner_id":"w","ttl_ms":30000}"#;
    world.post("/v1/locks/held/acquire", now).await.problem("lock_held");
    drop(peers);
    world.wait_for_waiters(0).await;
}

/// Grants a lock to a peer that takes the head of its answer and not its body, then goes.
async fn granted_to_a_peer_that_goes(world: &World, lock: &str, body: &str) {
    // A window of nothing: the body of an answer cannot be sent.
    let mut peer = Peer::open(world, &[(4, 0)]).await;
    assert!(peer.send(&acquire(lock, 1, body)).await);
    let frames = peer.until(|frame| frame.kind == HEADERS).await;
    assert!(frames.last().is_some_and(|frame| frame.kind == HEADERS), "{frames:?}");
    assert_eq!(world.get(&format!("/v1/locks/{lock}")).await.ok()["state"], "held");
    peer.reset();
}

#[tokio::test]
async fn grant_whose_reply_does_not_get_out_is_taken_back() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":600000}"#;
    granted_to_a_peer_that_goes(&world, "x", body).await;
    // Long before its lease ends.
    world.wait_until_free("x").await;
}

#[tokio::test]
async fn grant_with_a_request_id_waits_for_the_retry() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":600000,"request_id":"r1"}"#;
    granted_to_a_peer_that_goes(&world, "x", body).await;
    world.wait_until_alone().await;
    let again = world.post("/v1/locks/x/acquire", body).await.ok();
    assert_eq!(again["replayed"], true, "{again}");
}

#[tokio::test]
async fn grant_whose_reply_got_out_stays_when_the_peer_goes() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":600000}"#;
    let mut peer = Peer::open(&world, &[]).await;
    assert!(peer.send(&acquire("x", 1, body)).await);
    peer.until(|frame| frame.kind == DATA && frame.flags & END_STREAM != 0).await;
    peer.reset();
    world.acquire("y", "a").await;
    world.wait_until_alone().await;
    assert_eq!(world.get("/v1/locks/x").await.ok()["state"], "held");
    assert_eq!(world.get("/v1/locks/y").await.ok()["state"], "held");
}
