//! Short immutable text: kept in place up to 22 bytes, shared beyond that.
//!
//! Lock names and owners are mostly short, and a server holds millions of them. In place they cost no allocation
//! and no pointer to follow; a longer text is stored once and its clones share it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

const INLINE_MAX: usize = 22;

/// UTF-8 text, ordered by its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Repr);

/// A text that fits is always in place, with zeros behind it.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    Shared(Arc<str>),
}

impl Text {
    pub const EMPTY: Text = Text(Repr::Inline { len: 0, bytes: [0; INLINE_MAX] });

    pub fn new(text: &str) -> Text {
        let source = text.as_bytes();
        match u8::try_from(source.len()) {
            Ok(len) if source.len() <= INLINE_MAX => {
                let mut bytes = [0; INLINE_MAX];
                bytes[..source.len()].copy_from_slice(source);
                Text(Repr::Inline { len, bytes })
            }
            Ok(_) | Err(_) => Text(Repr::Shared(text.into())),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(text) => text.as_bytes(),
        }
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Inline { .. } => {
                std::str::from_utf8(self.as_bytes()).expect("a Text is built from a str")
            }
            Repr::Shared(text) => text,
        }
    }

    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A short text as numbers that sort in the same way: its first sixteen bytes, its last eight, how many it has.
    fn as_numbers(&self) -> Option<(u128, u64, u8)> {
        let Repr::Inline { len, bytes } = &self.0 else { return None };
        let (first, last) = (bytes.first_chunk()?, bytes.last_chunk()?);
        Some((u128::from_be_bytes(*first), u64::from_be_bytes(*last), *len))
    }

    /// Bytes on the heap behind this text, for memory accounting.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Shared(text) => text.len() + 2 * size_of::<usize>(),
        }
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Text) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    #[inline]
    fn cmp(&self, other: &Text) -> std::cmp::Ordering {
        match (self.as_numbers(), other.as_numbers()) {
            (Some(mine), Some(theirs)) => mine.cmp(&theirs),
            (_, _) => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

impl std::hash::Hash for Text {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_stays_in_place() {
        assert_eq!(size_of::<Text>(), 24);
        assert_eq!(Text::new("a name of 22 bytes....").heap_bytes(), 0);
        assert!(Text::new("a name of 23 bytes.....").heap_bytes() > 0);
    }

    #[test]
    fn order_is_that_of_the_bytes_whatever_the_length() {
        let long = "b".repeat(300);
        let alike = "bbbbbbbbbbbbbbbb";
        let sorted = [
            "a",
            "a\0",
            "a\0b",
            "aa",
            alike,
            &format!("{alike}\0"),
            &format!("{alike}a"),
            &long,
            "é",
        ];
        let mut texts = sorted.map(Text::new);
        texts.reverse();
        texts.sort();
        let shown: Vec<&str> = texts.iter().map(Text::as_str).collect();
        assert_eq!(shown, sorted);
    }
}
