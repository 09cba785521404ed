//! Two processes that fight for one lock over a bad network, now and then stopped: never do both believe that they hold it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_e2e::driver::Driver;
use leasehold_e2e::proxy::{Network, Proxy};
use leasehold_e2e::random::Random;
use serde_json::json;

use super::harness::{LONG, Stage, Store};

pub(crate) const STORE: Store = Store::Sqlite;

const TTL_MS: u64 = 1000;
const LENGTH: Duration = Duration::from_secs(12);

/// A lease that was believed in from the one moment to the other at least.
#[derive(Debug)]
struct Belief {
    by: &'static str,
    token: u64,
    /// When the first check that it has passed was answered.
    from: Instant,
    /// When the last check that it has passed was asked for.
    to: Instant,
}

pub(crate) async fn two_never_believe_at_once(stage: Stage) -> Result<()> {
    let near = Proxy::before(stage.server.address()).await?;
    let far = Proxy::before(stage.server.address()).await?;
    let second = stage.second_to(&format!("http://{}", far.address()), 2000).await?;
    stage.connect_to(&format!("http://{}", near.address())).await?;
    let (stage, second) = (Arc::new(stage), Arc::new(second));
    let is_over = Arc::new(AtomicBool::new(false));
    let fights = [
        tokio::spawn(fight(stage.clone(), None, "one", is_over.clone())),
        tokio::spawn(fight(stage.clone(), Some(second.clone()), "two", is_over.clone())),
    ];
    trouble([(&near, &stage.driver), (&far, &second)]).await?;
    is_over.store(true, Ordering::Relaxed);
    let mut beliefs = Vec::new();
    for fight in fights {
        beliefs.extend(fight.await??);
    }
    beliefs.sort_by_key(|belief| belief.from);
    for (before, after) in beliefs.iter().zip(beliefs.iter().skip(1)) {
        ensure!(before.to < after.from, "both believe: {before:?} {after:?}");
        ensure!(before.token < after.token, "the fencing tokens fall: {before:?} {after:?}");
    }
    let handovers = beliefs.windows(2).filter(|two| two[0].by != two[1].by).count();
    ensure!(handovers >= 3, "too little was fought for: {beliefs:?}");
    Ok(())
}

/// Breaks the way of one or the other, or stops its process, for less and for more than a lease is long.
async fn trouble(fighters: [(&Proxy, &Driver); 2]) -> Result<()> {
    let mut random = Random::new(7);
    let until = Instant::now() + LENGTH;
    let mut round = 0;
    while Instant::now() < until {
        let (proxy, driver) = fighters[round % 2];
        let length = random.between(Duration::from_millis(200), Duration::from_millis(1500));
        match round / 2 % 4 {
            0 => proxy.set(Network::Stalls),
            1 => driver.pause()?,
            2 => proxy.set(Network::Resets),
            _ => proxy.set(Network::DeafensClient),
        }
        tokio::time::sleep(length).await;
        // What was swallowed never comes: a connection on which something is missing is broken.
        proxy.set(Network::Resets);
        tokio::time::sleep(Duration::from_millis(20)).await;
        proxy.set(Network::Works);
        driver.go_on()?;
        tokio::time::sleep(random.between(Duration::ZERO, Duration::from_millis(300))).await;
        round += 1;
    }
    Ok(())
}

/// Takes the lock, asks the SDK again and again whether it still has it, and gives it back.
async fn fight(
    stage: Arc<Stage>,
    other: Option<Arc<Driver>>,
    by: &'static str,
    is_over: Arc<AtomicBool>,
) -> Result<Vec<Belief>> {
    let driver = other.as_deref().unwrap_or(&stage.driver);
    let mut beliefs = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let line =
            json!({"op": "acquire", "lock": "a", "owner": by, "ttl_ms": TTL_MS, "wait_ms": 1500});
        let held = match driver.send(line)?.came().await? {
            Ok(held) => held,
            Err(error) => {
                // A release that got no answer is tried again meanwhile: until it arrives, an owner would wait for itself.
                let kinds = ["held", "unreachable", "deadlock"];
                let is_known = kinds.iter().any(|kind| error["kind"] == *kind);
                ensure!(is_known, "{by}: an acquire came to {error}");
                continue;
            }
        };
        let token = held["token"].as_u64().context("a lease has a token")?;
        let enough = Instant::now() + Duration::from_millis(600);
        let mut belief: Option<Belief> = None;
        loop {
            let asked = Instant::now();
            let check = json!({"op": "check", "lease": held["lease"]});
            if driver.send(check)?.came().await?.is_err() {
                break;
            }
            belief.get_or_insert(Belief { by, token, from: Instant::now(), to: asked }).to = asked;
            if asked >= enough {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // A single check says when it was asked for and answered, and nothing of in between.
        beliefs.extend(belief.filter(|belief| belief.from < belief.to));
        let release = driver.send(json!({"op": "release_once", "lease": held["lease"]}))?;
        tokio::time::timeout(LONG, release.came())
            .await
            .context("a release goes on for ever")??
            .ok();
    }
    Ok(beliefs)
}
