//! Locations of stores: any text is taken or refused.
#![no_main]

use leasehold_store::Location;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(location) = Location::parse(text) {
        let _ = (location.is_shared(), format!("{location:?}"));
    }
});
