//! The console: its files, and where its drawing of the wait-for graph puts each node.

pub(crate) mod files;
pub(crate) mod layout;
