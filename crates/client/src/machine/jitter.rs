//! Numbers that look random and come from one seed.

use std::time::Duration;

/// The chance in the lengths that the machine chooses.
#[derive(Clone, Debug)]
pub enum Jitter {
    /// Numbers that look random, from this seed.
    Seeded(u64),
    /// Each length in full. With this and the next, what ports of the machine do can be compared exactly.
    Full,
    /// Each length as short as it can be.
    Least,
}

/// Chance comes in parts of that many.
const PARTS: u32 = 1024;

impl Jitter {
    /// Between four fifths of the length and all of it: never later than asked.
    pub(super) fn shortened(&mut self, length: Duration) -> Duration {
        let cut = match self {
            Jitter::Seeded(seed) => next(seed) % PARTS,
            Jitter::Full => 0,
            Jitter::Least => PARTS,
        };
        length.saturating_sub((length / 5).saturating_mul(cut) / PARTS)
    }

    /// Between half of the length and all of it.
    pub(super) fn spread(&mut self, length: Duration) -> Duration {
        let half = length / 2;
        let more = match self {
            Jitter::Seeded(seed) => next(seed) % PARTS,
            Jitter::Full => PARTS,
            Jitter::Least => 0,
        };
        half + half.saturating_mul(more) / PARTS
    }
}

/// SplitMix64.
fn next(seed: &mut u64) -> u32 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0)
}

/// Grows from `first` by doubling, up to `most`.
pub(super) fn doubled(first: Duration, tries: u32, most: Duration) -> Duration {
    first.saturating_mul(1 << tries.min(16)).min(most)
}
