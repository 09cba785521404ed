//! The server is killed again and again while clients are at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_e2e::checker::{Checked, Rules, check};
use leasehold_e2e::client::{Ask, Client, bound_unknown};
use leasehold_e2e::history::{Event, Recorder};
use leasehold_e2e::random::Random;
use leasehold_e2e::server::Server;
use leasehold_e2e::worker::Worker;
use leasehold_e2e::{is_full, seed};

const CLIENTS: u32 = 8;
/// Short ones end now and then by themselves, long ones outlast several kills.
const TTLS: [Duration; 2] = [Duration::from_millis(400), Duration::from_secs(5)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_loses_no_grant_that_was_acknowledged() -> Result<()> {
    let cycles = if is_full() { 1000 } else { 100 };
    let mut server = Server::start().await?;
    let recorder = Recorder::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let worker = Worker::new(vec![server.address()], id, TTLS, &recorder);
            tokio::spawn(worker.run(is_over.clone()))
        })
        .collect();
    let mut random = Random::new(seed(1));
    for _ in 0..cycles {
        let pause = random.between(Duration::from_millis(1), Duration::from_millis(250));
        tokio::time::sleep(pause).await;
        server.crash(&recorder).await?;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut kept = 0;
    for worker in workers {
        kept += worker.await?.kept;
    }
    let mut history = recorder.take();
    bound_unknown(&mut history);
    let checked = check(&history, Rules::default())?;
    println!("{cycles} kills, {kept} times a grant was seen again after one: {checked:?}");
    ensure_enough(checked, cycles, kept)
}

/// A test in which nothing happened proves nothing.
fn ensure_enough(checked: Checked, cycles: usize, kept: usize) -> Result<()> {
    ensure!(checked.restarts == cycles, "{checked:?}");
    ensure!(checked.grants > 5 * cycles, "too few grants: {checked:?}");
    ensure!(checked.unknown > cycles / 2, "the kills met no requests: {checked:?}");
    ensure!(kept > cycles, "too few grants outlived a kill: {kept}");
    Ok(())
}

/// The same history with one grant taken out of the server's memory must not pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_that_a_kill_took_away_would_be_noticed() -> Result<()> {
    let mut server = Server::start().await?;
    let recorder = Recorder::default();
    let [mut first, mut second] = [0, 1].map(|id| Client::new(server.address(), id, &recorder));
    first.acquire(0, Ask::exclusive(TTLS[1])).await.done()?;
    server.kill()?;
    // The server forgets, as one would that never synced.
    std::fs::remove_dir_all(server.data())?;
    server.start_again().await?;
    second.acquire(0, Ask::exclusive(TTLS[1])).await.done()?;
    let history = recorder.take();
    ensure!(history.iter().all(|operation| matches!(operation.event, Event::Acquire { .. })));
    ensure!(check(&history, Rules::default()).is_err(), "both grants stand: {history:?}");
    Ok(())
}
