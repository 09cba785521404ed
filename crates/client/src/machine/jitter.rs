//! Numbers that look random and come from one seed.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    /// Between four fifths of the length and all of it: never later than asked.
    pub(super) fn shortened(&mut self, length: Duration) -> Duration {
        let part = length / 5;
        let cut = part.saturating_mul(self.next() % 1024) / 1024;
        length.saturating_sub(cut)
    }

    /// Between half of the length and all of it.
    pub(super) fn spread(&mut self, length: Duration) -> Duration {
        let half = length / 2;
        half + half.saturating_mul(self.next() % 1024) / 1024
    }

    /// SplitMix64.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0)
    }
}

/// Grows from `first` by doubling, up to `most`.
pub(super) fn doubled(first: Duration, tries: u32, most: Duration) -> Duration {
    first.saturating_mul(1 << tries.min(16)).min(most)
}
