//! The SDK on paused time, with a server made of a few lines.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod server;

mod cancellation;
mod guard;
mod secrets;
