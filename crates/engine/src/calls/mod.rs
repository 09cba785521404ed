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
pub use port::{Delivered, Port};

pub(crate) use handle::Wish;
pub(crate) use inbox::{Asked, Lanes, Parcel, lanes};
pub(crate) use port::call_id;
pub(crate) use replies::Replies;

use inbox::{Calls, LanesIn, Letter, is_urgent};
use port::{Mailbox, port_of};
