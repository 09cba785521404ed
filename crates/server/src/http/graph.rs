//! The wait-for graph, for programs as JSON and for people as a drawing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri};
use leasehold_api::{Edge, EdgeKind, Graph, LockNode, Node, NodeKind};
use leasehold_core as core;
use leasehold_core::{Event, Namespace, News, Timestamp};
use leasehold_engine::{Query, View};

use super::locks::unexpected;
use super::{Answered, extract, ok, with_type};
use crate::console::layout;
use crate::convert;
use crate::convert::page::{self, Room};
use crate::http::openapi::{NamespaceParam, Problems};
use crate::service::app::App;
use crate::service::problems::Failure;

/// More waiters than that nobody can look at.
const WAITS_MAX: usize = 1000;
/// A deadlock is part of the picture for so long.
const REFUSED_SHOWN: Duration = Duration::from_secs(600);
const REFUSED_MAX: usize = 20;

/// Get the wait-for graph
///
/// The wait-for graph: holders, waiters, what they wait for, and cycles. With `format=dot` in the language of Graphviz.
#[utoipa::path(
    get, path = "/v1/graph", operation_id = "get_graph", tag = "watch",
    params(
        NamespaceParam,
        ("format" = Option<String>, Query, pattern = "^(json|dot)$", description = "json, or dot for Graphviz"),
        ("layout" = Option<bool>, Query, description = "Include coordinates for each node; many waiters for one lock are drawn as one"),
        ("filter" = Option<String>, Query, description = "Only what is connected to a lock or owner whose name contains this"),
    ),
    responses(
        (status = 200, description = "The graph; for Graphviz with format=dot",
            content((Graph = "application/json"), (String = "text/vnd.graphviz"))),
        Problems,
    )
)]
pub(crate) async fn graph(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let mut params = extract::Params::of(&uri)?;
    let namespace = params.namespace()?;
    let format = params.take("format");
    let layout = params.take("layout");
    let filter = params.take("filter").unwrap_or_default();
    params.done()?;
    let as_dot = match format.as_deref() {
        None | Some("json") => false,
        Some("dot") => true,
        Some(_) => return Err(Failure::field("format", "is one of json, dot")),
    };
    let with_layout = match layout.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Failure::field("layout", "is true or false")),
    };
    let graph = now(&app, namespace, with_layout, move |graph| {
        layout::keep_matching(graph, &filter);
        if with_layout {
            layout::lay_out(graph);
        }
    });
    let graph = graph.await?;
    if as_dot {
        let kind = HeaderValue::from_static("text/vnd.graphviz; charset=utf-8");
        return Ok(with_type(StatusCode::OK, kind, dot(&graph)));
    }
    ok(&graph)
}

/// The graph as it is now; for a drawing with the waits that were refused lately. Whatever takes longer is done on a thread
/// of its own: those that answer requests have other things to do.
pub(crate) async fn now(
    app: &App,
    namespace: Namespace,
    with_refused: bool,
    finish: impl FnOnce(&mut Graph) + Send + 'static,
) -> Result<Graph, Failure> {
    let query = Query::Graph { namespace: namespace.clone(), waits_max: WAITS_MAX };
    let View::Graph(mut view) = app.query(query).await? else { return Err(unexpected()) };
    let refused = match with_refused {
        true => refused(app, &namespace, &mut view).await?,
        false => Vec::new(),
    };
    keep_small(&mut view);
    let now = app.now();
    let drawing = tokio::task::spawn_blocking(move || {
        let mut graph = drawn(now, &view, refused);
        finish(&mut graph);
        graph
    });
    drawing.await.map_err(|_| unexpected())
}

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

/// The waits that were refused lately, as long as what they would have closed still stands. What they were for is drawn too,
/// although nobody waits for it.
async fn refused(
    app: &App,
    namespace: &Namespace,
    view: &mut core::Graph,
) -> Result<Vec<Edge>, Failure> {
    let now = app.now();
    let is_fresh =
        |event: &Event| event.namespace == *namespace && now.since(event.at) < REFUSED_SHOWN;
    let mut edges: Vec<Edge> = Vec::new();
    for published in app.engine(namespace).deadlocks(is_fresh, REFUSED_MAX).events {
        let News::Deadlock { victim, cycle } = &published.event.news else { continue };
        let Some(last) = cycle.iter().find(|edge| edge.waiter == *victim) else { continue };
        let stands = cycle.iter().all(|edge| edge == last || is_waiting(view, edge));
        let (from, to) = (owner_node(victim), lock_node(&last.scope));
        if !stands || edges.iter().any(|edge| edge.from == from && edge.to == to) {
            continue;
        }
        let query = Query::Get { namespace: namespace.clone(), scope: last.scope.clone() };
        let View::Lock(lock) = app.query(query).await? else { return Err(unexpected()) };
        let held = lock.holders.into_iter().filter(|holder| holder.since <= published.event.at);
        let held: Vec<core::Holder> = held.filter(|h| h.owner == last.blocker).collect();
        if held.is_empty() {
            continue;
        }
        view.holds.extend(held.into_iter().filter(|h| !view.holds.contains(h)).collect::<Vec<_>>());
        edges.push(Edge {
            kind: EdgeKind::Refused,
            from,
            to,
            mode: leasehold_api::Mode::default(),
            since_ms: convert::millis(now.since(published.event.at)),
            blockers: vec![last.blocker.to_string()],
        });
    }
    Ok(edges)
}

/// Whether a step of a circle still stands. Of the waiters in the way only those right ahead are named.
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

fn drawn(now: Timestamp, view: &core::Graph, refused: Vec<Edge>) -> Graph {
    let waits = view.waits.iter().map(|wait| Edge {
        kind: EdgeKind::Waits,
        from: owner_node(&wait.waiter),
        to: lock_node(&wait.scope),
        mode: convert::mode_shown(wait.mode).0,
        since_ms: convert::millis(wait.waited),
        blockers: wait.blockers.iter().map(core::Owner::to_string).collect(),
    });
    let holds = view.holds.iter().map(|holder| Edge {
        kind: EdgeKind::Holds,
        from: lock_node(&holder.scope),
        to: owner_node(&holder.owner),
        mode: convert::mode_shown(holder.mode).0,
        since_ms: convert::millis(now.since(holder.since)),
        blockers: Vec::new(),
    });
    let mut edges: Vec<Edge> = waits.chain(holds).collect();
    edges.extend(refused);
    edges.extend(overlaps(view));
    let ends: BTreeSet<&str> =
        edges.iter().flat_map(|edge| [edge.from.as_str(), edge.to.as_str()]).collect();
    let locks = locks(now, view);
    Graph {
        nodes: ends.into_iter().map(|id| node(id, &locks)).collect(),
        cycles: view.cycles.iter().map(|cycle| convert::cycle(cycle)).collect(),
        truncated: view.truncated,
        size: None,
        revision: view.revision.0,
        edges,
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

/// How each lock is held, by its node.
fn locks(now: Timestamp, view: &core::Graph) -> BTreeMap<String, LockNode> {
    let mut locks: BTreeMap<String, LockNode> = BTreeMap::new();
    for holder in &view.holds {
        let shown = convert::holder(now, holder);
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

/// The same as a drawing for Graphviz.
fn dot(graph: &Graph) -> String {
    let mut text = String::from("digraph waits {\n  rankdir=LR;\n");
    let mut line = |words: std::fmt::Arguments<'_>| {
        writeln!(text, "  {words}").expect("a String takes everything");
    };
    for node in &graph.nodes {
        let shape = match node.kind {
            NodeKind::Owner | NodeKind::More => "ellipse",
            NodeKind::Lock => "box",
        };
        line(format_args!("{} [label={}, shape={shape}];", quoted(&node.id), quoted(&node.name)));
    }
    for edge in &graph.edges {
        let since = convert::spelled(edge.since_ms);
        let (label, style) = match edge.kind {
            EdgeKind::Holds => (format!("held for {since}"), "solid"),
            EdgeKind::Waits => (format!("waits {since}"), "dashed"),
            EdgeKind::Overlaps => ("overlaps".to_string(), "dotted"),
            EdgeKind::Refused => (format!("refused {since} ago"), "dashed"),
        };
        let (from, to) = (quoted(&edge.from), quoted(&edge.to));
        line(format_args!("{from} -> {to} [label={}, style={style}];", quoted(&label)));
    }
    text.push_str("}\n");
    text
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_a_name_cannot_leave_the_drawing() {
        assert_eq!(quoted(r#"a"];evil["#), r#""a\"];evil[""#);
        assert_eq!(quoted(r"a\"), r#""a\\""#);
    }

    #[test]
    fn node_knows_what_it_stands_for() {
        let node = |id| node(id, &BTreeMap::new());
        assert_eq!(node("owner:a:b").name, "a:b");
        assert_eq!(node("lock:path:/srv").name, "path:/srv");
        assert_eq!(node("lock:path:/srv").kind, NodeKind::Lock);
    }
}
