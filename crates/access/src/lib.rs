//! Access control: principals, roles, rules and tokens.
//!
//! Rules only allow and add up; nothing is denied, so the order of rules does not matter and it can always be told which
//! one allowed something. Nothing here reads a clock, a file or a store: the time, random bytes, texts and documents come in as
//! arguments, so a decision depends on nothing else, and `leasehold policy test` decides as the server does.
#![forbid(unsafe_code)]

// What can be asked.
mod verb;
mod operation;

// What is allowed.
mod pattern;
mod rule;
pub mod principal;

// What it comes to.
mod rights;
mod visible;

// Who asks.
mod network;
mod record;
mod token;
pub mod certificate;

// Where it is written.
mod tree;
mod read;
mod file;
pub mod document;
mod snapshot;

pub use certificate::{CertificateMapping, Certified, MappingError, NotCertified};
pub use document::Document;
pub use file::AccessFile;
pub use network::{Network, NetworkError};
pub use operation::{Need, Operation};
pub use pattern::{InodePattern, NamePattern, NamespacePattern, PathPattern, PatternError};
pub use record::{NarrowError, Narrowing, Refused, TokenRecord};
pub use rights::{Denied, NamespaceRights, Object, Rights, Source};
pub use rule::{Quota, Role, RoleError, RoleRef, Rule, RuleError, RuleNamespace};
pub use snapshot::{Credential, Snapshot, SnapshotFault};
pub use token::{NotAToken, SecretHash, Token, TokenId};
pub use tree::Fault;
pub use verb::{Verb, Verbs};
pub use visible::{Run, Visible};

/// A moment by the wall clock, in seconds since 1970. Ends of tokens are compared with it; nothing about a lock ever is.
pub type UnixSeconds = u64;
