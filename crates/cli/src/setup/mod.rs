//! Setting up: certificates, private files, and the profiles that tell how to reach a server.

pub(crate) mod join;
pub(crate) mod pki;
pub(crate) mod private;
pub(crate) mod profile;
