//! The engine on a network.
//!
//! ```text
//!  socket ──► accept ──► request: id, host, log ──► http/…  ──► convert ──► engine
//!             limits,    problem: every error as            core's words
//!             timeouts   problem+json                       for api's
//! ```
//!
//! No rule about locks is in here: what a request means is decided in the core, and only `convert.rs` knows both sides.
#![forbid(unsafe_code)]

mod config;
mod server;

mod accept;
mod connection;
mod request;
mod problem;
mod http;
mod openapi;

mod app;
mod groups;
mod forward;
mod convert;
mod retry;
mod random;
mod metrics;
mod readings;

pub use config::{AccessLog, ClusterConfig, Config, ConfigError, Grace, Store};
pub use leasehold_core::{Fence, GracePolicy, Limits};
pub use leasehold_store::sqlite::{Backup, Restored, backup, restore};
pub use openapi::document as openapi_document;
pub use server::{Server, StartError};
