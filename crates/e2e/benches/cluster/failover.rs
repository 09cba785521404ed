//! Three servers on three etcd nodes: how much they manage, and how long clients do without when the leader goes.

use std::net::SocketAddr;
use std::ops::RangeFrom;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_api::Role;
use leasehold_e2e::client::{Ask, Client, Outcome};
use leasehold_e2e::cluster::look;
use leasehold_e2e::history::Recorder;
use leasehold_e2e::server::Server;
use leasehold_store::conformance::servers::EtcdCluster;

use crate::link::{Link, own_locks};
use crate::load::{Row, turns};
use crate::show;

const SERVERS: usize = 3;
/// How often each way to go is tried.
const ROUNDS: u32 = 3;
const LEADER_TIMEOUT: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(30);
/// A leader that is asked to stop has handed over by then.
const CHANGE_MAX: Duration = Duration::from_secs(3);

pub(crate) async fn three_nodes() {
    println!();
    if let Err(error) = measure().await {
        println!("three etcd nodes: {error:#}");
    }
}

async fn measure() -> Result<()> {
    let etcd = EtcdCluster::start(3);
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(Server::start_with(&["--store", &etcd.url("")]).await?);
    }
    let leader = &servers[leader(&servers).await?];
    let mut row = Row::new("leasehold on three etcd nodes");
    for _ in 0..turns() {
        let port = leader.address().port();
        let mut link = Link::open(port, None).await.map_err(anyhow::Error::msg)?;
        row.take(own_locks(leader.pid(), &mut link).await);
    }
    show(&row);
    let after_kill = times(&mut servers, Going::Killed).await?;
    report("the leader is killed (kill -9)", &after_kill, "<= 4 s");
    let after_stop = times(&mut servers, Going::Stopped).await?;
    report("the leader is stopped (SIGTERM)", &after_stop, "<= 0.5 s");
    Ok(())
}

fn report(what: &str, times: &[Duration], wanted: &str) {
    let times: Vec<String> =
        times.iter().map(|time| format!("{:.2}", time.as_secs_f64())).collect();
    println!("{what:<44} no acquire for {} s   wanted {wanted}", times.join(", "));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    Killed,
    Stopped,
}

/// How long acquires are not answered from the signal on, asked at a server that stays.
async fn times(servers: &mut [Server], going: Going) -> Result<Vec<Duration>> {
    let recorder = Recorder::default();
    let (mut times, mut locks) = (Vec::new(), 0..);
    for round in 0..ROUNDS {
        let leader = leader(servers).await?;
        let other = servers[(leader + 1) % SERVERS].address();
        let mut client = Client::new(other, round, &recorder).impatient(Duration::from_secs(5));
        acquired(&mut client, &mut locks).await?;
        let since = Instant::now();
        match going {
            Going::Killed => {
                servers[leader].kill()?;
                times.push(acquired(&mut client, &mut locks).await? - since);
            }
            Going::Stopped => {
                let stopping = servers[leader].stop();
                let (stopped, longest) =
                    tokio::join!(stopping, longest_without(&mut client, &mut locks, since));
                ensure!(stopped?.success(), "it did not stop as asked");
                times.push(longest?);
            }
        }
        servers[leader].start_again().await?;
    }
    Ok(times)
}

/// Asks all the time while the leader changes: how long there was no answer, at most. Right after the signal it may still
/// be the old leader that answers.
async fn longest_without(
    client: &mut Client,
    locks: &mut RangeFrom<u32>,
    since: Instant,
) -> Result<Duration> {
    let (mut last, mut longest) = (since, Duration::ZERO);
    while since.elapsed() < CHANGE_MAX {
        let answered = acquired(client, locks).await?;
        longest = longest.max(answered - last);
        last = answered;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(longest)
}

/// Asks until it is answered; when that was. Each time for another lock: a release may get lost while the leader changes.
async fn acquired(client: &mut Client, locks: &mut RangeFrom<u32>) -> Result<Instant> {
    let since = Instant::now();
    for lock in locks {
        let outcome = client.acquire(lock, Ask::exclusive(TTL)).await;
        if let Outcome::Done(lease) = outcome {
            let when = Instant::now();
            let _ = client.release(&lease).await;
            return Ok(when);
        }
        ensure!(since.elapsed() < LEADER_TIMEOUT, "nobody serves: {outcome:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    unreachable!("there are always more locks")
}

async fn leader(servers: &[Server]) -> Result<usize> {
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    let since = Instant::now();
    while since.elapsed() < LEADER_TIMEOUT {
        for (at, address) in addresses.iter().enumerate() {
            if look(*address).await.is_some_and(|view| view.role == Role::Leader) {
                return Ok(at);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None.context("nobody leads")
}
