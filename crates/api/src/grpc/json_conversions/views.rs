//! Sessions, the wait-for graph, events and the cluster.

use super::locks::{mode, state};
use super::{at, metadata, ms};
use crate::grpc as wire;

impl From<&crate::KeptAlive> for wire::KeptAlive {
    fn from(kept: &crate::KeptAlive) -> wire::KeptAlive {
        wire::KeptAlive {
            ttl: Some(ms(kept.ttl_ms)),
            expires_in: Some(ms(kept.expires_in_ms)),
            expires_at: at(&kept.expires_at),
            epoch: kept.epoch,
        }
    }
}

impl From<&crate::Opened> for wire::Opened {
    fn from(opened: &crate::Opened) -> wire::Opened {
        wire::Opened {
            session_id: opened.session_id.clone(),
            session: opened.session,
            owner_id: opened.owner_id.clone(),
            adapter: opened.adapter.clone(),
            ttl: Some(ms(opened.ttl_ms)),
            expires_in: Some(ms(opened.expires_in_ms)),
            expires_at: at(&opened.expires_at),
            epoch: opened.epoch,
            replayed: opened.replayed,
        }
    }
}

impl From<&crate::Session> for wire::Session {
    fn from(session: &crate::Session) -> wire::Session {
        wire::Session {
            session: session.session,
            namespace: session.namespace.clone(),
            owner_id: session.owner_id.clone(),
            adapter: session.adapter.clone(),
            on_disconnect: match session.on_disconnect {
                crate::OnDisconnect::Release => wire::OnDisconnect::Release,
                crate::OnDisconnect::Keep => wire::OnDisconnect::Keep,
            }
            .into(),
            disconnect_ttl: session.disconnect_ttl_ms.map(ms),
            attached: session.attached,
            recovering: session.recovering,
            opened_at: at(&session.opened_at),
            ttl: Some(ms(session.ttl_ms)),
            expires_at: at(&session.expires_at),
            expires_in: Some(ms(session.expires_in_ms)),
            locks: session.locks,
            waiters: session.waiters,
            metadata: metadata(&session.metadata),
        }
    }
}

impl From<&crate::WaitEdge> for wire::WaitEdge {
    fn from(edge: &crate::WaitEdge) -> wire::WaitEdge {
        wire::WaitEdge {
            waiter: edge.waiter.clone(),
            lock: edge.lock.clone(),
            blocker: edge.blocker.clone(),
            hidden: edge.hidden,
        }
    }
}

impl From<&wire::WaitEdge> for crate::WaitEdge {
    fn from(edge: &wire::WaitEdge) -> crate::WaitEdge {
        crate::WaitEdge {
            waiter: edge.waiter.clone(),
            lock: edge.lock.clone(),
            blocker: edge.blocker.clone(),
            hidden: edge.hidden,
        }
    }
}

pub(super) fn cycle(edges: &[crate::WaitEdge]) -> Vec<wire::WaitEdge> {
    edges.iter().map(wire::WaitEdge::from).collect()
}

impl From<&crate::Graph> for wire::Graph {
    fn from(graph: &crate::Graph) -> wire::Graph {
        let lock = |lock: &crate::LockNode| wire::LockNode {
            state: state(lock.state),
            fencing_token: lock.fencing_token,
            ttl: Some(ms(lock.ttl_ms)),
            expires_in: Some(ms(lock.expires_in_ms)),
            holders: lock.holders,
        };
        let node = |node: &crate::Node| wire::Node {
            id: node.id.clone(),
            kind: match node.kind {
                crate::NodeKind::Owner => wire::node::Kind::Owner,
                crate::NodeKind::Lock => wire::node::Kind::Lock,
                crate::NodeKind::More => wire::node::Kind::More,
            }
            .into(),
            name: node.name.clone(),
            lock: node.lock.as_ref().map(lock),
            count: node.count,
        };
        let edge = |edge: &crate::Edge| wire::Edge {
            kind: match edge.kind {
                crate::EdgeKind::Holds => wire::edge::Kind::Holds,
                crate::EdgeKind::Waits => wire::edge::Kind::Waits,
                crate::EdgeKind::Overlaps => wire::edge::Kind::Overlaps,
                crate::EdgeKind::Refused => wire::edge::Kind::Refused,
            }
            .into(),
            from: edge.from.clone(),
            to: edge.to.clone(),
            mode: mode(edge.mode),
            since: Some(ms(edge.since_ms)),
            blockers: edge.blockers.clone(),
        };
        wire::Graph {
            nodes: graph.nodes.iter().map(node).collect(),
            edges: graph.edges.iter().map(edge).collect(),
            cycles: graph.cycles.iter().map(|edges| wire::Cycle { edges: cycle(edges) }).collect(),
            truncated: graph.truncated,
            revision: graph.revision,
        }
    }
}

impl From<&crate::Event> for wire::Event {
    fn from(event: &crate::Event) -> wire::Event {
        wire::Event {
            revision: event.revision,
            at: at(&event.at),
            namespace: event.namespace.clone(),
            last_of_revision: event.cursor.is_some(),
            cursor: event.cursor.map(|cursor| cursor.to_string()),
            news: Some(news(&event.news)),
        }
    }
}

fn news(news: &crate::News) -> wire::event::News {
    use crate::News;
    use wire::event::News as Out;
    match news.clone() {
        News::EpochBegan { epoch } => Out::EpochBegan(wire::EpochBegan { epoch }),
        News::GraceEnded => Out::GraceEnded(wire::GraceEnded {}),
        News::SessionOpened { session, owner_id, adapter, .. } => {
            Out::SessionOpened(wire::SessionOpened { session, owner_id, adapter })
        }
        News::SessionEnded { session, owner_id, reason, .. } => {
            Out::SessionEnded(wire::SessionEnded { session, owner_id, reason })
        }
        News::Granted { lock, owner_id, mode: held, permits, fencing_token, ttl_ms, .. } => {
            let (mode, ttl) = (mode(held), Some(ms(ttl_ms)));
            Out::Granted(wire::Granted { lock, owner_id, mode, permits, fencing_token, ttl })
        }
        News::Ended {
            lock,
            owner_id,
            mode: held,
            permits,
            fencing_token,
            reason,
            note,
            reclaim_ms,
            held_ms,
            ..
        } => Out::Ended(wire::Ended {
            lock,
            owner_id,
            mode: mode(held),
            permits,
            fencing_token,
            reason,
            note,
            reclaim_window: reclaim_ms.map(ms),
            held: Some(ms(held_ms)),
        }),
        News::TtlChanged { owner_id, ttl_ms, .. } => {
            Out::TtlChanged(wire::TtlChanged { owner_id, ttl: Some(ms(ttl_ms)) })
        }
        News::FenceAccepted { register, fencing_token } => {
            Out::FenceAccepted(wire::FenceAccepted { register, fencing_token })
        }
        News::FenceDeleted { register, note } => {
            Out::FenceDeleted(wire::FenceDeleted { register, note })
        }
        News::Queued { locks, owner_id, .. } => Out::Queued(wire::Queued { locks, owner_id }),
        News::Left { locks, owner_id, .. } => Out::Left(wire::Queued { locks, owner_id }),
        News::Deadlock { owner_id, cycle: edges } => {
            Out::Deadlock(wire::Deadlock { owner_id, cycle: cycle(&edges) })
        }
        News::Bookmark => Out::Bookmark(wire::Bookmark {}),
        News::Resync => Out::Resync(wire::Resync {}),
    }
}

fn role(role: crate::Role) -> i32 {
    match role {
        crate::Role::Starting => wire::Role::Starting,
        crate::Role::Leader => wire::Role::Leader,
        crate::Role::Follower => wire::Role::Follower,
        crate::Role::Draining => wire::Role::Draining,
        crate::Role::Stopped => wire::Role::Stopped,
    }
    .into()
}

fn grace(grace: &crate::Grace) -> wire::Grace {
    wire::Grace {
        strict: grace.strict,
        ends_in: Some(ms(grace.ends_in_ms)),
        expected: grace.expected,
    }
}

impl From<&crate::Group> for wire::Group {
    fn from(group: &crate::Group) -> wire::Group {
        let leader = |leader: &crate::LeaderView| wire::Leader {
            name: leader.name.clone(),
            address: leader.address.clone(),
        };
        wire::Group {
            group: group.group,
            role: role(group.role),
            leader: group.leader.as_ref().map(leader),
            has_numbers: group.has_numbers,
            epoch: group.epoch,
            revision: group.revision,
            store: group.store.clone(),
            grace: group.grace.as_ref().map(grace),
            locks_held: group.locks_held,
            sessions: group.sessions,
            waiters: group.waiters,
            last_fencing_token: group.last_fencing_token,
        }
    }
}

impl From<&crate::Cluster> for wire::ClusterState {
    fn from(cluster: &crate::Cluster) -> wire::ClusterState {
        wire::ClusterState {
            role: role(cluster.role),
            epoch: cluster.epoch,
            revision: cluster.revision,
            store: cluster.store.clone(),
            grace: cluster.grace.as_ref().map(grace),
            locks_held: cluster.locks_held,
            sessions: cluster.sessions,
            waiters: cluster.waiters,
            last_fencing_token: cluster.last_fencing_token,
            name: cluster.name.clone(),
            address: cluster.address.clone(),
            groups: cluster.groups.iter().map(wire::Group::from).collect(),
        }
    }
}
