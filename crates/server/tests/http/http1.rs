//! Answers over HTTP/1.1 that do not get out: what they gave is taken back.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::world::World;

/// More than the sockets of both sides can hold together.
const CLOG_BYTES: usize = 24 << 20;

/// A peer that takes next to nothing of what it asked for, and then goes without a word.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    async fn connect(world: &World) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Peer { stream: socket.connect(world.address).await.unwrap() }
    }

    /// Asks for so much that the answers do not fit into the sockets any more, and last for this.
    async fn ask_behind_a_clog(&mut self, world: &World, request: &str) {
        let one = world.get("/openapi.json").await.text.len();
        let read = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(CLOG_BYTES / one);
        self.stream.write_all(read.as_bytes()).await.unwrap();
        self.stream.write_all(request.as_bytes()).await.unwrap();
    }

    /// Takes what comes until the server has nothing more to say for a moment.
    async fn take(&mut self, bytes_max: usize) -> usize {
        let mut taken = 0;
        let mut bytes = vec![0; 64 * 1024];
        while taken < bytes_max {
            match tokio::time::timeout(Duration::from_millis(500), self.stream.read(&mut bytes))
                .await
            {
                Ok(Ok(len @ 1..)) => taken += len,
                Ok(_) | Err(_) => break,
            }
        }
        taken
    }

    /// Its side of the connection is gone at once.
    fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

fn acquire(lock: &str, body: &str) -> String {
    format!(
        "POST /v1/locks/{lock}/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn state(world: &World, lock: &str) -> String {
    let lock = world.get(&format!("/v1/locks/{lock}")).await.ok();
    lock["state"].as_str().unwrap().to_string()
}

async fn becomes(world: &World, lock: &str, wanted: &str) -> bool {
    for _ in 0..500 {
        if state(world, lock).await == wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Has a lock granted to a peer whose answer does not get out. It takes some of what came before, bit by bit, until the
/// server gets to the request; then it is still far from the answer.
async fn granted_behind_a_clog(world: &World, lock: &str, body: &str) -> Peer {
    let mut peer = Peer::connect(world).await;
    peer.ask_behind_a_clog(world, &acquire(lock, body)).await;
    let mut taken = 0;
    while state(world, lock).await == "free" {
        let more = peer.take(256 * 1024).await;
        taken += more;
        assert!(
            more > 0,
            "the server said all it had to say in {taken} bytes, and granted nothing"
        );
    }
    println!("granted after {taken} bytes were taken");
    peer
}

#[tokio::test]
async fn grant_whose_reply_is_still_in_our_hands_is_taken_back_when_the_peer_goes() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":600000}"#;
    let peer = granted_behind_a_clog(&world, "x", body).await;
    assert_eq!(state(&world, "x").await, "held");
    peer.reset();
    assert!(becomes(&world, "x", "free").await);
}

#[tokio::test]
async fn grant_with_a_request_id_behind_a_clog_waits_for_the_retry() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":600000,"request_id":"r1"}"#;
    let peer = granted_behind_a_clog(&world, "x", body).await;
    peer.reset();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let again = world.post("/v1/locks/x/acquire", body).await.ok();
    assert_eq!(again["replayed"], true, "{again}");
}
