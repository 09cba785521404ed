//! TLS on the port: certificates that are read anew while the server runs, handshakes with limits, and the server's own
//! identity for connections to others.
//!
//! ```text
//!  cert, key, client_ca, crl, cluster.ca ──► files: read, fit together ──► Material ──┐ swapped as a whole
//!                                                   │ does not fit: the old stays     ▼
//!  accepted socket ──► first byte ──► handshake (limits, 5 s) ──► stream, certificate of the client
//! ```

mod der;
mod files;
mod handshake;
mod keeper;
mod material;
mod servers;
mod slots;

pub(crate) use der::serial_of;
pub use der::{Validity, validity};
pub use files::TlsError;
pub(crate) use handshake::Rewound;
pub(crate) use keeper::{Judged, Tls};
pub use material::{ClientAuth, MinVersion, TlsConfig};
