//! A sketch of a table, enough to judge the step that follows: far less than a copy of it.

use crate::fencing_token::FencingToken;
use crate::id::{Epoch, LeaseId, Namespace, Owner, RegisterName, RequestId, Revision, Ticket};
use crate::lease::LeaseState;
use crate::mode::Mode;
use crate::namespace::NamespaceState;
use crate::queue::Waiter;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::Timestamp;

/// A table before a step, as far as that step is judged by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    epoch: Epoch,
    fence: FencingToken,
    revision: Revision,
    is_suspended: bool,
    is_grace: bool,
    registers: Vec<(Namespace, RegisterName, FencingToken)>,
    pub leases: Vec<LeaseSketch>,
    pub holds: Vec<HoldSketch>,
    pub waits: Vec<WaitSketch>,
    pub kept: Vec<KeptSketch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSketch {
    pub namespace: Namespace,
    pub id: LeaseId,
    pub deadline: Timestamp,
    state: LeaseState,
}

/// A name, path, subtree or piece of a file that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldSketch {
    pub namespace: Namespace,
    pub owner: Owner,
    pub scope: Scope,
    pub fence: FencingToken,
    pub lease: LeaseId,
    /// Its lease has lapsed: only its owner may take it back.
    pub is_over: bool,
}

/// A place that is kept for a caller that is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSketch {
    pub namespace: Namespace,
    pub owner: Owner,
    pub ticket: Ticket,
    pub request_id: Option<RequestId>,
}

/// One scope with waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSketch {
    pub namespace: Namespace,
    pub owner: Owner,
    pub ticket: Ticket,
    pub scope: Scope,
    pub mode: Mode,
    /// When it stops waiting by itself.
    pub deadline: Option<Timestamp>,
    calls_len: usize,
}

impl Sketch {
    pub fn of(table: &LockTable) -> Sketch {
        let mut sketch = Sketch {
            epoch: table.epoch,
            fence: table.fence,
            revision: table.revision,
            is_suspended: table.suspended,
            is_grace: table.grace.is_some(),
            registers: table
                .registers
                .iter()
                .map(|(namespace, name, register)| {
                    (namespace.clone(), name.clone(), register.high_water)
                })
                .collect(),
            ..Sketch::default()
        };
        for (_, space) in table.spaces_by_name() {
            sketch.add(space);
        }
        sketch
    }

    fn add(&mut self, space: &NamespaceState) {
        let namespace = &space.name;
        self.leases.reserve(space.leases.len());
        self.holds.reserve(space.grants_len);
        for (_, lease) in space.leases.iter() {
            let is_over = lease.is_over();
            let (id, deadline, state) = (lease.id, lease.deadline, lease.state);
            self.leases.push(LeaseSketch { namespace: namespace.clone(), id, deadline, state });
            for grant in lease.held.grants() {
                self.holds.push(HoldSketch {
                    namespace: namespace.clone(),
                    owner: space.owners.name(grant.owner).clone(),
                    scope: Scope::Key(grant.key.clone()),
                    fence: grant.fence,
                    lease: id,
                    is_over,
                });
            }
        }
        for (&inode, held) in &space.inodes {
            for (&(crate::inode::Party { owner, .. }, _), piece) in &held.pieces {
                let lease = space.lease(piece.lease);
                self.holds.push(HoldSketch {
                    namespace: namespace.clone(),
                    owner: space.owners.name(owner).clone(),
                    scope: Scope::range(inode, piece.range),
                    fence: piece.fence(),
                    lease: lease.id,
                    is_over: lease.is_over(),
                });
            }
        }
        for (&ticket, waiter) in &space.waiters {
            self.add_waiter(namespace, ticket, waiter);
        }
        let kept = space.kept.iter().map(|(&ticket, place)| KeptSketch {
            namespace: namespace.clone(),
            owner: space.owners.name(place.owner).clone(),
            ticket,
            request_id: place.request_id.clone(),
        });
        self.kept.extend(kept);
    }

    fn add_waiter(&mut self, namespace: &Namespace, ticket: Ticket, waiter: &Waiter) {
        for claim in &waiter.request.claims {
            self.waits.push(WaitSketch {
                namespace: namespace.clone(),
                owner: waiter.request.owner.clone(),
                ticket,
                scope: claim.scope.clone(),
                mode: claim.mode,
                deadline: waiter.deadline,
                calls_len: waiter.calls.len(),
            });
        }
    }

    /// Whether nothing lies between the two but time and renewals.
    pub fn differs_in_time_only(&self, later: &Sketch) -> bool {
        let scalars = |s: &Sketch| (s.epoch, s.fence, s.revision, s.is_suspended, s.is_grace);
        let leases = |s: &Sketch| s.leases.len();
        let mut pairs = self.leases.iter().zip(&later.leases);
        scalars(self) == scalars(later)
            && leases(self) == leases(later)
            && pairs.all(|(one, other)| (one.id, one.state) == (other.id, other.state))
            && self.holds == later.holds
            && self.waits == later.waits
            && self.registers == later.registers
    }

    /// Those who stand in the queue in a namespace.
    pub fn waiting<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = &'a WaitSketch> + 'a {
        self.waits.iter().filter(move |wait| wait.namespace == *namespace)
    }
}

/// A table before a step, or enough of it.
pub trait Earlier {
    fn last_epoch(&self) -> Epoch;
    fn last_fence(&self) -> FencingToken;
    fn last_revision(&self) -> Revision;
    fn deadline_of(&self, namespace: &Namespace, lease: LeaseId) -> Option<Timestamp>;
    /// Fence registers with the highest token that each has accepted.
    fn marks(&self) -> impl Iterator<Item = (&Namespace, &RegisterName, FencingToken)>;
}

impl Earlier for LockTable {
    fn last_epoch(&self) -> Epoch {
        self.epoch
    }

    fn last_fence(&self) -> FencingToken {
        self.fence
    }

    fn last_revision(&self) -> Revision {
        self.revision
    }

    fn deadline_of(&self, namespace: &Namespace, lease: LeaseId) -> Option<Timestamp> {
        let space = self.space_named(namespace)?;
        Some(space.lease(space.lease_no(lease)?).deadline)
    }

    fn marks(&self) -> impl Iterator<Item = (&Namespace, &RegisterName, FencingToken)> {
        let registers = self.registers.iter();
        registers.map(|(namespace, name, register)| (namespace, name, register.high_water))
    }
}

impl Earlier for Sketch {
    fn last_epoch(&self) -> Epoch {
        self.epoch
    }

    fn last_fence(&self) -> FencingToken {
        self.fence
    }

    fn last_revision(&self) -> Revision {
        self.revision
    }

    fn deadline_of(&self, namespace: &Namespace, lease: LeaseId) -> Option<Timestamp> {
        let is_it = |known: &&LeaseSketch| known.id == lease && known.namespace == *namespace;
        self.leases.iter().find(is_it).map(|known| known.deadline)
    }

    fn marks(&self) -> impl Iterator<Item = (&Namespace, &RegisterName, FencingToken)> {
        self.registers.iter().map(|(namespace, register, fence)| (namespace, register, *fence))
    }
}
