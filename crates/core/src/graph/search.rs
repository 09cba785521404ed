//! The way from an owner back to itself.

use std::collections::{BTreeMap, VecDeque};

use super::finish::Finishing;
use super::{Cycle, Link, QueueOf, Requester, Wanted};
use crate::budget::{Budget, Cut};
use crate::id::Ticket;
use crate::mode::Mode;
use crate::namespace::NamespaceState;
use crate::owners::{OwnerIdx, OwnerSet};
use crate::queue::{InQueue, Queue};
use crate::scope::Scope;

/// So many neighbours are put in order by name; of more than that, those who came first are first.
const SORTED_MAX: usize = 256;

/// Breadth-first through everything that can be reached from one owner, past owners that will finish anyway.
pub(super) struct Search<'a, 'b> {
    space: &'a NamespaceState,
    start: OwnerIdx,
    requester: Option<&'b Requester<'a>>,
    finishing: Option<&'b Finishing<'a>>,
    budget: &'b mut Budget,
    /// An owner waits for less than all of those in its way.
    pub(super) has_choice: bool,
    /// Every owner that was met, the start first.
    pub(super) visited: Vec<OwnerIdx>,
    seen: OwnerSet,
    came_by: BTreeMap<OwnerIdx, Hop<'a>>,
    /// The way back to the start, once it is found.
    last: Option<Hop<'a>>,
    /// Up to which place each queue was looked at.
    marks: BTreeMap<QueueOf<'a>, Marks>,
    next: VecDeque<OwnerIdx>,
}

#[derive(Clone, Copy)]
struct Hop<'a> {
    from: OwnerIdx,
    wanted: Wanted<'a>,
}

#[derive(Clone, Copy)]
struct Marks {
    all: Ticket,
    unshared: Ticket,
}

impl<'a, 'b> Search<'a, 'b> {
    pub(super) fn new(
        space: &'a NamespaceState,
        start: OwnerIdx,
        requester: Option<&'b Requester<'a>>,
        finishing: Option<&'b Finishing<'a>>,
        budget: &'b mut Budget,
    ) -> Search<'a, 'b> {
        Search {
            space,
            start,
            requester,
            finishing,
            budget,
            has_choice: false,
            visited: vec![start],
            seen: OwnerSet::default(),
            came_by: BTreeMap::new(),
            last: None,
            marks: BTreeMap::new(),
            next: VecDeque::from([start]),
        }
    }

    /// The shortest circle; of several, the first by names and scopes.
    pub(super) fn circle(&mut self) -> Result<Option<Cycle>, Cut> {
        while let Some(owner) = self.next.pop_front() {
            let mut found = self.neighbours(owner)?;
            if found.len() <= SORTED_MAX {
                let name = |owner: &OwnerIdx| self.space.owners.name(*owner);
                found.sort_by(|one, other| name(&one.0).cmp(name(&other.0)));
            }
            for (blocker, wanted, leads_on) in found {
                if leads_on {
                    self.came_by.insert(blocker, Hop { from: owner, wanted });
                    self.next.push_back(blocker);
                }
            }
        }
        Ok(self.last.map(|last| self.walk_back(last)))
    }

    fn walk_back(&self, last: Hop<'a>) -> Cycle {
        let link = |hop: Hop<'_>, blocker| Link {
            waiter: hop.from,
            ticket: hop.wanted.ticket,
            scope: hop.wanted.claim.scope.clone(),
            blocker,
        };
        let mut links = vec![link(last, self.start)];
        let mut at = last.from;
        while at != self.start {
            let hop = self.came_by[&at];
            links.push(link(hop, at));
            at = hop.from;
        }
        links.reverse();
        Cycle(links)
    }

    /// Those an owner waits for who were not met before, and whether the search leads on from there.
    fn neighbours(&mut self, owner: OwnerIdx) -> Result<Vec<(OwnerIdx, Wanted<'a>, bool)>, Cut> {
        let mut found = Vec::new();
        let all_wanted = self.space.wanted_by(owner, self.requester);
        self.budget.take(all_wanted.len())?;
        for wanted in all_wanted {
            self.holders(owner, wanted, &mut found)?;
            for (of, queue) in self.space.queues_in_the_way(owner, wanted) {
                self.budget.take(1)?;
                self.queue(owner, wanted, of, queue, &mut found)?;
            }
        }
        Ok(found)
    }

    fn holders(
        &mut self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
        found: &mut Vec<(OwnerIdx, Wanted<'a>, bool)>,
    ) -> Result<(), Cut> {
        let space = self.space;
        for holder in space.lasting_holders(owner, wanted) {
            self.budget.take(1)?;
            if let Some(holder) = holder {
                self.meet(owner, holder, wanted, true, found);
            }
        }
        let Some(limit) = wanted.claim.mode.permits() else { return Ok(()) };
        if !space.permits_used_up(owner, wanted, self.budget)?
            || self.finishing.is_some_and(|finishing| finishing.has_permit(wanted))
        {
            return Ok(());
        }
        self.has_choice |= limit.get() > 1;
        for holder in space.permit_users(owner, wanted) {
            self.budget.take(1)?;
            if let Some(holder) = holder {
                self.meet(owner, holder, wanted, true, found);
            }
        }
        if let Scope::Key(key) = &wanted.claim.scope
            && let Some((key, queue)) = space.queues.get_key_value(key)
        {
            self.queue(owner, wanted, QueueOf::Key(key), queue, found)?;
        }
        Ok(())
    }

    /// Those in a queue ahead of a claim who were not looked at before.
    fn queue(
        &mut self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
        of: QueueOf<'a>,
        queue: &'a Queue,
        found: &mut Vec<(OwnerIdx, Wanted<'a>, bool)>,
    ) -> Result<(), Cut> {
        let (ticket, mode) = (wanted.ticket, wanted.claim.mode);
        let none = Marks { all: Ticket(0), unshared: Ticket(0) };
        // What its own waiters on a file want is not in its way, but may be in the way of others.
        let is_own_file = owner == self.start && matches!(of, QueueOf::Range(..));
        let marks = if is_own_file { none } else { *self.marks.get(&of).unwrap_or(&none) };
        let shared = mode == Mode::Shared;
        let from = if shared { marks.unshared } else { marks.all };
        if from >= ticket {
            return Ok(());
        }
        if !is_own_file {
            let marks = self.marks.entry(of).or_insert(none);
            if shared {
                marks.unshared = ticket;
            } else {
                marks.all = ticket;
                marks.unshared = marks.unshared.max(ticket);
            }
        }
        // Whoever wants nothing but this one scope waits for nobody that the one behind it does not wait for.
        let is_same = match (of, &wanted.claim.scope) {
            (QueueOf::Key(key), Scope::Key(own)) => key == own,
            (QueueOf::Key(_) | QueueOf::Range(..), _) => false,
        };
        let is_all_the_same = is_same && !shared;
        for place in queue.between(from, ticket, shared) {
            self.budget.take(1)?;
            if is_own_file && wanted.asker(owner).is_own(place) {
                continue;
            }
            let leads_on = !(is_all_the_same && self.wants_no_more(place));
            self.meet(owner, place.owner, wanted, leads_on, found);
        }
        Ok(())
    }

    /// Whether this is all that its owner waits for.
    fn wants_no_more(&self, place: InQueue) -> bool {
        place.is_only_one
            && place.owner != self.start
            && self.space.waits_of(place.owner).nth(1).is_none()
    }

    fn meet(
        &mut self,
        from: OwnerIdx,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
        leads_on: bool,
        found: &mut Vec<(OwnerIdx, Wanted<'a>, bool)>,
    ) {
        if self.finishing.is_some_and(|finishing| finishing.has(owner)) {
            return;
        }
        if owner == self.start {
            self.last.get_or_insert(Hop { from, wanted });
        } else if self.seen.insert(owner) {
            self.visited.push(owner);
            found.push((owner, wanted, leads_on));
        }
    }
}
