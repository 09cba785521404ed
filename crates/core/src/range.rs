//! Byte ranges of a file.

use std::fmt;

/// Bytes `start` to `last`, both included. `last == u64::MAX` means to the end of the file and beyond.
///
/// The last byte is kept, not the first one after it: so no range is empty and no sum overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    start: u64,
    last: u64,
}

impl ByteRange {
    /// The whole file.
    pub const ALL: ByteRange = ByteRange { start: 0, last: u64::MAX };

    /// Both ends included; `None` if the last byte lies before the first.
    pub const fn inclusive(start: u64, last: u64) -> Option<ByteRange> {
        if start <= last { Some(ByteRange { start, last }) } else { None }
    }

    /// From `start` up to, not including, `end`; without an end to the end of the file and beyond.
    /// `None` if that is empty.
    pub const fn half_open(start: u64, end: Option<u64>) -> Option<ByteRange> {
        match end {
            None => Some(ByteRange { start, last: u64::MAX }),
            Some(end) if start < end => Some(ByteRange { start, last: end - 1 }),
            Some(_) => None,
        }
    }

    pub const fn start(self) -> u64 {
        self.start
    }

    pub const fn last(self) -> u64 {
        self.last
    }

    /// The first byte after the range; `None` if it is open.
    pub const fn end(self) -> Option<u64> {
        self.last.checked_add(1)
    }

    pub const fn overlaps(self, other: ByteRange) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    pub const fn covers(self, other: ByteRange) -> bool {
        self.start <= other.start && other.last <= self.last
    }

    /// Overlapping, or one right after the other.
    pub const fn touches(self, other: ByteRange) -> bool {
        self.overlaps(other) || self.precedes(other) || other.precedes(self)
    }

    const fn precedes(self, other: ByteRange) -> bool {
        other.start > 0 && other.start - 1 == self.last
    }

    /// The smallest range that covers both.
    #[must_use]
    pub fn union(self, other: ByteRange) -> ByteRange {
        ByteRange { start: self.start.min(other.start), last: self.last.max(other.last) }
    }

    /// The bytes that are in both.
    pub fn intersection(self, other: ByteRange) -> Option<ByteRange> {
        ByteRange::inclusive(self.start.max(other.start), self.last.min(other.last))
    }

    /// The parts of this range before and after `hole`.
    pub fn without(self, hole: ByteRange) -> (Option<ByteRange>, Option<ByteRange>) {
        let before = match hole.start.checked_sub(1) {
            Some(last) => ByteRange::inclusive(self.start, last.min(self.last)),
            None => None,
        };
        let after = match hole.last.checked_add(1) {
            Some(start) => ByteRange::inclusive(start.max(self.start), self.last),
            None => None,
        };
        (before, after)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end() {
            Some(end) => write!(f, "{}..{end}", self.start),
            None => write!(f, "{}..", self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::half_open(start, Some(end)).unwrap()
    }

    #[test]
    fn the_very_last_byte_can_be_named_without_overflow() {
        let last = ByteRange::inclusive(u64::MAX, u64::MAX).unwrap();
        assert_eq!(last.end(), None);
        assert!(range(0, u64::MAX).touches(last));
        assert!(!range(0, u64::MAX).overlaps(last));
        assert_eq!(ByteRange::ALL.without(last), (Some(range(0, u64::MAX)), None));
    }

    #[test]
    fn cutting_a_hole_leaves_what_is_outside_it() {
        assert_eq!(range(0, 10).without(range(3, 5)), (Some(range(0, 3)), Some(range(5, 10))));
        assert_eq!(range(3, 5).without(range(0, 10)), (None, None));
        assert_eq!(range(0, 10).without(range(0, 5)), (None, Some(range(5, 10))));
        assert_eq!(range(0, 10).without(range(20, 30)), (Some(range(0, 10)), None));
        assert_eq!(range(20, 30).without(range(0, 10)), (None, Some(range(20, 30))));
    }

    #[test]
    fn empty_ranges_cannot_be_made() {
        assert_eq!(ByteRange::half_open(5, Some(5)), None);
        assert_eq!(ByteRange::inclusive(5, 4), None);
    }
}
