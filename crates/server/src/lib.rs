//! The engine on a network.
//!
//! ```text
//!  net ──────────► http, grpc ──────────► service ──► engine
//!  sockets, limits  decode, encode
//!  around requests  with `convert`
//! ```
//!
//! No rule about locks is in here: what a request means is decided in the core.
#![forbid(unsafe_code)]

mod config;
mod listen;
mod quota;
mod server;

mod engine_thread;
mod stamp;
mod token_seed;
mod mac;

mod access;
mod audit;
mod net;
mod http;
mod grpc;
mod convert;
mod service;
mod cluster;
mod console;
mod telemetry;

pub use access::{FileError as AccessFileError, bootstrap};
pub use audit::{
    KeyError as AuditKeyError, OpenError as AuditError, SecretKey as AuditKey,
    Verified as VerifiedAudit, verify as verify_audit,
};
pub use config::{
    AccessLog, AuditConfig, AuditTo, AuthConfig, ClusterConfig, Config, ConfigError, Grace, Policy,
    Store, TraceConfig,
};
pub use http::openapi::document as openapi_document;
pub use leasehold_core::{FencingToken, GracePolicy, Limits, Quota};
pub use leasehold_engine::{HistoryLimits, MigrateError, Migrated, Progress, migrate};
pub use leasehold_store::sqlite::{
    Backup, OldTokens, Restored, backup, check as check_backup, restore, tokens_in,
};
pub use leasehold_store::{copy_access, open};
pub use listen::Listen;
pub use net::accept::{Listener, Remote};
pub use net::tls::{
    ClientAuth, MinVersion, TlsConfig, TlsError, Validity, validity as certificate_validity,
};
pub use quota::QuotaConfig;
pub use server::{Ground, Server, StartError};
