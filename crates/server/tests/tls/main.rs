//! TLS as clients see it: certificates made on the spot, a real TLS client, a real socket.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/polling.rs"]
mod polling;
mod authority;
mod world;

mod listener;
mod reload;
mod clients;
mod socket;
mod cluster;
