//! A hash index over the values of a slab: open addressing, a fixed seed, and no way to iterate.
//!
//! It stores slab numbers and a part of each hash, twelve bytes or so an entry, and never a second copy of the key.
//! The seed comes from outside, so that no client can choose names that all collide; no answer depends on it.

const EMPTY: u64 = u64::MAX;
const LEN_MIN: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// The upper half is a part of the hash, the lower half the slab number.
    entries: Vec<u64>,
    len: usize,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { entries: vec![EMPTY; LEN_MIN], len: 0 }
    }

    /// The slab number of an entry with this hash that `is_it` recognises.
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        while self.entries[at] != EMPTY {
            let (entry_hash, number) = split(self.entries[at]);
            if entry_hash == hash && is_it(number) {
                return Some(number);
            }
            at = self.after(at);
        }
        None
    }

    pub(crate) fn insert(&mut self, hash: u32, number: u32) {
        if (self.len + 1) * 5 > self.entries.len() * 4 {
            self.grow();
        }
        self.place(join(hash, number));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, hash: u32, number: u32) {
        let mut at = self.home(hash);
        while self.entries[at] != join(hash, number) {
            assert!(self.entries[at] != EMPTY, "only entries that are there are removed");
            at = self.after(at);
        }
        self.len -= 1;
        self.close_gap(at);
    }

    /// Moves later entries of the same run forward, so that no search ends too early.
    fn close_gap(&mut self, mut gap: usize) {
        let mut at = self.after(gap);
        while self.entries[at] != EMPTY {
            let home = self.home(split(self.entries[at]).0);
            if self.distance(home, at) >= self.distance(gap, at) {
                self.entries[gap] = self.entries[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.entries[gap] = EMPTY;
    }

    /// By half: twice as many would be half empty for long.
    fn grow(&mut self) {
        let bigger = vec![EMPTY; self.entries.len() / 2 * 3];
        let old = std::mem::replace(&mut self.entries, bigger);
        for entry in old {
            if entry != EMPTY {
                self.place(entry);
            }
        }
    }

    fn place(&mut self, entry: u64) {
        let mut at = self.home(split(entry).0);
        while self.entries[at] != EMPTY {
            at = self.after(at);
        }
        self.entries[at] = entry;
    }

    /// Spreads the hashes evenly over any number of places.
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.entries.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// The distance from `from` to `to`, around the end if need be.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.entries.len() - from }
    }
}

fn join(hash: u32, number: u32) -> u64 {
    (u64::from(hash) << 32) | u64::from(number)
}

#[expect(clippy::cast_possible_truncation, reason = "each half is meant to be cut off")]
fn split(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, entry as u32)
}

/// Mixes bytes into a number; the seed decides which inputs collide.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u32 {
    let mut state = fold(seed ^ 0x9e37_79b9_7f4a_7c15, bytes.len() as u64 ^ 0xa076_1d64_78bd_642f);
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain([&last]) {
        state = fold(state ^ u64::from_le_bytes(*word), 0xe703_7ed1_a0b4_28db ^ seed);
    }
    fold_down(state)
}

pub(crate) fn hash_words(seed: u64, words: [u64; 2]) -> u32 {
    fold_down(fold(words[0] ^ seed ^ 0x9e37_79b9_7f4a_7c15, words[1] ^ 0xa076_1d64_78bd_642f))
}

#[expect(clippy::cast_possible_truncation, reason = "both halves of the product are mixed")]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are mixed")]
fn fold_down(state: u64) -> u32 {
    (state >> 32) as u32 ^ state as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn finds_what_was_put_in_and_not_what_was_taken_out() {
        let mut index = Index::new();
        let mut model = BTreeMap::new();
        let mut state = 1_u64;
        for round in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (state >> 40) % 700;
            // Few distinct hashes: long runs, wrapped around the end, are the hard case.
            let hash = u32::try_from(key % 64).unwrap().wrapping_sub(8).rotate_right(6);
            if let Some(number) = model.remove(&key) {
                index.remove(hash, number);
            } else {
                index.insert(hash, round);
                model.insert(key, round);
            }
            let found = index.find(hash, |number| model.get(&key) == Some(&number));
            assert_eq!(found, model.get(&key).copied());
        }
    }

    #[test]
    fn another_seed_gives_another_order() {
        assert_ne!(hash_bytes(1, b"job/nightly"), hash_bytes(2, b"job/nightly"));
        assert_eq!(hash_bytes(1, b"job/nightly"), hash_bytes(1, b"job/nightly"));
    }
}
