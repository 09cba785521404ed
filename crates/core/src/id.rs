//! A type of its own for every identifier, so that two of them cannot be taken for one another.

mod owner;

use std::fmt;

use crate::digest::secret_of;
use crate::name::{self, NameError};
use crate::text::Text;

pub use owner::{Owner, Principal, PrincipalError};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Text);

        impl $name {
            pub const LEN_MAX: usize = $max;

            /// A name that comes in: in normalization form C, without invisible characters.
            pub fn new(text: &str) -> Result<$name, NameError> {
                name::admit(text, Self::LEN_MAX)?;
                Ok($name(Text::new(text)))
            }

            /// A name that was admitted once, by these rules or older ones.
            pub fn stored(text: &str) -> Result<$name, NameError> {
                name::decode(text, Self::LEN_MAX)?;
                Ok($name(Text::new(text)))
            }

            pub fn text(&self) -> &Text {
                &self.0
            }

            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

name!(
    /// The isolation boundary: names, quotas and rights in two namespaces never meet.
    Namespace, 255
);
name!(
    /// The client's own name for one request, so that a retry is not a second request.
    RequestId, 255
);
name!(
    /// The way in that a session came by: `http`, `grpc`, `fuse`, `nlm`, …
    Adapter, 32
);
name!(
    /// The name of a fence register.
    RegisterName, 512
);

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace(Text::new("default"))
    }
}

/// The identity of a lease, and the secret that proves one holds it.
///
/// It is random, comes from outside the core, and is shown to its holder only: `Debug` prints no more than its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId([u64; 2]);

impl LeaseId {
    #[expect(clippy::cast_possible_truncation, reason = "each half is meant to be cut off")]
    pub const fn from_u128(id: u128) -> LeaseId {
        LeaseId([(id >> 64) as u64, id as u64])
    }

    pub const fn as_u128(self) -> u128 {
        ((self.0[0] as u128) << 64) | self.0[1] as u128
    }

    pub(crate) const fn words(self) -> [u64; 2] {
        self.0
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseId(secret)")
    }
}

/// One call that awaits an answer; numbered by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A waiter's number: its place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A ticket as its client has it: the number of a place, and a secret that nobody else can show.
///
/// The secret comes from the random id that the first request for the place brought, of its session or of the lease it
/// would have opened. It does not tell that id. `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretTicket {
    pub ticket: Ticket,
    pub secret: u64,
}

impl SecretTicket {
    pub fn new(ticket: Ticket, id: LeaseId) -> SecretTicket {
        SecretTicket { ticket, secret: secret_of(ticket, id) }
    }
}

impl fmt::Debug for SecretTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretTicket({}, secret)", self.ticket.0)
    }
}

/// The number of the authority now deciding; it rises on every start and takeover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of changes the table has seen; each transition is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_id_survives_the_way_through_u128() {
        let id = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210_u128;
        assert_eq!(LeaseId::from_u128(id).as_u128(), id);
    }

    #[test]
    fn lease_id_is_never_printed() {
        let shown = format!("{:?}", LeaseId::from_u128(0xdead_beef));
        assert_eq!(shown, "LeaseId(secret)");
    }

    #[test]
    fn names_with_faults_are_refused_by_what_is_wrong() {
        assert_eq!(Namespace::new(""), Err(NameError::Empty));
        let long = "x".repeat(256);
        assert_eq!(Namespace::new(&long), Err(NameError::TooLong { len: 256, max: 255 }));
        assert_eq!(Namespace::new("a\nb"), Err(NameError::Character(10)));
        assert_eq!(Namespace::new("a\u{202e}b"), Err(NameError::Character(0x202e)));
        assert_eq!(Namespace::new("e\u{301}"), Err(NameError::NotNormalized(0x65)));
        assert!(Namespace::stored("e\u{301}").is_ok());
    }
}
