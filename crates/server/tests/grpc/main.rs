//! The server as users of gRPC see it: real calls over a real socket.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/polling.rs"]
mod polling;
#[path = "../common/collector.rs"]
mod collector;
mod world;

mod locks;
mod traces;
mod endings;
mod sessions;
mod attach;
mod service;
mod bad_inputs;
