//! The loop: the one writer, its clock, its journal.
//!
//! ```text
//!            decide + apply            commit                 act
//!  call ──► core (pure rules) ──► store (journal) ──► replies, wake-ups, events
//! ```
//!
//! [`Engine`] is that loop without the waiting: a state machine that is told what arrived, what was appended and what
//! time it is, and says what to append and what may now be shown. [`Member`] is the life around it: who leads, loading what
//! is stored, a store that fails, giving the lead up. Both run as they are in the simulator. [`spawn`] drives a
//! member with a real clock, a real journal and a task of its own, and gives out the [`Handle`] by which it is spoken to.

mod calls;
mod events;
#[cfg(feature = "inspect")]
pub mod inspect;
mod member;
mod migrate;
mod runner;
mod writer;

pub use calls::{
    Account, Call, CallError, Handle, Port, PortEvent, Query, Reply, ShedCounts, View,
};
pub use events::{
    Beginning, Commits, Compacted, Counts, Cursor, Histogram, HistoryLimits, Notice, Remembered,
    Totals, Watch, Watched,
};
pub use member::{
    Answering, Asking, Lane, LoadedBytes, Loading, Member, Plan, Recovered, Recovery, Request,
    Response, StartError, recover,
};
pub use migrate::{MigrateError, Migrated, Progress, migrate};
pub use runner::{
    Clock, Condition, EngineConfig, Phase, RuntimeClock, Status, Stop, SystemClock, spawn,
};
pub use writer::{Engine, Failed, Output, Published, Settings, Undo};
