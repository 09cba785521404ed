//! The engine on a network.
//!
//! ```text
//!  socket ──► accept ──► request: id, host, log ──► http/… or grpc/… ──► convert ──► engine
//!             limits,    problem: every error as                      core's words
//!             timeouts   problem+json or status                       for api's
//! ```
//!
//! No rule about locks is in here: what a request means is decided in the core, and only `convert` knows both sides.
#![forbid(unsafe_code)]

mod config;
mod server;

mod accept;
mod descriptors;
mod flapping;
mod crowd;
mod connection;
mod bare;
mod caller;
mod delivery;
mod request;
mod problem;
mod http;
mod grpc;
mod openapi;

mod app;
mod groups;
mod watching;
mod page;
mod balance;
mod forward;
mod convert;
mod wall;
mod retry;
mod random;
mod token_seed;
mod metrics;
mod readings;
mod samples;

pub use accept::Listener;
pub use config::{AccessLog, ClusterConfig, Config, ConfigError, Grace, Policy, Store};
pub use leasehold_core::{FencingToken, GracePolicy, Limits};
pub use leasehold_engine::{HistoryLimits, MigrateError, Migrated, Progress, migrate};
pub use leasehold_store::open;
pub use leasehold_store::sqlite::{Backup, Restored, backup, restore};
pub use openapi::document as openapi_document;
pub use server::{Ground, Server, StartError};
