//! The owners of one namespace, each kept once under a small number for as long as anything mentions it.

use crate::holds::Holds;
use crate::id::Owner;
use crate::index::{Index, hash_bytes};
use crate::lease::LeaseIdx;
use crate::quota::PrincipalIdx;
use crate::slab::Slab;

/// An owner's number inside its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerIdx(u32);

impl OwnerIdx {
    pub(crate) const MIN: OwnerIdx = OwnerIdx(0);
    pub(crate) const MAX: OwnerIdx = OwnerIdx(u32::MAX);
}

/// Owners by their numbers, a bit each.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerSet(Vec<u64>);

impl OwnerSet {
    /// Adds an owner; whether it was not there before.
    pub(crate) fn insert(&mut self, owner: OwnerIdx) -> bool {
        let (word, bit) = (owner.0 as usize / 64, 1 << (owner.0 % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    pub(crate) fn contains(&self, owner: OwnerIdx) -> bool {
        let (word, bit) = (owner.0 as usize / 64, 1 << (owner.0 % 64));
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Owners {
    seed: u64,
    entries: Slab<Entry>,
    index: Index,
}

#[derive(Clone, Debug)]
struct Entry {
    owner: Owner,
    /// `None` for the anonymous one.
    principal: Option<PrincipalIdx>,
    mentions: u32,
    holds: Holds,
}

impl Owners {
    pub(crate) fn new(seed: u64) -> Owners {
        Owners { seed, entries: Slab::default(), index: Index::new() }
    }

    pub(crate) fn find(&self, owner: &Owner) -> Option<OwnerIdx> {
        self.find_by(self.hash(owner), owner)
    }

    fn find_by(&self, hash: u32, owner: &Owner) -> Option<OwnerIdx> {
        let is_it = |number| is_same(&self.entries[number].owner, owner);
        self.index.find(hash, is_it).map(OwnerIdx)
    }

    pub(crate) fn name(&self, number: OwnerIdx) -> &Owner {
        &self.entries[number.0].owner
    }

    /// One mention more; the owner gets a number if it has none, and its principal is asked for.
    pub(crate) fn mention(
        &mut self,
        owner: &Owner,
        principal: impl FnOnce() -> Option<PrincipalIdx>,
    ) -> OwnerIdx {
        let hash = self.hash(owner);
        if let Some(number) = self.find_by(hash, owner) {
            self.mention_again(number);
            return number;
        }
        let (owner, principal, holds) = (owner.clone(), principal(), Holds::default());
        let entry = Entry { owner, principal, mentions: 1, holds };
        let number = self.entries.insert(entry);
        self.index.insert(hash, number);
        OwnerIdx(number)
    }

    pub(crate) fn mention_again(&mut self, number: OwnerIdx) {
        self.entries[number.0].mentions += 1;
    }

    /// One mention less; with the last one the owner is forgotten. Gives back the principal of one that was.
    pub(crate) fn forget(&mut self, number: OwnerIdx) -> Option<PrincipalIdx> {
        let entry = &mut self.entries[number.0];
        entry.mentions -= 1;
        if entry.mentions > 0 {
            return None;
        }
        let hash = hash_of(self.seed, &entry.owner);
        self.index.remove(hash, number.0);
        self.entries.remove(number.0).principal
    }

    pub(crate) fn principal(&self, number: OwnerIdx) -> Option<PrincipalIdx> {
        self.entries[number.0].principal
    }

    /// Counts one grant or piece more under a lease. The first one mentions the owner.
    pub(crate) fn count_hold(&mut self, number: OwnerIdx, lease: LeaseIdx) {
        if self.entries[number.0].holds.add(lease) {
            self.mention_again(number);
        }
    }

    /// Whether it was the last one, which mentioned the owner.
    pub(crate) fn uncount_hold(&mut self, number: OwnerIdx, lease: LeaseIdx) -> bool {
        self.entries[number.0].holds.remove(lease)
    }

    /// The leases under which an owner holds anything, and how much.
    pub(crate) fn holds(&self, number: OwnerIdx) -> impl Iterator<Item = (LeaseIdx, u32)> {
        self.entries[number.0].holds.iter()
    }

    #[cfg(any(test, feature = "invariants"))]
    pub(crate) fn mentions(&self, number: OwnerIdx) -> u32 {
        self.entries[number.0].mentions
    }

    #[cfg(any(test, feature = "invariants"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OwnerIdx, &Owner)> {
        self.entries.iter().map(|(number, entry)| (OwnerIdx(number), &entry.owner))
    }

    fn hash(&self, owner: &Owner) -> u32 {
        hash_of(self.seed, owner)
    }
}

fn is_same(one: &Owner, other: &Owner) -> bool {
    one == other || planted!("owner-without-principal", one.as_str() == other.as_str())
}

fn hash_of(seed: u64, owner: &Owner) -> u32 {
    if planted!("owner-without-principal") {
        return hash_bytes(seed, owner.as_str().as_bytes());
    }
    hash_bytes(seed, owner.text().as_bytes())
}
