//! A client that is cut off tells its work to stop in time, whatever the network or the server did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_client::machine::Moment;
use leasehold_client::{Client, Clock, LeaseHandle, State, SystemClock, Transport};
use leasehold_e2e::proxy::{Network, Proxy};
use leasehold_e2e::random::Random;
use leasehold_e2e::server::Server;

const TTL: Duration = Duration::from_secs(3);
/// The work is told to stop at half of the ttl, and so late at most.
const LATE_MAX: Duration = Duration::from_millis(100);

/// What one trial saw, on the clock of the machine.
struct Seen {
    /// When the last renewal that was confirmed was sent.
    confirmed: Moment,
    told: Moment,
    /// When somebody else was granted the lock.
    next: Moment,
}

/// How late this machine wakes those who sleep, just now: what no client can be faster than.
struct Noise {
    worst: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Noise {
    fn listen() -> Noise {
        let (worst, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (noted, ends) = (worst.clone(), is_over.clone());
        std::thread::spawn(move || {
            let step = Duration::from_millis(5);
            while !ends.load(Ordering::Relaxed) {
                let before = SystemClock.now();
                std::thread::sleep(step);
                let late = SystemClock.now().since(before).saturating_sub(step);
                noted.fetch_max(
                    u64::try_from(late.as_nanos()).unwrap_or(u64::MAX),
                    Ordering::Relaxed,
                );
            }
        });
        Noise { worst, is_over }
    }

    fn worst(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        Duration::from_nanos(self.worst.load(Ordering::Relaxed))
    }
}

async fn connect(address: std::net::SocketAddr, transport: Transport) -> Result<Client> {
    Ok(Client::builder(&format!("http://{address}")).transport(transport).connect().await?)
}

/// Waits for the moment in which the work is told to stop, and for the one in which the lock is somebody else's.
async fn watch_the_end(held: LeaseHandle, other: Client) -> Result<Seen> {
    let next = other.lock(held.lock()).owner("next").ttl(TTL).wait(TTL * 8).acquire();
    let told = async {
        held.jeopardy().await;
        let told = SystemClock.now();
        let lapses = told.plus(held.time_left());
        // In jeopardy nothing is renewed: what is left tells when the last confirmed renewal was sent.
        let confirmed = if held.state() == State::Jeopardy { lapses.minus(TTL) } else { told };
        (confirmed, told)
    };
    let ((confirmed, told), next) = tokio::join!(told, async {
        let lease = next.await.context("nobody else was granted the lock")?;
        let at = SystemClock.now();
        lease.release().await?;
        anyhow::Ok(at)
    });
    Ok(Seen { confirmed, told, next: next? })
}

async fn cut_off(
    server: std::net::SocketAddr,
    trial: u32,
    network: Network,
    transport: Transport,
) -> Result<Seen> {
    let proxy = Proxy::before(server).await?;
    let worker = connect(proxy.address(), transport).await?;
    let other = connect(server, transport).await?;
    let lease = worker.lock(&format!("cut/{trial}")).owner("worker").ttl(TTL).acquire().await?;
    // Anywhere between two heartbeats, or in one.
    let mut random = Random::new(u64::from(trial) + 1);
    tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
    assert_eq!(lease.state(), State::Valid);
    proxy.set(network);
    watch_the_end(lease.handle().clone(), other).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_told_to_stop_before_the_lock_can_be_given_away() -> Result<()> {
    let server = Server::start().await?;
    let mut killed = Server::start().await?;
    let noise = Noise::listen();
    let networks = [Network::Stalls, Network::Resets, Network::HalfCloses, Network::DeafensClient];
    let mut trials = Vec::new();
    for trial in 0..80_u32 {
        let network = networks[trial as usize % 4];
        let transport = if trial % 8 < 4 { Transport::Stream } else { Transport::Http };
        trials.push(tokio::spawn(cut_off(server.address(), trial, network, transport)));
    }
    for trial in 80..100_u32 {
        let transport = if trial.is_multiple_of(2) { Transport::Stream } else { Transport::Http };
        let worker = connect(killed.address(), transport).await?;
        let other = connect(killed.address(), transport).await?;
        let lease =
            worker.lock(&format!("killed/{trial}")).owner("worker").ttl(TTL).acquire().await?;
        trials.push(tokio::spawn(async move {
            let seen = watch_the_end(lease.handle().clone(), other).await;
            drop((worker, lease));
            seen
        }));
    }
    killed.kill()?;
    // Longer than any lease of before can be believed in.
    tokio::time::sleep(TTL).await;
    killed.start_again().await?;

    let (mut latest, mut nearest) = (Duration::ZERO, Duration::MAX);
    let mut seen = Vec::new();
    for trial in trials {
        seen.push(trial.await??);
    }
    let noise = noise.worst();
    for seen in &seen {
        let late = seen.told.since(seen.confirmed.plus(TTL / 2));
        assert!(late <= LATE_MAX + noise, "told {late:?} after half of the ttl, noise {noise:?}");
        assert!(seen.told < seen.next, "told {}, granted to another {}", seen.told, seen.next);
        latest = latest.max(late);
        nearest = nearest.min(seen.next.since(seen.told));
    }
    println!(
        "{} trials: told at most {latest:?} after half of the ttl (the machine itself: {noise:?}), \
         and {nearest:?} before another was granted the lock",
        seen.len()
    );
    Ok(())
}

/// A clock that the test sets forward, as a laptop that was closed.
#[derive(Debug, Default)]
struct Sleeper {
    slept: AtomicU64,
    woken: tokio::sync::Notify,
}

impl Sleeper {
    fn sleep(&self, length: Duration) {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.slept.fetch_add(nanos, Ordering::SeqCst);
        self.woken.notify_waiters();
    }
}

#[derive(Clone, Debug)]
struct SleepyClock(Arc<Sleeper>);

impl Clock for SleepyClock {
    fn now(&self) -> Moment {
        let slept = Duration::from_nanos(self.0.slept.load(Ordering::SeqCst));
        SystemClock.now().plus(slept)
    }

    fn sleep_until(&self, at: Moment) -> leasehold_client::Sleep {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let mut woken = std::pin::pin!(clock.0.woken.notified());
                woken.as_mut().enable();
                if clock.now() >= at {
                    return;
                }
                tokio::select! {
                    () = woken => {}
                    () = tokio::time::sleep(at.since(clock.now())) => {}
                }
            }
        })
    }
}

async fn slept_past_the_ttl(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let sleeper = Arc::new(Sleeper::default());
    let clock = Arc::new(SleepyClock(sleeper.clone()));
    let url = format!("http://{}", server.address());
    let client = Client::builder(&url).transport(transport).clock(clock).connect().await?;
    let lease = client.lock("laptop").ttl(Duration::from_secs(30)).acquire().await?;
    let short = client.lock("nap").ttl(Duration::from_secs(30)).acquire().await?;
    assert!(lease.check().is_ok());
    sleeper.sleep(Duration::from_secs(20));
    // Not one task had to run for this.
    assert_eq!(short.state(), State::Jeopardy);
    assert!(short.check().is_err());
    sleeper.sleep(Duration::from_secs(11));
    assert_eq!(lease.state(), State::Lost);
    assert!(lease.check().is_err(), "a write now would be a write without a lock");
    // And those who wait for it are told, though the server has not noticed anything.
    tokio::time::timeout(Duration::from_secs(10), lease.lost()).await?;
    assert!(lease.release().await.is_err());
    let wrote = client
        .lock("other")
        .ttl(Duration::from_secs(30))
        .run(|lease| async move {
            sleeper.sleep(Duration::from_secs(31));
            tokio::task::yield_now().await;
            lease.check().is_ok()
        })
        .await;
    assert!(!matches!(wrote, Ok(true)), "{wrote:?}");
    Ok(())
}

#[tokio::test]
async fn who_slept_past_the_ttl_knows_it_at_once_over_http() -> Result<()> {
    slept_past_the_ttl(Transport::Http).await
}

#[tokio::test]
async fn who_slept_past_the_ttl_knows_it_at_once_over_the_stream() -> Result<()> {
    slept_past_the_ttl(Transport::Stream).await
}
