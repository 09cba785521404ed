//! `Attach`: a stream with many commands in flight.

pub(super) mod attach;
pub(crate) mod session;
mod slots;
