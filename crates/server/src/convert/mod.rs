//! Between what is spoken and what is decided: only here are both the core's types and the api's known.

mod cluster;
mod failures;
mod graph;
mod inward;
mod outward;
pub(crate) mod page;
pub(crate) mod retry;
pub(crate) mod wall;

pub(crate) use cluster::{cluster, version};
pub(crate) use failures::{problem, spelled};
pub(crate) use graph::graph;
pub(crate) use inward::*;
pub(crate) use outward::*;
