//! Durations as people write them: `30s`, `1m30s`, `1.5h`, `1500ms`, and a bare number for seconds.
//!
//! All that Go's `time.ParseDuration` reads is read here, with the same meaning; days and bare numbers are more than that.

use std::fmt::Write as _;
use std::time::Duration;

/// Units and their nanoseconds. Micro is written in three ways.
const UNITS: [(&str, u128); 9] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", SECOND),
    ("ms", 1_000_000),
    ("us", 1000),
    ("\u{b5}s", 1000),
    ("\u{3bc}s", 1000),
    ("ns", 1),
];
const SECOND: u128 = 1_000_000_000;
/// More digits behind the point than this are less than a nanosecond, whatever the unit.
const FRACTION_DIGITS_MAX: usize = 18;

/// The reason why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("is empty: write a duration such as 30s, 1m30s or 1500ms")]
    Empty,
    #[error("{0:?} is not a duration: write 30s, 1m30s, 1.5h, 1500ms, or a number of seconds")]
    Malformed(String),
    #[error("{0:?} is negative")]
    Negative(String),
    #[error("{0:?} is too long")]
    TooLong(String),
}

pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let is_negative = text.starts_with('-');
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let nanos = parse_unsigned(rest).map_err(|fault| fault(text.into()))?;
    if is_negative && nanos > 0 {
        return Err(DurationError::Negative(text.into()));
    }
    let too_long = || DurationError::TooLong(text.into());
    let secs = u64::try_from(nanos / SECOND).map_err(|_| too_long())?;
    let below = u32::try_from(nanos % SECOND).map_err(|_| too_long())?;
    Ok(Duration::new(secs, below))
}

type Fault = fn(String) -> DurationError;

fn parse_unsigned(text: &str) -> Result<u128, Fault> {
    let too_long: Fault = DurationError::TooLong;
    if let Some((number, "")) = split_number(text) {
        return number.times(SECOND).ok_or(too_long);
    }
    let (mut nanos, mut rest): (u128, _) = (0, text);
    while !rest.is_empty() {
        let (number, unit, after) = next_part(rest).ok_or(DurationError::Malformed as Fault)?;
        let part = number.times(unit).ok_or(too_long)?;
        nanos = nanos.checked_add(part).ok_or(too_long)?;
        rest = after;
    }
    if text.is_empty() { Err(DurationError::Malformed) } else { Ok(nanos) }
}

/// The digits before and behind the point.
struct Number<'a>(&'a str, &'a str);

impl Number<'_> {
    /// As many of a unit; `None` if that is more than a number holds.
    fn times(&self, unit: u128) -> Option<u128> {
        let whole: u128 = if self.0.is_empty() { 0 } else { self.0.parse().ok()? };
        let digits = &self.1[..self.1.len().min(FRACTION_DIGITS_MAX)];
        let fraction: u128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let scale = 10_u128.pow(u32::try_from(digits.len()).ok()?);
        whole.checked_mul(unit)?.checked_add(fraction * unit / scale)
    }
}

/// Splits `1.5h30m` into `1`, `5` and `h30m`; at least one digit must be there.
fn split_number(text: &str) -> Option<(Number<'_>, &str)> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(digits(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(behind) => behind.split_at(digits(behind)),
        None => ("", rest),
    };
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    has_digits.then_some((Number(whole, fraction), rest))
}

/// Splits `1m30s` into `1`, the nanoseconds of a minute, and `30s`.
fn next_part(text: &str) -> Option<(Number<'_>, u128, &str)> {
    let (number, rest) = split_number(text)?;
    let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some((number, *nanos, rest))
}

/// The shortest spelling that `parse_duration` reads back.
pub fn format_duration(length: Duration) -> String {
    let mut nanos = length.as_nanos();
    let mut text = String::new();
    for (name, unit) in UNITS {
        if nanos >= unit {
            write!(text, "{}{name}", nanos / unit).expect("a String takes everything");
            nanos %= unit;
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
            ("1h15m30.918s", 4_530_918),
            ("1.5h", 5_400_000),
            ("+5s", 5000),
            (".5s", 500),
            ("1.s", 1000),
            ("0.5", 500),
            ("30s1m", 90_000),
            ("1m1m", 120_000),
            ("-0s", 0),
            ("1500us1500\u{b5}s1000\u{3bc}s", 4),
            ("3000000ns", 3),
            ("0.3333333333333333333h", 1_199_999),
        ] {
            let parsed = parse_duration(text).unwrap().as_millis();
            assert_eq!(parsed, millis, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_length_is_refused() {
        for text in ["", "s", "+", ".", ".s", "-.s", "-5s", "5 s", "1w", "++3", "١s", "5sx", "1e3s"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_duration("99999999999999999999s"),
            Err(DurationError::TooLong("99999999999999999999s".into()))
        );
        assert_eq!(parse_duration("-5s"), Err(DurationError::Negative("-5s".into())));
    }

    #[test]
    fn what_is_written_can_be_read_back() {
        for millis in [0, 1, 999, 1000, 1500, 90_000, 86_400_000, 90_061_001] {
            let length = Duration::from_millis(millis);
            assert_eq!(parse_duration(&format_duration(length)), Ok(length));
        }
    }
}
