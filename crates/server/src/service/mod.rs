//! Every operation, once: who asks, may they, do it, count it, log it, deliver it.
//!
//! ```text
//!  http ─┐                      ┌─ admit: may the caller do it      ┐
//!  grpc ─┼─ decoded, in the ──► │  engine: do it                    ├─► the core's types, or a Failure ──► encoded
//!  stream┘  core's types        │  count, audit, guard the delivery ┘
//!                               └─ operation.rs
//! ```
//!
//! The first argument of every operation is its [`Caller`](caller::Caller), the second what was decoded. A request that could
//! not be decoded is handed in as well: it is counted like any other. The stream, which has many commands under way at a
//! time, takes the same steps one by one.

pub(crate) mod app;
pub(crate) mod caller;
pub(crate) mod console;
pub(crate) mod delivery;
pub(crate) mod operation;
pub(crate) mod problems;
pub(crate) mod quotas;
pub(crate) mod random;
pub(crate) mod sight;

pub(crate) mod acquire;
pub(crate) mod renew;
pub(crate) mod release;
pub(crate) mod sessions;
pub(crate) mod fences;
pub(crate) mod simple;
pub(crate) mod views;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod watch;
pub(crate) mod streams;
pub(crate) mod auth;

mod audit;
pub(crate) mod backup;
