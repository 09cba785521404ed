//! An index of byte ranges that finds those which overlap a given one.
//!
//! Ranges are sorted by size class (powers of two), then by start. A range of class k is shorter than 2^k bytes past
//! its first, so those of that class which overlap `start..=last` begin between `start - 2^k` and `last`: one short
//! run a class, and few classes are in use at a time. No tree of our own to balance.

use std::collections::BTreeSet;

use crate::lease::LeaseIdx;
use crate::owners::OwnerIdx;
use crate::range::ByteRange;

#[derive(Clone, Debug)]
pub(crate) struct Spans<T: Ord + Copy> {
    entries: BTreeSet<(u8, u64, u64, T)>,
    /// One bit for each class in use.
    classes: u128,
}

impl<T: Ord + Copy> Default for Spans<T> {
    fn default() -> Spans<T> {
        Spans { entries: BTreeSet::new(), classes: 0 }
    }
}

impl<T: Ord + Copy> Spans<T> {
    pub(crate) fn insert(&mut self, range: ByteRange, tag: T) {
        let class = class_of(range);
        self.entries.insert((class, range.start(), range.last(), tag));
        self.classes |= 1 << class;
    }

    pub(crate) fn remove(&mut self, range: ByteRange, tag: T)
    where
        T: Bounds,
    {
        let class = class_of(range);
        self.entries.remove(&(class, range.start(), range.last(), tag));
        let (lowest, highest) = ((class, 0, 0, T::LEAST), (class, u64::MAX, u64::MAX, T::MOST));
        if self.entries.range(lowest..=highest).next().is_none() {
            self.classes &= !(1 << class);
        }
    }

    /// Every range that shares a byte with `range`, by class and start.
    pub(crate) fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, T)>
    where
        T: Bounds,
    {
        let classes = (0..=64_u8).filter(|class| self.classes & (1 << class) != 0);
        classes
            .flat_map(move |class| {
                let reach = if class == 64 { u64::MAX } else { (1 << class) - 1 };
                let first = (class, range.start().saturating_sub(reach), 0, T::LEAST);
                self.entries.range(first..=(class, range.last(), u64::MAX, T::MOST))
            })
            .filter_map(move |&(_, start, last, tag)| {
                let found = ByteRange::inclusive(start, last)?;
                found.overlaps(range).then_some((found, tag))
            })
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.classes == 0
    }
}

/// The ends of a tag's order.
pub(crate) trait Bounds {
    const LEAST: Self;
    const MOST: Self;
}

impl Bounds for () {
    const LEAST: () = ();
    const MOST: () = ();
}

impl Bounds for crate::inode::Party {
    const LEAST: Self = crate::inode::Party { owner: OwnerIdx::MIN, lease: LeaseIdx(0) };
    const MOST: Self = crate::inode::Party { owner: OwnerIdx::MAX, lease: LeaseIdx(u32::MAX) };
}

impl Bounds for crate::id::Ticket {
    const LEAST: Self = crate::id::Ticket(0);
    const MOST: Self = crate::id::Ticket(u64::MAX);
}

/// The number of bits that the distance from the first byte to the last needs.
fn class_of(range: ByteRange) -> u8 {
    let bits = u64::BITS - (range.last() - range.start()).leading_zeros();
    u8::try_from(bits).expect("at most 64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_those_that_a_scan_of_all_finds() {
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut spans: Spans<()> = Spans::default();
        let mut all = BTreeSet::new();
        for _ in 0..4000 {
            let start = draw(200);
            let last = if draw(20) == 0 {
                u64::MAX
            } else {
                start + {
                    let bits = draw(8);
                    draw(1 << bits)
                }
            };
            let range = ByteRange::inclusive(start, last).unwrap();
            if all.remove(&range) {
                spans.remove(range, ());
            } else if all.len() < 40 {
                all.insert(range);
                spans.insert(range, ());
            }
            let probe = ByteRange::inclusive(draw(200), 200 + draw(3)).unwrap();
            let mut found: Vec<ByteRange> =
                spans.overlapping(probe).map(|(range, ())| range).collect();
            found.sort();
            let expected: Vec<ByteRange> =
                all.iter().copied().filter(|range| range.overlaps(probe)).collect();
            assert_eq!(found, expected);
            assert_eq!(spans.is_empty(), all.is_empty());
        }
    }
}
