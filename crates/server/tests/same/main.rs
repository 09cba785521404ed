//! The same behaviour over HTTP, unary gRPC and the stream: answers, refusals, metrics, the audit log, and what becomes of
//! what was not delivered.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/polling.rs"]
mod polling;
#[path = "../http/world.rs"]
#[expect(dead_code, reason = "shared with the tests of HTTP")]
mod world;
#[path = "../http/frames.rs"]
#[expect(dead_code, reason = "shared with the tests of HTTP")]
mod frames;
#[path = "../grpc/world.rs"]
#[expect(dead_code, reason = "shared with the tests of gRPC")]
mod talk;

mod transports;
mod answers;
mod audit;
mod undelivered;
