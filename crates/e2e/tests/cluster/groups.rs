//! Several groups of namespaces: the servers share them, whoever comes and goes, and any server serves every namespace.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_client::{Client, Transport};
use leasehold_e2e::cluster::{Cluster, Store, look};
use leasehold_store::conformance::servers::EtcdCluster;
use tokio::task::JoinHandle;

use super::clients::{eventually, leasehold, list};

const GROUPS: usize = 6;
const SETTINGS: &str = "[cluster]\nleadership_ttl = \"1500ms\"\ngroups = 6\n";
/// One in each group, and more.
const NAMESPACES: usize = 12;
const TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_the_groups_as_they_come_and_go() -> Result<()> {
    let etcd = tokio::task::spawn_blocking(|| EtcdCluster::start(1)).await?;
    let mut cluster = Cluster::start(2, Store::Etcd(etcd), SETTINGS).await?;
    shared_as(&cluster, &[3, 3]).await?;
    let served = Served::start(&cluster.addresses()).await?;

    cluster.join().await?;
    shared_as(&cluster, &[2, 2, 2]).await?;
    by_command(&cluster).await?;

    let status = cluster.nodes[2].server.stop().await?;
    ensure!(status.success(), "{status}");
    cluster.nodes.pop();
    shared_as(&cluster, &[3, 3]).await?;
    served.end().await
}

/// How many groups each server leads, by the account of every one of them.
async fn shared_as(cluster: &Cluster, wanted: &[usize]) -> Result<()> {
    let since = Instant::now();
    let addresses = cluster.addresses();
    eventually(&format!("the groups are shared as {wanted:?}"), async || {
        for address in &addresses {
            let mut shares: Vec<usize> = shares(*address).await.into_values().collect();
            shares.sort_unstable();
            if shares != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    println!("shared as {wanted:?} after {:?}", since.elapsed());
    Ok(())
}

async fn shares(address: SocketAddr) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    let Some(view) = look(address).await else { return shares };
    for leader in view.groups.into_iter().filter_map(|group| group.leader) {
        *shares.entry(leader.address).or_default() += 1;
    }
    shares
}

/// The command shows the same as the interface.
async fn by_command(cluster: &Cluster) -> Result<()> {
    let addresses = cluster.addresses();
    let (code, told) = leasehold(&list(&addresses[..1]), &["cluster"]).await?;
    ensure!(code == Some(0), "{told}");
    for address in &addresses {
        let lines = told.lines().filter(|line| line.contains(&format!("http://{address}")));
        let leads = lines.filter(|line| line.contains("leads") || line.contains("follows")).count();
        ensure!(leads == GROUPS / addresses.len(), "{address} leads {leads} groups:\n{told}");
    }
    // What only the leader of a group knows is not shown as a zero.
    for line in told.lines().filter(|line| line.contains(" follows ")) {
        let unknown = line.split_whitespace().rev().take(4).all(|number| number == "-");
        ensure!(unknown, "{line}");
    }
    ensure!(told.contains("known to the leader") && told.contains("SERVER"), "{told}");
    Ok(())
}

/// Clients in every namespace, at every server, that ask all the time.
struct Served {
    is_over: Arc<AtomicBool>,
    longest_ms: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Result<u64>>>,
}

impl Served {
    async fn start(addresses: &[SocketAddr]) -> Result<Served> {
        let (is_over, longest_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut clients = Vec::new();
        for number in 0..NAMESPACES {
            let address = addresses[number % addresses.len()];
            let transport = [Transport::Stream, Transport::Http][number / 2 % 2];
            let client = Client::builder(&format!("http://{address}"))
                .namespace(&format!("team-{number}"))
                .transport(transport)
                .patience(PATIENCE)
                .connect()
                .await?;
            clients.push(tokio::spawn(ask(client, is_over.clone(), longest_ms.clone())));
        }
        Ok(Served { is_over, longest_ms, clients })
    }

    async fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            let rounds = client.await??;
            ensure!(rounds > 10, "only {rounds} rounds");
        }
        println!("nobody did without for more than {:?}", self.longest_ms);
        Ok(())
    }
}

/// Keeps one lock all the time, and takes and gives back another one.
async fn ask(client: Client, is_over: Arc<AtomicBool>, longest_ms: Arc<AtomicU64>) -> Result<u64> {
    let kept = client.lock("kept").ttl(TTL).acquire().await?;
    let mut last = kept.fencing_token();
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) {
        let since = Instant::now();
        let lease = client.lock("taken").ttl(TTL).wait(PATIENCE).acquire().await?;
        ensure!(lease.fencing_token() > last, "{} after {last}", lease.fencing_token());
        last = lease.fencing_token();
        lease.release().await?;
        let took = u64::try_from(since.elapsed().as_millis())?;
        longest_ms.fetch_max(took, Ordering::Relaxed);
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(kept.is_valid(), "{:?}", kept.lost_by());
    kept.release().await?;
    Ok(rounds)
}
