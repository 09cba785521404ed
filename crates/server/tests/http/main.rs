//! The server as its users see it: real HTTP over a real socket.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/polling.rs"]
mod polling;
#[path = "../common/collector.rs"]
mod collector;
mod world;

mod locks;
mod ranges;
mod fences;
mod grace;
mod endings;
mod watch;
mod traces;
mod console;
mod service;
mod access;
mod tenants;
mod audit;
mod backup;
mod cluster;
mod login;
mod quotas;
mod bad_inputs;
mod frames;
mod http2;
