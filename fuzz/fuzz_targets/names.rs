//! Scopes and names: any text is taken or refused, and what is taken has one spelling.
#![no_main]

use leasehold_core::{Namespace, Owner, RequestId, Scope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = (Namespace::new(text), Owner::new(text), RequestId::new(text));
    if let Ok(scope) = Scope::parse(text) {
        let canonical = scope.to_string();
        assert_eq!(Scope::parse(&canonical).as_ref(), Ok(&scope), "{canonical:?}");
        assert!(scope.overlaps(&scope), "{canonical:?}");
    }
});
