//! A bounded memory of what has ended: which grant, whose, under which lease, with which token, how and when.
//!
//! It serves answers alone: why a token is no longer good, that a release was carried out before, which token a free lock
//! was granted with last. It is no part of the lasting state: a new epoch begins with an empty one. It is filled by the
//! fold of the transitions, so what is undone is forgotten again, and what is made again is remembered again.
//!
//! The newest [`Limits::endings_max`](crate::Limits) endings are kept in a ring, some 250 bytes each. Three indexes lead to
//! the newest ending of a token, of a lease and of a lock; from there each ending leads to the one before it of the same
//! token, lease and lock. Remembering and forgetting one takes well below a microsecond.

use std::collections::{BTreeMap, VecDeque};

use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Owner, Revision};
use crate::index::{Index, hash_bytes, hash_words};
use crate::mode::Mode;
use crate::refusal::Gone;
use crate::scope::Scope;
use crate::time::Timestamp;
use crate::tokens::Tokens;
use crate::transition::Ending;

/// The most endings of one token, lease or file that a search looks at.
const LOOKED_AT_MAX: usize = 256;

/// The memory of one table.
#[derive(Clone, Debug)]
pub(crate) struct Endings {
    seed: u64,
    len_max: usize,
    kept: VecDeque<Kept>,
    /// The number of the oldest one; the others follow.
    first: u64,
    indexes: [Index; CHAINS.len()],
    /// When endings that were undone had happened, newest first, in case they are made again.
    undone: BTreeMap<UndoneKey, Vec<Timestamp>>,
    undone_len: usize,
}

/// Something that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// The change that ended it.
    pub(crate) revision: Revision,
    pub(crate) namespace: Namespace,
    pub(crate) lease: LeaseId,
    pub(crate) owner: Owner,
    pub(crate) what: What,
    pub(crate) at: Timestamp,
    pub(crate) ending: Ending,
}

/// The kind of thing that has ended.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A key, or bytes of a file.
    Hold {
        scope: Scope,
        mode: Mode,
        tokens: Tokens,
        since: Timestamp,
        /// The highest token of what is remembered of the same key.
        last: FencingToken,
    },
    /// A session, or a lease that was closed as a whole, with so many grants.
    Lease { grants: usize },
}

/// Lease, token, scope, and how it ended.
type UndoneKey = (LeaseId, FencingToken, Option<Scope>, &'static str);

#[derive(Clone, Debug)]
struct Kept {
    ended: Ended,
    /// The numbers of the endings before it of the same token, lease and lock.
    older: [Option<u64>; CHAINS.len()],
}

/// The keys by which an ending is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    Token,
    Lease,
    /// A key, or a file.
    Lock,
}

const CHAINS: [Chain; 3] = [Chain::Token, Chain::Lease, Chain::Lock];

impl Ended {
    /// The token it was shown with; zero for a lease.
    pub(crate) fn fence(&self) -> FencingToken {
        match &self.what {
            What::Hold { tokens, .. } => tokens.highest(),
            What::Lease { .. } => FencingToken::ZERO,
        }
    }

    pub(crate) fn scope(&self) -> Option<&Scope> {
        match &self.what {
            What::Hold { scope, .. } => Some(scope),
            What::Lease { .. } => None,
        }
    }

    fn undone_key(&self) -> UndoneKey {
        (self.lease, self.fence(), self.scope().cloned(), self.ending.as_str())
    }

    fn is_alike(&self, other: &Ended, chain: Chain) -> bool {
        match chain {
            Chain::Token => self.fence() == other.fence(),
            Chain::Lease => self.lease == other.lease && self.namespace == other.namespace,
            Chain::Lock => {
                self.namespace == other.namespace
                    && self.scope().zip(other.scope()).is_some_and(|(a, b)| is_same_lock(a, b))
            }
        }
    }
}

/// The same key, or the same file.
fn is_same_lock(one: &Scope, other: &Scope) -> bool {
    match (one, other) {
        (Scope::Key(one), Scope::Key(other)) => one == other,
        (Scope::Range { inode: one, .. }, Scope::Range { inode: other, .. }) => one == other,
        (Scope::Key(_), Scope::Range { .. }) | (Scope::Range { .. }, Scope::Key(_)) => false,
    }
}

impl Endings {
    pub(crate) fn new(seed: u64, len_max: usize) -> Endings {
        Endings {
            seed,
            len_max,
            kept: VecDeque::new(),
            first: 0,
            indexes: [Index::new(), Index::new(), Index::new()],
            undone: BTreeMap::new(),
            undone_len: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Endings::new(self.seed, self.len_max);
    }

    pub(crate) fn remember(&mut self, mut ended: Ended) {
        if self.len_max == 0 {
            return;
        }
        if self.undone_len > 0
            && let Some(at) = self.undone.get_mut(&ended.undone_key()).and_then(Vec::pop)
        {
            self.undone_len -= 1;
            ended.at = at;
        }
        if self.kept.len() >= self.len_max {
            self.forget_oldest();
        }
        let older = CHAINS.map(|chain| self.newest_alike(&ended, chain));
        if let What::Hold { last, .. } = &mut ended.what
            && let Some(older) = older[Chain::Lock as usize]
            && let What::Hold { last: before, .. } = &self.get(older).what
        {
            *last = (*last).max(*before);
        }
        let number = self.first + self.kept.len() as u64;
        for (chain, older) in CHAINS.into_iter().zip(older) {
            if let Some(hash) = self.hash_of(&ended, chain) {
                let slot = self.slot_of(number);
                if let Some(older) = older {
                    self.indexes[chain as usize].remove(hash, self.slot_of(older));
                }
                self.indexes[chain as usize].insert(hash, slot);
            }
        }
        self.kept.push_back(Kept { ended, older });
    }

    /// Forgets what changes after this revision have ended: they were undone.
    pub(crate) fn roll_back(&mut self, to: Revision) {
        while self.kept.back().is_some_and(|kept| kept.ended.revision > to) {
            let number = self.first + self.kept.len() as u64 - 1;
            let Some(Kept { ended, older }) = self.kept.pop_back() else { return };
            for (chain, older) in CHAINS.into_iter().zip(older) {
                let Some(hash) = self.hash_of(&ended, chain) else { continue };
                self.indexes[chain as usize].remove(hash, self.slot_of(number));
                if let Some(older) = older.filter(|older| *older >= self.first) {
                    self.indexes[chain as usize].insert(hash, self.slot_of(older));
                }
            }
            if self.undone_len < self.len_max {
                self.undone_len += 1;
                self.undone.entry(ended.undone_key()).or_default().push(ended.at);
            }
        }
    }

    /// Forgets endings that were undone and not made again: they never happened.
    pub(crate) fn forget_undone(&mut self) {
        self.undone.clear();
        self.undone_len = 0;
    }

    fn forget_oldest(&mut self) {
        let Some(Kept { ended, .. }) = self.kept.pop_front() else { return };
        let slot = self.slot_of(self.first);
        self.first += 1;
        for chain in CHAINS {
            if let Some(hash) = self.hash_of(&ended, chain)
                && self.indexes[chain as usize].find(hash, |found| found == slot).is_some()
            {
                self.indexes[chain as usize].remove(hash, slot);
            }
        }
    }

    /// The endings of the grants with this token, newest first.
    pub(crate) fn of_token(&self, fence: FencingToken) -> impl Iterator<Item = &Ended> {
        let hash = self.hash_of_token(fence);
        let is_it = move |ended: &Ended| ended.fence() == fence;
        self.chain(Chain::Token, hash, is_it)
    }

    /// The endings of a lease, newest first.
    pub(crate) fn of_lease<'a>(
        &'a self,
        namespace: &'a Namespace,
        lease: LeaseId,
    ) -> impl Iterator<Item = &'a Ended> {
        let hash = self.hash_of_lease(lease);
        let is_it = move |ended: &Ended| ended.lease == lease && ended.namespace == *namespace;
        self.chain(Chain::Lease, hash, is_it)
    }

    /// The highest token of what ended of a lock: of exactly this key, or of bytes that overlap these.
    pub(crate) fn last_fence(&self, namespace: &Namespace, scope: &Scope) -> Option<FencingToken> {
        let hash = self.hash_of_lock(namespace, scope);
        let is_it = |ended: &Ended| {
            let same = ended.scope().is_some_and(|ended| is_same_lock(ended, scope));
            same && ended.namespace == *namespace
        };
        let mut found = self.chain(Chain::Lock, hash, is_it);
        match scope {
            Scope::Key(_) => found.next().and_then(|newest| match &newest.what {
                What::Hold { last, .. } => Some(*last),
                What::Lease { .. } => None,
            }),
            Scope::Range { .. } => {
                let overlaps =
                    |ended: &&Ended| ended.scope().is_some_and(|ended| ended.overlaps(scope));
                found.filter(overlaps).map(Ended::fence).max()
            }
        }
    }

    fn chain<'a>(
        &'a self,
        chain: Chain,
        hash: u32,
        is_it: impl Fn(&Ended) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Ended> + 'a {
        let newest = self.indexes[chain as usize]
            .find(hash, |slot| self.number_in(slot).is_some_and(|number| is_it(self.get(number))));
        let newest = newest.and_then(|slot| self.number_in(slot));
        let older = move |number: &u64| {
            let older = self.kept_at(*number).older[chain as usize];
            older.filter(|older| *older >= self.first)
        };
        let all = std::iter::successors(newest, older).take(LOOKED_AT_MAX);
        all.map(|number| self.get(number))
    }

    fn newest_alike(&self, ended: &Ended, chain: Chain) -> Option<u64> {
        let hash = self.hash_of(ended, chain)?;
        let is_alike = |slot: u32| {
            let number = self.number_in(slot);
            number.is_some_and(|number| self.get(number).is_alike(ended, chain))
        };
        let slot = self.indexes[chain as usize].find(hash, is_alike)?;
        self.number_in(slot)
    }

    fn get(&self, number: u64) -> &Ended {
        &self.kept_at(number).ended
    }

    fn kept_at(&self, number: u64) -> &Kept {
        &self.kept[usize::try_from(number - self.first).expect("the ring is short")]
    }

    /// The place of an ending in the ring.
    fn slot_of(&self, number: u64) -> u32 {
        u32::try_from(number % self.len_max as u64).expect("the ring is short")
    }

    /// The ending in a place of the ring.
    fn number_in(&self, slot: u32) -> Option<u64> {
        let len_max = self.len_max as u64;
        let ahead = (u64::from(slot) + len_max - self.first % len_max) % len_max;
        (ahead < self.kept.len() as u64).then(|| self.first + ahead)
    }

    /// Nothing for what an ending has not: a lease has no token and no lock.
    fn hash_of(&self, ended: &Ended, chain: Chain) -> Option<u32> {
        match (chain, &ended.what) {
            (Chain::Lease, _) => Some(self.hash_of_lease(ended.lease)),
            (Chain::Token, What::Hold { tokens, .. }) => Some(self.hash_of_token(tokens.highest())),
            (Chain::Lock, What::Hold { scope, .. }) => {
                Some(self.hash_of_lock(&ended.namespace, scope))
            }
            (Chain::Token | Chain::Lock, What::Lease { .. }) => None,
        }
    }

    fn hash_of_token(&self, fence: FencingToken) -> u32 {
        hash_words(self.seed, [fence.get(), 0])
    }

    fn hash_of_lease(&self, lease: LeaseId) -> u32 {
        hash_words(self.seed, lease.words())
    }

    fn hash_of_lock(&self, namespace: &Namespace, scope: &Scope) -> u32 {
        let lock = match scope {
            Scope::Key(key) => hash_bytes(self.seed, key.text().as_bytes()),
            Scope::Range { inode, .. } => hash_words(self.seed, [*inode, 1]),
        };
        lock ^ hash_bytes(self.seed, namespace.text().as_bytes())
    }
}

impl Gone {
    /// The reason that an ending gives to a caller who shows the token or the lease.
    pub fn by(ending: &Ending) -> Gone {
        match ending {
            Ending::Released
            | Ending::Closed
            | Ending::Disconnected
            | Ending::Revoked(_)
            | Ending::FileRemoved
            | Ending::Withdrawn => Gone::Released,
            Ending::Expired | Ending::GraceExpired | Ending::WindowOver => Gone::Expired,
            Ending::Replaced | Ending::Reclaimed => Gone::Superseded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(revision: u64, name: &str, token: u64, lease: u128) -> Ended {
        let fence = FencingToken::new(token).unwrap();
        Ended {
            revision: Revision(revision),
            namespace: Namespace::default(),
            lease: LeaseId::from_u128(lease),
            owner: Owner::new("a").unwrap(),
            what: What::Hold {
                scope: Scope::parse(name).unwrap(),
                mode: Mode::Exclusive,
                tokens: Tokens::One(fence),
                since: Timestamp::ZERO,
                last: fence,
            },
            at: Timestamp::ZERO,
            ending: Ending::Released,
        }
    }

    fn last(endings: &Endings, name: &str) -> Option<u64> {
        let found = endings.last_fence(&Namespace::default(), &Scope::parse(name).unwrap());
        found.map(FencingToken::get)
    }

    fn tokens(endings: &Endings, lease: u128) -> Vec<u64> {
        let namespace = Namespace::default();
        endings
            .of_lease(&namespace, LeaseId::from_u128(lease))
            .map(|ended| ended.fence().get())
            .collect()
    }

    #[test]
    fn an_ending_takes_few_bytes() {
        assert!(size_of::<Kept>() <= 256, "{} bytes", size_of::<Kept>());
    }

    #[test]
    fn the_newest_are_remembered_by_token_lease_and_lock() {
        let mut endings = Endings::new(7, 4);
        for number in 1..=20 {
            let name = if number % 2 == 0 { "even" } else { "odd" };
            endings.remember(ended(number, name, number, u128::from(number % 3)));
            assert!(endings.kept.len() <= 4);
        }
        let known =
            (1..=20).filter(|&t| endings.of_token(FencingToken::new(t).unwrap()).next().is_some());
        assert!(known.eq(17..=20));
        assert_eq!((last(&endings, "even"), last(&endings, "odd")), (Some(20), Some(19)));
        assert_eq!(tokens(&endings, 0), [18]);
        assert_eq!(tokens(&endings, 2), [20, 17]);
    }

    #[test]
    fn what_is_undone_is_forgotten_and_leads_to_what_was_before() {
        let mut endings = Endings::new(7, 8);
        for number in 1..=30 {
            endings.remember(ended(number, "job", number, 1));
        }
        endings.roll_back(Revision(27));
        assert_eq!(tokens(&endings, 1), [27, 26, 25, 24, 23]);
        assert_eq!(last(&endings, "job"), Some(27));
        for number in 28..=60 {
            endings.remember(ended(number, "job", number, 1));
        }
        assert_eq!(tokens(&endings, 1).len(), 8);
        endings.roll_back(Revision(0));
        assert_eq!(tokens(&endings, 1), []);
        assert_eq!(last(&endings, "job"), None);
    }

    #[test]
    fn the_last_token_of_a_lock_is_the_highest_whatever_ended_last() {
        let mut endings = Endings::new(7, 8);
        endings.remember(ended(1, "pool", 9, 1));
        endings.remember(ended(2, "pool", 5, 2));
        assert_eq!(last(&endings, "pool"), Some(9));
    }

    #[test]
    fn what_is_made_again_keeps_its_moment() {
        let mut endings = Endings::new(7, 8);
        endings.remember(ended(1, "job", 1, 1));
        endings.roll_back(Revision(0));
        let later = Timestamp::from_millis(5);
        endings.remember(Ended { at: later, ..ended(3, "job", 1, 1) });
        endings.remember(Ended { at: later, ..ended(4, "job", 2, 1) });
        let namespace = Namespace::default();
        let moments = endings.of_lease(&namespace, LeaseId::from_u128(1)).map(|ended| ended.at);
        assert!(moments.eq([later, Timestamp::ZERO]));
    }
}
