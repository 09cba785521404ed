//! The wait-for graph between owners, derived from the table whenever it is needed and never kept beside it: so a
//! released lock can leave no stale edge behind.
//!
//! An owner waits for everyone who blocks any of its waiting requests. With permits it is enough that some of those
//! who use them up go on, so a circle alone is not yet a deadlock there: what counts is whether anybody in it could
//! still finish.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::command::Claim;
use crate::conflict::{Asker, Blocker, Want};
use crate::id::Ticket;
use crate::owners::OwnerNo;
use crate::refusal::WaitEdge;
use crate::scope::Scope;
use crate::space::Space;

/// A request that is about to wait: not in the queues yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub(crate) owner: OwnerNo,
    pub(crate) ticket: Ticket,
    pub(crate) claims: &'a [Claim],
}

/// One claim of one waiter, and those it waits for.
#[derive(Clone, Debug)]
struct Need {
    ticket: Ticket,
    scope: Scope,
    blockers: Vec<OwnerNo>,
    /// How many of them must go: all, or with permits perhaps fewer.
    count: usize,
}

impl Need {
    fn is_met_by(&self, finishing: &BTreeSet<OwnerNo>) -> bool {
        let gone = self.blockers.iter().filter(|owner| finishing.contains(owner)).count();
        gone >= self.count
    }
}

/// A circle of owners, each waiting for the next.
#[derive(Clone, Debug)]
pub(crate) struct Cycle(Vec<Link>);

#[derive(Clone, Debug)]
struct Link {
    waiter: OwnerNo,
    ticket: Ticket,
    scope: Scope,
    blocker: OwnerNo,
}

impl Cycle {
    /// The last of its requests to have come.
    pub(crate) fn youngest(&self) -> Ticket {
        self.0.iter().map(|link| link.ticket).max().expect("a circle has links")
    }

    pub(crate) fn edges(&self, space: &Space) -> Arc<[WaitEdge]> {
        let name = |owner| space.owners.name(owner).clone();
        let edge = |link: &Link| WaitEdge {
            waiter: name(link.waiter),
            scope: link.scope.clone(),
            blocker: name(link.blocker),
        };
        self.0.iter().map(edge).collect()
    }
}

impl Space {
    /// The shortest circle through `owner`, if its waits, and that of a requester about to join them, lock up.
    pub(crate) fn find_cycle(
        &self,
        owner: OwnerNo,
        requester: Option<&Requester<'_>>,
    ) -> Option<Cycle> {
        if requester.is_some() && !self.may_be_waited_for(owner) && !self.blocks_itself(requester) {
            return None;
        }
        let mut graph = Graph { space: self, owner, requester, needs: BTreeMap::new() };
        let circle = graph.circle(&BTreeSet::new())?;
        if graph.has_choice() {
            let finishing = graph.finishing();
            if finishing.contains(&owner) {
                return None;
            }
            return graph.circle(&finishing);
        }
        Some(circle)
    }

    /// Whether everybody who waits gets what it waits for once those before it have finished: then there is no circle at all.
    pub(crate) fn all_can_finish(&self) -> bool {
        let mut needs: BTreeMap<OwnerNo, Vec<Need>> = BTreeMap::new();
        for (&ticket, waiter) in self.waiters.iter().filter(|(_, waiter)| waiter.is_waiting()) {
            let more = self.needs_of(waiter.owner, ticket, &waiter.request.claims);
            needs.entry(waiter.owner).or_default().extend(more);
        }
        let mut finishing: BTreeSet<OwnerNo> = BTreeSet::new();
        let holders = needs.values().flatten().flat_map(|need| &need.blockers);
        finishing.extend(holders.filter(|owner| !needs.contains_key(owner)));
        loop {
            let left = needs.len();
            needs.retain(|&owner, needs| {
                let finishes = needs.iter().all(|need| need.is_met_by(&finishing));
                if finishes {
                    finishing.insert(owner);
                }
                !finishes
            });
            if needs.is_empty() || needs.len() == left {
                return needs.is_empty();
            }
        }
    }

    /// A request can only close a circle if somebody waits for its owner. Mostly nobody does, and that is quick to see.
    fn may_be_waited_for(&self, owner: OwnerNo) -> bool {
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
                let range = at.pieces[&(owner, start)].range;
                if at.queues_overlapping(range).next().is_some() {
                    return true;
                }
            }
        }
        false
    }

    fn blocks_itself(&self, requester: Option<&Requester<'_>>) -> bool {
        requester.is_some_and(|requester| {
            self.needs_of(requester.owner, requester.ticket, requester.claims)
                .iter()
                .any(|need| need.blockers.contains(&requester.owner))
        })
    }

    /// Whom the owner would have to wait for at each claim.
    fn needs_of(&self, owner: OwnerNo, ticket: Ticket, claims: &[Claim]) -> Vec<Need> {
        let asker = Asker { owner: Some(owner), ticket, arriving: false };
        let mut needs = Vec::new();
        for claim in claims {
            let found = self.blockers(claim, asker, Want::All);
            let each = self.lasting(&found.each);
            let permits = self.lasting(&found.permits);
            // Reclaim windows end by themselves: so many permits will come free.
            let free = found.permits.len() - permits.len();
            for (blockers, count) in
                [(each.clone(), each.len()), (permits, found.permits_short.saturating_sub(free))]
            {
                if count > 0 {
                    needs.push(Need { ticket, scope: claim.scope.clone(), blockers, count });
                }
            }
        }
        needs
    }

    /// The owners of blockers that go only when their owner does something.
    fn lasting(&self, blockers: &[Blocker]) -> Vec<OwnerNo> {
        blockers
            .iter()
            .filter(|blocker| {
                let over = |lease| self.lease(lease).is_over();
                let over = |lease| over(lease) && !planted!("deadlock-edge-to-lapsed-lease");
                blocker.lease().is_none_or(|lease| !over(lease))
            })
            .map(Blocker::owner)
            .collect()
    }

    /// Every wait of the namespace with those it waits for, by place.
    pub(crate) fn all_waits(&self) -> Vec<(Ticket, Scope, Vec<OwnerNo>)> {
        let waiting = self.waiters.iter().filter(|(_, waiter)| waiter.is_waiting());
        waiting
            .flat_map(|(&ticket, waiter)| {
                waiter.request.claims.iter().map(move |claim| {
                    let asker = Asker { owner: Some(waiter.owner), ticket, arriving: false };
                    let found = self.blockers(claim, asker, Want::All);
                    let mut owners: Vec<OwnerNo> = Vec::new();
                    for blocker in found.iter() {
                        if !owners.contains(&blocker.owner()) {
                            owners.push(blocker.owner());
                        }
                    }
                    (ticket, claim.scope.clone(), owners)
                })
            })
            .collect()
    }
}

/// The part of the wait-for graph that can be reached from one owner.
struct Graph<'a> {
    space: &'a Space,
    owner: OwnerNo,
    requester: Option<&'a Requester<'a>>,
    needs: BTreeMap<OwnerNo, Vec<Need>>,
}

impl Graph<'_> {
    /// Breadth-first from the owner back to itself, past owners that will finish anyway.
    fn circle(&mut self, finishing: &BTreeSet<OwnerNo>) -> Option<Cycle> {
        let mut came_by: BTreeMap<OwnerNo, Link> = BTreeMap::new();
        let mut next = VecDeque::from([self.owner]);
        while let Some(waiter) = next.pop_front() {
            for (blocker, ticket, scope) in self.neighbours(waiter, finishing) {
                if finishing.contains(&blocker) || came_by.contains_key(&blocker) {
                    continue;
                }
                came_by.insert(blocker, Link { waiter, ticket, scope, blocker });
                next.push_back(blocker);
            }
        }
        came_by.contains_key(&self.owner).then(|| self.walk_back(&came_by))
    }

    fn walk_back(&self, came_by: &BTreeMap<OwnerNo, Link>) -> Cycle {
        let mut links = vec![came_by[&self.owner].clone()];
        while links[links.len() - 1].waiter != self.owner {
            links.push(came_by[&links[links.len() - 1].waiter].clone());
        }
        links.reverse();
        Cycle(links)
    }

    /// Whom an owner waits for, sorted by name and scope so that the answer does not depend on numbers.
    fn neighbours(
        &mut self,
        waiter: OwnerNo,
        finishing: &BTreeSet<OwnerNo>,
    ) -> Vec<(OwnerNo, Ticket, Scope)> {
        let space = self.space;
        let mut neighbours: Vec<(OwnerNo, Ticket, Scope)> = self
            .needs(waiter)
            .iter()
            .filter(|need| finishing.is_empty() || !need.is_met_by(finishing))
            .flat_map(|need| {
                need.blockers.iter().map(|&blocker| (blocker, need.ticket, need.scope.clone()))
            })
            .collect();
        neighbours.sort_by(|one, other| {
            let key = |entry: &(OwnerNo, Ticket, Scope)| space.owners.name(entry.0).clone();
            (key(one), &one.2, one.1).cmp(&(key(other), &other.2, other.1))
        });
        neighbours
    }

    fn needs(&mut self, owner: OwnerNo) -> &[Need] {
        let (space, requester) = (self.space, self.requester);
        self.needs.entry(owner).or_insert_with(|| {
            let mut needs = Vec::new();
            for ticket in space.waits_of(owner) {
                let waiter = &space.waiters[&ticket];
                if waiter.is_waiting() {
                    needs.extend(space.needs_of(owner, ticket, &waiter.request.claims));
                }
            }
            if let Some(requester) = requester.filter(|requester| requester.owner == owner) {
                needs.extend(space.needs_of(owner, requester.ticket, requester.claims));
            }
            needs
        })
    }

    /// Whether anybody waits for less than all of those in its way.
    fn has_choice(&self) -> bool {
        self.needs.values().flatten().any(|need| need.count < need.blockers.len())
    }

    /// Owners that can get all they wait for once those before them have finished.
    fn finishing(&self) -> BTreeSet<OwnerNo> {
        let mut finishing = BTreeSet::new();
        loop {
            let more: Vec<OwnerNo> = self
                .needs
                .iter()
                .filter(|(owner, needs)| {
                    !finishing.contains(*owner)
                        && needs.iter().all(|need| need.is_met_by(&finishing))
                })
                .map(|(&owner, _)| owner)
                .collect();
            if more.is_empty() {
                return finishing;
            }
            finishing.extend(more);
        }
    }
}
