//! A leader stands still past its leadership, with a record on its way to the store. Another one takes over and grants. When
//! the first goes on, its record is refused, and so is everything that it is asked.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_api::Cluster as ClusterView;
use leasehold_e2e::client::{Ask, Client, Outcome};
use leasehold_e2e::cluster::{Cluster, Store, look};
use leasehold_e2e::history::Recorder;
use leasehold_store::conformance::servers::{EtcdCluster, Postgres, Way};

const SETTINGS: &str = "[cluster]\nleadership_ttl = \"1500ms\"\n";
const TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);
/// Those of the requests that are sent while the first leader stands still.
const HELD: u32 = 0;
const CONTESTED: u32 = 1;
const FREE: u32 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_leader_on_postgres_commits_nothing() -> Result<()> {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await?;
    let cluster = paused(Store::Postgres(Box::new(postgres))).await?;
    let Store::Postgres(postgres) = &cluster.store else { unreachable!("it was PostgreSQL") };
    let disorder = "SELECT count(*) FROM leasehold.journal a JOIN leasehold.journal b
        ON b.seq = a.seq + 1 WHERE b.epoch < a.epoch";
    let count = tokio::task::block_in_place(|| postgres.sql(disorder));
    ensure!(count == "0", "{count} records of an epoch that was over");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_leader_on_etcd_commits_nothing() -> Result<()> {
    let etcd = tokio::task::spawn_blocking(|| EtcdCluster::start(1)).await?;
    paused(Store::Etcd(etcd)).await?;
    Ok(())
}

async fn paused(store: Store) -> Result<Cluster> {
    let mut cluster = Cluster::start(2, store, SETTINGS).await?;
    let recorder = Recorder::default();
    let first = cluster.wait_for_leader(PATIENCE).await?;
    let second = 1 - first;
    let (old, new) = (cluster.addresses()[first], cluster.addresses()[second]);
    // What these ask of the first server is for itself to answer: it does not forward it.
    let client = |id| Client::new(old, id, &recorder).asking_itself().impatient(PATIENCE);
    let (mut holder, mut late, mut later) = (client(1), client(2), client(3));
    let mut lease = holder.acquire(HELD, Ask::exclusive(TTL)).await.done()?;
    // So that their connections stand.
    late.look(CONTESTED).await?;
    later.look(FREE).await?;

    // It leads, and what it writes does not arrive yet.
    cluster.nodes[first].set_wires(Way::Silent);
    let late = tokio::spawn(async move { late.acquire(CONTESTED, Ask::exclusive(TTL)).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    ensure!(!late.is_finished(), "nothing was to arrive");
    cluster.nodes[first].server.pause()?;
    let mut renewing = lease.clone();
    let renewed = tokio::spawn(async move { holder.renew(&mut renewing).await });
    let asked = tokio::spawn(async move { later.acquire(FREE, Ask::exclusive(TTL)).await });

    until_led(&cluster, second, second).await?;
    let mut other = Client::new(new, 4, &recorder).impatient(PATIENCE);
    let taken = other.acquire(CONTESTED, Ask::exclusive(TTL)).await.done()?;
    ensure!(taken.token > lease.token, "{} after {}", taken.token, lease.token);

    // Now it arrives, and then the server goes on.
    cluster.nodes[first].set_wires(Way::Open);
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.nodes[first].server.go_on()?;
    refused("a commit", &late.await?)?;
    refused("a renewal", &renewed.await?)?;
    refused("an acquire", &asked.await?)?;

    // Nothing came of it, and nothing was lost.
    until_led(&cluster, first, second).await?;
    for address in [old, new] {
        let mut client = Client::new(address, 1, &recorder).impatient(PATIENCE);
        client.renew(&mut lease).await.done()?;
        let shown = client.look(CONTESTED).await?;
        let tokens: Vec<u64> = shown.holders.iter().map(|holder| holder.fencing_token).collect();
        ensure!(tokens == [taken.token], "{tokens:?}, not {}", taken.token);
        ensure!(client.look(FREE).await?.holders.is_empty(), "it was refused");
    }
    Ok(cluster)
}

fn refused<T: std::fmt::Debug>(what: &str, outcome: &Outcome<T>) -> Result<()> {
    println!("{what} of the first leader: {outcome:?}");
    ensure!(matches!(outcome, Outcome::Refused(_)), "{what} of the first leader: {outcome:?}");
    Ok(())
}

/// Until a server says that the one at that place leads.
async fn until_led(cluster: &Cluster, says: usize, leads: usize) -> Result<()> {
    let since = Instant::now();
    let address = cluster.addresses()[says];
    let leader = format!("http://{}", cluster.addresses()[leads]);
    let is_led = |view: ClusterView| {
        view.groups
            .first()
            .and_then(|group| group.leader.as_ref())
            .map(|found| found.address.clone())
            == Some(leader.clone())
    };
    while !look(address).await.is_some_and(is_led) {
        ensure!(since.elapsed() < PATIENCE, "{address} never said that {leader} leads");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
