//! A long history of many clients, judged lock by lock.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_e2e::checker::{Rules, check};
use leasehold_e2e::client::{Ask, Client, Outcome};
use leasehold_e2e::history::{Mode, Recorder};
use leasehold_e2e::random::Random;
use leasehold_e2e::server::Server;
use leasehold_e2e::{is_full, seed};

const CLIENTS: u32 = 32;
const LOCKS: u64 = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_history_can_have_happened() -> Result<()> {
    let operations = if is_full() { 2_000_000 } else { 200_000 };
    let server = Server::start().await?;
    let recorder = Recorder::default();
    let began = Instant::now();
    let workers: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let client = Client::new(server.address(), id, &recorder);
            tokio::spawn(work(
                client,
                Random::new(seed(u64::from(id))),
                recorder.clone(),
                operations,
            ))
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    let took = began.elapsed();
    let history = recorder.take();
    let began = Instant::now();
    let checked = check(&history, Rules::default())?;
    println!(
        "{} operations in {took:?}, judged in {:?}: {checked:?}",
        history.len(),
        began.elapsed()
    );
    ensure!(history.len() >= operations && checked.grants > operations / 10, "{checked:?}");
    ensure!(checked.unknown == 0, "nothing was killed: {checked:?}");
    ensure!(checked.refusals > operations / 1000, "too little was fought for: {checked:?}");
    Ok(())
}

/// Takes locks, keeps them for a while, gives them back; now and then lets one lapse and tries to use it nevertheless.
async fn work(
    mut client: Client,
    mut random: Random,
    recorder: Recorder,
    operations: usize,
) -> Result<()> {
    while recorder.len() < operations {
        let lock = u32::try_from(random.below(LOCKS))?;
        let mode = if random.chance(20) { Mode::Shared } else { Mode::Exclusive };
        let lapses = random.below(1000) < 2;
        let ttl = Duration::from_millis(if lapses { 100 } else { 60_000 });
        let wait = Duration::from_millis(if random.chance(30) { 2000 } else { 0 });
        let lease = client.acquire(lock, Ask { mode, ttl, wait }).await;
        if let Outcome::NoAnswer(reason) = &lease {
            anyhow::bail!("{reason}");
        }
        let Outcome::Done(mut lease) = lease else { continue };
        if lapses {
            tokio::time::sleep(random.between(ttl / 2, ttl * 2)).await;
        }
        for _ in 0..random.below(3) {
            let _ = client.renew(&mut lease).await;
        }
        let _ = client.release(&lease).await;
    }
    Ok(())
}
