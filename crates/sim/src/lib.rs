//! A whole world in one thread: servers, clients, clocks, network and store, from one seed.
//!
//! The servers are the real [`Member`](leasehold_engine::Member) with the real engine and core inside. Everything
//! around them is simulated: true time, which nobody can read; clocks that drift; messages that are late, lost or doubled; a
//! journal that fails before or after it has written. All chance comes from the seed, so a world can be lived through
//! again, with a trace, and cut down to the few events that matter.
//!
//! ```text
//!   plan (seed) ──► world: agenda, network, store, servers, clients
//!                     │ every event
//!                     ▼
//!                   judges: log, replies, steps, beliefs, histories ──► verdict
//! ```
#![forbid(unsafe_code)]

pub mod rng;
pub mod time;
pub mod agenda;
pub mod cut;
pub mod plan;
pub mod network;
pub mod store;
pub mod server;
pub mod client;
pub mod world;
pub mod judge;
pub mod coverage;
pub mod shown;
pub mod trace;
pub mod shrink;
pub mod campaign;
pub mod vectors;

pub use campaign::{Campaign, Tally, replay_command};
pub use coverage::Coverage;
pub use cut::Cut;
pub use judge::Verdict;
pub use plan::Plan;
pub use shrink::shrink;
pub use time::{Micros, Moment, SECOND};
pub use world::{Run, World};

/// Lives through the world of a seed. A panic in it is a verdict like any other.
pub fn run(seed: u64, length: Option<Micros>, cut: &Cut, with_lines: bool) -> Run {
    judge::watch_steps();
    World::new(Plan::new(seed, length), cut.clone(), with_lines).run()
}

/// Switches on the bug that `LEASEHOLD_PLANTED` names.
pub fn activate_planted_bug() {
    #[cfg(feature = "planted")]
    if let Ok(name) = std::env::var("LEASEHOLD_PLANTED") {
        leasehold_core::planted::activate(&name);
        leasehold_client::planted::activate(&name);
    }
}
