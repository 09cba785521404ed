//! The wait-for graph, as it is shown: holders, waiters, and the cycles among them.

use std::collections::BTreeSet;

use super::NAMED_MAX;
use super::view::{Graph, GraphWait};
use crate::budget::{Budget, Cut};
use crate::fencing_token::FencingToken;
use crate::id::Namespace;
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerSet;
use crate::scope::Scope;
use crate::table::LockTable;

/// The budget of a look at the graph, in steps.
const STEPS: usize = 16_000;
/// The most grants it shows.
const HOLDS_MAX: usize = 2_000;

impl LockTable {
    /// Those who wait, whom they wait for, and what those hold; at most `waits_max` waits, oldest first. Of the waiters in
    /// the way only those right ahead are named: whoever stands further ahead is in the way of those.
    pub fn graph(&self, namespace: &Namespace, waits_max: usize) -> Graph {
        let revision = self.revision;
        let mut graph = Graph {
            holds: Vec::new(),
            waits: Vec::new(),
            cycles: Vec::new(),
            truncated: false,
            revision,
        };
        let Some(space) = self.namespace_idx(namespace) else {
            return graph;
        };
        let at = self.space(space);
        let mut budget = Budget::new(STEPS);
        let (waits, truncated) = at.first_waits(waits_max, &mut budget);
        graph.truncated = truncated;
        let mut scopes: Vec<&Scope> = waits.iter().map(|wait| wait.scope).collect();
        graph.waits = waits
            .iter()
            .map(|wait| GraphWait {
                waiter: wait.waiter.request.owner.clone(),
                ticket: wait.ticket,
                mode: wait.mode,
                blockers: wait.blockers.iter().map(|&no| at.owners.name(no).clone()).collect(),
                waited: self.now.since(wait.waiter.since),
                scope: wait.scope.clone(),
            })
            .collect();
        scopes.sort_unstable();
        scopes.dedup();
        let cut = self.add_holds(space, &scopes, &mut graph, &mut budget).is_err();
        graph.truncated |= cut || self.add_cycles(space, &mut graph, &mut budget).is_err();
        graph
    }

    /// Adds the holders of these scopes.
    fn add_holds(
        &self,
        space: NamespaceIdx,
        scopes: &[&Scope],
        graph: &mut Graph,
        budget: &mut Budget,
    ) -> Result<(), Cut> {
        let mut known: BTreeSet<(FencingToken, Scope)> = BTreeSet::new();
        for scope in scopes {
            let left = budget.left().min(HOLDS_MAX.saturating_sub(graph.holds.len()));
            let max = NAMED_MAX.min(left);
            let (found, is_all) = self.first_grants_overlapping(space, scope, max);
            budget.take(1 + found.len())?;
            for holder in found.iter().filter_map(|grant| self.holder(space, grant)) {
                if known.insert((holder.fence, holder.scope.clone())) {
                    graph.holds.push(holder);
                }
            }
            graph.truncated |= !is_all;
        }
        Ok(())
    }

    fn add_cycles(
        &self,
        space: NamespaceIdx,
        graph: &mut Graph,
        budget: &mut Budget,
    ) -> Result<(), Cut> {
        let at = self.space(space);
        let mut told = OwnerSet::default();
        for owner in at.stuck_owners(budget)? {
            if !told.contains(owner)
                && let Some(cycle) = at.find_cycle(owner, None, budget)?
            {
                for owner in cycle.owners() {
                    told.insert(owner);
                }
                graph.cycles.push(cycle.edges(at));
            }
        }
        Ok(())
    }
}
