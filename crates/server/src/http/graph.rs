//! The wait-for graph, for programs as JSON and for people as a drawing.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use leasehold_api::{EdgeKind, Graph, NodeKind};

use super::encode::{Answered, ok, with_type};
use super::extract::Params;
use super::openapi::{NamespaceParam, Problems};
use crate::console::layout;
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;

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
pub(crate) async fn graph(
    State(app): State<Arc<App>>,
    caller: Caller,
    mut params: Params,
) -> Answered {
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
    let view = app.graph(&caller, namespace, with_layout).await?;
    let graph = convert::graph(app.now(), view, move |graph| {
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
}
