//! Page tokens and cursors, as a stranger may send them.
#![no_main]

use leasehold_fuzz::{runtime, start};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|token: &[u8]| {
    let token: String = token.iter().map(|byte| format!("%{byte:02x}")).collect();
    runtime().block_on(async {
        let (_server, door) = start().await;
        for path in [
            "/v1/locks?page_token=",
            "/v1/sessions?page_token=",
            "/v1/tree?page_token=",
            "/v1/events?after=",
        ] {
            let request = format!(
                "GET {path}{token} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            );
            let answer = door.exchange(request.as_bytes()).await;
            assert!(answer.starts_with(b"HTTP/1.1 "), "{}", String::from_utf8_lossy(&answer));
            assert!(!answer.starts_with(b"HTTP/1.1 5"), "{}", String::from_utf8_lossy(&answer));
        }
    });
});
