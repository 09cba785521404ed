//! Between what is spoken and what is decided: only here are both the core's types and the api's known.

mod failures;
mod inward;
mod outward;
pub(crate) mod page;
pub(crate) mod retry;
pub(crate) mod wall;

pub(crate) use failures::{problem, spelled};
pub(crate) use inward::*;
pub(crate) use outward::*;
