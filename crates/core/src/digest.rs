//! Short numbers that stand for long things: a request, or the whole lasting state of a table.
//!
//! They are the same on every machine and in every run. None is a proof, and only that of a ticket is a secret: it comes
//! from one.

use std::hash::{Hash, Hasher};

use crate::command::{Acquire, OpenSession, Under};
use crate::id::{LeaseId, Namespace, Ticket};
use crate::snapshot::Entry;
use crate::table::LockTable;

impl LockTable {
    /// A number over everything that lasts: equal tables have equal digests, whatever order things came in.
    ///
    /// Deadlines, waiters and the grace are no part of it, as none of them survives a restart.
    pub fn digest(&self) -> u64 {
        self.entries().map(entry_digest).fold(0, u64::wrapping_add)
    }

    /// The part of it that one lease makes up; `None` if that lease is not there.
    pub fn lease_digest(&self, namespace: &Namespace, lease: LeaseId) -> Option<u64> {
        self.lease_entry(namespace, lease).map(entry_digest)
    }
}

fn entry_digest(mut entry: Entry) -> u64 {
    if let Entry::Lease(lease) = &mut entry {
        lease.pieces.sort_by(|one, other| {
            (one.inode, &one.owner, one.range).cmp(&(other.inode, &other.owner, other.range))
        });
    }
    let mut hasher = Fnv::default();
    entry.hash(&mut hasher);
    hasher.finish()
}

/// A digest of the fields that make two requests the same. The wait and the connection are not among them.
pub(crate) fn digest_of(request: &Acquire) -> u64 {
    let mut hasher = Fnv::default();
    request.namespace.hash(&mut hasher);
    request.owner.hash(&mut hasher);
    request.claims.hash(&mut hasher);
    match request.under {
        Under::NewLease { id: _, ttl } => (0, ttl).hash(&mut hasher),
        Under::Session(id) => (1, id).hash(&mut hasher),
    }
    request.reclaim_window.hash(&mut hasher);
    request.reclaim.hash(&mut hasher);
    request.metadata.hash(&mut hasher);
    hasher.finish()
}

/// The same for the opening of a session.
pub(crate) fn digest_of_opening(open: &OpenSession) -> u64 {
    let mut hasher = Fnv::default();
    open.namespace.hash(&mut hasher);
    open.owner.hash(&mut hasher);
    open.ttl.hash(&mut hasher);
    open.adapter.hash(&mut hasher);
    open.on_disconnect.hash(&mut hasher);
    open.metadata.hash(&mut hasher);
    hasher.finish()
}

/// Half of the bits of an id at least stay unknown to whoever is told this number.
pub(crate) fn secret_of(ticket: Ticket, id: LeaseId) -> u64 {
    let mut hasher = Fnv::default();
    (id, ticket).hash(&mut hasher);
    hasher.finish()
}

/// FNV-1a with 64 bits.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        // FNV mixes its upper bits poorly; sums of digests need them.
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25);
        mixed ^ (mixed >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
