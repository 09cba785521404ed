//! Requests: any bytes on a connection are answered or refused, and the server goes on.
#![no_main]

use leasehold_fuzz::{runtime, start};
use libfuzzer_sys::fuzz_target;

const ALIVE: &[u8] = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const HELD: &[u8] = b"POST /v1/locks/a/acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 31\r\n\r\n{\"owner_id\":\"a\",\"ttl_ms\":60000}";

fuzz_target!(|bytes: &[u8]| {
    runtime().block_on(async {
        let (_server, door) = start().await;
        assert!(door.exchange(HELD).await.starts_with(b"HTTP/1.1 200"));
        let answer = door.exchange(bytes).await;
        assert!(!answer.starts_with(b"HTTP/1.1 500"), "{}", String::from_utf8_lossy(&answer));
        assert!(door.exchange(ALIVE).await.starts_with(b"HTTP/1.1 200"));
    });
});
