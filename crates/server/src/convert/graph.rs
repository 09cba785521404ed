//! The wait-for graph as nodes and edges.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use leasehold_api::{Edge, EdgeKind, Graph, LockNode, Node, NodeKind};
use leasehold_core as core;
use leasehold_core::Timestamp;

use super::page::{self, Room};
use crate::service::graph::RefusedWait;
use crate::service::problems::{Failure, unexpected};

/// Leaves out what would make the answer too large.
fn keep_small(view: &mut core::Graph) {
    let mut room = Room::new();
    // An edge, and the nodes at its ends.
    let mut has_room = |owner: &core::Owner, scope: &core::Scope, more: usize| {
        let ends = owner.as_str().len() + scope.to_string().len();
        room.has_for(2 * (page::AROUND + ends) + more)
    };
    let waits = view.waits.iter().take_while(|wait| {
        let blockers = wait.blockers.iter().map(|owner| owner.as_str().len() + 8).sum();
        has_room(&wait.waiter, &wait.scope, blockers)
    });
    let waits = waits.count();
    let holds = view.holds.iter().take_while(|held| has_room(&held.owner, &held.scope, 0));
    let holds = holds.count();
    view.truncated |= waits < view.waits.len() || holds < view.holds.len();
    view.waits.truncate(waits);
    view.holds.truncate(holds);
}

fn owner_node(owner: &core::Owner) -> String {
    format!("owner:{owner}")
}

fn lock_node(scope: &core::Scope) -> String {
    format!("lock:{scope}")
}

/// The graph, as far as it fits into an answer. It is drawn on a thread of its own, as that takes a while.
pub(crate) async fn graph(
    now: Timestamp,
    (mut view, refused): (core::Graph, Vec<RefusedWait>),
    finish: impl FnOnce(&mut Graph) + Send + 'static,
) -> Result<Graph, Failure> {
    let drawing = tokio::task::spawn_blocking(move || {
        keep_small(&mut view);
        let mut graph = drawn(now, &view, &refused);
        finish(&mut graph);
        graph
    });
    drawing.await.map_err(|_| unexpected())
}

fn drawn(now: Timestamp, view: &core::Graph, refused: &[RefusedWait]) -> Graph {
    let waits = view.waits.iter().map(|wait| Edge {
        kind: EdgeKind::Waits,
        from: owner_node(&wait.waiter),
        to: lock_node(&wait.scope),
        mode: super::mode_shown(wait.mode).0,
        since_ms: super::millis(wait.waited),
        blockers: wait.blockers.iter().map(core::Owner::to_string).collect(),
    });
    let holds = view.holds.iter().map(|holder| Edge {
        kind: EdgeKind::Holds,
        from: lock_node(&holder.scope),
        to: owner_node(&holder.owner),
        mode: super::mode_shown(holder.mode).0,
        since_ms: super::millis(now.since(holder.since)),
        blockers: Vec::new(),
    });
    let mut edges: Vec<Edge> = waits.chain(holds).collect();
    edges.extend(refused.iter().map(|refused| refused_edge(now, refused)));
    edges.extend(overlaps(view));
    let ends: BTreeSet<&str> =
        edges.iter().flat_map(|edge| [edge.from.as_str(), edge.to.as_str()]).collect();
    let locks = locks(now, view);
    Graph {
        nodes: ends.into_iter().map(|id| node(id, &locks)).collect(),
        cycles: view.cycles.iter().map(|cycle| super::cycle(cycle)).collect(),
        truncated: view.truncated,
        size: None,
        revision: view.revision.0,
        edges,
    }
}

fn refused_edge(now: Timestamp, refused: &RefusedWait) -> Edge {
    Edge {
        kind: EdgeKind::Refused,
        from: owner_node(&refused.victim),
        to: lock_node(&refused.scope),
        mode: leasehold_api::Mode::default(),
        since_ms: super::millis(now.since(refused.at)),
        blockers: vec![refused.blocker.to_string()],
    }
}

/// From what is waited for to what is held in its way under another name.
fn overlaps(view: &core::Graph) -> Vec<Edge> {
    let waited: BTreeSet<&core::Scope> = view.waits.iter().map(|wait| &wait.scope).collect();
    let held: BTreeSet<&core::Scope> = view.holds.iter().map(|holder| &holder.scope).collect();
    let pairs = waited.iter().flat_map(|scope| held.iter().map(move |other| (*scope, *other)));
    let pairs = pairs.filter(|(scope, other)| scope != other && scope.overlaps(other));
    let edge = |(scope, other): (&core::Scope, &core::Scope)| Edge {
        kind: EdgeKind::Overlaps,
        from: lock_node(scope),
        to: lock_node(other),
        mode: leasehold_api::Mode::default(),
        since_ms: 0,
        blockers: Vec::new(),
    };
    pairs.map(edge).collect()
}

/// The mode of each lock, by its node.
fn locks(now: Timestamp, view: &core::Graph) -> BTreeMap<String, LockNode> {
    let mut locks: BTreeMap<String, LockNode> = BTreeMap::new();
    for holder in &view.holds {
        let shown = super::holder(now, holder);
        let node = LockNode {
            state: shown.state,
            fencing_token: shown.fencing_token,
            ttl_ms: shown.ttl_ms,
            expires_in_ms: shown.expires_in_ms,
            holders: 1,
        };
        match locks.entry(lock_node(&holder.scope)) {
            Entry::Vacant(vacant) => drop(vacant.insert(node)),
            Entry::Occupied(mut known) => {
                let holders = known.get().holders + 1;
                let latest = if known.get().fencing_token < node.fencing_token {
                    node
                } else {
                    known.get().clone()
                };
                known.insert(LockNode { holders, ..latest });
            }
        }
    }
    locks
}

fn node(id: &str, locks: &BTreeMap<String, LockNode>) -> Node {
    let (kind, name) = match id.split_once(':') {
        Some(("owner", name)) => (NodeKind::Owner, name),
        Some((_, name)) => (NodeKind::Lock, name),
        None => (NodeKind::Lock, id),
    };
    let lock = locks.get(id).cloned();
    Node { id: id.into(), kind, name: name.into(), lock, count: None, place: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_knows_what_it_stands_for() {
        let node = |id| node(id, &BTreeMap::new());
        assert_eq!(node("owner:a:b").name, "a:b");
        assert_eq!(node("lock:path:/srv").name, "path:/srv");
        assert_eq!(node("lock:path:/srv").kind, NodeKind::Lock);
    }
}
