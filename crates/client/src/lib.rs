//! Locks with a lease, for programs.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # async fn example() -> leasehold_client::Result<()> {
//! let client = leasehold_client::Client::connect("http://127.0.0.1:8080").await?;
//! let lease = client
//!     .lock("db/migrate")
//!     .owner("worker-1")
//!     .ttl(Duration::from_secs(30))
//!     .wait(Duration::from_secs(10))
//!     .acquire()
//!     .await?;
//! tokio::select! {
//!     () = migrate(lease.fencing_token()) => {}
//!     () = lease.jeopardy() => return Err(lease.check().unwrap_err()), // stop, another may have it soon
//! }
//! lease.release().await?;
//! # async fn migrate(_: u64) {}
//! # Ok(()) }
//! ```
//!
//! A lock is held under a lease that the client keeps alive. The lease is `valid`, then `jeopardy` when no renewal was
//! confirmed for half of its length, then `lost`; all counted on the client's own clock from before each request was
//! sent, so that the work stops before the server can give the lock to another. A writer that was stopped by force
//! cannot stop by itself: against that, what is written to compares fencing tokens, see [`Fence`].
//!
//! [`machine`] is the heart: what is sent when, and what a holder may still believe. It has no clock, no network and no
//! randomness of its own.

#[macro_use]
pub mod planted;

pub mod machine;

mod client;
mod lock;
mod lease;
mod wanted;
mod session;
mod election;
mod watch;
mod api;
mod fence;
mod layer;
pub mod blocking;
mod error;

mod download;
mod driver;
mod view;
mod payload;
mod http;
mod stream;
mod access;
mod token;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod pin;
mod address;
mod clock;
mod surroundings;

pub use address::{path_part, query_value};
pub use api::{Api, ListQuery};
pub use client::{Client, ClientBuilder, Transport};
pub use clock::{Clock, Sleep, SystemClock};
pub use download::Download;
pub use election::{Election, Leader, Leadership, Observer};
pub use error::{Error, LostBy, Result};
pub use fence::{Fence, Register, Stale, sql};
pub use hyper::Method;
pub use layer::{FENCING_TOKEN, FenceLayer, Fenced};
pub use lease::{Change, Changes, Lease, LeaseHandle};
pub use leasehold_api as wire;
pub use lock::{LockRequest, Retry};
pub use machine::{HeartbeatInterval, LeaseWindow, State};
#[cfg(feature = "tls")]
pub use pin::{AuthorityHash, NotAnAuthority};
pub use session::{Session, SessionRequest};
pub use surroundings::{Bytes, Connecting, Place, Stall, Surroundings, Task};
pub use token::TokenProvider;
pub use tokio_util::sync::CancellationToken;
pub use watch::Watch;
