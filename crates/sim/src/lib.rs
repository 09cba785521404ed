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

mod dice;
mod time;
mod agenda;
mod plan;
mod network;
mod store;
mod server;
mod client;
mod world;
mod judge;
mod coverage;
mod shown;
mod trace;

pub use coverage::Coverage;
pub use judge::{Verdict, watch_steps};
pub use plan::{Cut, Plan};
pub use time::{Micros, Moment, SECOND};
pub use world::{Run, World};

/// Lives through the world of a seed.
pub fn run(seed: u64, length: Option<Micros>, cut: &Cut, with_lines: bool) -> Run {
    watch_steps();
    World::new(Plan::new(seed, length), cut.clone(), with_lines).run()
}
