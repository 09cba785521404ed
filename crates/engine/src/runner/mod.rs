//! The task that drives a member with a real clock and a real journal. Knows tokio and `Instant`, decides nothing.
//!
//! - `runner.rs`: takes calls, submits, seals, appends, delivers.
//! - `spin.rs`: the one bounded spin. `clock.rs`: where the time comes from. `status.rs`: how the engine is doing.

mod clock;
#[expect(clippy::module_inception, reason = "the runner itself, beside its parts")]
mod runner;
mod spin;
mod status;

pub use clock::{Clock, RuntimeClock, SystemClock};
pub use runner::{EngineConfig, Stop, spawn};
pub use status::{Condition, Phase, Status};
