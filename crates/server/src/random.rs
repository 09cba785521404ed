//! What must not be guessed, and what must only differ.

use std::cell::Cell;

use leasehold_core::LeaseId;

/// 128 bits from the operating system: the secret of a lease.
pub(crate) fn lease_id() -> LeaseId {
    LeaseId::from_u128((u128::from(secret()) << 64) | u128::from(secret()))
}

pub(crate) fn secret() -> u64 {
    getrandom::u64().expect("an operating system that has no randomness cannot run a lock service")
}

thread_local! {
    static STATE: Cell<u64> = Cell::new(secret());
}

/// A number that differs from the last one, and quickly: for jitter and request ids, not for secrets.
pub(crate) fn number() -> u64 {
    // splitmix64
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
