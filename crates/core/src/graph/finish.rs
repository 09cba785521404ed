//! The owners that can finish: an owner can if each of its waits is met once all that can finish have released everything and left
//! every queue.
//!
//! A wait behind others in a queue is met when fewer of those ahead than the limit are left; the limit is one but for
//! permits. So each queue is one line with a mark that moves on as those in it finish, and the whole costs about as
//! much as there are waiters.

use std::collections::BTreeMap;

use super::{QueueOf, Requester, Wanted};
use crate::budget::{Budget, Cut};
use crate::id::Ticket;
use crate::mode::Mode;
use crate::namespace::NamespaceState;
use crate::owners::{OwnerIdx, OwnerSet};
use crate::queue::Queue;
use crate::scope::Scope;

pub(super) struct Finishing<'a> {
    space: &'a NamespaceState,
    waiting: OwnerSet,
    finished: OwnerSet,
    /// For each owner, the number of waits that keep it from finishing.
    unmet: BTreeMap<OwnerIdx, usize>,
    /// For each owner, those that wait for it.
    dependents: BTreeMap<OwnerIdx, Vec<OwnerIdx>>,
    lines: Vec<Line>,
    line_of: BTreeMap<(QueueOf<'a>, Kind), usize>,
    /// The positions of each owner in the lines.
    places: BTreeMap<OwnerIdx, Vec<(usize, usize)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    All,
    Unshared,
    Permits,
}

/// Holders and waiters of one scope in order, and how far one can stand so that fewer than the limit are ahead.
struct Line {
    limit: usize,
    ahead: Vec<(Ticket, OwnerIdx, IsGone)>,
    /// So many of the first have fewer than the limit ahead of whoever comes after them.
    reach: usize,
    left: usize,
    /// Those who are not met yet, by how many must be within reach; the nearest last.
    waiting: Vec<(usize, OwnerIdx)>,
}

type IsGone = bool;

impl Line {
    fn advance(&mut self) {
        while let Some(&(_, _, is_gone)) = self.ahead.get(self.reach) {
            let left = self.left + usize::from(!is_gone);
            if left >= self.limit {
                return;
            }
            self.left = left;
            self.reach += 1;
        }
    }

    fn place_of(&self, ticket: Ticket) -> usize {
        self.ahead.partition_point(|&(ahead, ..)| ahead < ticket)
    }
}

impl<'a> Finishing<'a> {
    /// Of these owners, and the requester, those that can finish. Who waits for nothing can.
    pub(super) fn among(
        space: &'a NamespaceState,
        owners: &[OwnerIdx],
        requester: Option<&Requester<'a>>,
        budget: &mut Budget,
    ) -> Result<Finishing<'a>, Cut> {
        let mut finishing = Finishing {
            space,
            waiting: OwnerSet::default(),
            finished: OwnerSet::default(),
            unmet: BTreeMap::new(),
            dependents: BTreeMap::new(),
            lines: Vec::new(),
            line_of: BTreeMap::new(),
            places: BTreeMap::new(),
        };
        let mut all = Vec::with_capacity(owners.len());
        for &owner in owners {
            let wanted = space.wanted_by(owner, requester);
            budget.take(1 + wanted.len())?;
            if !wanted.is_empty() {
                finishing.waiting.insert(owner);
                finishing.unmet.insert(owner, 0);
                all.push((owner, wanted));
            }
        }
        for (owner, all_wanted) in all {
            let is_only_one = all_wanted.len() == 1;
            for wanted in all_wanted {
                finishing.need(owner, wanted, is_only_one, budget)?;
            }
        }
        finishing.settle(budget)?;
        Ok(finishing)
    }

    pub(super) fn has(&self, owner: OwnerIdx) -> bool {
        self.finished.contains(owner) || !self.waiting.contains(owner)
    }

    /// Whether a permit comes free for this claim once all that can finish have finished.
    pub(super) fn has_permit(&self, wanted: Wanted<'a>) -> bool {
        let Scope::Key(key) = &wanted.claim.scope else { return true };
        let Some(&line) = self.line_of.get(&(QueueOf::Key(key), Kind::Permits)) else {
            return true;
        };
        let line = &self.lines[line];
        line.place_of(wanted.ticket) <= line.reach
    }

    fn need(
        &mut self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
        is_only_one: bool,
        budget: &mut Budget,
    ) -> Result<(), Cut> {
        let space = self.space;
        for holder in space.lasting_holders(owner, wanted) {
            budget.take(1)?;
            if let Some(holder) = holder {
                self.depend(owner, holder);
            }
        }
        if space.permits_used_up(owner, wanted, budget)?
            && let Scope::Key(key) = &wanted.claim.scope
        {
            self.stand(
                owner,
                wanted,
                QueueOf::Key(key),
                space.queues.get(key),
                Kind::Permits,
                budget,
            )?;
        }
        let kind = if wanted.claim.mode == Mode::Shared { Kind::Unshared } else { Kind::All };
        for (of, queue) in space.queues_in_the_way(owner, wanted) {
            budget.take(1)?;
            match of {
                // Its own waiters on a file are not in its way.
                QueueOf::Range(..) if !is_only_one => {
                    let is_shared = kind == Kind::Unshared;
                    for place in queue.between(Ticket(0), wanted.ticket, is_shared) {
                        budget.take(1)?;
                        if !wanted.asker(owner).is_own(place) {
                            self.depend(owner, place.owner);
                        }
                    }
                }
                QueueOf::Key(_) | QueueOf::Range(..) => {
                    self.stand(owner, wanted, of, Some(queue), kind, budget)?;
                }
            }
        }
        Ok(())
    }

    fn depend(&mut self, owner: OwnerIdx, on: OwnerIdx) {
        if self.waiting.contains(on) {
            self.dependents.entry(on).or_default().push(owner);
            *self.unmet.entry(owner).or_insert(0) += 1;
        }
    }

    /// Puts a claim behind those ahead of it in a line.
    fn stand(
        &mut self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
        of: QueueOf<'a>,
        queue: Option<&'a Queue>,
        kind: Kind,
        budget: &mut Budget,
    ) -> Result<(), Cut> {
        let number = match self.line_of.get(&(of, kind)) {
            Some(&number) => number,
            None => self.begin_line(owner, wanted, of, queue, kind, budget)?,
        };
        let line = &mut self.lines[number];
        line.waiting.push((line.place_of(wanted.ticket), owner));
        *self.unmet.entry(owner).or_insert(0) += 1;
        Ok(())
    }

    fn begin_line(
        &mut self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
        of: QueueOf<'a>,
        queue: Option<&'a Queue>,
        kind: Kind,
        budget: &mut Budget,
    ) -> Result<usize, Cut> {
        let mut ahead = Vec::new();
        let mut limit = 1;
        if kind == Kind::Permits {
            limit = wanted.claim.mode.permits().map_or(1, |limit| limit.get() as usize);
            let held = self.space.permit_users(owner, wanted);
            ahead.extend(held.flatten().map(|owner| (Ticket(0), owner)));
        }
        let is_shared = kind == Kind::Unshared;
        let waiters =
            queue.into_iter().flat_map(|q| q.between(Ticket(0), Ticket(u64::MAX), is_shared));
        ahead.extend(waiters.map(|place| (place.ticket, place.owner)));
        budget.take(ahead.len())?;
        let number = self.lines.len();
        let gone = |owner| !self.waiting.contains(owner);
        let ahead: Vec<_> = ahead.into_iter().map(|(t, owner)| (t, owner, gone(owner))).collect();
        for (place, &(_, owner, _)) in ahead.iter().enumerate() {
            self.places.entry(owner).or_default().push((number, place));
        }
        self.lines.push(Line { limit, ahead, reach: 0, left: 0, waiting: Vec::new() });
        self.line_of.insert((of, kind), number);
        Ok(number)
    }

    /// Lets every owner finish that can.
    fn settle(&mut self, budget: &mut Budget) -> Result<(), Cut> {
        let mut met: Vec<OwnerIdx> = Vec::new();
        for line in &mut self.lines {
            line.waiting.sort_unstable_by(|one, other| other.cmp(one));
        }
        for number in 0..self.lines.len() {
            self.advance(number, &mut met);
        }
        let mut ready: Vec<OwnerIdx> =
            self.unmet.iter().filter(|(_, unmet)| **unmet == 0).map(|(&owner, _)| owner).collect();
        loop {
            for owner in met.drain(..) {
                if let Some(unmet) = self.unmet.get_mut(&owner) {
                    *unmet -= 1;
                    if *unmet == 0 {
                        ready.push(owner);
                    }
                }
            }
            let Some(owner) = ready.pop() else { return Ok(()) };
            if !self.finished.insert(owner) {
                continue;
            }
            met.extend(self.dependents.remove(&owner).into_iter().flatten());
            for (number, place) in self.places.remove(&owner).unwrap_or_default() {
                budget.take(1)?;
                self.go(number, place, &mut met);
            }
        }
    }

    fn go(&mut self, number: usize, place: usize, met: &mut Vec<OwnerIdx>) {
        let line = &mut self.lines[number];
        if !std::mem::replace(&mut line.ahead[place].2, true) && place < line.reach {
            line.left -= 1;
        }
        self.advance(number, met);
    }

    fn advance(&mut self, number: usize, met: &mut Vec<OwnerIdx>) {
        let line = &mut self.lines[number];
        line.advance();
        while let Some(&(place, owner)) = line.waiting.last()
            && place <= line.reach
        {
            line.waiting.pop();
            met.push(owner);
        }
    }
}
