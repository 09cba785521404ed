//! The server as users of gRPC see it: real calls over a real socket.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/polling.rs"]
mod polling;
mod world;

mod locks;
mod endings;
mod sessions;
mod attach;
mod service;
mod bad_inputs;
