//! Taking a snapshot bit by bit while the table goes on changing.
//!
//! The snapshot is of the moment it was begun. Leases are written out in slab order, a few at a time; a lease that is
//! about to change before its turn is written out first, as it still is; one that was made later is skipped. So the
//! memory needed is a bit per lease and the entries not fetched yet, never a second table.

use std::collections::{BTreeMap, VecDeque};

use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace};
use crate::inode::{Party, Piece};
use crate::lease::{
    ByteRequest, Extra, Grant, Held, Lapse, Lease, LeaseIdx, LeaseState, Session, SetRanges,
    metadata_of, request_of,
};
use crate::namespace::{Known, NamespaceIdx, NamespaceState, UnderWay};
use crate::owners::OwnerIdx;
use crate::snapshot::{
    ByteRequestEntry, Entry, GrantEntry, LeaseEntry, PieceEntry, SessionEntry, SetEntry,
};
use crate::table::{LockTable, Unfit};
use crate::tokens::Tokens;

#[derive(Clone, Debug)]
pub(crate) struct Snapshotting {
    ready: VecDeque<Entry>,
    spaces: Vec<NamespaceIdx>,
    /// The next lease of the first of `spaces`.
    next: u32,
    /// Leases that need not be written out when their turn comes.
    done: BTreeMap<NamespaceIdx, Vec<u64>>,
}

impl Snapshotting {
    /// The lease is new: it is no part of the snapshot.
    pub(crate) fn skip(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        self.mark(space, lease);
    }

    /// Whether it was marked before.
    fn mark(&mut self, space: NamespaceIdx, lease: LeaseIdx) -> bool {
        let bits = self.done.entry(space).or_default();
        let (word, bit) = (lease.0 as usize / 64, 1 << (lease.0 % 64));
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        let before = bits[word] & bit != 0;
        bits[word] |= bit;
        before
    }
}

impl LockTable {
    /// Every lasting thing in the table, at once.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let leases = self
            .spaces_by_name()
            .flat_map(|(_, space)| space.leases.iter().map(|(_, lease)| lease_in(space, lease)));
        self.small_entries().into_iter().chain(leases)
    }

    /// One lease, with everything that stands under it.
    pub(crate) fn lease_entry(&self, namespace: &Namespace, lease: LeaseId) -> Option<Entry> {
        let space = self.space_named(namespace)?;
        Some(lease_in(space, space.lease(space.lease_no(lease)?)))
    }

    /// A table with what the entries say. Deadlines start anew when an epoch begins.
    pub fn restore(
        limits: crate::Limits,
        seed: u64,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<LockTable, Unfit> {
        let mut table = LockTable::new(limits, seed);
        for entry in entries {
            table.add_entry(entry)?;
        }
        Ok(table)
    }

    /// Begins a snapshot of the table as it is now; one that was under way is given up.
    pub fn begin_snapshot(&mut self) {
        self.snapshotting = Some(Snapshotting {
            ready: self.small_entries().into(),
            spaces: self.spaces_by_name().map(|(space, _)| space).collect(),
            next: 0,
            done: BTreeMap::new(),
        });
    }

    /// The next entries of the snapshot under way; none when it is complete.
    pub fn snapshot_next(&mut self, len_max: usize) -> Vec<Entry> {
        let Some(mut under_way) = self.snapshotting.take() else {
            return Vec::new();
        };
        while under_way.ready.len() < len_max
            && let Some(&space) = under_way.spaces.first()
        {
            let Some(at) = self.spaces.get(space.0) else {
                under_way.spaces.remove(0);
                continue;
            };
            if under_way.next >= at.leases.end() {
                under_way.spaces.remove(0);
                under_way.next = 0;
                continue;
            }
            let lease = LeaseIdx(under_way.next);
            under_way.next += 1;
            if let Some(held) = at.leases.get(lease.0)
                && !under_way.mark(space, lease)
            {
                under_way.ready.push_back(lease_in(at, held));
            }
        }
        let len = under_way.ready.len().min(len_max);
        let entries = under_way.ready.drain(..len).collect();
        if !(under_way.spaces.is_empty() && under_way.ready.is_empty()) {
            self.snapshotting = Some(under_way);
        }
        entries
    }

    pub fn is_snapshotting(&self) -> bool {
        self.snapshotting.is_some()
    }

    /// Writes a lease out as it still is, if a snapshot under way has not come to it yet.
    pub(crate) fn before_change(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        let Some(under_way) = &mut self.snapshotting else {
            return;
        };
        let Some(place) = under_way.spaces.iter().position(|&s| s == space) else {
            return;
        };
        let passed = place == 0 && lease.0 < under_way.next;
        let passed = passed || planted!("snapshot-of-mixed-moments");
        if !passed && !under_way.mark(space, lease) {
            let at = &self.spaces[space.0];
            under_way.ready.push_back(lease_in(at, at.lease(lease)));
        }
    }

    fn small_entries(&self) -> Vec<Entry> {
        let counters =
            Entry::Counters { epoch: self.epoch, fence: self.fence, revision: self.revision };
        let registers = self.registers.iter().map(|(namespace, name, register)| Entry::Register {
            namespace: namespace.clone(),
            register: name.clone(),
            principal: register.principal.clone(),
            fence: register.high_water,
        });
        std::iter::once(counters).chain(registers).collect()
    }

    /// Adds one entry of a snapshot to a table that is being restored.
    pub fn add_entry(&mut self, entry: Entry) -> Result<(), Unfit> {
        match entry {
            Entry::Counters { epoch, fence, revision } => {
                (self.epoch, self.fence, self.revision) = (epoch, fence, revision);
                if planted!("token-reused-after-recovery") {
                    self.fence = FencingToken::ZERO;
                }
            }
            Entry::Register { namespace, register, principal, fence } => {
                self.registers.set(&namespace, register, &principal, fence);
            }
            Entry::Lease(entry) => drop(self.add_lease_entry(*entry)?),
        }
        Ok(())
    }

    pub(crate) fn add_lease_entry(&mut self, entry: LeaseEntry) -> Result<LeaseIdx, Unfit> {
        let space = self.space_or_insert(&entry.namespace);
        let session = entry.session.as_ref().map(|session| {
            Box::new(Session {
                terms: session.terms.clone(),
                opened_at: session.opened_at,
                attached: false,
                kept: false,
            })
        });
        // The session of a lease that is cleared in turns is gone already.
        let (session, gone) = match entry.ending {
            None => (session, None),
            Some(_) => (None, session),
        };
        let lease = self.add_lease(space, entry.lease, &entry.owner, entry.ttl, session)?;
        if let Some(ending) = &entry.ending {
            let at = &mut self.spaces[space.0];
            let held = at.lease_mut(lease);
            (held.state, held.session) = (LeaseState::Ending, gone);
            let timer = held.timer;
            let grants = entry.grants.len() + entry.pieces.len();
            at.ending.insert(lease, UnderWay { ending: ending.clone(), grants });
            self.ending.insert((space, lease));
            self.lease_timers.remove(&(timer, space, lease));
        }
        if let Some(ending) = &entry.lapsed {
            let at = self.space_mut(space);
            at.lease_mut(lease).state = LeaseState::Lapsed(Lapse::of(ending));
            at.lapsed_len += 1;
        }
        self.fill(space, lease, entry)?;
        Ok(lease)
    }

    /// Puts everything under a lease that an entry has under it.
    pub(crate) fn fill(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        entry: LeaseEntry,
    ) -> Result<(), Unfit> {
        for grant in entry.grants {
            self.restore_grant(space, lease, grant);
        }
        let mut owners = Vec::new();
        for request in entry.requests {
            owners.push(self.restore_request(space, lease, request));
        }
        for piece in entry.pieces {
            self.restore_piece(space, lease, piece)?;
        }
        owners.into_iter().for_each(|owner| self.forget_owner(space, owner));
        let at = self.space_mut(space);
        for set in entry.sets {
            let ranges = SetRanges { owner: set.owner, ranges: set.ranges };
            at.lease_mut(lease).held.many().sets.insert(set.fence, ranges);
        }
        Ok(())
    }
}

impl LockTable {
    fn restore_grant(&mut self, space: NamespaceIdx, lease: LeaseIdx, grant: GrantEntry) {
        let owner = self.mention(space, &grant.owner);
        let at = self.space_mut(space);
        at.add_holder(&grant.key, grant.mode, grant.fence, lease);
        // The id of what is over may name something else by now.
        if let Some(request) = grant.request.as_ref().filter(|_| !at.lease(lease).is_over()) {
            let known = Known::Granted { lease, fence: grant.fence, digest: request.digest };
            at.know_request(owner, request.id.clone(), known);
        }
        let grant = Grant {
            key: grant.key,
            fence: grant.fence,
            granted_at: grant.granted_at,
            mode: grant.mode,
            owner,
            reclaim_window: grant.reclaim_window,
            extra: Extra::boxed(grant.request, grant.metadata),
        };
        let hold = grant.hold();
        at.lease_mut(lease).held.insert(grant);
        self.count_hold(space, owner, lease, hold);
        self.forget_owner(space, owner);
    }

    /// Comes before the pieces that remember its token: the owner stays mentioned until they are there.
    fn restore_request(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        entry: ByteRequestEntry,
    ) -> OwnerIdx {
        let owner = self.mention(space, &entry.owner);
        let at = self.space_mut(space);
        let ByteRequestEntry { fence, request, granted_at, ranges, .. } = entry;
        if !at.lease(lease).is_over() {
            let known = Known::Granted { lease, fence, digest: request.digest };
            at.know_request(owner, request.id.clone(), known);
        }
        let request = ByteRequest { owner, request, granted_at, ranges, pieces: 0 };
        at.lease_mut(lease).held.many().requests.insert(fence, request);
        owner
    }

    fn restore_piece(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        entry: PieceEntry,
    ) -> Result<(), Unfit> {
        let unfit = Unfit { revision: self.revision, what: "a piece without a token" };
        let piece = Piece {
            range: entry.range,
            mode: entry.mode,
            lease,
            tokens: Tokens::of(entry.tokens).ok_or(unfit)?,
            granted_at: entry.granted_at,
            reclaim_window: entry.reclaim_window,
            metadata: entry.metadata,
        };
        let owner = self.mention(space, &entry.owner);
        self.put_piece(space, owner, entry.inode, piece);
        self.forget_owner(space, owner);
        Ok(())
    }
}

fn lease_in(space: &NamespaceState, lease: &Lease) -> Entry {
    Entry::Lease(Box::new(entry_of(space, lease)))
}

/// A lease and everything that stands under it.
pub(crate) fn entry_of(space: &NamespaceState, lease: &Lease) -> LeaseEntry {
    let mut entry = header_of(space, lease);
    entry.grants = lease.held.grants().map(|grant| grant_entry(space, grant)).collect();
    if let Held::Many(many) = &lease.held {
        let number = space.lease_no(lease.id).expect("a lease is found by its id");
        let pieces = many.pieces.iter().map(|&(inode, owner, start)| {
            let party = Party { owner, lease: number };
            piece_entry(space, inode, owner, &space.inodes[&inode].pieces[&(party, start)])
        });
        entry.pieces = pieces.collect();
        entry.sets = many.sets.iter().map(|(&fence, set)| set_entry(fence, set)).collect();
        let requests = many.requests.iter();
        entry.requests = requests.map(|(&fence, made)| request_entry(space, fence, made)).collect();
    }
    entry
}

/// A lease without what stands under it.
pub(crate) fn header_of(space: &NamespaceState, lease: &Lease) -> LeaseEntry {
    LeaseEntry {
        namespace: space.name.clone(),
        lease: lease.id,
        owner: space.owners.name(lease.owner).clone(),
        ttl: lease.ttl,
        session: lease.session.as_ref().map(|session| SessionEntry {
            opened_at: session.opened_at,
            terms: session.terms.clone(),
        }),
        lapsed: match lease.state {
            LeaseState::Live | LeaseState::Recovering | LeaseState::Ending => None,
            LeaseState::Lapsed(lapse) => Some(lapse.ending()),
        },
        ending: space.lease_no(lease.id).and_then(|no| Some(space.ending.get(&no)?.ending.clone())),
        grants: Vec::new(),
        pieces: Vec::new(),
        sets: Vec::new(),
        requests: Vec::new(),
    }
}

pub(crate) fn grant_entry(space: &NamespaceState, grant: &Grant) -> GrantEntry {
    GrantEntry {
        key: grant.key.clone(),
        owner: space.owners.name(grant.owner).clone(),
        mode: grant.mode,
        fence: grant.fence,
        granted_at: grant.granted_at,
        reclaim_window: grant.reclaim_window,
        request: request_of(grant.extra.as_deref()).cloned(),
        metadata: metadata_of(grant.extra.as_deref()),
    }
}

pub(crate) fn piece_entry(
    space: &NamespaceState,
    inode: u64,
    owner: OwnerIdx,
    piece: &Piece,
) -> PieceEntry {
    PieceEntry {
        inode,
        range: piece.range,
        owner: space.owners.name(owner).clone(),
        mode: piece.mode,
        tokens: piece.tokens.as_slice().to_vec(),
        granted_at: piece.granted_at,
        reclaim_window: piece.reclaim_window,
        metadata: piece.metadata.clone(),
    }
}

pub(crate) fn set_entry(fence: FencingToken, set: &SetRanges) -> SetEntry {
    SetEntry { fence, owner: set.owner.clone(), ranges: set.ranges.clone() }
}

pub(crate) fn request_entry(
    space: &NamespaceState,
    fence: FencingToken,
    made: &ByteRequest,
) -> ByteRequestEntry {
    ByteRequestEntry {
        fence,
        owner: space.owners.name(made.owner).clone(),
        request: made.request.clone(),
        granted_at: made.granted_at,
        ranges: made.ranges.clone(),
    }
}
