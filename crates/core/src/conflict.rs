//! The one conflict relation: what stands in the way of a claim.
//!
//! A claim is blocked by every conflicting holder, and by every conflicting waiter that came earlier: so nobody is
//! overtaken, and a stream of readers cannot starve a writer. Three exceptions keep that from locking up:
//!
//! * Bytes of a file never conflict within one holder, an owner under one lease; and when it already holds all the bytes
//!   it asks for (an upgrade), those who wait for it do not block it. The same owner name under another lease is another
//!   holder.
//! * What an owner may take back in its reclaim window does not block that owner.
//! * An owner that arrives inside its reclaim window does not queue behind those who wait for the window to end.

use crate::command::Claim;
use crate::fencing_token::FencingToken;
use crate::id::Ticket;
use crate::inode::{Inode, Party, Piece, is_covered};
use crate::lease::LeaseIdx;
use crate::mode::Mode;
use crate::namespace::{Holders, NamespaceState};
use crate::owners::OwnerIdx;
use crate::queue::{InQueue, Queue};
use crate::range::ByteRange;
use crate::scope::{Key, Scope, ScopeKind};

/// The requester, and its place in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    /// `None` when nothing in the namespace mentions the owner yet.
    pub(crate) owner: Option<OwnerIdx>,
    /// The lease that the grant is to stand under, unless it opens its own.
    pub(crate) lease: Option<LeaseIdx>,
    pub(crate) ticket: Ticket,
    /// The request has just come in; it does not stand in a queue yet.
    pub(crate) arriving: bool,
}

/// Something in the way of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    Grant { key: Key, fence: FencingToken, lease: LeaseIdx, owner: OwnerIdx },
    Piece { inode: u64, range: ByteRange, lease: LeaseIdx, owner: OwnerIdx },
    Waiter { ticket: Ticket, owner: OwnerIdx },
}

impl Asker {
    /// As whom it holds bytes already.
    pub(crate) fn party(&self) -> Option<Party> {
        Some(Party { owner: self.owner?, lease: self.lease? })
    }

    /// Whether a waiter for bytes is the same holder to be.
    pub(crate) fn is_own(&self, place: InQueue) -> bool {
        self.lease.is_some() && place.lease == self.lease && Some(place.owner) == self.owner
    }
}

impl Blocker {
    pub(crate) fn owner(&self) -> OwnerIdx {
        match self {
            Blocker::Grant { owner, .. }
            | Blocker::Piece { owner, .. }
            | Blocker::Waiter { owner, .. } => *owner,
        }
    }

    /// The scope that a holder holds; `None` for a waiter.
    pub(crate) fn scope(&self) -> Option<Scope> {
        match self {
            Blocker::Grant { key, .. } => Some(Scope::Key(key.clone())),
            Blocker::Piece { inode, range, .. } => Some(Scope::range(*inode, *range)),
            Blocker::Waiter { .. } => None,
        }
    }

    pub(crate) fn lease(&self) -> Option<LeaseIdx> {
        match self {
            Blocker::Grant { lease, .. } | Blocker::Piece { lease, .. } => Some(*lease),
            Blocker::Waiter { .. } => None,
        }
    }
}

/// The holders and waiters that block one claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blockers {
    /// Each of these keeps the claim out.
    pub(crate) each: Vec<Blocker>,
    /// These use up the permits of the scope; so many of them must go.
    pub(crate) permits: Vec<Blocker>,
    #[cfg(test)]
    pub(crate) permits_short: usize,
}

impl Blockers {
    pub(crate) fn len(&self) -> usize {
        self.each.len() + self.permits.len()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Blocker) -> bool) {
        self.each.retain(&keep);
        self.permits.retain(&keep);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.each.is_empty() && self.permits.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Blocker> {
        self.each.iter().chain(&self.permits)
    }
}

/// The number of blockers that are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    /// Whether there are any.
    One,
    Some(usize),
    #[cfg(test)]
    All,
}

impl Want {
    fn max(self) -> usize {
        match self {
            Want::One => 1,
            Want::Some(max) => max,
            #[cfg(test)]
            Want::All => usize::MAX,
        }
    }

    fn satisfied_by(self, found: &Blockers) -> bool {
        found.len() >= self.max()
    }
}

impl NamespaceState {
    pub(crate) fn is_blocked(&self, claim: &Claim, asker: Asker) -> bool {
        !self.blockers(claim, asker, Want::One).is_empty()
    }

    /// The blockers of a claim; at least as many as wanted, if there are so many.
    pub(crate) fn blockers(&self, claim: &Claim, asker: Asker, want: Want) -> Blockers {
        let mut found = Blockers::default();
        match &claim.scope {
            Scope::Key(key) => self.key_blockers(key, claim.mode, asker, want, &mut found),
            Scope::Range { inode, range } => {
                if let Some(at) = self.inodes.get(inode) {
                    self.range_blockers(*inode, at, *range, claim.mode, asker, want, &mut found);
                }
            }
        }
        found
    }

    fn key_blockers(&self, key: &Key, mode: Mode, asker: Asker, want: Want, found: &mut Blockers) {
        if let Some(limit) = mode.permits() {
            let limit = limit.get() as usize + usize::from(planted!("one-permit-too-many"));
            self.permit_blockers(key, limit, asker, want, found);
        }
        for (other, holders) in self.holders_overlapping(key, mode) {
            if want.satisfied_by(found) {
                return;
            }
            let counted =
                other == key && mode.permits().is_some() && holders.mode().permits().is_some();
            if !counted && mode.conflicts_with(holders.mode()) {
                self.push_holders(other, holders, asker, want, &mut found.each);
            }
        }
        if self.queues.is_empty() || (asker.arriving && self.may_take_back(key, asker.owner)) {
            return;
        }
        for (other, queue) in self.queues_overlapping(key) {
            let counted = other == key && mode.permits().is_some();
            if !counted {
                for place in queue.ahead(asker.ticket, mode) {
                    if want.satisfied_by(found) {
                        return;
                    }
                    found.each.push(waiting(place));
                }
            }
        }
    }

    /// Permits of one scope: holders and earlier waiters may together be fewer than the limit.
    fn permit_blockers(
        &self,
        key: &Key,
        limit: usize,
        asker: Asker,
        want: Want,
        found: &mut Blockers,
    ) {
        let holders = self.held.get(key).filter(|held| held.mode().permits().is_some());
        let exempt = asker.arriving && self.may_take_back(key, asker.owner);
        let queue = self.queues.get(key).filter(|_| !exempt);
        let most = holders.map_or(0, Holders::len) + queue.map_or(0, Queue::len);
        if most < limit {
            return;
        }
        let held = holders.map_or(0, |holders| self.users_among(key, holders, asker));
        let ahead =
            || queue.into_iter().flat_map(|queue| queue.ahead(asker.ticket, Mode::Exclusive));
        let used = held + ahead().count();
        if used >= limit {
            #[cfg(test)]
            let () = found.permits_short = used + 1 - limit;
            if let Some(holders) = holders {
                self.push_holders(key, holders, asker, want, &mut found.permits);
            }
            let left = want.max().saturating_sub(found.permits.len());
            found.permits.extend(ahead().take(left).map(waiting));
        }
    }

    /// The number of holders of permits besides the asker's own windows.
    fn users_among(&self, key: &Key, holders: &Holders, asker: Asker) -> usize {
        let own = asker.owner.map_or(0, |owner| self.windows_of(key, owner).len());
        holders.len() - own
    }

    fn push_holders(
        &self,
        key: &Key,
        holders: &Holders,
        asker: Asker,
        want: Want,
        into: &mut Vec<Blocker>,
    ) {
        for (fence, lease) in holders.iter() {
            if into.len() >= want.max() {
                return;
            }
            if let Some((_, owner)) = self.holder_in_the_way(key, (fence, lease), asker) {
                into.push(Blocker::Grant { key: key.clone(), fence, lease, owner });
            }
        }
    }

    /// Held keys that overlap `key`, itself first. For a shared request below a subtree, only those that are not shared.
    pub(crate) fn holders_overlapping<'a>(
        &'a self,
        key: &'a Key,
        mode: Mode,
    ) -> impl Iterator<Item = (&'a Key, &'a Holders)> {
        let itself = self.held.get_key_value(key);
        let others = is_path(key).then(|| self.other_holders_overlapping(key, mode));
        itself.into_iter().chain(others.into_iter().flatten())
    }

    fn other_holders_overlapping<'a>(
        &'a self,
        key: &'a Key,
        mode: Mode,
    ) -> Box<dyn Iterator<Item = (&'a Key, &'a Holders)> + 'a> {
        let subtrees = covering(key, !self.subtrees_held.is_empty()).into_iter();
        let subtrees = subtrees.filter(|text| self.subtrees_held.contains(&text[..]));
        let above = subtrees.filter_map(|text| self.held.get_key_value(&text[..]));
        let start = starting_path(key).and_then(|text| self.held.get_key_value(&text[..]));
        let below: Box<dyn Iterator<Item = (&Key, &Holders)>> = match key.below() {
            None => Box::new(std::iter::empty()),
            Some((first, end)) if mode == Mode::Shared => Box::new(
                run(&self.unshared_paths, &first, &end)
                    .filter_map(|other| self.held.get_key_value(other)),
            ),
            Some((first, end)) => {
                use std::ops::Bound::{Excluded, Included};
                let bounds = (Included(&first[..]), Excluded(&end[..]));
                Box::new(self.held.range::<[u8], _>(bounds))
            }
        };
        let below = below.filter(move |(other, _)| *other != key);
        Box::new(start.into_iter().chain(above).chain(below))
    }

    /// Queues of keys that overlap `key`, its own first.
    pub(crate) fn queues_overlapping<'a>(
        &'a self,
        key: &'a Key,
    ) -> impl Iterator<Item = (&'a Key, &'a Queue)> {
        let own = self.queues.get_key_value(key);
        let others = is_path(key).then(|| self.other_queues_overlapping(key));
        own.into_iter().chain(others.into_iter().flatten())
    }

    /// The queues of all that overlaps a scope.
    pub(crate) fn queues_for<'a>(
        &'a self,
        scope: &'a Scope,
    ) -> Box<dyn Iterator<Item = &'a Queue> + 'a> {
        match scope {
            Scope::Key(key) => Box::new(self.queues_overlapping(key).map(|(_, queue)| queue)),
            Scope::Range { inode, range } => {
                let file = self.inodes.get(inode).into_iter();
                let queues = file.flat_map(|file| file.queues_overlapping(*range));
                Box::new(queues.map(|(_, queue)| queue))
            }
        }
    }

    fn other_queues_overlapping<'a>(
        &'a self,
        key: &'a Key,
    ) -> Box<dyn Iterator<Item = (&'a Key, &'a Queue)> + 'a> {
        let covering = covering(key, self.subtrees_queued > 0);
        let above = covering.into_iter().filter_map(|text| self.queues.get_key_value(&text[..]));
        let start = starting_path(key).and_then(|text| self.queues.get_key_value(&text[..]));
        let below: Box<dyn Iterator<Item = (&Key, &Queue)>> = match key.below() {
            None => Box::new(std::iter::empty()),
            Some((first, end)) => {
                use std::ops::Bound::{Excluded, Included};
                let bounds = (Included(&first[..]), Excluded(&end[..]));
                Box::new(self.queues.range::<[u8], _>(bounds))
            }
        };
        let below = below.filter(move |(other, _)| *other != key);
        Box::new(start.into_iter().chain(above).chain(below))
    }

    #[expect(clippy::too_many_arguments, reason = "one claim taken apart; it is called once")]
    fn range_blockers(
        &self,
        inode: u64,
        at: &Inode,
        range: ByteRange,
        mode: Mode,
        asker: Asker,
        want: Want,
        found: &mut Blockers,
    ) {
        for (range, party) in at.in_conflict(range, mode) {
            if want.satisfied_by(found) {
                return;
            }
            if !self.is_own(party, asker) {
                let Party { owner, lease } = party;
                found.each.push(Blocker::Piece { inode, range, lease, owner });
            }
        }
        if is_covered(range, self.own_bytes(at, range, asker)) {
            return;
        }
        for (_, queue) in at.queues_overlapping(range) {
            for place in queue.ahead(asker.ticket, mode) {
                if !asker.is_own(place) {
                    if want.satisfied_by(found) {
                        return;
                    }
                    found.each.push(waiting(place));
                }
            }
        }
    }

    /// Whether bytes are the asker's: held under the same lease, or open to its owner in a reclaim window.
    fn is_own(&self, party: Party, asker: Asker) -> bool {
        Some(party.owner) == asker.owner
            && (Some(party.lease) == asker.lease
                || self.lease(party.lease).is_lapsed()
                || planted!("bytes-go-by-owner-name"))
    }

    /// The parts of `range` that are the asker's.
    pub(crate) fn own_bytes(&self, at: &Inode, range: ByteRange, asker: Asker) -> Vec<ByteRange> {
        let own = asker.party().map(|party| at.own_overlapping(party, range));
        let mut own = own.unwrap_or_default();
        if self.lapsed_len > 0
            && let Some(owner) = asker.owner
        {
            own.extend(self.lapsed_bytes(at, range, owner).map(|(_, piece)| piece.range));
        }
        own
    }

    /// The pieces that the owner may take back in a reclaim window.
    pub(crate) fn lapsed_bytes<'a>(
        &'a self,
        at: &'a Inode,
        range: ByteRange,
        owner: OwnerIdx,
    ) -> impl Iterator<Item = (Party, &'a Piece)> {
        let all = (self.lapsed_len > 0).then(|| at.in_conflict(range, Mode::Exclusive));
        let own = all.into_iter().flatten().filter(move |(_, party)| party.owner == owner);
        let lapsed = own.filter(|(_, party)| self.lease(party.lease).is_lapsed());
        lapsed.map(|(found, party)| (party, at.at(party, found)))
    }

    /// The holders among what [`NamespaceState::blockers`] finds, one by one and without their scopes; `None` for what was
    /// looked at and is not in the way. Permits of the same scope are left out: they are counted.
    pub(crate) fn holders_in_the_way<'a>(
        &'a self,
        claim: &'a Claim,
        asker: Asker,
    ) -> Box<dyn Iterator<Item = Option<(LeaseIdx, OwnerIdx)>> + 'a> {
        let mode = claim.mode;
        match &claim.scope {
            Scope::Key(key) => {
                let conflicting =
                    self.holders_overlapping(key, mode).filter(move |(other, held)| {
                        let counted = *other == key && mode.permits().is_some();
                        let counted = counted && held.mode().permits().is_some();
                        !counted && mode.conflicts_with(held.mode())
                    });
                Box::new(conflicting.flat_map(move |(other, holders)| {
                    holders.iter().map(move |held| self.holder_in_the_way(other, held, asker))
                }))
            }
            Scope::Range { inode, range } => {
                let at = self.inodes.get(inode).into_iter();
                let pieces = at.flat_map(move |at| at.in_conflict(*range, mode));
                Box::new(pieces.map(move |(_, party)| {
                    let blocks = !self.is_own(party, asker);
                    blocks.then_some((party.lease, party.owner))
                }))
            }
        }
    }

    /// Those who hold permits of the claim's own scope, in the same way.
    pub(crate) fn permits_held<'a>(
        &'a self,
        claim: &'a Claim,
        asker: Asker,
    ) -> impl Iterator<Item = Option<(LeaseIdx, OwnerIdx)>> + 'a {
        let key = match &claim.scope {
            Scope::Key(key) if claim.mode.permits().is_some() => Some(key),
            Scope::Key(_) | Scope::Range { .. } => None,
        };
        let held = key.and_then(|key| self.held.get_key_value(key));
        let held = held.filter(|(_, held)| held.mode().permits().is_some()).into_iter();
        held.flat_map(move |(key, holders)| {
            holders.iter().map(move |held| self.holder_in_the_way(key, held, asker))
        })
    }

    fn holder_in_the_way(
        &self,
        key: &Key,
        (fence, lease): (FencingToken, LeaseIdx),
        asker: Asker,
    ) -> Option<(LeaseIdx, OwnerIdx)> {
        let held = self.lease(lease);
        let owner = held.held.get(fence, key).map_or(held.owner, |grant| grant.owner);
        (!(held.is_lapsed() && asker.owner == Some(owner))).then_some((lease, owner))
    }

    /// Whether the owner has a reclaim window on exactly this key.
    fn may_take_back(&self, key: &Key, owner: Option<OwnerIdx>) -> bool {
        let Some(owner) = owner else { return false };
        !self.windows_of(key, owner).is_empty()
    }

    /// The owner's grants on this key that have lapsed into their reclaim window.
    pub(crate) fn windows_of(&self, key: &Key, owner: OwnerIdx) -> Vec<(LeaseIdx, FencingToken)> {
        if self.lapsed_len == 0 {
            return Vec::new();
        }
        const MANY: usize = 64;
        let Some(holders) = self.held.get(key) else { return Vec::new() };
        if holders.len() > MANY {
            return self.windows_among_leases(key, owner);
        }
        holders
            .iter()
            .filter(|&(fence, lease)| {
                let held = self.lease(lease);
                held.is_lapsed() && held.held.get(fence, key).is_some_and(|g| g.owner == owner)
            })
            .map(|(fence, lease)| (lease, fence))
            .collect()
    }

    /// The same, found by way of the owner.
    fn windows_among_leases(&self, key: &Key, owner: OwnerIdx) -> Vec<(LeaseIdx, FencingToken)> {
        let mut found = Vec::new();
        for (lease, _) in self.owners.holds(owner) {
            let held = self.lease(lease);
            if held.is_lapsed() {
                let own = held.held.grants().filter(|held| held.key == *key && held.owner == owner);
                found.extend(own.map(|grant| (lease, grant.fence)));
            }
        }
        found.sort_unstable_by_key(|&(_, fence)| fence);
        found
    }

    /// Grants in the way of a claim, and on its very key, that no longer count: those of leases that end in turns.
    pub(crate) fn ended_in_the_way(
        &self,
        claim: &Claim,
        asker: Asker,
        len_max: usize,
    ) -> Vec<Blocker> {
        let is_ending = |lease: LeaseIdx| self.lease(lease).is_ending();
        let mut found = self.blockers(claim, asker, Want::Some(len_max));
        found.retain(|blocker| blocker.lease().is_some_and(is_ending));
        let mut ended: Vec<Blocker> = found.each.into_iter().chain(found.permits).collect();
        if ended.is_empty()
            && let Scope::Key(key) = &claim.scope
            && let Some(holders) = self.held.get(key)
        {
            let own = holders.iter().filter(|&(_, lease)| is_ending(lease)).take(len_max);
            ended.extend(own.map(|(fence, lease)| {
                let owner = self.lease(lease).owner;
                Blocker::Grant { key: key.clone(), fence, lease, owner }
            }));
        }
        ended.truncate(len_max);
        ended
    }

    /// The mode of a key's holders or waiters, if there are any: the use of its permits by others.
    pub(crate) fn mode_in_use(&self, key: &Key) -> Option<Mode> {
        let held = self.held.get(key).map(|holders| holders.mode());
        held.or_else(|| self.queues.get(key).and_then(Queue::any_mode))
    }
}

fn waiting(place: InQueue) -> Blocker {
    Blocker::Waiter { ticket: place.ticket, owner: place.owner }
}

/// Whether other keys can overlap this one at all: a name covers itself and nothing else.
fn is_path(key: &Key) -> bool {
    key.kind() != ScopeKind::Named
}

/// The path that a subtree starts at. The root's own lies in the run below it already.
fn starting_path(key: &Key) -> Option<Vec<u8>> {
    let (first, _) = key.below()?;
    key.subtree_path().filter(|path| *path < first)
}

/// The subtrees besides `key` itself that cover it.
fn covering(key: &Key, any_subtrees: bool) -> Vec<Vec<u8>> {
    let mut texts = if any_subtrees { key.covering_subtrees() } else { Vec::new() };
    texts.retain(|text| &text[..] != key.text().as_bytes());
    if planted!("subtree-conflict-missed") {
        texts.clear();
    }
    texts
}

fn run<'a>(
    keys: &'a std::collections::BTreeSet<Key>,
    first: &[u8],
    end: &[u8],
) -> impl Iterator<Item = &'a Key> + use<'a> {
    use std::ops::Bound::{Excluded, Included};
    keys.range::<[u8], _>((Included(first), Excluded(end)))
}
