//! Sockets and bytes: connections, their limits and timeouts, and what is around every request. It knows nothing of locks.

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod delivery;
pub(crate) mod descriptors;
pub(crate) mod flapping;
pub(crate) mod hosts;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod request;
pub(crate) mod rewrite;
mod scan;
pub(crate) mod tls;
