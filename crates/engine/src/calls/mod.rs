//! Calls in, replies out: the only place with channels.
//!
//! - `call.rs`: what can be asked, and what comes back.
//! - `handle.rs`: one call at a time. `port.rs`: the many calls of a stream.
//! - `inbox.rs`: the lanes along which calls come in. `replies.rs`: the way back.

mod call;
mod handle;
mod inbox;
mod port;
mod replies;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod sync;

pub use call::{Call, CallError, Query, Reply, View};
pub use handle::Handle;
pub use port::{Port, PortEvent};

pub(crate) use handle::Control;
pub(crate) use inbox::{CallEnvelope, Inbound, Inbox, inbox};
pub(crate) use port::call_id;
pub(crate) use replies::Replies;

use inbox::{CallBatch, InboxSender, ReplyEnvelope, is_urgent};
use port::{ReplyQueue, port_of};
