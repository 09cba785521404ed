//! A grant or a session whose reply does not get out is taken back, at the same moment over each transport: when its bytes
//! did not leave. One whose reply got out stays.

use leasehold_api::grpc::{
    Attach, AttachRequest, Command, OnDisconnect, OpenRequest, StreamAcquire, attach, command::Ask,
};
use prost::Message;

use crate::frames::{DATA, END_HEADERS, END_STREAM, Frame, HEADERS, Peer, header_block};
use crate::polling::eventually;
use crate::talk;
use crate::world::World;

/// The number of the setting of how much one stream may be sent.
const WINDOW: u16 = 4;
const LARGE: usize = 1 << 16;

/// A message of gRPC: not compressed, its length, its bytes.
fn message(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let len = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[0][..], &len, &bytes].concat()
}

fn grpc_head(path: &str) -> Vec<u8> {
    let more = [("content-type", "application/grpc"), ("te", "trailers")];
    Frame::new(HEADERS, END_HEADERS, 1, &header_block("POST", path, &more)).bytes()
}

/// A whole call.
fn unary(path: &str, asked: &impl Message) -> Vec<u8> {
    let body = Frame::new(DATA, END_STREAM, 1, &message(asked)).bytes();
    [grpc_head(path), body].concat()
}

fn http(path: &str, body: &str) -> Vec<u8> {
    let json = [("content-type", "application/json")];
    let head = Frame::new(HEADERS, END_HEADERS, 1, &header_block("POST", path, &json)).bytes();
    [head, Frame::new(DATA, END_STREAM, 1, body.as_bytes()).bytes()].concat()
}

/// A request for lock `x` over HTTP and by a call, with or without an id under which a retry finds the grant.
fn acquires(request_id: Option<&str>) -> [Vec<u8>; 2] {
    let id = request_id.map_or(String::new(), |id| format!(r#","request_id":"{id}""#));
    let body = format!(r#"{{"owner_id":"a","ttl_ms":600000{id}}}"#);
    let asked = leasehold_api::grpc::AcquireRequest {
        ttl: talk::secs(600),
        request_id: request_id.map(Into::into),
        ..talk::acquire("x", "a")
    };
    [http("/v1/locks/x/acquire", &body), unary("/leasehold.v1.Locks/Acquire", &asked)]
}

fn opens() -> [Vec<u8>; 2] {
    let asked = OpenRequest { ttl: talk::secs(600), ..talk::open("a") };
    [
        http("/v1/sessions", r#"{"owner_id":"a","ttl_ms":600000}"#),
        unary("/leasehold.v1.Sessions/Open", &asked),
    ]
}

async fn state(world: &World) -> serde_json::Value {
    world.get("/v1/locks/x").await.ok()["state"].clone()
}

async fn sessions(world: &World) -> u64 {
    world.get("/v1/cluster").await.ok()["sessions"].as_u64().unwrap()
}

/// Sends a request whose answer has no room to get out, and waits for its head.
async fn stuck(world: &World, request: &[u8]) -> Peer {
    let mut peer = Peer::open(world, &[(WINDOW, 0)]).await;
    assert!(peer.send(request).await);
    let frames = peer.until(|frame| frame.kind == HEADERS).await;
    assert!(frames.last().is_some_and(|frame| frame.kind == HEADERS), "{frames:?}");
    peer
}

/// Waits until the server has found out that peers have gone which went before: a grant that it made after theirs has been
/// taken back.
async fn another_is_taken_back(world: &World) {
    let body = r#"{"owner_id":"a","ttl_ms":600000}"#;
    stuck(world, &http("/v1/locks/y/acquire", body)).await.reset();
    world.wait_until_free("y").await;
}

#[tokio::test]
async fn grant_that_is_not_delivered_is_taken_back_over_http_and_by_a_call() {
    for request in acquires(None) {
        let world = World::start().await;
        let peer = stuck(&world, &request).await;
        assert_eq!(state(&world).await, "held");
        peer.reset();
        world.wait_until_free("x").await;
    }
}

#[tokio::test]
async fn session_that_is_not_delivered_is_closed_over_http_and_by_a_call() {
    for request in opens() {
        let world = World::start().await;
        let peer = stuck(&world, &request).await;
        assert_eq!(sessions(&world).await, 1);
        peer.reset();
        eventually("the session is closed", async || sessions(&world).await == 0).await;
    }
}

#[tokio::test]
async fn grant_that_a_retry_can_find_stays() {
    for request in acquires(Some("r1")) {
        let world = World::start().await;
        stuck(&world, &request).await.reset();
        another_is_taken_back(&world).await;
        assert_eq!(state(&world).await, "held");
    }
}

#[tokio::test]
async fn grant_that_was_delivered_stays_when_its_client_goes() {
    for request in acquires(None) {
        let world = World::start().await;
        let mut peer = Peer::open(&world, &[]).await;
        assert!(peer.send(&request).await);
        peer.until(|frame| frame.flags & END_STREAM != 0 && matches!(frame.kind, DATA | HEADERS))
            .await;
        peer.reset();
        another_is_taken_back(&world).await;
        assert_eq!(state(&world).await, "held");
    }
}

/// A stream by hand, of which a frame of this kind has come.
async fn stream(
    world: &World,
    window: usize,
    bind: Option<attach::Session>,
    kind: u8,
) -> (Peer, Frame) {
    let window = u32::try_from(window).unwrap();
    let mut peer = Peer::open(world, &[(WINDOW, window)]).await;
    assert!(peer.send(&grpc_head("/leasehold.v1.Sessions/Attach")).await);
    let first = AttachRequest {
        attach: Some(Attach { session: bind, ..Attach::default() }),
        commands: Vec::new(),
    };
    assert!(peer.send_frame(DATA, 0, 1, &message(&first)).await);
    let frame = peer.until(|frame| frame.kind == kind).await.pop().unwrap();
    assert_eq!(frame.kind, kind, "{frame:?}");
    (peer, frame)
}

async fn ask_for_x(peer: &mut Peer) {
    let acquire = StreamAcquire {
        lock: "x".into(),
        owner_id: "a".into(),
        ttl: talk::secs(600),
        ..StreamAcquire::default()
    };
    let commands = vec![Command { id: 1, ask: Some(Ask::Acquire(Box::new(acquire))) }];
    let asked = message(&AttachRequest { attach: None, commands });
    assert!(peer.send_frame(DATA, 0, 1, &asked).await);
}

#[tokio::test]
async fn grant_on_a_stream_is_delivered_when_its_message_has_left_and_no_sooner() {
    let world = World::start().await;
    let (peer, hello) = stream(&world, LARGE, None, DATA).await;
    drop(peer);
    // Room for the first message and for nothing more.
    let (mut peer, _) = stream(&world, hello.payload.len(), None, DATA).await;
    ask_for_x(&mut peer).await;
    eventually("it is granted", async || state(&world).await == "held").await;
    peer.reset();
    world.wait_until_free("x").await;

    let (mut peer, _) = stream(&world, LARGE, None, DATA).await;
    ask_for_x(&mut peer).await;
    peer.until(|frame| frame.kind == DATA).await;
    peer.reset();
    another_is_taken_back(&world).await;
    assert_eq!(state(&world).await, "held");
}

#[tokio::test]
async fn session_of_a_stream_whose_first_message_did_not_leave_is_closed_whatever_its_policy() {
    let world = World::start().await;
    let keep = attach::Session::Open(OpenRequest {
        ttl: talk::secs(600),
        on_disconnect: OnDisconnect::Keep.into(),
        disconnect_ttl: talk::secs(600),
        ..talk::open("a")
    });
    let (peer, _) = stream(&world, 0, Some(keep.clone()), HEADERS).await;
    assert_eq!(sessions(&world).await, 1);
    peer.reset();
    eventually("the session is closed", async || sessions(&world).await == 0).await;
    let (peer, _) = stream(&world, LARGE, Some(keep), DATA).await;
    peer.reset();
    another_is_taken_back(&world).await;
    assert_eq!(sessions(&world).await, 1);
}
