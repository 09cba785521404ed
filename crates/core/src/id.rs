//! A type of its own for every identifier, so that two of them cannot be taken for one another.

use std::fmt;

use crate::text::Text;

/// What is wrong with a name from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("is empty")]
    Empty,
    #[error("is {len} bytes long, the limit is {max}")]
    TooLong { len: usize, max: usize },
    #[error("has a control or invisible character (U+{0:04X})")]
    Character(u32),
}

/// Characters that would let two different names look alike, or break a log line or a terminal.
pub(crate) fn unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Whether a text from outside may be a name.
pub(crate) fn check(text: &str, max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > max {
        return Err(NameError::TooLong { len: text.len(), max });
    }
    // Nearly all names are plain, and that is quickly seen.
    let is_plain = text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
    let odd = if is_plain { None } else { text.chars().find(|&c| unprintable(c)) };
    match odd {
        Some(c) => Err(NameError::Character(u32::from(c))),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Text);

        impl $name {
            pub const LEN_MAX: usize = $max;

            pub fn new(text: &str) -> Result<$name, NameError> {
                check(text, Self::LEN_MAX)?;
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
    /// Who asks: one thread of control of one client. Conflicts and deadlocks are between owners.
    Owner, 255
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

/// A waiter's number: its place in the order of arrival, and what a client shows to keep that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

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
        assert_eq!(Owner::new(""), Err(NameError::Empty));
        assert_eq!(Owner::new(&"x".repeat(256)), Err(NameError::TooLong { len: 256, max: 255 }));
        assert_eq!(Owner::new("a\nb"), Err(NameError::Character(10)));
        assert_eq!(Owner::new("a\u{202e}b"), Err(NameError::Character(0x202e)));
        assert!(Owner::new("host-1/pid 77").is_ok());
    }
}
