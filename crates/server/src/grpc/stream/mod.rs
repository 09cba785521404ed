//! `Attach`: a stream with many commands in flight.

pub(super) mod attach;
mod slots;
