//! The rules of Leasehold: who may hold what, for how long, and who is next.
//!
//! Commands and the time go in; an outcome, transitions and effects come out. Nothing here reads a clock, touches a
//! disk, waits, draws a random number or depends on the order of a hash map: the same commands at the same times
//! always give the same answers, which is why this crate can be model-checked, simulated and replayed.
#![forbid(unsafe_code)]

#[macro_use]
pub mod planted;

// What is spoken about.
mod text;
mod time;
mod id;
mod name;
mod fencing_token;
mod mode;
mod range;
mod scope;

// What is asked, what changes, what follows.
mod command;
mod refusal;
mod transition;
mod effect;
mod limits;
mod snapshot;

// What is kept.
mod budget;
mod slab;
mod index;
mod holds;
mod owners;
mod spans;
mod tokens;
mod endings;
mod lease;
mod queue;
mod quota;
mod inode;
mod namespace;
mod registers;
mod table;

// The rules.
mod conflict;
mod graph;
mod change;
mod handle;
mod read;
mod gone;
mod digest;
mod snapshotting;
mod undo;

#[cfg(any(test, feature = "invariants"))]
pub mod invariant;
#[cfg(test)]
mod testing;

pub use command::*;
pub use effect::*;
pub use fencing_token::FencingToken;
pub use id::*;
#[cfg(any(test, feature = "invariants"))]
pub use invariant::{Earlier, HoldSketch, LeaseSketch, Sketch, WaitSketch};
pub use limits::Limits;
pub use mode::Mode;
pub use name::{NameError, check_line};
pub use quota::{Quota, QuotaKind, QuotaOf, Quotas, Usage};
pub use range::ByteRange;
pub use read::{Holder, HolderState, view::*};
pub use refusal::{Conflict, Gone, Invalid, Limit, Place, Refusal, WaitEdge};
pub use scope::{Key, Scope, ScopeError, ScopeKind, is_prefix};
pub use snapshot::*;
pub use table::{LockTable, Unfit};
pub use text::Text;
pub use time::{Millis, Timestamp};
pub use transition::*;
