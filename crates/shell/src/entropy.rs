//! Randomness from the seed alone, for everything in this process.
//!
//! The operating system is asked for random bytes by more than our own code: hash maps take their keys from it, and the
//! runtime the order in which it looks at the branches of a `select!` and wakes those who wait for the same thing. All of
//! them call `getrandom`. Here is one that answers from the seed, and the linker takes it in place of the C library's. What
//! else would differ between two worlds in one process is counted by statics of others, so each world has a process of its
//! own.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the next number is made from. Not zero even before [`seed`], so that a world without one is a world as well.
static STATE: AtomicU64 = AtomicU64::new(0x5eed);

/// Begins the row of numbers that belongs to the seed.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

/// The next number (SplitMix64).
fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// In place of the C library's.
///
/// # Safety
///
/// As of `getrandom(2)`: `len` bytes at `buffer` can be written to.
// SAFETY: nobody else in this program defines a symbol of that name but the C library, which is meant to be overruled, and
// the signature is the same.
#[allow(unsafe_code, reason = "the C library's function is overruled by name")]
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, len: usize, _flags: c_uint) -> isize {
    if buffer.is_null() || len == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; the pointer is not null.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&next().to_le_bytes()[..part.len()]);
    }
    isize::try_from(len).unwrap_or(isize::MAX)
}
