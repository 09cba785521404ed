//! The wait-for graph between owners, derived from the table whenever it is needed and never kept beside it: so a
//! released lock can leave no stale edge behind.
//!
//! An owner waits for everyone who blocks any of its waiting requests. With permits it is enough that some of those
//! who use them up go on, so a cycle alone is not yet a deadlock there: what counts is whether an owner in it could
//! still finish.
//!
//! A queue of ten thousand has fifty million edges. They are not looked at one by one: a search remembers up to which
//! place it has seen a queue, so that whoever stands further back costs only those in between. Every search has a
//! budget, and says when it was cut short.

mod finish;
mod search;
mod waits;

#[cfg(test)]
mod reference;

use std::sync::Arc;

use crate::budget::{Budget, Cut};
use crate::command::Claim;
use crate::conflict::Asker;
use crate::id::Ticket;
use crate::inode::{Inode, Party, is_covered};
use crate::lease::LeaseIdx;
use crate::mode::Mode;
use crate::namespace::NamespaceState;
use crate::owners::OwnerIdx;
use crate::queue::Queue;
use crate::range::ByteRange;
use crate::refusal::WaitEdge;
use crate::scope::{Key, Scope};

/// The most steps of a cycle that are told.
const TOLD_MAX: usize = 64;

/// A request that is about to wait: not in the queues yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub(crate) owner: OwnerIdx,
    /// The lease that its grant is to stand under, unless it opens its own.
    pub(crate) lease: Option<LeaseIdx>,
    pub(crate) ticket: Ticket,
    pub(crate) claims: &'a [Claim],
}

/// A cycle of owners, each waiting for the next.
#[derive(Clone, Debug)]
pub(crate) struct Cycle(Vec<Link>);

#[derive(Clone, Debug)]
pub(crate) struct Link {
    waiter: OwnerIdx,
    ticket: Ticket,
    scope: Scope,
    blocker: OwnerIdx,
}

impl Cycle {
    /// The last of its requests to have come.
    pub(crate) fn youngest(&self) -> Ticket {
        self.0.iter().map(|link| link.ticket).max().expect("a circle has links")
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = OwnerIdx> {
        self.0.iter().map(|link| link.waiter)
    }

    /// Its steps by name; of a long one the first and, to close it, the last.
    pub(crate) fn edges(&self, space: &NamespaceState) -> Arc<[WaitEdge]> {
        let name = |owner| space.owners.name(owner).clone();
        let edge = |link: &Link| WaitEdge {
            waiter: name(link.waiter),
            scope: link.scope.clone(),
            blocker: name(link.blocker),
        };
        let last = self.0.len() - 1;
        let told = self.0.iter().enumerate().filter(|&(at, _)| at < TOLD_MAX - 1 || at == last);
        told.map(|(_, link)| edge(link)).collect()
    }
}

/// The queue of one scope, as a search knows it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum QueueOf<'a> {
    Key(&'a Key),
    Range(u64, ByteRange),
}

/// One claim of a waiter, or of a requester about to wait.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    ticket: Ticket,
    lease: Option<LeaseIdx>,
    claim: &'a Claim,
}

impl Wanted<'_> {
    fn asker(&self, owner: OwnerIdx) -> Asker {
        Asker { owner: Some(owner), lease: self.lease, ticket: self.ticket, arriving: false }
    }
}

impl NamespaceState {
    /// The shortest circle through `owner`, if its waits, and that of a requester about to join them, lock up.
    pub(crate) fn find_cycle(
        &self,
        owner: OwnerIdx,
        requester: Option<&Requester<'_>>,
        budget: &mut Budget,
    ) -> Result<Option<Cycle>, Cut> {
        if let Some(requester) = requester
            && !self.may_be_waited_for(owner)
            && !self.blocks_itself(requester, budget)?
        {
            return Ok(None);
        }
        let mut search = search::Search::new(self, owner, requester, None, budget);
        let circle = search.circle()?;
        if circle.is_none() || !search.has_choice {
            return Ok(circle);
        }
        let seen = search.visited;
        let finishing = finish::Finishing::among(self, &seen, requester, budget)?;
        if finishing.has(owner) {
            return Ok(None);
        }
        search::Search::new(self, owner, requester, Some(&finishing), budget).circle()
    }

    /// Those who wait and can never be served; none unless something is wrong with the rules.
    pub(crate) fn stuck_owners(&self, budget: &mut Budget) -> Result<Vec<OwnerIdx>, Cut> {
        let mut owners: Vec<OwnerIdx> = self.waits.iter().map(|&(owner, _)| owner).collect();
        owners.dedup();
        let finishing = finish::Finishing::among(self, &owners, None, budget)?;
        owners.retain(|&owner| !finishing.has(owner));
        Ok(owners)
    }

    /// A request can only close a cycle if another request waits for its owner. Mostly none does, and that is quick to see.
    fn may_be_waited_for(&self, owner: OwnerIdx) -> bool {
        const LOOKED_AT_MAX: usize = 32;
        if planted!("deadlock-through-waiters-missed", !self.holds_anything(owner)) {
            return false;
        }
        if self.waits_of(owner).next().is_some() {
            return true;
        }
        let mut looked_at = 0;
        for (lease, _) in self.owners.holds(owner) {
            let held = &self.lease(lease).held;
            looked_at += held.len();
            if looked_at > LOOKED_AT_MAX {
                return true;
            }
            if held.grants().any(|grant| self.queues_overlapping(&grant.key).next().is_some()) {
                return true;
            }
            for &(inode, _, start) in held.pieces().into_iter().flatten().filter(|p| p.1 == owner) {
                let at = &self.inodes[&inode];
                let range = at.pieces[&(Party { owner, lease }, start)].range;
                if at.queues_overlapping(range).next().is_some() {
                    return true;
                }
            }
        }
        false
    }

    /// Whether the requester holds something that is in its own way. It does not wait yet, so no queue needs a look.
    fn blocks_itself(&self, requester: &Requester<'_>, budget: &mut Budget) -> Result<bool, Cut> {
        let Requester { owner, lease, ticket, claims } = *requester;
        for claim in claims {
            let wanted = Wanted { ticket, lease, claim };
            for found in self.lasting_holders(owner, wanted).chain(self.permit_users(owner, wanted))
            {
                budget.take(1)?;
                if found == Some(owner) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The owners of grants that each keep a claim out, and that go only when their owner does something; `None` for
    /// what was looked at and is not in the way.
    fn lasting_holders<'a>(
        &'a self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
    ) -> impl Iterator<Item = Option<OwnerIdx>> + 'a {
        let found = self.holders_in_the_way(wanted.claim, wanted.asker(owner));
        found.map(|found| found.filter(|&(lease, _)| self.lasts(lease)).map(|(_, owner)| owner))
    }

    /// The owners that hold permits of the claim's own scope, in the same way.
    fn permit_users<'a>(
        &'a self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
    ) -> impl Iterator<Item = Option<OwnerIdx>> + 'a {
        let found = self.permits_held(wanted.claim, wanted.asker(owner));
        found.map(|found| found.filter(|&(lease, _)| self.lasts(lease)).map(|(_, owner)| owner))
    }

    /// Whether what stands under a lease goes only when its owner does something: reclaim windows end by themselves.
    fn lasts(&self, lease: LeaseIdx) -> bool {
        !self.lease(lease).is_over() || planted!("deadlock-edge-to-lapsed-lease")
    }

    /// Whether permits of the claim's own scope are used up by those who hold them and those who wait ahead.
    fn permits_used_up(
        &self,
        owner: OwnerIdx,
        wanted: Wanted<'_>,
        budget: &mut Budget,
    ) -> Result<bool, Cut> {
        let Some(limit) = wanted.claim.mode.permits() else { return Ok(false) };
        let limit = limit.get() as usize;
        let mut used = 0;
        for user in self.permit_users(owner, wanted) {
            budget.take(1)?;
            used += usize::from(user.is_some());
            if used >= limit {
                return Ok(true);
            }
        }
        let Some(queue) = self.queue(&wanted.claim.scope) else { return Ok(false) };
        let ahead = queue.ahead(wanted.ticket, Mode::Exclusive).take(limit - used).count();
        budget.take(ahead)?;
        Ok(used + ahead >= limit)
    }

    /// The queues in which earlier waiters are in the way of a claim. Permits of one scope are counted instead.
    fn queues_in_the_way<'a>(
        &'a self,
        owner: OwnerIdx,
        wanted: Wanted<'a>,
    ) -> Box<dyn Iterator<Item = (QueueOf<'a>, &'a Queue)> + 'a> {
        let (claim, asker) = (wanted.claim, wanted.asker(owner));
        match &claim.scope {
            Scope::Key(key) => {
                let counted = claim.mode.permits().is_some();
                let queues = self.queues_overlapping(key);
                let queues = queues.filter(move |(other, _)| !(counted && *other == key));
                Box::new(queues.map(|(other, queue)| (QueueOf::Key(other), queue)))
            }
            Scope::Range { inode, range } => {
                let at = self.inodes.get(inode);
                // Who has all the bytes already does not stand behind those who wait for them.
                let has_all = |at: &Inode| is_covered(*range, self.own_bytes(at, *range, asker));
                let at = at.filter(|at| !has_all(at));
                let queues = at.into_iter().flat_map(|at| at.queues_overlapping(*range));
                Box::new(queues.map(|(other, queue)| (QueueOf::Range(*inode, other), queue)))
            }
        }
    }

    /// All that an owner waits for, by scope and place.
    fn wanted_by<'a>(
        &'a self,
        owner: OwnerIdx,
        requester: Option<&Requester<'a>>,
    ) -> Vec<Wanted<'a>> {
        let waiting = self.waits_of(owner).map(|ticket| {
            let waiter = &self.waiters[&ticket];
            let claims = &waiter.request.claims[..];
            (ticket, waiter.lease, claims)
        });
        let requester = requester.filter(|requester| requester.owner == owner);
        let requester = requester.map(|r| (r.ticket, r.lease, r.claims));
        let mut wanted: Vec<Wanted<'a>> = waiting
            .chain(requester)
            .flat_map(|(ticket, lease, claims)| {
                claims.iter().map(move |claim| Wanted { ticket, lease, claim })
            })
            .collect();
        if wanted.len() > 1 {
            wanted.sort_by(|one, other| {
                (&one.claim.scope, one.ticket).cmp(&(&other.claim.scope, other.ticket))
            });
        }
        wanted
    }
}
