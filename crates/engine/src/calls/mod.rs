//! Calls in, replies out: the only place with channels.
//!
//! - `call.rs`: what can be asked, and what comes back.
//! - `handle.rs`: one call at a time. `port.rs`: the many calls of a stream.
//! - `inbox.rs`: the classes in which calls come in, `fair.rs` the queue of each account, `load.rs` what is refused when
//!   they wait too long. `account.rs`: on whose behalf. `replies.rs`: the way back.

mod account;
mod call;
mod fair;
mod handle;
mod inbox;
mod load;
mod port;
mod replies;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod sync;

pub use account::Account;
pub use call::{Call, CallError, Query, Reply, View};
pub use handle::Handle;
pub use load::ShedCounts;
pub use port::{Port, PortEvent};

pub(crate) use handle::Control;
pub(crate) use inbox::{CallEnvelope, Content, Inbound, Inbox, ReplyEnvelope, inbox};
pub(crate) use load::Shed;
pub(crate) use port::call_id;
pub(crate) use replies::Replies;

use inbox::{CallBatch, Class, InboxSender};
use port::{ReplyQueue, port_of};
