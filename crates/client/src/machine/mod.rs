//! The client's side of the promise, without a clock, a network or a thread.
//!
//! ```text
//!  asked: acquire, release, abandon ─┐                 ┌─► connect to this server
//!  heard: answer, failure, up, down ─┼─► Machine ──────┼─► send this request, cancel that one
//!  the time ─────────────────────────┘   (one client)  ├─► tell: granted, renewed, jeopardy, lost, released
//!                                                      └─► wake me then
//! ```
//!
//! [`Machine`] is the seam between what must be right and what must be fast: the SDK drives it with sockets and the clock
//! of the system, a simulator drives the same code with a network and clocks of its own. Moments and the seed of all
//! jitter come in as arguments. Every input takes the time first and works off what has become due before it looks at
//! the input itself, so that a process which slept through its lease learns that before anything else.
//!
//! The rules, each with a test of its own:
//!
//! - A lease counts from the moment before the request was sent that got or renewed it, see [`LeaseWindow`].
//! - A heartbeat goes out after a third of the ttl at the latest, or after a sixth: see [`HeartbeatInterval`]. What fails
//!   by transport is sent again until half of the ttl is over, and so is what the server does not let in; what it refuses
//!   otherwise ends the lease at once.
//! - Half of the ttl after the last confirmed request was sent the work must stop (jeopardy), and does not start again.
//!   When the ttl is over the lease is lost.
//! - A grant that comes so late that a heartbeat is due is confirmed by one before the caller is told.
//! - An acquire is sent again, under the same request id, after a broken connection and when a server cannot decide
//!   just now; a release is too, as long as the lease could still stand.
//! - An abandoned acquire leaves nothing behind: it is cancelled, and what it may have got is released.
//! - With several servers, the next one is tried when one cannot be reached, does not answer or does not lead; a hint is
//!   followed.

mod time;
mod window;
mod servers;
mod slab;
mod jitter;
mod entry;
mod link;
mod acquiring;
mod holding;
mod releasing;
#[expect(clippy::module_inception, reason = "the machine of the machine")]
mod machine;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod outages;

pub use acquiring::{is_denied, is_undecided, says_nothing_of_the_lease};
pub use entry::{Ask, Wait};
pub use jitter::Jitter;
pub use link::LinkId;
pub use machine::{Action, Answer, Ended, Failure, Loss, Machine, News, Request, Settings};
pub use slab::{CallId, Key};
pub use time::Moment;
pub use window::{HeartbeatInterval, LeaseWindow, State};
