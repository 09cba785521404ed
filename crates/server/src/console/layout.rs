//! The layout of the wait-for graph: left to right, from those who wait to those who hold.
//!
//! A picture that nobody can read helps nobody, so it is kept small: a crowd before one lock is drawn as its first few and
//! a number, and beyond a few hundred nodes the rest is left out, and said to be.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_api::{Edge, EdgeKind, Graph, Mode, Node, NodeKind, Place, Size};
use rust_sugiyama::configure::Config;
use rust_sugiyama::from_vertices_and_edges;

/// More than that cannot be drawn so that it can be read.
const NODES_MAX: usize = 500;
/// So many waiters before one lock are drawn one by one.
const CROWD_MAX: usize = 8;

const LOCK_HEIGHT: f64 = 62.0;
const OWNER_HEIGHT: f64 = 32.0;
/// Between two nodes above each other.
const ROW_GAP: f64 = 22.0;
/// Between two columns: an arrow and the words on it.
const COLUMN_GAP: f64 = 118.0;
/// Between parts that do not hang together.
const PART_GAP: f64 = 58.0;
const MARGIN: f64 = 40.0;

/// Keeps what hangs together with a name that contains the text.
pub(crate) fn keep_matching(graph: &mut Graph, text: &str) {
    if text.is_empty() {
        return;
    }
    let text = text.to_lowercase();
    let parts = parts(graph);
    let matches = |node: &&Node| node.name.to_lowercase().contains(&text);
    let wanted: BTreeSet<usize> = graph
        .nodes
        .iter()
        .filter(matches)
        .filter_map(|node| parts.get(&node.id).copied())
        .collect();
    let keep = |id: &str| parts.get(id).is_some_and(|part| wanted.contains(part));
    graph.nodes.retain(|node| keep(&node.id));
    graph.edges.retain(|edge| keep(&edge.from));
    graph.cycles.retain(|cycle| cycle.iter().any(|edge| keep(&format!("lock:{}", edge.lock))));
}

/// The number of the connected part that each node is in.
fn parts(graph: &Graph) -> BTreeMap<String, usize> {
    let mut neighbours: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in &graph.edges {
        neighbours.entry(&edge.from).or_default().push(&edge.to);
        neighbours.entry(&edge.to).or_default().push(&edge.from);
    }
    let mut parts = BTreeMap::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        let mut next = vec![node.id.as_str()];
        while let Some(id) = next.pop() {
            if !parts.contains_key(id) {
                parts.insert(id.to_string(), number);
                next.extend(neighbours.get(id).into_iter().flatten());
            }
        }
    }
    parts
}

/// Says of every node where to draw it. Crowds become one node; what does not fit is left out.
pub(crate) fn lay_out(graph: &mut Graph) {
    fold_crowds(graph);
    cut(graph);
    let size = place(graph);
    graph.size = Some(size);
}

/// Waiters that do nothing but wait for one lock stand together behind the first few of them.
fn fold_crowds(graph: &mut Graph) {
    let mut degree: BTreeMap<&str, usize> = BTreeMap::new();
    for edge in &graph.edges {
        *degree.entry(&edge.from).or_default() += 1;
        *degree.entry(&edge.to).or_default() += 1;
    }
    let mut crowds: BTreeMap<&str, Vec<&Edge>> = BTreeMap::new();
    for edge in graph.edges.iter().filter(|edge| edge.kind == EdgeKind::Waits) {
        if degree.get(edge.from.as_str()) == Some(&1) {
            crowds.entry(&edge.to).or_default().push(edge);
        }
    }
    let (mut gone, mut nodes, mut edges) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (lock, crowd) in crowds {
        if crowd.len() <= CROWD_MAX + 1 {
            continue;
        }
        let rest = &crowd[CROWD_MAX..];
        gone.extend(rest.iter().map(|edge| edge.from.clone()));
        let id = format!("more:{lock}");
        nodes.push(Node {
            id: id.clone(),
            kind: NodeKind::More,
            name: format!("{} more", rest.len()),
            lock: None,
            count: Some(rest.len() as u64),
            place: None,
        });
        edges.push(Edge {
            kind: EdgeKind::Waits,
            from: id,
            to: lock.to_string(),
            mode: Mode::default(),
            since_ms: rest.iter().map(|edge| edge.since_ms).max().unwrap_or(0),
            blockers: Vec::new(),
        });
    }
    graph.nodes.retain(|node| !gone.contains(&node.id));
    graph.edges.retain(|edge| !gone.contains(&edge.from));
    graph.nodes.extend(nodes);
    graph.edges.extend(edges);
}

/// Keeps the nodes of the first edges, which are of the longest waits, as long as there is room.
fn cut(graph: &mut Graph) {
    if graph.nodes.len() <= NODES_MAX {
        return;
    }
    graph.truncated = true;
    let mut kept: BTreeSet<String> = BTreeSet::new();
    // Whoever waits for something is shown together with those who hold it.
    let mut held: BTreeMap<&str, Vec<&Edge>> = BTreeMap::new();
    for edge in &graph.edges {
        held.entry(&edge.from).or_default().push(edge);
    }
    let holders = |lock: &str| {
        let held = held.get(lock).into_iter().flatten();
        held.map(|edge| edge.to.clone()).collect::<Vec<String>>()
    };
    let is_wait = |edge: &&Edge| matches!(edge.kind, EdgeKind::Waits | EdgeKind::Refused);
    for edge in graph.edges.iter().filter(is_wait) {
        let mut more = holders(&edge.to);
        more.extend([edge.from.clone(), edge.to.clone()]);
        more.retain(|id| !kept.contains(id));
        if kept.len() + more.len() > NODES_MAX {
            break;
        }
        kept.extend(more);
    }
    graph.nodes.retain(|node| kept.contains(&node.id));
    graph.edges.retain(|edge| kept.contains(&edge.from) && kept.contains(&edge.to));
}

fn place(graph: &mut Graph) -> Size {
    let numbers: BTreeMap<&str, u32> =
        graph.nodes.iter().zip(0..).map(|(node, number)| (node.id.as_str(), number)).collect();
    let edges: BTreeSet<(u32, u32)> = graph
        .edges
        .iter()
        .filter_map(|edge| {
            let pair = (*numbers.get(edge.from.as_str())?, *numbers.get(edge.to.as_str())?);
            (pair.0 != pair.1).then_some(pair)
        })
        .collect();
    let edges: Vec<(u32, u32)> = edges.into_iter().collect();
    let sizes: Vec<(f64, f64)> = graph.nodes.iter().map(size_of).collect();
    // The algorithm goes from top to bottom: across and along are swapped on the way in and out.
    let vertices: Vec<(u32, (f64, f64))> = (0..)
        .zip(&sizes)
        .map(|(number, &(width, height))| (number, (height, width + COLUMN_GAP - ROW_GAP)))
        .collect();
    let config = Config { vertex_spacing: ROW_GAP, ..Config::default() };
    let parts = from_vertices_and_edges(&vertices, &edges, &config);
    let mut packed: Vec<Part> = parts
        .into_iter()
        .map(|(placed, ..)| Part::of(&placed, &sizes))
        .filter(|part| !part.places.is_empty())
        .collect();
    packed.sort_by(|one, other| {
        (other.places.len(), first(one)).cmp(&(one.places.len(), first(other)))
    });
    let size = pack(&mut packed);
    for part in packed {
        for (number, place) in part.places {
            graph.nodes[number].place = Some(place);
        }
    }
    size
}

fn first(part: &Part) -> usize {
    part.places.iter().map(|(number, _)| *number).min().unwrap_or(0)
}

/// The size of a node: its name fits in, up to a point.
fn size_of(node: &Node) -> (f64, f64) {
    let chars = node.name.chars().take(40).count();
    let chars = f64::from(u32::try_from(chars).unwrap_or(40));
    match node.kind {
        NodeKind::Lock => ((chars * 7.4 + 28.0).clamp(168.0, 270.0), LOCK_HEIGHT),
        NodeKind::Owner | NodeKind::More => ((chars * 7.2 + 32.0).clamp(84.0, 230.0), OWNER_HEIGHT),
    }
}

/// Nodes that hang together, with their upper left corner at the origin.
struct Part {
    places: Vec<(usize, Place)>,
    width: f64,
    height: f64,
}

impl Part {
    fn of(placed: &[(usize, (f64, f64))], sizes: &[(f64, f64)]) -> Part {
        let mut places: Vec<(usize, Place)> = placed
            .iter()
            .map(|&(number, (across, along))| {
                let (width, height) = sizes[number];
                let (x, y) = (along - width / 2.0, across - height / 2.0);
                (number, Place { x, y, width, height })
            })
            .collect();
        let left = places.iter().map(|(_, place)| place.x).fold(f64::INFINITY, f64::min);
        let top = places.iter().map(|(_, place)| place.y).fold(f64::INFINITY, f64::min);
        let (mut right, mut bottom) = (0.0_f64, 0.0_f64);
        for (_, place) in &mut places {
            place.x -= left;
            place.y -= top;
            right = right.max(place.x + place.width);
            bottom = bottom.max(place.y + place.height);
        }
        Part { places, width: right, height: bottom }
    }

    fn shift(&mut self, x: f64, y: f64) {
        for (_, place) in &mut self.places {
            place.x = (place.x + x).round();
            place.y = (place.y + y).round();
        }
    }
}

/// Puts the parts side by side in rows, so that the whole is about as wide as a screen.
fn pack(parts: &mut [Part]) -> Size {
    let area: f64 =
        parts.iter().map(|part| (part.width + PART_GAP) * (part.height + PART_GAP)).sum();
    let widest = parts.iter().map(|part| part.width).fold(0.0, f64::max);
    let row_width = (area * 1.7).sqrt().max(widest).max(1000.0);
    let (mut x, mut y, mut row_height, mut width) = (0.0, 0.0, 0.0_f64, 0.0_f64);
    for part in parts.iter_mut() {
        if x > 0.0 && x + part.width > row_width {
            (x, y, row_height) = (0.0, y + row_height + PART_GAP, 0.0);
        }
        part.shift(MARGIN + x, MARGIN + y);
        width = width.max(x + part.width);
        row_height = row_height.max(part.height);
        x += part.width + PART_GAP;
    }
    Size { width: width + 2.0 * MARGIN, height: y + row_height + 2.0 * MARGIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(kind: EdgeKind, from: &str, to: &str) -> Edge {
        let (from, to) = (from.to_string(), to.to_string());
        Edge { kind, from, to, mode: Mode::default(), since_ms: 0, blockers: Vec::new() }
    }

    fn graph(edges: Vec<Edge>) -> Graph {
        let ids: BTreeSet<String> =
            edges.iter().flat_map(|edge| [edge.from.clone(), edge.to.clone()]).collect();
        let node = |id: String| {
            let kind = if id.starts_with("lock:") { NodeKind::Lock } else { NodeKind::Owner };
            let name = id.split_once(':').map_or(id.clone(), |(_, name)| name.to_string());
            Node { id, kind, name, lock: None, count: None, place: None }
        };
        Graph {
            nodes: ids.into_iter().map(node).collect(),
            edges,
            cycles: Vec::new(),
            truncated: false,
            size: None,
            revision: 0,
        }
    }

    fn crowd(locks: usize, waiters: usize) -> Graph {
        let mut edges = Vec::new();
        for lock in 0..locks {
            let id = format!("lock:l{lock}");
            edges.push(edge(EdgeKind::Holds, &id, &format!("owner:h{lock}")));
            for waiter in 0..waiters {
                edges.push(edge(EdgeKind::Waits, &format!("owner:w{lock}-{waiter}"), &id));
            }
        }
        graph(edges)
    }

    fn overlap(one: Place, other: Place) -> bool {
        one.x < other.x + other.width
            && other.x < one.x + one.width
            && one.y < other.y + other.height
            && other.y < one.y + one.height
    }

    #[test]
    fn every_node_has_a_place_of_its_own_inside_the_drawing() {
        let mut graph = crowd(25, 7);
        lay_out(&mut graph);
        let size = graph.size.unwrap();
        let places: Vec<Place> = graph.nodes.iter().map(|node| node.place.unwrap()).collect();
        assert_eq!(places.len(), 25 * 9);
        for (at, place) in places.iter().enumerate() {
            assert!(place.x >= 0.0 && place.x + place.width <= size.width, "{place:?}");
            assert!(place.y >= 0.0 && place.y + place.height <= size.height, "{place:?}");
            assert!(places[..at].iter().all(|other| !overlap(*place, *other)), "{place:?}");
        }
    }

    #[test]
    fn those_who_wait_stand_left_of_what_they_wait_for() {
        let mut graph = crowd(1, 3);
        lay_out(&mut graph);
        let x = |id: &str| graph.nodes.iter().find(|node| node.id == id).unwrap().place.unwrap().x;
        assert!(x("owner:w0-0") < x("lock:l0") && x("lock:l0") < x("owner:h0"));
    }

    #[test]
    fn crowd_is_drawn_as_its_first_few_and_a_number() {
        let mut graph = crowd(1, 50);
        lay_out(&mut graph);
        assert_eq!(graph.nodes.len(), 2 + CROWD_MAX + 1);
        let more = graph.nodes.iter().find(|node| node.kind == NodeKind::More).unwrap();
        assert_eq!((more.count, more.name.as_str()), (Some(42), "42 more"));
        assert!(!graph.truncated);
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_said_to_be() {
        let mut graph = crowd(200, 3);
        lay_out(&mut graph);
        assert!(graph.truncated);
        assert!((400..=NODES_MAX).contains(&graph.nodes.len()));
        let ids: BTreeSet<&str> = graph.nodes.iter().map(|node| node.id.as_str()).collect();
        for edge in &graph.edges {
            assert!(ids.contains(edge.from.as_str()) && ids.contains(edge.to.as_str()));
        }
    }

    #[test]
    fn circle_can_be_drawn() {
        let mut graph = graph(vec![
            edge(EdgeKind::Waits, "owner:a", "lock:x"),
            edge(EdgeKind::Holds, "lock:x", "owner:b"),
            edge(EdgeKind::Waits, "owner:b", "lock:y"),
            edge(EdgeKind::Holds, "lock:y", "owner:a"),
            edge(EdgeKind::Waits, "owner:a", "lock:y"),
        ]);
        lay_out(&mut graph);
        assert!(graph.nodes.iter().all(|node| node.place.is_some()));
    }

    #[test]
    fn nothing_makes_an_empty_drawing() {
        let mut graph = graph(Vec::new());
        lay_out(&mut graph);
        assert!(graph.nodes.is_empty());
    }

    #[test]
    fn filter_keeps_all_that_hangs_together_with_a_match() {
        let mut graph = crowd(3, 2);
        keep_matching(&mut graph, "W1-0");
        let ids: Vec<&str> = graph.nodes.iter().map(|node| node.id.as_str()).collect();
        assert_eq!(ids, ["lock:l1", "owner:h1", "owner:w1-0", "owner:w1-1"]);
        assert_eq!(graph.edges.len(), 3);
    }
}
