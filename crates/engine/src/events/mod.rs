//! Events for watchers, and counters. Never blocks the writer.
//!
//! - `publisher.rs`: the ring of events, and who follows it.
//! - `history.rs`: what has ended lately. `counters.rs`: figures for metrics. `lock_log.rs`: lines in the log.

mod counters;
mod history;
mod lock_log;
mod publisher;

pub use counters::{Commits, Counts, Histogram, Totals};
pub use history::{HistoryLimits, Remembered};
pub use publisher::{Beginning, Compacted, Cursor, Notice, Watch, Watched};

pub(crate) use publisher::Publisher;

use history::History;
use lock_log::LockLog;
