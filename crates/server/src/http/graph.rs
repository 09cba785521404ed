//! The wait-for graph, for programs as JSON and for people as a drawing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri};
use leasehold_api::{Edge, EdgeKind, Graph, Node, NodeKind};
use leasehold_core as core;
use leasehold_core::Timestamp;
use leasehold_engine::{Query, View};

use super::locks::unexpected;
use super::{Answered, input, ok, with_type};
use crate::app::App;
use crate::convert;
use crate::openapi::{NamespaceParam, Problems};
use crate::problem::Failure;

/// More waiters than that nobody can look at.
const WAITS_MAX: usize = 1000;

/// Who waits for whom
#[utoipa::path(
    get, path = "/v1/graph", tag = "watch",
    params(NamespaceParam, ("format" = Option<String>, Query, pattern = "^(json|dot)$", description = "json, or dot for Graphviz")),
    responses(
        (status = 200, description = "The graph; for Graphviz with format=dot",
            content((Graph = "application/json"), (String = "text/vnd.graphviz"))),
        Problems,
    )
)]
pub(crate) async fn graph(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let mut params = input::Params::of(&uri)?;
    let namespace = params.namespace()?;
    let format = params.take("format");
    params.done()?;
    let as_dot = match format.as_deref() {
        None | Some("json") => false,
        Some("dot") => true,
        Some(_) => return Err(Failure::field("format", "is one of json, dot")),
    };
    let query = Query::Graph { namespace, waits_max: WAITS_MAX };
    let View::Graph(view) = app.query(query).await? else { return Err(unexpected()) };
    let graph = drawn(app.now(), &view);
    if as_dot {
        let kind = HeaderValue::from_static("text/vnd.graphviz; charset=utf-8");
        return Ok(with_type(StatusCode::OK, kind, dot(&graph)));
    }
    ok(&graph)
}

fn owner_node(owner: &core::Owner) -> String {
    format!("owner:{owner}")
}

fn lock_node(scope: &core::Scope) -> String {
    format!("lock:{scope}")
}

fn drawn(now: Timestamp, view: &core::Graph) -> Graph {
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
    let edges: Vec<Edge> = waits.chain(holds).collect();
    let ends: BTreeSet<&str> =
        edges.iter().flat_map(|edge| [edge.from.as_str(), edge.to.as_str()]).collect();
    Graph {
        nodes: ends.into_iter().map(node).collect(),
        cycles: view.cycles.iter().map(|cycle| convert::cycle(cycle)).collect(),
        truncated: view.waits.len() >= WAITS_MAX,
        revision: view.revision.0,
        edges,
    }
}

fn node(id: &str) -> Node {
    let (kind, name) = match id.split_once(':') {
        Some(("owner", name)) => (NodeKind::Owner, name),
        Some((_, name)) => (NodeKind::Lock, name),
        None => (NodeKind::Lock, id),
    };
    Node { id: id.into(), kind, name: name.into() }
}

/// The same as a drawing for Graphviz.
fn dot(graph: &Graph) -> String {
    let mut text = String::from("digraph waits {\n  rankdir=LR;\n");
    let mut line = |words: std::fmt::Arguments<'_>| {
        writeln!(text, "  {words}").expect("a String takes everything");
    };
    for node in &graph.nodes {
        let shape = match node.kind {
            NodeKind::Owner => "ellipse",
            NodeKind::Lock => "box",
        };
        line(format_args!("{} [label={}, shape={shape}];", quoted(&node.id), quoted(&node.name)));
    }
    for edge in &graph.edges {
        let (said, style) = match edge.kind {
            EdgeKind::Holds => ("held by", "solid"),
            EdgeKind::Waits => ("waits", "dashed"),
        };
        let label = format!("{said} {} ms", edge.since_ms);
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
        assert_eq!(node("owner:a:b").name, "a:b");
        assert_eq!(node("lock:path:/srv").name, "path:/srv");
        assert_eq!(node("lock:path:/srv").kind, NodeKind::Lock);
    }
}
