//! One server's part in one group: who leads, and what a leader asks of its journal. Pure.
//!
//! - `member.rs`: following, loading, leading, giving up.
//! - `leadership.rs`: who leads.
//! - `journal.rs`: all that is asked of a journal, and what it answers.
//! - `records.rs`: what a leader has written. `snapshots.rs`: when a snapshot is due.
//! - `recovery.rs`: from what is stored to a table that serves.

mod journal;
mod leadership;
#[expect(clippy::module_inception, reason = "the member itself, beside its parts")]
mod member;
mod records;
mod recovery;
mod snapshots;

pub use journal::{Answering, Asking, Lane, Request, Response};
pub use member::{Member, Plan};
pub use recovery::{LoadedBytes, Loading, Recovered, Recovery, StartError, recover};

use snapshots::Snapshots;
