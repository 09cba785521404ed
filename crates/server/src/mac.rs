//! Keyed hashes: what only a holder of the key could have made.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// HMAC-SHA256 of a text.
pub(crate) fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    keyed(key, text).finalize().into_bytes().into()
}

/// Whether a text has this HMAC, in a time that does not depend on where they differ.
pub(crate) fn is_mac_of(key: &[u8], text: &[u8], given: &[u8]) -> bool {
    keyed(key, text).verify_slice(given).is_ok()
}

fn keyed(key: &[u8], text: &[u8]) -> Hmac<Sha256> {
    let mut keyed = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    keyed.update(text);
    keyed
}

pub(crate) fn sha256(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second case of RFC 4231.
    #[test]
    fn mac_is_that_of_the_standard() {
        let made = mac(b"Jefe", b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&made), expected);
        assert!(is_mac_of(b"Jefe", b"what do ya want for nothing?", &made));
        assert!(!is_mac_of(b"Jefe", b"what do ya want for nothing!", &made));
        assert!(!is_mac_of(b"jefe", b"what do ya want for nothing?", &made));
        assert!(!is_mac_of(b"Jefe", b"what do ya want for nothing?", &made[..16]));
    }
}
