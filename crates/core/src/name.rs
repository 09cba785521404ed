//! Rules for text that identifies something: owners, namespaces, names of locks.
//!
//! There are two of them. [`admit`] is for text that comes in: two names that look alike must be the same name, so it
//! has to be in normalization form C and without invisible characters. [`decode`] is for text that was admitted once and
//! is read back: it checks only what the rest of the core relies on, so that a stricter rule for new names makes no old
//! journal unreadable.

use unicode_normalization::{UnicodeNormalization, is_nfc};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// The reason why a text cannot be a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("is empty")]
    Empty,
    #[error("is {len} bytes long, the limit is {max}")]
    TooLong { len: usize, max: usize },
    #[error("has a control or invisible character (U+{0:04X})")]
    Character(u32),
    #[error(
        "is not in Unicode normalization form C (U+{0:04X} would be composed): normalize it to NFC first"
    )]
    NotNormalized(u32),
}

/// Control characters, and those that hide or reorder text around them: they would break a log line or a terminal.
/// Paths may have every other character, as file names do.
pub(crate) fn unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Characters that nobody sees: the general category Format, and what Unicode calls default-ignorable.
fn invisible(c: char) -> bool {
    unprintable(c) || c.general_category() == GeneralCategory::Format || is_ignorable(c)
}

/// The code points with the property `Default_Ignorable_Code_Point` that are not of the category Format.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{2065}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Checks a name that comes in.
pub(crate) fn admit(text: &str, max: usize) -> Result<(), NameError> {
    check_len(text, max)?;
    if is_plain(text) {
        return Ok(());
    }
    if let Some(c) = text.chars().find(|&c| invisible(c)) {
        return Err(NameError::Character(u32::from(c)));
    }
    if is_nfc(text) {
        return Ok(());
    }
    let composed = text.nfc().zip(text.chars()).find(|(composed, given)| composed != given);
    Err(NameError::NotNormalized(composed.map_or(0, |(_, given)| u32::from(given))))
}

/// Checks a text of one line that is shown to people and compared with nothing: a path, a reason.
pub fn check_line(text: &str, max: usize) -> Result<(), NameError> {
    check_len(text, max)?;
    let odd = if is_plain(text) { None } else { text.chars().find(|&c| unprintable(c)) };
    odd.map_or(Ok(()), |c| Err(NameError::Character(u32::from(c))))
}

/// Checks a name that was admitted once.
pub(crate) fn decode(text: &str, max: usize) -> Result<(), NameError> {
    check_line(text, max)
}

fn check_len(text: &str, max: usize) -> Result<(), NameError> {
    match text.len() {
        0 => Err(NameError::Empty),
        len if len > max => Err(NameError::TooLong { len, max }),
        _ => Ok(()),
    }
}

/// Nearly all names are printable ASCII, and that is quickly seen.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_looks_like_another_is_refused() {
        assert_eq!(admit("caf\u{e9}", 99), Ok(()));
        assert_eq!(admit("cafe\u{301}", 99), Err(NameError::NotNormalized(0x65)));
        // Of the category Format; default-ignorable alone.
        for c in
            ['\u{200b}', '\u{180e}', '\u{e0041}', '\u{34f}', '\u{3164}', '\u{fe0f}', '\u{2065}']
        {
            let said = admit(&format!("a{c}b"), 99);
            assert_eq!(said, Err(NameError::Character(u32::from(c))), "U+{:04X}", u32::from(c));
        }
        for name in ["naïve", "夜間", "κόσμος", "job 7 😀", "한글"] {
            assert_eq!(admit(name, 99), Ok(()), "{name}");
        }
    }

    #[test]
    fn name_that_was_admitted_by_an_older_rule_is_read_back() {
        for name in ["cafe\u{301}", "a\u{34f}b", "a\u{fe0f}"] {
            assert_eq!(decode(name, 99), Ok(()), "{name}");
        }
        assert_eq!(decode("", 99), Err(NameError::Empty));
        assert_eq!(decode("abc", 2), Err(NameError::TooLong { len: 3, max: 2 }));
    }
}
