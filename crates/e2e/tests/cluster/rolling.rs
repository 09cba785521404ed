//! One server after the other is replaced, as in an upgrade: programs that hold locks notice nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_client::{Client, Lease};
use leasehold_e2e::cluster::{Cluster, Store};
use leasehold_e2e::is_full;
use leasehold_store::conformance::servers::Postgres;

const HOLDERS: u32 = 12;
const WORKERS: u32 = 4;
const TTL: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_no_lease() -> Result<()> {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await?;
    let mut cluster = Cluster::start(3, Store::Postgres(Box::new(postgres)), "").await?;
    cluster.wait_for_leader(PATIENCE).await?;
    let servers: Vec<_> =
        cluster.addresses().iter().map(|address| format!("http://{address}")).collect();
    let client = Client::builder(&servers.join(",")).patience(PATIENCE).connect().await?;
    let mut held = Vec::new();
    for number in 0..HOLDERS {
        let lock = format!("held/{number}");
        held.push(client.lock(&lock).owner(&lock).ttl(TTL).acquire().await?);
    }
    let (is_over, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| tokio::spawn(work(client.clone(), number, is_over.clone(), pairs.clone())))
        .collect();
    for _ in 0..if is_full() { 5 } else { 1 } {
        for node in 0..3 {
            let before = pairs.load(Ordering::Relaxed);
            let server = &mut cluster.nodes[node].server;
            ensure!(server.stop().await?.success(), "{}", server.log());
            server.start_again().await?;
            cluster.wait_for_leader(PATIENCE).await?;
            // The next one only when this one is in use: the load goes on.
            goes_on(&pairs, before).await?;
            all_valid(&held)?;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await??;
    }
    for lease in held {
        let now = client.api().get(lease.lock()).await?;
        let tokens: Vec<_> = now.holders.iter().map(|holder| holder.fencing_token).collect();
        ensure!(tokens == [lease.fencing_token()], "{}: {tokens:?}", lease.lock());
        lease.release().await?;
    }
    Ok(())
}

/// Takes a lock that all workers want, and gives it back: any error of either ends the test.
async fn work(
    client: Client,
    number: u32,
    is_over: Arc<AtomicBool>,
    pairs: Arc<AtomicU64>,
) -> Result<()> {
    let (owner, mut last) = (format!("worker-{number}"), 0);
    while !is_over.load(Ordering::Relaxed) {
        let lease = client.lock("hot").owner(&owner).ttl(TTL).wait(WAIT).acquire().await?;
        ensure!(lease.fencing_token() > last, "tokens rise");
        last = lease.fencing_token();
        lease.check()?;
        lease.release().await?;
        pairs.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn goes_on(pairs: &AtomicU64, before: u64) -> Result<()> {
    let since = tokio::time::Instant::now();
    while pairs.load(Ordering::Relaxed) < before + 50 {
        ensure!(since.elapsed() < PATIENCE, "the load stands still");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn all_valid(held: &[Lease]) -> Result<()> {
    for lease in held {
        ensure!(lease.is_valid(), "{} is lost: {}", lease.lock(), lease.lost_by());
    }
    Ok(())
}
