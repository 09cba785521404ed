//! Every way in which a store fails, by what the engine can do about it.

use std::error::Error as StdError;
use std::sync::Arc;

use leasehold_core::Epoch;

use crate::journal::Seq;
use crate::record::Fault;

/// The source of a failure. Shared, since one failure may have to be told to many callers.
pub type Cause = Arc<dyn StdError + Send + Sync>;

/// An error with all that lies behind it, in one line.
pub fn with_cause(error: &dyn StdError) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

/// The reason why a call to the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another leader has gone on. Nothing was written; whoever sees this is no longer who it thought it was.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Nothing was written, and nothing will be. It may work later.
    #[error("the store is unavailable: {what}")]
    Unavailable {
        what: String,
        #[source]
        cause: Option<Cause>,
    },
    /// It may or may not have been written. [`read_back`](crate::Journal::read_back) tells.
    #[error("the store did not say whether it has written: {what}")]
    OutcomeUnknown {
        what: String,
        #[source]
        cause: Option<Cause>,
    },
    /// The stored bytes are not what was written. Nothing was changed; a person has to look, or restore a backup.
    #[error("the store is corrupt: {what}")]
    Corrupt {
        what: String,
        #[source]
        cause: Option<Cause>,
    },
    /// A newer version of Leasehold has written what was stored. Nothing was changed; that version has to be started again.
    #[error("this build is too old for the store: {what}")]
    Newer { what: String },
}

/// In which way another leader has gone on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("epoch {} is over, the store is at epoch {}", epoch.0, current.0)]
    Deposed { epoch: Epoch, current: Epoch },
    #[error("record {seq} is not the next one, {next} is")]
    OutOfOrder { seq: Seq, next: Seq },
    #[error("chunk {index} of a snapshot as of record {as_of} does not follow what is there")]
    OutOfSnapshot { as_of: Seq, index: u32 },
}

/// The reason why a store could not be opened at all. A person has to act; trying again does not help.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{store} is in use by another server{by}")]
    InUse { store: String, by: String },
    #[error(
        "{store} has schema {found}, this build knows schemas up to {known}: a newer version of Leasehold has written it"
    )]
    NewerSchema { store: String, found: u32, known: u32 },
    #[error("{store} is not a store of Leasehold: {what}")]
    Foreign { store: String, what: String },
    #[error("{store} would not be durable: {setting} is {found}, it must be {wanted}")]
    NotDurable { store: String, setting: &'static str, found: String, wanted: &'static str },
    #[error("{store} cannot be opened: {what}")]
    Failed {
        store: String,
        what: String,
        #[source]
        cause: Option<Cause>,
    },
}

impl Error {
    pub(crate) fn unavailable(what: impl Into<String>) -> Error {
        Error::Unavailable { what: what.into(), cause: None }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Error {
        Error::Corrupt { what: what.into(), cause: None }
    }

    /// The bytes stored in this place cannot be read.
    pub(crate) fn unreadable(place: &str, fault: &Fault) -> Error {
        let what = format!("{place}: {fault}");
        match fault {
            Fault::Version(_) => Error::Newer { what },
            Fault::TooShort { .. }
            | Fault::Checksum { .. }
            | Fault::Kind { .. }
            | Fault::EndsEarly { .. }
            | Fault::Value { .. } => Error::corrupt(what),
        }
    }

    /// The same failure with what lies behind it.
    #[must_use]
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "memory fails for no deeper reason")
    )]
    pub(crate) fn because(self, cause: impl StdError + Send + Sync + 'static) -> Error {
        let cause: Option<Cause> = Some(Arc::new(cause));
        match self {
            Error::Conflict(conflict) => Error::Conflict(conflict),
            Error::Unavailable { what, .. } => Error::Unavailable { what, cause },
            Error::OutcomeUnknown { what, .. } => Error::OutcomeUnknown { what, cause },
            Error::Corrupt { what, .. } => Error::Corrupt { what, cause },
            Error::Newer { what } => Error::Newer { what },
        }
    }
}
