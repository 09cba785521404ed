//! The one writer: decides each call, seals what changed into records, and says what may be shown when. Pure.
//!
//! - `writer.rs`: a call decided and applied.
//! - `visibility.rs`: what may be shown at once, and what waits for its commit.
//! - `batch.rs`: what is unwritten, sealed into the next record.
//! - `failure.rs`: a record that was not written, or perhaps.
//! - `compensation.rs`: how a reply that did not arrive is taken back.

mod batch;
mod compensation;
mod failure;
mod visibility;
#[expect(clippy::module_inception, reason = "the writer itself, beside its parts")]
mod writer;

pub use compensation::Undo;
pub use writer::{Engine, Failed, Output, Published, Settings};
