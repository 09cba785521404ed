//! The HTTP interface, one file for each kind of thing it speaks about: decode, ask the service, encode.

mod router;
pub(crate) mod encode;
pub(crate) mod extract;
pub(crate) mod locks;
pub(crate) mod sets;
pub(crate) mod sessions;
pub(crate) mod fences;
pub(crate) mod tokens;
pub(crate) mod inodes;
pub(crate) mod watch;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod overview;
pub(crate) mod simple;
pub(crate) mod health;
pub(crate) mod auth;
pub(crate) mod backup;
pub(crate) mod console;
pub(crate) mod openapi;

pub(crate) use router::router;
