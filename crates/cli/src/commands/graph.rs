//! `leasehold graph`

use std::collections::BTreeMap;

use leasehold_api::{Edge, EdgeKind, Graph};

use super::Answered;
use super::views::mode;
use crate::args;
use crate::asking::Server;
use crate::output::{Output, Style, short, shown};

pub(crate) async fn run(server: &Server, args: &args::Graph) -> Answered {
    if args.dot {
        server.out.text(&server.ask(server.client.api().graph_dot()).await?);
        return Ok(0);
    }
    let graph = server.ask(server.client.api().graph()).await?;
    server.out.answer(&graph, |out| drawn(out, &graph));
    Ok(0)
}

/// Each lock with those that hold it and those that wait, as a tree.
pub(crate) fn drawn(out: &Output, graph: &Graph) -> String {
    let mut locks: BTreeMap<&str, (Vec<&Edge>, Vec<&Edge>)> = BTreeMap::new();
    for edge in &graph.edges {
        match edge.kind {
            EdgeKind::Holds => locks.entry(&edge.from).or_default().0.push(edge),
            EdgeKind::Waits => locks.entry(&edge.to).or_default().1.push(edge),
            // The holder in the way is named with the waiter; who was refused waits no longer.
            EdgeKind::Overlaps | EdgeKind::Refused => {}
        }
    }
    if locks.is_empty() {
        return "no waiters\n".into();
    }
    let mut text = String::new();
    for (lock, (holds, waits)) in locks {
        text += &format!("{}\n", out.styled(Style::Head, &name(lock)));
        let holders = holds.iter().map(|edge| {
            let since = short(edge.since_ms);
            format!("held by {} ({}, for {since})", name(&edge.to), mode(edge.mode, None))
        });
        let waiters = waits.iter().map(|edge| {
            let blockers: Vec<String> = edge.blockers.iter().map(|owner| shown(owner)).collect();
            let since = short(edge.since_ms);
            let (who, how) = (name(&edge.from), mode(edge.mode, None));
            format!("{who} waits ({how}, for {since}) behind {}", blockers.join(", "))
        });
        let lines: Vec<String> = holders.chain(waiters).collect();
        for (at, line) in lines.iter().enumerate() {
            let branch = if at + 1 == lines.len() { "`-" } else { "|-" };
            text += &format!("{branch} {line}\n");
        }
    }
    for cycle in &graph.cycles {
        let steps: Vec<String> = cycle
            .iter()
            .map(|step| format!("{} -> {}", shown(&step.waiter), shown(&step.blocker)))
            .collect();
        text += &format!("{} {}\n", out.styled(Style::Bad, "deadlock:"), steps.join(", "));
    }
    if graph.truncated {
        text += "there are more waiters than are drawn\n";
    }
    text
}

/// The name behind `lock:` or `owner:`.
fn name(node: &str) -> String {
    shown(node.split_once(':').map_or(node, |(_, name)| name))
}
