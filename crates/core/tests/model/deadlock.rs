//! Deadlock: who can never be served, and the shortest circle that shows it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::conflict::View;
use super::{Model, Waiter};
use leasehold_core::*;

/// An edge of the wait-for graph, and the waiter that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) ticket: Ticket,
    pub(crate) edge: WaitEdge,
}

impl Model {
    /// "If that leads back to the requester, the request is refused with the whole cycle."
    ///
    /// Only what is left of the table when everybody who can finish has finished can be part of a circle: so a free
    /// permit that somebody will give back is no alarm.
    pub(crate) fn cycle_from(&self, namespace: &Namespace, owner: &Owner) -> Option<Vec<Edge>> {
        let stuck = self.without_those_who_finish(namespace);
        let mut paths = VecDeque::from([Vec::<Edge>::new()]);
        let mut seen: Vec<Owner> = vec![owner.clone()];
        while let Some(path) = paths.pop_front() {
            let last = path.last().map_or(owner, |edge| &edge.edge.blocker);
            for edge in stuck.edges_of(namespace, last) {
                let blocker = edge.edge.blocker.clone();
                let longer: Vec<Edge> = path.iter().cloned().chain([edge]).collect();
                if blocker == *owner {
                    return Some(longer);
                }
                if !seen.contains(&blocker) {
                    seen.push(blocker);
                    paths.push_back(longer);
                }
            }
        }
        None
    }

    /// The same table after all owners that can finish have finished: an owner can if each of its waiters could be
    /// granted once all that can finish have released everything and left every queue.
    fn without_those_who_finish(&self, namespace: &Namespace) -> Model {
        let mut rest = self.clone();
        // Nobody has to give up a reclaim window for it to end.
        rest.waiters.retain(|w| w.ask.namespace == *namespace);
        loop {
            let finishing: Vec<Owner> =
                rest.owners(namespace).into_iter().filter(|owner| rest.can_finish(owner)).collect();
            if finishing.is_empty() {
                return rest;
            }
            rest.held.retain(|held| !finishing.contains(&held.owner));
            rest.waiters.retain(|waiter| !finishing.contains(&waiter.ask.owner));
        }
    }

    fn owners(&self, namespace: &Namespace) -> Vec<Owner> {
        let holders = self.held.iter().filter(|held| held.namespace == *namespace);
        let holders = holders.map(|held| held.owner.clone());
        let mut owners: Vec<Owner> =
            holders.chain(self.waiters.iter().map(|waiter| waiter.ask.owner.clone())).collect();
        owners.sort();
        owners.dedup();
        owners
    }

    fn can_finish(&self, owner: &Owner) -> bool {
        let mine = self.waiters.iter().filter(|waiter| waiter.ask.owner == *owner);
        let windows_over = self.after_the_windows_of_others(owner);
        mine.into_iter().all(|w| windows_over.is_free(&w.ask, w.ticket, View::Queued))
    }

    /// A reclaim window ends by itself: nobody has to be waited for.
    fn after_the_windows_of_others(&self, owner: &Owner) -> Model {
        let mut rest = self.clone();
        rest.held.retain(|held| held.window_until.is_none() || held.owner == *owner);
        rest
    }

    /// Who an owner waits for, and with which of its waiters, by name and scope: of circles that are equally short
    /// the first in this order is told.
    pub(crate) fn edges_of(&self, namespace: &Namespace, owner: &Owner) -> Vec<Edge> {
        let rest = self.after_the_windows_of_others(owner);
        let mut edges = Vec::new();
        let waiting = |w: &&Waiter| w.ask.namespace == *namespace && w.ask.owner == *owner;
        for waiter in rest.waiters.iter().filter(waiting) {
            for claim in &waiter.ask.claims {
                let blockers = rest.queued_blockers(waiter, claim);
                let holders = blockers.holders.iter().map(|held| &held.owner);
                let in_front = blockers.waiters.iter().map(|waiter| &waiter.ask.owner);
                edges.extend(holders.chain(in_front).map(|blocker| Edge {
                    ticket: waiter.ticket,
                    edge: WaitEdge {
                        waiter: owner.clone(),
                        scope: claim.scope.clone(),
                        blocker: blocker.clone(),
                    },
                }));
            }
        }
        edges.sort_by_key(|edge| {
            let WaitEdge { blocker, scope, .. } = &edge.edge;
            (blocker.clone(), scope.clone(), edge.ticket)
        });
        edges
    }

    /// A grant can close a circle that no request began: then the youngest waiter of the circle gives way.
    pub(crate) fn break_circles_through(&mut self, namespace: &Namespace, owner: &Owner) {
        while let Some(cycle) = self.cycle_from(namespace, owner) {
            let victim = cycle.iter().map(|edge| edge.ticket).max().expect("a circle has edges");
            let waiter = self.take_waiter(victim);
            let refusal = self.deadlock(&waiter.ask, &cycle);
            self.tell_left(&waiter);
            self.refuse_waiter(&waiter, &refusal);
        }
    }

    /// Who loses bytes may now stand behind others with a wait that did not before.
    pub(crate) fn break_circles_of_the_bereft(&mut self) {
        while !self.bereft.is_empty() {
            let mut bereft = std::mem::take(&mut self.bereft);
            bereft.sort();
            bereft.dedup();
            for (namespace, owner) in bereft {
                self.break_circles_through(&namespace, &owner);
            }
            self.settle();
        }
    }

    /// The refusal, and the news of it.
    pub(crate) fn deadlock(&mut self, ask: &Acquire, cycle: &[Edge]) -> Refusal {
        let cycle: Arc<[WaitEdge]> = cycle.iter().map(|edge| edge.edge.clone()).collect();
        let victim = ask.owner.clone();
        self.tell(&ask.namespace, News::Deadlock { victim, cycle: cycle.clone() });
        Refusal::Deadlock { cycle }
    }
}
