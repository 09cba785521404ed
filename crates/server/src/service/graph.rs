//! The wait-for graph as it is now, with the waits that were refused lately.

use std::time::Duration;

use leasehold_core as core;
use leasehold_core::{Event, Namespace, News, Owner, Scope, Timestamp};
use leasehold_engine::{Query, View};

use super::app::App;
use super::caller::Caller;
use super::problems::{Failure, unexpected};

/// More waiters than that nobody can look at.
const WAITS_MAX: usize = 1000;
/// A deadlock is part of the picture for so long.
const REFUSED_SHOWN: Duration = Duration::from_secs(600);
const REFUSED_MAX: usize = 20;

/// A wait that was refused because it would have closed a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedWait {
    pub(crate) victim: Owner,
    pub(crate) scope: Scope,
    pub(crate) blocker: Owner,
    pub(crate) at: Timestamp,
}

impl App {
    /// The graph as it is now; for a drawing with the waits that were refused lately.
    pub(crate) async fn graph(
        &self,
        caller: &Caller,
        namespace: Namespace,
        with_refused: bool,
    ) -> Result<(core::Graph, Vec<RefusedWait>), Failure> {
        let query = Query::Graph { namespace: namespace.clone(), waits_max: WAITS_MAX };
        let View::Graph(mut view) = self.query(caller, query).await? else {
            return Err(unexpected());
        };
        let refused = match with_refused {
            true => {
                let sight = caller.sight(&namespace);
                let mut refused = self.refused(caller, &namespace, &mut view).await?;
                refused.retain(|refused| sight.reads(&refused.scope));
                view.holds.retain(|holder| sight.reads(&holder.scope));
                refused
            }
            false => Vec::new(),
        };
        Ok((*view, refused))
    }

    /// The waits that were refused lately, as long as what they would have closed still stands. What they were for is added
    /// to the graph, although no request waits for it.
    async fn refused(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        view: &mut core::Graph,
    ) -> Result<Vec<RefusedWait>, Failure> {
        let now = self.now();
        let is_fresh =
            |event: &Event| event.namespace == *namespace && now.since(event.at) < REFUSED_SHOWN;
        let mut refused: Vec<RefusedWait> = Vec::new();
        for published in self.engine(namespace).deadlocks(is_fresh, REFUSED_MAX).events {
            let News::Deadlock { victim, cycle } = &published.event.news else { continue };
            let Some(last) = cycle.iter().find(|edge| edge.waiter == *victim) else { continue };
            let stands = cycle.iter().all(|edge| edge == last || is_waiting(view, edge));
            let is_known =
                |known: &RefusedWait| known.victim == *victim && known.scope == last.scope;
            if !stands || refused.iter().any(is_known) {
                continue;
            }
            let query = Query::Get { namespace: namespace.clone(), scope: last.scope.clone() };
            let View::Lock(lock) = self.look(caller, query).await? else {
                return Err(unexpected());
            };
            let held = lock.holders.into_iter().filter(|holder| holder.since <= published.event.at);
            let held: Vec<core::Holder> = held.filter(|h| h.owner == last.blocker).collect();
            if held.is_empty() {
                continue;
            }
            let new: Vec<_> = held.into_iter().filter(|h| !view.holds.contains(h)).collect();
            view.holds.extend(new);
            refused.push(RefusedWait {
                victim: victim.clone(),
                scope: last.scope.clone(),
                blocker: last.blocker.clone(),
                at: published.event.at,
            });
        }
        Ok(refused)
    }
}

/// Whether a step of a cycle still stands. Of the waiters in the way only those right ahead are named.
fn is_waiting(view: &core::Graph, edge: &core::WaitEdge) -> bool {
    view.waits.iter().any(|wait| {
        let is_ahead = |other: &core::GraphWait| {
            other.waiter == edge.blocker
                && other.ticket < wait.ticket
                && other.scope.overlaps(&wait.scope)
        };
        wait.waiter == edge.waiter
            && wait.scope == edge.scope
            && (wait.blockers.contains(&edge.blocker) || view.waits.iter().any(is_ahead))
    })
}
