//! The real server and the real SDK in one process, on a simulated network, store and time.
//!
//! `leasehold-sim` simulates what decides: rules, engine, leadership, the SDK's machine. What is around them is real here:
//! the accept loop, HTTP and gRPC handlers, streams, the delivery of replies, the engine's task and its mailboxes, the
//! SDK's driver. Only sockets, clocks and the store are not: turmoil has the first two, the simulator the last.
//!
//! ```text
//!   plan (seed) ──► server host: Server ── engine ── journal ──► simulated store
//!                      ▲ simulated TCP: held, lost, cut
//!                   client hosts: workers ── SDK                 ──► judge ──► verdict
//! ```

mod clock;
mod entropy;
mod raw_client;
mod journal;
mod judge;
mod log;
mod network;
mod plan;
mod server;
mod worker;
mod world;

pub use entropy::seed;
pub use world::{Run, run};
