//! Locks with a lease, for programs.
//!
//! [`machine`] is the heart: what is sent when, and what a holder may still believe. It has no clock, no network and no
//! randomness of its own.
#![forbid(unsafe_code)]

pub mod machine;
