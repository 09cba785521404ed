//! Lengths of time as people write them: `30s`, `1m30s`, `1500ms`, and a bare number for seconds.

use std::fmt::Write as _;
use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Why a text is not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("is empty: write a length such as 30s, 1m30s or 1500ms")]
    Empty,
    #[error(
        "{0:?} is not a length of time: write 30s, 1m30s, 1500ms, or a whole number of seconds"
    )]
    Malformed(String),
    #[error("{0:?} is too long")]
    TooLong(String),
}

pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let too_long = || DurationError::TooLong(text.into());
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(Duration::from_secs).map_err(|_| too_long());
    }
    let mut millis: u64 = 0;
    let mut rest = text;
    let mut unit_before = u64::MAX;
    while !rest.is_empty() {
        let (number, unit, after) =
            next_part(rest).ok_or_else(|| DurationError::Malformed(text.into()))?;
        // Each unit once, the larger first: `30s1m` is more likely a mistake.
        if unit >= unit_before {
            return Err(DurationError::Malformed(text.into()));
        }
        unit_before = unit;
        let number: u64 = number.parse().map_err(|_| too_long())?;
        let part = number.checked_mul(unit).ok_or_else(too_long)?;
        millis = millis.checked_add(part).ok_or_else(too_long)?;
        rest = after;
    }
    Ok(Duration::from_millis(millis))
}

/// Splits `1m30s` into `1`, the milliseconds of a minute, and `30s`.
fn next_part(text: &str) -> Option<(&str, u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|&end| end > 0)?;
    let (number, rest) = text.split_at(digits);
    let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some((number, *millis, rest))
}

/// The shortest spelling that `parse_duration` reads back.
pub fn format_duration(length: Duration) -> String {
    let mut millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (name, unit) in UNITS {
        if millis >= unit {
            write!(text, "{}{name}", millis / unit).expect("a String takes everything");
            millis %= unit;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1500ms", 1500),
            ("45", 45_000),
            ("0", 0),
            ("2h", 7_200_000),
            ("1d12h", 129_600_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_length_is_refused() {
        for text in ["", "s", "-5s", "1.5s", "5 s", "30s1m", "1m1m", "1w", "+3", "١s", "5sx"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_duration("99999999999999999999s"),
            Err(DurationError::TooLong("99999999999999999999s".into()))
        );
    }

    #[test]
    fn what_is_written_can_be_read_back() {
        for millis in [0, 1, 999, 1000, 1500, 90_000, 86_400_000, 90_061_001] {
            let length = Duration::from_millis(millis);
            assert_eq!(parse_duration(&format_duration(length)), Ok(length));
        }
    }
}
