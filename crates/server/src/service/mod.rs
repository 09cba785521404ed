//! Every operation, between the transports and the engine.

pub(crate) mod app;
pub(crate) mod caller;
pub(crate) mod problems;
pub(crate) mod random;
pub(crate) mod watch;
