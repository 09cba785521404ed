//! `leasehold cluster`

use leasehold_api::{Cluster, Role, RotatedKey, ServerView};
use leasehold_client::Method;

use super::Answered;
use super::auth::{NOTHING, ask};
use crate::args;
use crate::asking::Server;
use crate::output::{Output, short, shown};

const HEAD: [&str; 9] =
    ["GROUP", "HERE", "LEADER", "AT", "EPOCH", "LOCKS", "SESSIONS", "WAITERS", "LAST TOKEN"];

const SERVERS_HEAD: [&str; 5] = ["SERVER", "AT", "LEADS", "SEEN", ""];

pub(crate) async fn run(server: &Server, args: &args::Cluster) -> Answered {
    match args.command {
        Some(args::ClusterCommand::RotateKey) => rotate_key(server).await,
        None => show(server).await,
    }
}

async fn rotate_key(server: &Server) -> Answered {
    let path = "/v1/auth/cluster-key/rotate";
    let rotated: RotatedKey = ask(server, Method::POST, path, NOTHING).await?;
    server.out.answer(&rotated, |_| {
        format!(
            "there is a new key; the one before is good until {}\n",
            rotated.previous_good_until
        )
    });
    Ok(0)
}

async fn show(server: &Server) -> Answered {
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
                    let kind = if grace.strict { "strict" } else { "conflicting" };
                    format!(
                        "{kind}, ends in {}, leases not yet renewed: {}",
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
            // Only the leader counts.
            let number =
                |count: u64| if group.has_numbers { count.to_string() } else { "-".into() };
            vec![
                group.group.to_string(),
                role(group.role).into(),
                leader.map_or_else(|| "nobody".into(), |leader| shown(&leader.name)),
                leader.map_or_else(String::new, |leader| shown(&leader.address)),
                group.epoch.to_string(),
                number(group.locks_held),
                number(group.sessions),
                number(group.waiters),
                number(group.last_fencing_token),
            ]
        })
        .collect();
    text += &format!("\n{}", out.table(&HEAD, &rows));
    if cluster.groups.iter().any(|group| !group.has_numbers) {
        text += "\n-  known to the leader: ask it with --addr\n";
    }
    if !cluster.servers.is_empty() {
        text += &format!("\n{}", out.table(&SERVERS_HEAD, &servers(cluster)));
    }
    text
}

fn servers(cluster: &Cluster) -> Vec<Vec<String>> {
    let row = |server: &ServerView| {
        let led = cluster
            .groups
            .iter()
            .filter(|group| group.leader.as_ref().is_some_and(|leader| leader.name == server.name));
        let here = if server.name == cluster.name { "this one" } else { "" };
        vec![
            shown(&server.name),
            shown(&server.address),
            led.count().to_string(),
            format!("{} ago", short(server.seen_ms_ago)),
            here.into(),
        ]
    };
    cluster.servers.iter().map(row).collect()
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
