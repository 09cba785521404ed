//! Random numbers: those that must not be guessed, and those that must only differ.

use std::cell::{Cell, RefCell};

use leasehold_core::LeaseId;

/// The number of random bytes drawn from the operating system at a time: a call for each lease would cost too much.
const POOL_BYTES: usize = 1024;

/// 128 bits from the operating system: the secret of a lease.
pub(crate) fn lease_id() -> LeaseId {
    POOL.with_borrow_mut(|(pool, left)| {
        if *left == 0 {
            getrandom::fill(pool).expect(NO_RANDOMNESS);
            *left = POOL_BYTES / 16;
        }
        *left -= 1;
        let at = *left * 16;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&pool[at..at + 16]);
        // What was given out is nobody's business any more.
        pool[at..at + 16].fill(0);
        LeaseId::from_u128(u128::from_le_bytes(bytes))
    })
}

const NO_RANDOMNESS: &str = "an operating system that has no randomness cannot run a lock service";

/// Random bytes from the operating system, for secrets.
pub(crate) fn bytes<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).expect(NO_RANDOMNESS);
    bytes
}

pub(crate) fn secret() -> u64 {
    getrandom::u64().expect(NO_RANDOMNESS)
}

thread_local! {
    static POOL: RefCell<([u8; POOL_BYTES], usize)> = const { RefCell::new(([0; POOL_BYTES], 0)) };
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
