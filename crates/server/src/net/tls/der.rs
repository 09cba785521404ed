//! The two moments between which a certificate is valid, and its serial number as text.
//!
//! The verifier, webpki, does not give them; so they are read here, of certificates that rustls has parsed or is about to verify.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use leasehold_access::UnixSeconds;

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate, which may be left out.
const VERSION: u8 = 0xa0;

/// From when until when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: UnixSeconds,
    pub not_after: UnixSeconds,
}

/// The validity of a certificate in DER; `None` if it is none.
pub fn validity(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut rest, _) = element(certificate, SEQUENCE)?;
    if let Some((_, after)) = element(rest, VERSION) {
        rest = after;
    }
    let (_, rest) = element(rest, INTEGER)?;
    // The algorithm of the signature, and the issuer.
    let (_, rest) = element(rest, SEQUENCE)?;
    let (_, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (not_before, rest) = time(validity)?;
    let (not_after, _) = time(rest)?;
    Some(Validity { not_before, not_after })
}

/// A serial number as it is written: hexadecimal digits, without zeros in front.
pub(crate) fn serial_of(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".into() } else { digits.into() }
}

/// The contents of an element with this tag, and what comes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (&len, rest) = rest.split_first()?;
    let (len, rest) = match len {
        0..=0x7f => (usize::from(len), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(len & 0x7f))?;
            (digits.iter().fold(0, |len, &digit| len << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    (*first == tag).then(|| rest.split_at_checked(len)).flatten()
}

fn time(bytes: &[u8]) -> Option<(UnixSeconds, &[u8])> {
    let (text, rest, century_is_told) = match bytes.first()? {
        &UTC_TIME => element(bytes, UTC_TIME).map(|(text, rest)| (text, rest, false))?,
        _ => element(bytes, GENERALIZED_TIME).map(|(text, rest)| (text, rest, true))?,
    };
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, rest_of_time) = digits.split_at_checked(if century_is_told { 4 } else { 2 })?;
    let year: i16 = year.parse().ok()?;
    let year = match year {
        _ if century_is_told => year,
        0..50 => 2000 + year,
        _ => 1900 + year,
    };
    let part = |at: usize| -> Option<i8> { rest_of_time.get(at..at + 2)?.parse().ok() };
    let moment = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    let seconds = moment.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    // One that is valid since before 1970 is valid since ever.
    Some((UnixSeconds::try_from(seconds).unwrap_or(0), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_written_without_zeros_in_front() {
        assert_eq!(serial_of(&[0, 0x1f, 0xa0]), "1fa0");
        assert_eq!(serial_of(&[0x0a]), "a");
        assert_eq!(serial_of(&[0]), "0");
    }

    #[test]
    fn times_of_both_kinds_are_read() {
        let of = |tag: u8, text: &str| {
            let len = u8::try_from(text.len()).unwrap();
            time(&[&[tag, len], text.as_bytes()].concat()).map(|(seconds, _)| seconds)
        };
        assert_eq!(of(UTC_TIME, "700101000001Z"), Some(1));
        assert_eq!(of(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(of(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        assert_eq!(of(UTC_TIME, "500101000000Z"), Some(0), "1950");
        for wrong in ["", "Z", "7001010000Z", "701301000000Z", "700101000000", "70010100000+Z"] {
            assert_eq!(of(UTC_TIME, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_that_is_cut_short_or_strange_is_read_beyond_its_end() {
        let mut bytes = vec![0x30, 0x82, 0x01, 0x00, 0x30, 0x82, 0x00, 0xf0, 0x02, 0x01, 0x01];
        bytes.resize(260, 0x30);
        for cut in 0..bytes.len() {
            assert_eq!(validity(&bytes[..cut]), None);
        }
        assert_eq!(validity(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x30]), None);
    }
}
