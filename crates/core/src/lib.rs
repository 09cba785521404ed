//! The rules of Leasehold: who may hold what, for how long, and who is next.
//!
//! Commands and the time go in; an outcome, transitions and effects come out. Nothing here reads a clock, touches a
//! disk, waits, draws a random number or depends on the order of a hash map: the same commands at the same times
//! always give the same answers, which is why this crate can be model-checked, simulated and replayed.
#![forbid(unsafe_code)]

// What is spoken about.
mod fence;
mod id;
mod mode;
mod range;
mod scope;
mod text;
mod time;

// What is asked, what changes, what follows.
mod command;
mod effect;
mod limits;
mod refusal;
mod snapshot;
mod transition;
mod view;

pub use command::*;
pub use effect::*;
pub use fence::Fence;
pub use id::*;
pub use limits::Limits;
pub use mode::Mode;
pub use range::ByteRange;
pub use refusal::{Conflict, Holder, HolderState, Invalid, Limit, Place, Refusal, WaitEdge};
pub use scope::{Key, Scope, ScopeError, ScopeKind, is_prefix};
pub use snapshot::*;
pub use text::Text;
pub use time::{Millis, Timestamp};
pub use transition::*;
pub use view::*;
