//! Things that go wrong on purpose, for the conformance suite. Without its feature nothing ever asks for one.

use crate::error::Error;

/// What goes wrong with the next append: its answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "conformance"),
    allow(dead_code, unreachable_pub, reason = "only the suite asks for a mishap")
)]
pub enum Mishap {
    /// Before anything was written.
    Unwritten,
    /// After it was written.
    Written,
}

impl Mishap {
    pub(crate) fn error() -> Error {
        Error::OutcomeUnknown { what: "the answer was lost on purpose".into(), cause: None }
    }
}
