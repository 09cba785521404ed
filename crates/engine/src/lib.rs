//! The loop: the one writer, its clock, its journal.
//!
//! ```text
//!            decide + apply            commit                 act
//!  call ──► core (pure rules) ──► store (journal) ──► replies, wake-ups, events
//! ```
//!
//! [`Engine`] is that loop without the waiting: a state machine that is told what arrived, what was appended and what
//! time it is, and says what to append and what may now be shown. [`Member`] is the life around it: who leads, loading what
//! is stored, a store that fails, giving the lead up. Both run as they are in the simulator. [`start`] drives a
//! member with a real clock, a real journal and a task of its own, and gives out the [`Handle`] by which it is spoken to.

mod call;
mod clock;
mod counts;
mod engine;
mod handle;
mod history;
mod lanes;
mod lock_log;
#[cfg(feature = "inspect")]
pub mod inspect;
mod member;
mod migrate;
mod port;
mod publish;
mod recovery;
mod replies;
mod request;
mod runner;
mod snapshots;
mod status;
mod sync;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;

pub use call::{Call, CallError, Query, Reply, View};
pub use clock::{Clock, RuntimeClock, SystemClock};
pub use counts::{Commits, Counts, Histogram, Totals};
pub use engine::{Engine, Failed, Output, Published, Settings, Undo};
pub use handle::Handle;
pub use history::{HistoryLimits, Remembered};
pub use member::{Member, Plan};
pub use migrate::{MigrateError, Migrated, Progress, migrate};
pub use port::{Delivered, Port};
pub use publish::{Beginning, Compacted, Cursor, Notice, Watch, Watched};
pub use recovery::{LoadedBytes, Loading, Recovered, Recovery, StartError, recover};
pub use request::{Answering, Asking, Lane, Request, Response};
pub use runner::{Runner, Stop, start};
pub use status::{Condition, Phase, Status};
