//! Those who wait, in the order they came.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::Acquire;
use crate::conflict::Asker;
use crate::id::{CallId, RequestId, Ticket};
use crate::lease::LeaseIdx;
use crate::mode::Mode;
use crate::owners::OwnerIdx;
use crate::time::Timestamp;

/// A request that stands in the queue of each scope it claims.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) owner: OwnerIdx,
    /// The lease that the grant is to stand under, unless it opens its own.
    pub(crate) lease: Option<LeaseIdx>,
    pub(crate) request: Acquire,
    pub(crate) digest: u64,
    /// The secret to be shown with its ticket.
    pub(crate) secret: u64,
    /// Every call that awaits the answer: a retry with the same request id joins the first call.
    pub(crate) calls: Vec<CallId>,
    pub(crate) since: Timestamp,
    /// When it stops waiting by itself.
    pub(crate) deadline: Option<Timestamp>,
}

/// The place of a caller who is away but may come back: in no queue, in nobody's way, granted nothing.
#[derive(Clone, Debug)]
pub(crate) struct KeptPlace {
    pub(crate) owner: OwnerIdx,
    pub(crate) digest: u64,
    pub(crate) secret: u64,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
}

impl Waiter {
    /// The waiter as it stands in the queue.
    pub(crate) fn asker(&self, ticket: Ticket) -> Asker {
        Asker { owner: Some(self.owner), lease: self.lease, ticket, arriving: false }
    }

    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|moment| moment < now)
    }
}

/// One waiter's place in the queue of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InQueue {
    pub(crate) ticket: Ticket,
    pub(crate) owner: OwnerIdx,
    /// The lease that its grant is to stand under, unless it opens its own.
    pub(crate) lease: Option<LeaseIdx>,
    pub(crate) mode: Mode,
    /// It stands in this queue alone.
    pub(crate) is_only_one: bool,
}

/// The waiters of one scope by place, with the mode each wants there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    all: BTreeMap<Ticket, InQueue>,
    /// Those that a shared request must not overtake.
    unshared: BTreeSet<Ticket>,
    /// The number of them that stand in other queues too.
    sets: usize,
}

impl Queue {
    pub(crate) fn insert(&mut self, place: InQueue) {
        self.all.insert(place.ticket, place);
        self.sets += usize::from(!place.is_only_one);
        if place.mode != Mode::Shared {
            self.unshared.insert(place.ticket);
        }
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) {
        if let Some(place) = self.all.remove(&ticket) {
            self.sets -= usize::from(!place.is_only_one);
        }
        self.unshared.remove(&ticket);
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any of them stands in another queue too.
    pub(crate) fn has_sets(&self) -> bool {
        self.sets > 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, Mode)> {
        self.all.iter().map(|(&ticket, place)| (ticket, place.mode))
    }

    pub(crate) fn first(&self) -> Option<Ticket> {
        self.all.first_key_value().map(|(&ticket, _)| ticket)
    }

    pub(crate) fn after(&self, ticket: Ticket) -> Option<Ticket> {
        self.all.range(Ticket(ticket.0 + 1)..).next().map(|(&ticket, _)| ticket)
    }

    pub(crate) fn mode(&self, ticket: Ticket) -> Option<Mode> {
        self.all.get(&ticket).map(|place| place.mode)
    }

    pub(crate) fn any_mode(&self) -> Option<Mode> {
        self.all.first_key_value().map(|(_, place)| place.mode)
    }

    /// Those from one place up to, not including, another; all, or those that a shared request must not overtake.
    pub(crate) fn between(
        &self,
        from: Ticket,
        to: Ticket,
        is_shared: bool,
    ) -> Box<dyn DoubleEndedIterator<Item = InQueue> + '_> {
        if !is_shared {
            Box::new(self.all.range(from..to).map(|(_, place)| *place))
        } else if planted!("writer-starved") {
            Box::new(std::iter::empty())
        } else {
            Box::new(self.unshared.range(from..to).map(|ticket| self.all[ticket]))
        }
    }

    /// Waiters before `ticket` that a request in `mode` must not overtake, by place.
    pub(crate) fn ahead(
        &self,
        ticket: Ticket,
        mode: Mode,
    ) -> Box<dyn DoubleEndedIterator<Item = InQueue> + '_> {
        self.between(Ticket(0), ticket, mode == Mode::Shared)
    }

    /// The number of waiters before `ticket`, plus one.
    pub(crate) fn position(&self, ticket: Ticket) -> usize {
        match self.all.last_key_value() {
            // Who has just come stands last: no need to count.
            Some((&last, _)) if last == ticket => self.all.len(),
            Some(_) | None => self.all.range(..ticket).count() + 1,
        }
    }
}
