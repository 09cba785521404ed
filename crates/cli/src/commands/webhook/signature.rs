//! The signature of a delivery: HMAC with SHA-256 over the time and the body.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// `t=SECONDS,v1=HEX`, where HEX is the HMAC of `SECONDS.BODY`. The time is signed too, so that a receiver can turn away
/// what somebody has kept.
pub(super) fn signature(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    // A key may have any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { unreachable!("of any length") };
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    let mut text = format!("t={seconds},v1=");
    for byte in mac.finalize().into_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_what_others_compute() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let wanted =
            "t=1700000000,v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e";
        assert_eq!(signature(b"0123456789abcdef", 1_700_000_000, b"{}"), wanted);
    }
}
