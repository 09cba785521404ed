//! `leasehold cluster`

use leasehold_api::{Cluster, Role};

use super::Answered;
use crate::asking::Server;
use crate::output::{Output, short, shown};

const HEAD: [&str; 9] =
    ["GROUP", "HERE", "LEADER", "AT", "EPOCH", "LOCKS", "SESSIONS", "WAITERS", "LAST TOKEN"];

pub(crate) async fn run(server: &Server) -> Answered {
    let cluster = server.ask(server.client.api().cluster()).await?;
    server.out.answer(&cluster, |out| told(out, &cluster));
    Ok(0)
}

fn told(out: &Output, cluster: &Cluster) -> String {
    let mut text = out.fields(&[
        ("server", shown(&cluster.name)),
        ("at", shown(&cluster.address)),
        ("store", shown(&cluster.store)),
        ("revision", cluster.revision.to_string()),
        (
            "grace",
            match &cluster.grace {
                None => "none".into(),
                Some(grace) => {
                    let kind = if grace.strict { "strict" } else { "for what conflicts" };
                    format!(
                        "{kind}, another {}, {} leases expected",
                        short(grace.ends_in_ms),
                        grace.expected
                    )
                }
            },
        ),
    ]);
    let rows: Vec<Vec<String>> = cluster
        .groups
        .iter()
        .map(|group| {
            let leader = group.leader.as_ref();
            vec![
                group.group.to_string(),
                role(group.role).into(),
                leader.map_or_else(|| "nobody".into(), |leader| shown(&leader.name)),
                leader.map_or_else(String::new, |leader| shown(&leader.address)),
                group.epoch.to_string(),
                group.locks_held.to_string(),
                group.sessions.to_string(),
                group.waiters.to_string(),
                group.last_fencing_token.to_string(),
            ]
        })
        .collect();
    text += &format!("\n{}", out.table(&HEAD, &rows));
    text
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Starting => "starting",
        Role::Leader => "leads",
        Role::Follower => "follows",
        Role::Draining => "stopping",
        Role::Stopped => "stopped",
    }
}
