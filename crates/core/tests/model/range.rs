//! Byte ranges: what fcntl(2) does, byte by byte.

use super::{Held, Model, same};
use leasehold_core::*;

impl Model {
    /// Whether every byte of the range is held by the asking owner already, in whatever mode and under whatever lease.
    pub(crate) fn covers(&self, ask: &Acquire, inode: u64, range: ByteRange) -> bool {
        let own: Vec<ByteRange> = self
            .held
            .iter()
            .filter(|held| held.namespace == ask.namespace && held.owner == ask.owner)
            .filter_map(|held| bytes_of(held, inode))
            .collect();
        covered(range, &own)
    }

    /// "A new lock over a range the owner already holds replaces it (upgrade, downgrade, extend); adjacent or
    /// overlapping ranges of one owner, one session and one mode merge." Under another lease "the overlapped part
    /// moves to the newer lease".
    pub(crate) fn lock_range(&mut self, new: Held) {
        let (mut merged, mut rest) = (new.clone(), Vec::new());
        let new_range = range_of(&new);
        for old in std::mem::take(&mut self.held) {
            if !same_file(&old, &new) || old.owner != new.owner {
                rest.push(old);
            } else if old.lease == new.lease
                && old.mode == new.mode
                && range_of(&old).touches(new_range)
            {
                merge(&mut merged, &old);
            } else {
                rest.extend(cut(&old, new_range));
            }
        }
        rest.push(merged);
        self.held = rest;
    }

    /// "Unlocking part of a range splits it."
    pub(crate) fn unlock_range(&mut self, hole: ByteRange, ends: impl Fn(&Held) -> bool) {
        let mut rest = Vec::new();
        for old in std::mem::take(&mut self.held) {
            if ends(&old) { rest.extend(cut(&old, hole)) } else { rest.push(old) }
        }
        self.held = rest;
    }
}

/// Whether the ranges together have every byte of `whole`: look at each byte where something begins.
pub(crate) fn covered(whole: ByteRange, ranges: &[ByteRange]) -> bool {
    let ends = ranges.iter().filter_map(|range| range.end());
    let mut starts: Vec<u64> = ends.chain([whole.start()]).collect();
    starts.retain(|start| whole.start() <= *start && *start <= whole.last());
    starts
        .iter()
        .all(|byte| ranges.iter().any(|range| range.start() <= *byte && *byte <= range.last()))
}

pub(crate) fn range_of(held: &Held) -> ByteRange {
    match held.scope {
        Scope::Range { range, .. } => range,
        Scope::Key(_) => panic!("{} is not a byte range", held.scope),
    }
}

pub(crate) fn bytes_of(held: &Held, of: u64) -> Option<ByteRange> {
    match held.scope {
        Scope::Range { inode, range } if inode == of => Some(range),
        Scope::Range { .. } | Scope::Key(_) => None,
    }
}

fn same_file(one: &Held, other: &Held) -> bool {
    let file = |held: &Held| match held.scope {
        Scope::Range { inode, .. } => Some(inode),
        Scope::Key(_) => None,
    };
    same(&one.namespace, &other.namespace) && file(one).is_some() && file(one) == file(other)
}

/// What is left of a piece outside the hole.
fn cut(old: &Held, hole: ByteRange) -> Vec<Held> {
    let Scope::Range { inode, range } = old.scope else {
        return vec![old.clone()];
    };
    if !range.overlaps(hole) {
        return vec![old.clone()];
    }
    let (before, after) = range.without(hole);
    let left = [before, after].into_iter().flatten();
    left.map(|range| Held { scope: Scope::Range { inode, range }, ..old.clone() }).collect()
}

/// "Merged ranges carry the highest of their tokens"; any of them is good, so the lowest is kept too.
fn merge(new: &mut Held, old: &Held) {
    let Scope::Range { inode, range } = new.scope else {
        return;
    };
    new.scope = Scope::Range { inode, range: range.union(range_of(old)) };
    new.fences.0 = new.fences.0.min(old.fences.0);
}
