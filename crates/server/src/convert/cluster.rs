//! The groups of namespaces and their leaders.

use leasehold_api::{Cluster, Grace, Group, LeaderView, ServerView, Version};
use leasehold_core::{Stats, Timestamp};
use leasehold_engine::Phase;

use super::millis;
use crate::cluster::balance::Seen;
use crate::service::views::{ClusterView, GroupView};

pub(crate) fn version() -> Version {
    Version {
        name: "leasehold".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        api: vec!["v1".into()],
    }
}

/// `name` and `address` are those of this server.
pub(crate) fn cluster(now: Timestamp, name: &str, address: &str, view: ClusterView) -> Cluster {
    let groups: Vec<Group> =
        (0..).zip(&view.groups).map(|(at, seen)| group(now, (name, address), at, seen)).collect();
    let first = &groups[0];
    Cluster {
        name: name.into(),
        address: address.into(),
        role: first.role,
        epoch: groups.iter().map(|group| group.epoch).max().unwrap_or(0),
        revision: first.revision,
        store: first.store.clone(),
        grace: groups.iter().find_map(|group| group.grace.clone()),
        locks_held: groups.iter().map(|group| group.locks_held).sum(),
        sessions: groups.iter().map(|group| group.sessions).sum(),
        waiters: groups.iter().map(|group| group.waiters).sum(),
        last_fencing_token: groups.iter().map(|group| group.last_fencing_token).max().unwrap_or(0),
        groups,
        servers: view.servers.into_iter().map(server).collect(),
    }
}

fn server(seen: Seen) -> ServerView {
    ServerView {
        seen_ms_ago: millis(seen.moved.elapsed()),
        name: seen.server.name,
        address: seen.server.address,
    }
}

fn group(now: Timestamp, own: (&str, &str), number: u64, seen: &GroupView) -> Group {
    let (status, none) = (&seen.status, Stats::default());
    let stats = seen.stats.as_ref().unwrap_or(&none);
    let leader = match (&status.leader, status.phase) {
        (Some(leader), _) => Some((leader.name.clone(), leader.address.clone())),
        (None, Phase::Leading) => Some((own.0.to_string(), own.1.to_string())),
        (None, _) => None,
    };
    Group {
        group: number,
        role: super::role(status),
        leader: leader.map(|(name, address)| LeaderView { name, address }),
        epoch: status.epoch.0,
        has_numbers: seen.stats.is_some(),
        revision: stats.revision.0,
        store: status.store.into(),
        grace: status.grace.map(|grace| Grace {
            strict: grace.strict,
            ends_in_ms: millis(grace.ends_at.since(now)),
            expected: grace.expected as u64,
        }),
        locks_held: stats.held as u64,
        sessions: stats.sessions as u64,
        waiters: stats.waiters as u64,
        last_fencing_token: stats.fence.get(),
    }
}
