//! The lock table: the fold of all transitions, plus what need not last (deadlines, waiters, the grace).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::budget::Budget;
use crate::change::Listener;
use crate::command::GracePolicy;
use crate::effect::{Effect, Event, News, Step};
use crate::endings::Endings;
use crate::fencing_token::FencingToken;
use crate::handle::{Candidates, Sweeps};
use crate::id::{Adapter, Epoch, Namespace, Owner, Revision, Ticket};
use crate::lease::LeaseIdx;
use crate::limits::Limits;
use crate::namespace::{NamespaceIdx, NamespaceState};
use crate::quota::{Principals, Usage};
use crate::refusal::{Limit, Refusal};
use crate::registers::Registers;
use crate::scope::Scope;
use crate::slab::Slab;
use crate::snapshotting::Snapshotting;
use crate::time::{Millis, Timestamp};
use crate::transition::Transition;
use crate::undo::UndoLog;

/// The lock table: all holders and all waiters.
///
/// Invariants (see `invariant/`): grants on overlapping scopes are all shared, or within a limit, or one owner's
/// bytes; every waiter conflicts with a grant or with a waiter ahead of it; no fence is handed out twice.
#[derive(Clone, Debug)]
pub struct LockTable {
    pub(crate) limits: Limits,
    /// Decides which names collide in the indexes, and nothing else.
    seed: u64,
    pub(crate) now: Timestamp,
    /// The time that the grant being made was waited for, for the news of it.
    pub(crate) waited: Duration,
    pub(crate) epoch: Epoch,
    /// The last one handed out.
    pub(crate) fence: FencingToken,
    pub(crate) revision: Revision,
    pub(crate) spaces: Slab<NamespaceState>,
    by_name: BTreeMap<Namespace, NamespaceIdx>,
    pub(crate) registers: Registers,
    /// The counts of each principal.
    pub(crate) principals: Principals,
    /// The counts of all of them together.
    pub(crate) usage: Usage,
    /// The number of waiters, in all namespaces.
    pub(crate) waiters_len: usize,
    /// The number of open sessions of each adapter.
    pub(crate) sessions: BTreeMap<Adapter, usize>,

    pub(crate) lease_timers: BTreeSet<(Timestamp, NamespaceIdx, LeaseIdx)>,
    pub(crate) wait_timers: BTreeSet<(Timestamp, Ticket, NamespaceIdx)>,
    /// When places are forgotten. All are kept equally long, so the first is the oldest.
    pub(crate) place_timers: BTreeSet<(Timestamp, Ticket, NamespaceIdx)>,
    /// Leases that are over and cleared in turns.
    pub(crate) ending: BTreeSet<(NamespaceIdx, LeaseIdx)>,
    pub(crate) last_ticket: Ticket,
    pub(crate) grace: Option<Grace>,
    /// Leases of the last epoch that have not come back yet.
    pub(crate) recovering: usize,
    /// No grants are made: the store cannot keep them.
    pub(crate) suspended: bool,

    /// The scopes that have come free in this step: places to look for waiters that can be granted.
    pub(crate) freed: Vec<(NamespaceIdx, Scope)>,
    /// Waiters that are still to be looked at: they were too many for one turn.
    pub(crate) to_wake: Candidates,
    /// Namespaces in which so much came free that all who wait are looked at.
    pub(crate) sweeps: Sweeps,
    /// The number of waiters that may still be looked at in this step.
    pub(crate) wakes_left: usize,
    /// The number of waiters worth a look that may still be found in this step.
    pub(crate) collects_left: Budget,
    /// The waiters that have lost bytes of their own in this step: others may stand in their way now that did not before.
    pub(crate) weakened: BTreeSet<(Namespace, Owner)>,
    /// Waiters whose lease has ended in this step: nothing can stand under it any more.
    pub(crate) orphaned: Vec<(NamespaceIdx, Ticket)>,
    /// The grants that have ended lately. They do not last.
    pub(crate) endings: Endings,
    pub(crate) snapshotting: Option<Snapshotting>,
    /// The undo log of what is not settled yet, if that is to be possible.
    pub(crate) undo: Option<UndoLog>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grace {
    pub(crate) policy: GracePolicy,
    pub(crate) ends_at: Timestamp,
}

impl LockTable {
    /// An empty table. The seed should be random: it keeps clients from choosing names that collide.
    pub fn new(limits: Limits, seed: u64) -> LockTable {
        LockTable {
            endings: Endings::new(seed, limits.endings_max),
            limits,
            seed,
            now: Timestamp::ZERO,
            waited: Duration::ZERO,
            epoch: Epoch::default(),
            fence: FencingToken::ZERO,
            revision: Revision::default(),
            spaces: Slab::default(),
            by_name: BTreeMap::new(),
            registers: Registers::default(),
            principals: Principals::new(seed),
            usage: Usage::default(),
            waiters_len: 0,
            sessions: BTreeMap::new(),
            lease_timers: BTreeSet::new(),
            wait_timers: BTreeSet::new(),
            place_timers: BTreeSet::new(),
            ending: BTreeSet::new(),
            last_ticket: Ticket(0),
            grace: None,
            recovering: 0,
            suspended: false,
            freed: Vec::new(),
            to_wake: Candidates::new(),
            sweeps: Sweeps::default(),
            wakes_left: usize::MAX,
            collects_left: Budget::new(usize::MAX),
            weakened: BTreeSet::new(),
            orphaned: Vec::new(),
            snapshotting: None,
            undo: None,
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The last fence handed out.
    pub fn fence(&self) -> FencingToken {
        self.fence
    }

    /// The first moment at which a tick will find something to do.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let lease = self.lease_timers.first().map(|&(moment, ..)| moment);
        let wait = self.wait_timers.first().map(|&(moment, ..)| moment);
        let place = self.place_timers.first().map(|&(moment, ..)| moment);
        let grace = self.grace.map(|grace| grace.ends_at);
        let first = [lease, wait, place, grace].into_iter().flatten().min();
        let first = first.map(|moment| moment.plus(Millis::new(1)));
        if self.has_turns_left() { Some(self.now) } else { first }
    }

    /// Whether the next tick goes on with what was too much for one turn.
    pub(crate) fn has_turns_left(&self) -> bool {
        !self.suspended && (!self.ending.is_empty() || self.has_candidates())
    }

    pub(crate) fn namespace_idx(&self, name: &Namespace) -> Option<NamespaceIdx> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn space(&self, space: NamespaceIdx) -> &NamespaceState {
        &self.spaces[space.0]
    }

    pub(crate) fn space_mut(&mut self, space: NamespaceIdx) -> &mut NamespaceState {
        &mut self.spaces[space.0]
    }

    pub(crate) fn space_named(&self, name: &Namespace) -> Option<&NamespaceState> {
        self.namespace_idx(name).map(|space| self.space(space))
    }

    /// Namespaces in the order of their names.
    pub(crate) fn spaces_by_name(&self) -> impl Iterator<Item = (NamespaceIdx, &NamespaceState)> {
        self.by_name.values().map(|&space| (space, self.space(space)))
    }

    pub(crate) fn space_or_insert(&mut self, name: &Namespace) -> NamespaceIdx {
        if let Some(space) = self.namespace_idx(name) {
            return space;
        }
        let space = NamespaceIdx(self.spaces.insert(NamespaceState::new(name.clone(), self.seed)));
        self.by_name.insert(name.clone(), space);
        space
    }

    /// The namespace to put something into; at the limit, those that are empty make room.
    pub(crate) fn space_to_fill(&mut self, name: &Namespace) -> Result<NamespaceIdx, Refusal> {
        if let Some(space) = self.namespace_idx(name) {
            return Ok(space);
        }
        if self.by_name.len() >= self.limits.namespaces_max {
            self.drop_empty_spaces();
            if self.by_name.len() >= self.limits.namespaces_max {
                let max = self.limits.namespaces_max;
                return Err(Refusal::Limit(Limit::Namespaces { max }));
            }
        }
        Ok(self.space_or_insert(name))
    }

    fn drop_empty_spaces(&mut self) {
        let spaces = &mut self.spaces;
        self.by_name.retain(|_, space| {
            let keep = !spaces[space.0].is_empty();
            if !keep {
                spaces.remove(space.0);
            }
            keep
        });
    }

    /// Makes a lasting change and writes it down.
    pub(crate) fn enact(&mut self, transition: Transition, step: &mut Step) {
        if let Transition::Granted(granted) = &transition {
            debug_assert!(granted.fence > self.fence, "no token is issued twice");
            debug_assert!(!granted.claims.is_empty(), "a grant is of something");
            debug_assert!(!self.suspended, "nothing is granted while the store fails");
            debug_assert_eq!(granted.granted_at, self.now, "a grant is made now");
        }
        if let Transition::SessionOpened(opened) = &transition {
            debug_assert!(!self.suspended, "no session is opened while the store fails");
            debug_assert_eq!(opened.opened_at, self.now, "a session is opened now");
        }
        self.change(&transition, &mut Listener::Step(step))
            .expect("a transition that was just decided fits the table");
        step.transitions.push(transition);
    }

    /// Replays a lasting change that was decided before. An error means that the history is not of this table.
    pub fn apply(&mut self, transition: &Transition) -> Result<(), Unfit> {
        let changed = self.change(transition, &mut Listener::Nobody);
        self.freed.clear();
        self.weakened.clear();
        self.orphaned.clear();
        changed
    }

    pub(crate) fn tell(&self, namespace: Namespace, news: News, step: &mut Step) {
        let event = Event { revision: self.revision, at: self.now, namespace, news };
        step.effects.push(Effect::Event(Arc::new(event)));
    }

    /// Puts a lease's timer where its deadline is.
    pub(crate) fn arm(&mut self, space: NamespaceIdx, lease: LeaseIdx, moment: Timestamp) {
        let held = self.spaces[space.0].lease_mut(lease);
        self.lease_timers.remove(&(held.timer, space, lease));
        held.timer = moment;
        self.lease_timers.insert((moment, space, lease));
    }

    /// Moves a lease's deadline. A later one leaves the timer where it is: when it fires, it finds out.
    pub(crate) fn set_deadline(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        deadline: Timestamp,
    ) {
        let held = self.spaces[space.0].lease_mut(lease);
        held.deadline = deadline;
        if deadline < held.timer {
            self.arm(space, lease, deadline);
        }
    }

    pub(crate) fn is_strict_grace(&self) -> bool {
        self.grace.is_some_and(|grace| grace.policy.is_strict())
    }
}

/// A transition that does not fit the table it was applied to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history does not fit the table at revision {}: {what}", revision.0)]
pub struct Unfit {
    pub revision: Revision,
    pub what: &'static str,
}
