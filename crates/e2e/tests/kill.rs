//! The server is killed again and again while clients are at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_e2e::checker::{Checked, Rules, check};
use leasehold_e2e::client::{Ask, Client, Lease, NoAnswer, Outcome, bound_unknown};
use leasehold_e2e::history::{Event, Mode, Recorder};
use leasehold_e2e::is_full;
use leasehold_e2e::random::Random;
use leasehold_e2e::server::Server;

const CLIENTS: u32 = 8;
/// Many: what was granted to a request without an answer stays held until its lease ends.
const LOCKS: u64 = 60;
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
            let client = Client::new(server.address(), id, &recorder);
            tokio::spawn(Worker::new(client, id).run(is_over.clone()))
        })
        .collect();
    let mut random = Random::new(1);
    for _ in 0..cycles {
        let pause = random.between(Duration::from_millis(1), Duration::from_millis(250));
        tokio::time::sleep(pause).await;
        server.crash(&recorder).await?;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut kept = 0;
    for worker in workers {
        kept += worker.await??;
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

struct Worker {
    client: Client,
    random: Random,
    held: Vec<Held>,
    kept: usize,
}

struct Held {
    lease: Lease,
    /// The server may have gone since the lease was last seen there.
    is_in_doubt: bool,
}

impl Worker {
    fn new(client: Client, id: u32) -> Worker {
        Worker { client, random: Random::new(u64::from(id)), held: Vec::new(), kept: 0 }
    }

    /// Returns how often a grant was there again after the server had gone.
    async fn run(mut self, is_over: Arc<AtomicBool>) -> Result<usize> {
        while !is_over.load(Ordering::Relaxed) {
            let reached = match self.random.below(100) {
                0..40 => self.acquire().await,
                40..85 => self.renew().await,
                _ => self.release().await,
            };
            if !reached {
                self.held.iter_mut().for_each(|held| held.is_in_doubt = true);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        Ok(self.kept)
    }

    async fn acquire(&mut self) -> bool {
        if self.held.len() > 3 {
            return self.renew().await;
        }
        let lock = u32::try_from(self.random.below(LOCKS)).expect("there are few locks");
        if self.held.iter().any(|held| held.lease.lock == lock) {
            return true;
        }
        let mode = if self.random.chance(20) { Mode::Shared } else { Mode::Exclusive };
        let ttl = TTLS[usize::from(self.random.chance(60))];
        let wait = if self.random.chance(30) { Duration::from_millis(30) } else { Duration::ZERO };
        let outcome = self.client.acquire(lock, Ask { mode, ttl, wait }).await;
        let reached = !matches!(outcome, Outcome::NoAnswer(_));
        if let Outcome::Done(lease) = outcome {
            self.held.push(Held { lease, is_in_doubt: false });
        }
        reached
    }

    async fn renew(&mut self) -> bool {
        let in_doubt = self.held.iter().position(|held| held.is_in_doubt);
        let Some(at) = in_doubt.or_else(|| self.choose()) else { return true };
        match self.client.renew(&mut self.held[at].lease).await {
            Outcome::Done(()) => {
                let was_in_doubt = std::mem::take(&mut self.held[at].is_in_doubt);
                self.kept += usize::from(was_in_doubt);
                true
            }
            // Whether it was lost too early is for the judge to say.
            Outcome::Refused(_) => {
                self.held.swap_remove(at);
                true
            }
            Outcome::NoAnswer(_) => false,
        }
    }

    async fn release(&mut self) -> bool {
        let Some(at) = self.choose() else { return true };
        let outcome = self.client.release(&self.held[at].lease).await;
        if !matches!(outcome, Outcome::NoAnswer(NoAnswer::Unsent)) {
            self.held.swap_remove(at);
        }
        !matches!(outcome, Outcome::NoAnswer(_))
    }

    fn choose(&mut self) -> Option<usize> {
        let len = u64::try_from(self.held.len()).expect("it holds few");
        (len > 0).then(|| usize::try_from(self.random.below(len)).expect("it holds few"))
    }
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
