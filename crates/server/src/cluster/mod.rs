//! Groups of namespaces, their leaders, and the way to them.

pub(crate) mod balance;
pub(crate) mod forward;
pub(crate) mod groups;
mod way;
pub(crate) mod while_good;
