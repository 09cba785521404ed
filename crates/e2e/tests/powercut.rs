//! The power fails while clients are at work: whatever was acknowledged is there afterwards.
//!
//! A real cut takes the server and its answers along. Here the server lives on for a moment, and a sync that was under
//! way when the file system stopped returns success though its data is dropped. So only what was acknowledged before the
//! cut began counts.
//!
//! The harness is believed because it sees the two ways to lose: a server whose SQLite does not sync each commit
//! (`synchronous = NORMAL`, a bug that is planted in a binary of its own), and a disk that lies about its syncs.
//!
//! Root only, hence by command, all three or one of them:
//! ```text
//! cargo test -p leasehold-e2e --test powercut -- --ignored --nocapture
//! cargo test -p leasehold-e2e --test powercut -- --ignored --nocapture loses_nothing
//! cargo test -p leasehold-e2e --test powercut -- --ignored --nocapture synchronous_normal
//! ```

use std::time::Duration;

use anyhow::Result;
use leasehold_e2e::client::{Ask, Client, Lease, Outcome};
use leasehold_e2e::faults::Injected;
use leasehold_e2e::history::{Moment, Recorder};
use leasehold_e2e::power::Disk;
use leasehold_e2e::random::Random;
use leasehold_e2e::server::Server;

const CLIENTS: u32 = 4;
const TTL: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syncs {
    Work,
    /// SQLite leaves them out.
    Missing,
    /// They say that they succeeded and do nothing.
    Lie,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root"]
async fn power_cut_loses_nothing_that_was_acknowledged() -> Result<()> {
    let (acknowledged, lost) = cut(50, Syncs::Work).await?;
    println!("50 cuts: {acknowledged} acknowledged, {lost} lost");
    assert!(acknowledged > 50, "{acknowledged} acknowledged");
    assert_eq!(lost, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root"]
async fn power_cut_with_synchronous_normal_is_noticed() -> Result<()> {
    let (acknowledged, lost) = cut(10, Syncs::Missing).await?;
    println!("10 cuts with synchronous = NORMAL: {acknowledged} acknowledged, {lost} lost");
    assert!(lost > 0, "{acknowledged} acknowledged");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root"]
async fn power_cut_with_a_disk_that_lies_is_noticed() -> Result<()> {
    let (acknowledged, lost) = cut(5, Syncs::Lie).await?;
    println!("5 cuts with syncs that lie: {acknowledged} acknowledged, {lost} lost");
    assert!(lost > 0, "{acknowledged} acknowledged");
    Ok(())
}

/// Returns how many grants were acknowledged, and how many of them were gone after their cut.
async fn cut(cuts: u32, syncs: Syncs) -> Result<(usize, usize)> {
    let mut disk = Disk::make()?;
    let mut random = Random::new(u64::from(cuts));
    let recorder = Recorder::default();
    let (mut acknowledged, mut lost) = (0, 0);
    for round in 0..cuts {
        let data = disk.path().join("data");
        let mut server = match syncs {
            Syncs::Work | Syncs::Lie => Server::start_on(&data, &[]).await?,
            Syncs::Missing => Server::start_planted_on(&data, "synchronous_normal").await?,
        };
        let injected = match syncs {
            Syncs::Work | Syncs::Missing => None,
            Syncs::Lie => {
                Some(Injected::into_process(server.pid(), &["fsync,fdatasync:retval=0"])?)
            }
        };
        let workers: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let client = Client::new(server.address(), id, &recorder);
                let first = round * 100_000 + id * 10_000;
                tokio::spawn(acquire_while_answered(client, first, recorder.clone()))
            })
            .collect();
        let pause = random.between(Duration::from_millis(20), Duration::from_millis(200));
        tokio::time::sleep(pause).await;
        let cut = recorder.now();
        disk.cut_power()?;
        // Give a server that acknowledges without a sync the time to do so.
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(injected);
        server.kill()?;
        let mut leases = Vec::new();
        for worker in workers {
            let acknowledged = worker.await?.into_iter();
            leases.extend(acknowledged.filter(|lease| lease.known < cut));
        }
        disk.power_up()?;
        server.start_again().await?;
        acknowledged += leases.len();
        lost += missing(&server, &recorder, leases).await?;
        server.kill()?;
    }
    Ok((acknowledged, lost))
}

struct Acknowledged {
    lease: Lease,
    owner: u32,
    known: Moment,
}

/// Takes one lock after the other, as long as the server answers.
async fn acquire_while_answered(
    mut client: Client,
    first: u32,
    recorder: Recorder,
) -> Vec<Acknowledged> {
    let owner = client.id();
    let mut leases = Vec::new();
    for lock in first.. {
        match client.acquire(lock, Ask::exclusive(TTL)).await {
            Outcome::Done(lease) => {
                leases.push(Acknowledged { lease, owner, known: recorder.now() });
            }
            Outcome::Refused(_) => {}
            Outcome::NoAnswer(_) => break,
        }
    }
    leases
}

/// How many of them cannot be renewed.
async fn missing(server: &Server, recorder: &Recorder, leases: Vec<Acknowledged>) -> Result<usize> {
    let mut missing = 0;
    for Acknowledged { mut lease, owner, .. } in leases {
        let mut client = Client::new(server.address(), owner, recorder);
        match client.renew(&mut lease).await {
            Outcome::Done(()) => {}
            Outcome::Refused(_) => missing += 1,
            Outcome::NoAnswer(reason) => return Err(reason.into()),
        }
    }
    Ok(missing)
}
