//! Byte ranges: what fcntl(2) does, byte by byte.

use super::conflict::Asker;
use super::{Held, Model};
use leasehold_core::*;

impl Model {
    /// Whether every byte of the range is the asker's already, in whatever mode.
    pub(crate) fn covers(&self, asker: Asker<'_>, inode: u64, range: ByteRange) -> bool {
        let own: Vec<ByteRange> = self
            .held
            .iter()
            .filter(|held| held.namespace == *asker.namespace && asker.has_bytes(held))
            .filter_map(|held| bytes_of(held, inode))
            .collect();
        covered(range, &own)
    }

    /// "A new lock over a range the owner already holds replaces it (upgrade, downgrade, extend); adjacent or
    /// overlapping ranges of one owner, one session and one mode merge", all "within one lease". What is taken back out
    /// of a reclaim window is no longer there.
    pub(crate) fn lock_range(&mut self, new: &Held) {
        let (mut merged, mut rest, mut replaced) = (new.clone(), Vec::new(), Vec::new());
        let mut taken_in = Vec::new();
        let new_range = range_of(new);
        for old in std::mem::take(&mut self.held) {
            let own = old.lease == new.lease || old.window_until.is_some();
            if !same_file(&old, new) || old.owner != new.owner || !own {
                rest.push(old);
            } else if old.lease == new.lease
                && old.mode == new.mode
                && range_of(&old).touches(new_range)
            {
                merge(&mut merged, &old);
                taken_in.push(old);
            } else {
                if let Some(gone) = range_of(&old).intersection(new_range) {
                    replaced.push(Held { scope: same_inode(&old, gone), ..old.clone() });
                }
                rest.extend(cut(&old, new_range));
            }
        }
        rest.push(merged);
        self.held = rest;
        for old in taken_in.iter().filter(|old| old.fence() != new.fence()) {
            self.remember(old, &Ending::Replaced);
        }
        for gone in &replaced {
            self.tell_ended(gone, &Ending::Replaced, None);
            self.lose(gone);
        }
    }

    /// The claimed bytes that are not held under the lease yet.
    pub(crate) fn gained(&self, ask: &Acquire) -> Vec<(u64, ByteRange)> {
        let mut gained = Vec::new();
        for claim in &ask.claims {
            let Scope::Range { inode, range } = claim.scope else {
                continue;
            };
            let mut left = vec![range];
            for held in self.held.iter().filter(|held| held.owner == ask.owner) {
                if held.namespace == ask.namespace
                    && ask.under == Under::Session(held.lease)
                    && let Some(own) = bytes_of(held, inode)
                {
                    left = left.into_iter().flat_map(|part| outside(part, own)).collect();
                }
            }
            left.sort();
            gained.extend(left.into_iter().map(|part| (inode, part)));
        }
        gained
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
    one.namespace == other.namespace && file(one).is_some() && file(one) == file(other)
}

fn same_inode(of: &Held, range: ByteRange) -> Scope {
    match of.scope {
        Scope::Range { inode, .. } => Scope::Range { inode, range },
        Scope::Key(_) => panic!("{} is not a byte range", of.scope),
    }
}

fn outside(range: ByteRange, hole: ByteRange) -> Vec<ByteRange> {
    if !range.overlaps(hole) {
        return vec![range];
    }
    let (before, after) = range.without(hole);
    [before, after].into_iter().flatten().collect()
}

/// What is left of a piece outside the hole.
fn cut(old: &Held, hole: ByteRange) -> Vec<Held> {
    let left = outside(range_of(old), hole).into_iter();
    left.map(|range| Held { scope: same_inode(old, range), ..old.clone() }).collect()
}

/// "Merged ranges carry the highest of their tokens"; any of them is good.
fn merge(new: &mut Held, old: &Held) {
    new.scope = same_inode(new, range_of(new).union(range_of(old)));
    new.fences.extend(&old.fences);
    new.fences.sort();
    new.window = new.window.max(old.window);
}
