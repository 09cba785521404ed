//! `leasehold migrate`: from each kind of store to each other, and what it refuses.

use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_api::Code;
use leasehold_e2e::client::{Ask, Client};
use leasehold_e2e::history::Recorder;
use leasehold_e2e::server::{Server, binary};
use leasehold_store::conformance::servers::{Etcd, Postgres};

const TTL: Duration = Duration::from_secs(600);
const LOCKS: u32 = 200;

fn migrate(from: &str, to: &str, flags: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary()?);
    command.args(["migrate", "--from", from, "--to", to]).args(flags);
    Ok(command.output()?)
}

fn migrated(from: &str, to: &str, flags: &[&str]) -> Result<String> {
    let done = migrate(from, to, flags)?;
    let said = String::from_utf8_lossy(&done.stderr).to_string();
    ensure!(done.status.success(), "{from} to {to}: {said}");
    Ok(String::from_utf8_lossy(&done.stdout).to_string())
}

fn refusal(from: &str, to: &str, flags: &[&str]) -> Result<String> {
    let done = migrate(from, to, flags)?;
    ensure!(done.status.code() == Some(74), "it should be refused: {done:?}");
    Ok(String::from_utf8_lossy(&done.stderr).to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_from_each_store_to_each_other() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sqlite = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let (postgres, etcd) = tokio::task::block_in_place(|| (Postgres::start(), Etcd::start()));
    let stores = [
        sqlite("1.db"),
        postgres.url("schema=one"),
        etcd.url("prefix=one"),
        sqlite("2.db"),
        etcd.url("prefix=two"),
        postgres.url("schema=two"),
        sqlite("3.db"),
    ];
    let recorder = Recorder::default();
    let mut server = Server::start_with(&["--store", &stores[0]]).await?;
    let mut client = Client::new(server.address(), 1, &recorder);
    let mut leases = Vec::new();
    for lock in 0..LOCKS {
        leases.push(client.acquire(lock, Ask::exclusive(TTL)).await.done()?);
    }
    let highest = leases.iter().map(|lease| lease.token).max().unwrap_or(0);
    server.stop().await?;
    tokio::task::block_in_place(|| {
        for pair in stores.windows(2) {
            let said = migrated(&pair[0], &pair[1], &[])?;
            ensure!(said.contains("200 leases and 0 fence registers copied"), "{said}");
            ensure!(said.contains(&format!("above {highest}")), "{said}");
            ensure!(!said.contains("hush"), "a password was shown: {said}");
        }
        let said = refusal(&stores[0], &stores[1], &[])?;
        ensure!(said.contains("has 200 leases and 0 fence registers already"), "{said}");
        let said = refusal(&stores[1], &stores[4], &["--groups", "2", "--force"])?;
        ensure!(said.contains("copy from has 1 groups of namespaces, not 2"), "{said}");
        migrated(&stores[0], &stores[1], &["--force"])
    })?;

    for store in [&stores[6], &stores[1]] {
        let mut server = Server::start_with(&["--store", store]).await?;
        let mut client = Client::new(server.address(), 1, &recorder);
        for lease in &mut leases {
            client.renew(lease).await.done()?;
        }
        let mut other = Client::new(server.address(), 2, &recorder);
        let held = other.acquire(7, Ask::exclusive(TTL)).await.refused()?;
        ensure!(held == Code::LockHeld, "{held:?}");
        let fresh = other.acquire(LOCKS, Ask::exclusive(TTL)).await.done()?;
        ensure!(fresh.token > highest, "{} is not above {highest}", fresh.token);
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_that_a_server_uses_is_left_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let postgres = tokio::task::block_in_place(Postgres::start);
    let url = postgres.url("");
    let server = Server::start_with(&["--store", &url]).await?;
    let recorder = Recorder::default();
    let mut client = Client::new(server.address(), 1, &recorder);
    let mut lease = client.acquire(0, Ask::exclusive(TTL)).await.done()?;
    let to = format!("sqlite:{}", folder.path().join("copy.db").display());
    let said = tokio::task::block_in_place(|| refusal(&url, &to, &[]))?;
    ensure!(said.contains("a server leads the store to copy from"), "{said}");
    // It goes on as if nothing had been.
    client.renew(&mut lease).await.done()?;
    client.release(&lease).await.done()?;
    Ok(())
}
