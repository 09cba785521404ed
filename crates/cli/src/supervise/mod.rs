//! Runs a command so that nothing of it is left when its lease is over.
//!
//! ```text
//!   wrapper (leasehold run) ── spawns ──► guard ── spawns ──► command ──► whatever it starts
//!    holds the lease                      a session of its own
//!    ── deadlines, signals ─────────────► kills the tree when a deadline passes,
//!    ◄───────────── exit status, all gone ─  or when the wrapper is gone
//! ```
//!
//! Each of the two can do it alone. The guard has the deadlines of the last confirmed renewal, on a clock that goes on
//! while the machine sleeps: a wrapper that was killed or stopped sends it no later ones. The wrapper kills when the guard
//! is gone or does not do it. Nothing of the command gets out of their reach: both are subreapers, so a process whose
//! parent has ended becomes a child of the guard (of the wrapper, once there is no guard), however often it forked and
//! whatever session it made for itself. All below the guard is found by going from parent to child, and killing is
//! repeated until nothing is found.
//!
//! The command stays in the process group and session that the wrapper was started in, so that a terminal serves it
//! as if it had been started without us.

mod deadlines;
mod clock;
mod readiness;
mod alarm;
mod signals;
mod channel;
mod tree;
mod guard;
mod supervisor;

pub(crate) use deadlines::{Deadlines, OnLost, Plan};
pub(crate) use guard::{GUARD, main as guard_main};
pub(crate) use signals::{FORWARDED, Signals};
pub(crate) use supervisor::{Ended, News, Supervised};
