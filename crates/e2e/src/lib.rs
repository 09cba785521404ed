//! The real thing: the real binary as a process of its own, asked over HTTP, and made to suffer.
//!
//! ```text
//!   clients ──ask──► server process ◄── killed, starved of disk, cut off from power
//!      │
//!      └─ history: who asked what, when, and what came of it ──► checker: can this have happened?
//! ```
//!
//! What is here serves the tests in `tests/`. Only here may a test sleep.

pub mod client;
pub mod browser;
pub mod server;
pub mod worker;
pub mod driver;
pub mod cluster;
pub mod faults;
pub mod proxy;
pub mod tls;
pub mod gate;
pub mod power;
pub mod tools;

pub use leasehold_judge::{checker, history, random};

/// Whether the long forms of the tests were asked for, with `LEASEHOLD_E2E=full`.
pub fn is_full() -> bool {
    std::env::var("LEASEHOLD_E2E").is_ok_and(|asked| asked == "full")
}

/// A seed for the random numbers of a test: its own, and another one in each round of a campaign, which sets `LEASEHOLD_SEED`.
pub fn seed(own: u64) -> u64 {
    let round = std::env::var("LEASEHOLD_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    own.wrapping_add(round.unwrap_or(0).wrapping_mul(1_000_003))
}
