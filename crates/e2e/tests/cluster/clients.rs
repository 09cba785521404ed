//! The leader goes, by force and as planned: those who have leases, wait in the queue or run commands notice nothing but time.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_client::wire::{LockState, News};
use leasehold_client::{Client, Lease, Session, State, Transport, Watch};
use leasehold_e2e::cluster::{Cluster, Store};
use leasehold_e2e::server::binary;
use leasehold_store::conformance::servers::Postgres;
use tokio::task::JoinHandle;

const SETTINGS: &str = "[cluster]\nleadership_ttl = \"1500ms\"\n";
/// Renewed every third of it, so that the next leader hears of it soon.
const TTL: Duration = Duration::from_secs(9);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_loses_anything_when_the_leader_goes() -> Result<()> {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await?;
    let mut cluster = Cluster::start(3, Store::Postgres(Box::new(postgres)), SETTINGS).await?;
    let first = cluster.wait_for_leader(PATIENCE).await?;
    // The leader is the first address of all, so that everybody talks to it and has to find another one.
    let mut addresses = cluster.addresses();
    addresses.rotate_left(first);
    let addresses = list(&addresses);
    let mut streaming = Holder::start(&addresses, Transport::Stream, "stream").await?;
    let mut asking = Holder::start(&addresses, Transport::Http, "http").await?;
    let mut job = Job::start(&addresses)?;
    job.wait_until_it_runs(&streaming.client).await?;

    cluster.nodes[first].server.kill()?;
    let since = Instant::now();
    let ask = ["acquire", "cli/now", "--ttl", "60s", "-o", "json"];
    let (code, told) = leasehold(&addresses, &ask).await?;
    ensure!(code == Some(0), "{code:?}: {told}");
    println!("the command has its lock {:?} after the leader was killed", since.elapsed());
    let grant: serde_json::Value = serde_json::from_str(&told)?;
    let highest = grant["fencing_token"].as_u64().context("a grant has a token")?;
    streaming.is_there_again().await?;
    asking.is_there_again().await?;
    job.is_there_again(&streaming.client).await?;

    cluster.nodes[first].server.start_again().await?;
    let second = cluster.wait_for_leader(PATIENCE).await?;
    ensure!(cluster.nodes[second].server.stop().await?.success(), "it stops as asked");
    let since = Instant::now();
    let (code, told) = leasehold(&addresses, &["get", "cli/now", "-o", "json"]).await?;
    ensure!(code == Some(0), "{code:?}: {told}");
    let lock: serde_json::Value = serde_json::from_str(&told)?;
    ensure!(lock["holders"][0]["fencing_token"] == highest, "it is still held: {told}");
    println!("the command is answered {:?} after the leader has stopped", since.elapsed());
    streaming.is_there_again().await?;
    asking.is_there_again().await?;
    job.is_there_again(&streaming.client).await?;

    ensure!(streaming.end().await? > highest, "tokens rise");
    ensure!(asking.end().await? > highest, "tokens rise");
    job.end()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stands_still_is_left_by_who_only_asks() -> Result<()> {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await?;
    let mut cluster = Cluster::start(2, Store::Postgres(Box::new(postgres)), SETTINGS).await?;
    let first = cluster.wait_for_leader(PATIENCE).await?;
    let mut addresses = cluster.addresses();
    addresses.rotate_left(first);
    let addresses = list(&addresses);
    let mut clients = Vec::new();
    for transport in [Transport::Stream, Transport::Http] {
        let builder = Client::builder(&addresses).transport(transport).patience(PATIENCE);
        let client = builder.connect().await?;
        // So that its connection stands, and it has nothing to keep.
        client.lock("asked/before").acquire().await?.release().await?;
        clients.push((transport, client));
    }
    cluster.nodes[first].server.pause()?;
    let since = Instant::now();
    let asking = clients.into_iter().map(|(transport, client)| async move {
        let lease = client.lock(&format!("asked/{transport:?}")).acquire().await?;
        println!("{transport:?}: granted {:?} after the leader stood still", since.elapsed());
        lease.release().await
    });
    let asking: Vec<_> = asking.map(tokio::spawn).collect();
    for asked in asking {
        asked.await??;
    }
    cluster.nodes[first].server.go_on()
}

pub(super) fn list(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> =
        addresses.iter().map(|address| format!("http://{address}")).collect();
    addresses.join(",")
}

/// One client with a lease, a session, and somebody else who waits for the lease.
struct Holder {
    client: Client,
    lease: Lease,
    session: Session,
    under: Lease,
    waiting: JoinHandle<leasehold_client::Result<Lease>>,
    watch: Watch,
    seen: u32,
}

impl Holder {
    async fn start(addresses: &str, transport: Transport, name: &str) -> Result<Holder> {
        let builder = Client::builder(addresses).transport(transport).patience(PATIENCE);
        let client = builder.connect().await?;
        let lock = format!("{name}/own");
        let lease = client.lock(&lock).owner("holder").ttl(TTL).acquire().await?;
        let session = client.session().owner("holder").ttl(TTL).open().await?;
        let under = session.lock(&format!("{name}/under")).acquire().await?;
        let waiter = client.lock(&lock).owner("waiter").ttl(TTL).wait(PATIENCE * 4);
        let waiting = tokio::spawn(waiter.acquire());
        let watch = client.watch(&format!("{name}/own/seen"), None).await?;
        let holder = Holder { client, lease, session, under, waiting, watch, seen: 0 };
        holder.is_waited_for().await?;
        Ok(holder)
    }

    /// The new leader has heard of everything, and the waiter stands in the queue there.
    async fn is_there_again(&mut self) -> Result<()> {
        for lease in [&self.lease, &self.under] {
            until_held(&self.client, lease.lock()).await?;
            ensure!(lease.state() == State::Valid, "{}: {:?}", lease.lock(), lease.lost_by());
        }
        self.is_told_of_events().await?;
        self.is_waited_for().await
    }

    /// The watch goes on at the new leader. What happened while it was away is told, or a gap in its place.
    async fn is_told_of_events(&mut self) -> Result<()> {
        self.seen += 1;
        let lock = format!("{}/seen/{}", self.lease.lock(), self.seen);
        self.client.lock(&lock).acquire().await?.release().await?;
        loop {
            let event = tokio::time::timeout(PATIENCE, self.watch.next()).await;
            let event = event.context("the watch is silent")?.context("the watch has ended")??;
            if matches!(&event.news, News::Ended { lock: ended, .. } if *ended == lock) {
                return Ok(());
            }
            // It may be in the gap.
            if event.news == News::Resync {
                self.client.lock(&lock).acquire().await?.release().await?;
            }
        }
    }

    async fn is_waited_for(&self) -> Result<()> {
        let lock = self.lease.lock();
        eventually("it is waited for", async || {
            ensure!(!self.waiting.is_finished(), "the waiter was turned away");
            Ok(self.client.api().get(lock).await.is_ok_and(|lock| lock.waiters_total == 1))
        })
        .await
    }

    /// Gives everything back; the waiter's token.
    async fn end(self) -> Result<u64> {
        self.lease.release().await?;
        let next = tokio::time::timeout(PATIENCE, self.waiting).await???;
        let token = next.fencing_token();
        next.release().await?;
        ensure!(self.under.check().is_ok());
        self.session.close().await?;
        Ok(token)
    }
}

/// A command that runs under a lock.
struct Job {
    wrapper: Child,
}

impl Job {
    const LOCK: &str = "cli/run";

    fn start(addresses: &str) -> Result<Job> {
        let mut command = Command::new(binary()?);
        command.args(["--addr", addresses, "run", Job::LOCK, "--ttl", "9s", "--"]);
        command.args(["sleep", "600"]).stdin(Stdio::null());
        Ok(Job { wrapper: command.spawn()? })
    }

    async fn wait_until_it_runs(&mut self, client: &Client) -> Result<()> {
        until_held(client, Job::LOCK).await
    }

    async fn is_there_again(&mut self, client: &Client) -> Result<()> {
        until_held(client, Job::LOCK).await?;
        let ended = self.wrapper.try_wait()?;
        ensure!(ended.is_none(), "the command was stopped: {ended:?}");
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        ensure!(self.wrapper.try_wait()?.is_none(), "the command was stopped");
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // What it runs ends with it.
        let _ = self.wrapper.kill();
        let _ = self.wrapper.wait();
    }
}

/// Held, and not only remembered from before.
async fn until_held(client: &Client, lock: &str) -> Result<()> {
    eventually(lock, async || {
        Ok(client.api().get(lock).await.is_ok_and(|lock| lock.state == LockState::Held))
    })
    .await
}

pub(super) async fn eventually(
    what: &str,
    mut is_so: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let since = Instant::now();
    while !is_so().await? {
        ensure!(since.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// How the command ends, and what it says.
pub(super) async fn leasehold(addresses: &str, args: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(binary()?);
    command.args(["--addr", addresses, "--timeout", "30s"]).args(args).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
}
