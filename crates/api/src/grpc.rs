//! The messages and services of `leasehold.v1`, as `proto/leasehold/v1/leasehold.proto` describes them.
//!
//! Clients are generic over their channel: `LocksClient::new(channel)`. The same words as in JSON have the same names
//! here; the few conversions that both sides of the wire need are below.

use std::time::Duration;

#[allow(
    clippy::allow_attributes_without_reason,
    clippy::wildcard_enum_match_arm,
    clippy::large_enum_variant,
    unreachable_pub,
    unused_qualifications,
    missing_debug_implementations,
    reason = "generated"
)]
mod generated {
    tonic::include_proto!("leasehold.v1");
}

mod codec;
mod status;
mod json_conversions;

pub use codec::{MessageCodec, MessageDecoder, MessageEncoder};
pub use generated::*;
pub use json_conversions::{metadata, metadata_of, ms};
pub use status::{ErrorInfo, RetryInfo, RichStatus, problem_of, status};

/// The file descriptors of `leasehold.v1` and all it imports, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/leasehold.v1.bin"));

/// The domain of our `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "leasehold";

/// The most commands in one message on a stream.
pub const COMMANDS_MAX: usize = 4096;

/// A duration as it is sent.
pub fn length(length: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(length.as_secs()).unwrap_or(i64::MAX),
        // Less than a billion.
        nanos: length.subsec_nanos().cast_signed(),
    }
}

/// A duration as it was received; `None` if it is negative or no duration at all.
pub fn duration(length: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(length.seconds).ok()?;
    let nanos = u32::try_from(length.nanos).ok().filter(|&nanos| nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

/// The same in milliseconds; `None` also if it is finer than that.
pub fn millis(length: prost_types::Duration) -> Option<u64> {
    let length =
        duration(length).filter(|length| length.subsec_nanos().is_multiple_of(1_000_000))?;
    u64::try_from(length.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_read_as_it_was_written() {
        for written in
            [Duration::ZERO, Duration::from_millis(1), Duration::new(86_400, 999_999_999)]
        {
            assert_eq!(duration(length(written)), Some(written));
        }
        let of = |seconds, nanos| duration(prost_types::Duration { seconds, nanos });
        assert_eq!(of(-1, 0), None);
        assert_eq!(of(0, -1), None);
        assert_eq!(of(0, 1_000_000_000), None);
    }
}
