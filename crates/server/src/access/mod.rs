//! Authentication: the principal of a request and its rights. Credentials are checked while the head of a request is read.
//!
//! ```text
//!  access.toml ──┐                                      head of a request
//!                ├─► sources ──► Authenticator::snapshot ──────┤
//!  access store ─┘                                             ▼
//!                                 Caller { principal, credential, rights } ──► service: may it?
//! ```
//!
//! Rights are decided by `leasehold_access`; the files here find out who asks, keep what is known of rights up to date, and
//! name the operation behind each path. While authentication is off, a caller has no rights to be looked at: nothing is
//! asked, locked or allocated for it.

mod authenticator;
mod certificate;
mod changes;
mod cookie;
mod credential;
mod failures;
mod file;
mod keys;
mod sources;
mod vouched;
pub(crate) mod operations;

pub(crate) use authenticator::{Authenticator, Change, seconds};
pub(crate) use changes::Changes;
pub(crate) use cookie::{SEC_FETCH_SITE, Session, authority_of, removed, shown as cookie_shown};
pub(crate) use credential::{Credential, Shown, unauthenticated};
pub use file::FileError;
pub(crate) use keys::{LOGIN_TTL, Login, code_of, login_id, parse_code};
pub use sources::bootstrap;
pub(crate) use vouched::{FORWARDED, is_there as is_vouched};
