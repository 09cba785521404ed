//! Durations: any text is taken or refused, and what is written can be read.
#![no_main]

use leasehold_api::{format_duration, parse_duration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(length) = parse_duration(text) {
        let written = format_duration(length);
        assert_eq!(parse_duration(&written).ok(), Some(length), "{text:?} is {written:?}");
    }
});
