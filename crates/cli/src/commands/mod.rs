//! One file for each verb.

pub(crate) mod serve;
pub(crate) mod backup;
pub(crate) mod restore;
pub(crate) mod migrate;
pub(crate) mod version;
