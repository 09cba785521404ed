//! The point up to which a watcher has seen everything.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Numbers above this are not kept by everything that reads JSON.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// The point up to which a watcher has seen everything: `EPOCH-REVISION`, for example `7-1041`.
///
/// A revision alone is a cursor too. It is taken for one of the current epoch, so a change of epoch may go unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    pub epoch: Option<u64>,
    pub revision: u64,
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor: expected EPOCH-REVISION, for example 7-1041, or a revision")]
pub struct CursorError;

impl Cursor {
    pub const fn new(epoch: u64, revision: u64) -> Cursor {
        Cursor { epoch: Some(epoch), revision }
    }
}

impl From<u64> for Cursor {
    fn from(revision: u64) -> Cursor {
        Cursor { epoch: None, revision }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            Some(epoch) => write!(f, "{epoch}-{}", self.revision),
            None => write!(f, "{}", self.revision),
        }
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Cursor, CursorError> {
        let cursor = match text.split_once('-') {
            Some((epoch, revision)) => {
                Cursor { epoch: Some(number(epoch)?), revision: number(revision)? }
            }
            None => Cursor { epoch: None, revision: number(text)? },
        };
        Ok(cursor)
    }
}

fn number(text: &str) -> Result<u64, CursorError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|&number| digits && number <= NUMBER_MAX);
    number.ok_or(CursorError)
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cursor, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written() {
        for text in ["7-1041", "0-0", "1041", "0", "9007199254740991-9007199254740991"] {
            assert_eq!(text.parse::<Cursor>().map(|cursor| cursor.to_string()), Ok(text.into()));
        }
        for text in ["", "-", "7-", "-7", "+7", "1-2-3", "a", " 7", "9007199254740992", "1-+2"] {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError), "{text}");
        }
    }
}
