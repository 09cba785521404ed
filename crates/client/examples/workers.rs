//! How fast the SDK is, and what it costs: workers that take and give back locks of their own, all over one client.
//!
//! ```text
//! leasehold serve &
//! cargo run --release -p leasehold-client --example workers -- http://127.0.0.1:8080 64 5 stream
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold_client::{Client, Transport};
use rustix::time::{ClockId, clock_gettime};

/// What was done, and what it cost this process.
struct Done {
    pairs: u64,
    took: Duration,
    processor: Duration,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<()> {
    let mut given = std::env::args().skip(1);
    let url = given.next().unwrap_or_else(|| "http://127.0.0.1:8080".into());
    let workers = given.next().map_or(Ok(64), |text| text.parse()).context("how many workers?")?;
    let seconds = given.next().map_or(Ok(5), |text| text.parse()).context("how many seconds?")?;
    let transport = match given.next().as_deref() {
        Some("http") => Transport::Http,
        Some(_) | None => Transport::Stream,
    };
    let client = Client::builder(&url).transport(transport).connect().await?;
    drive(&client, workers, Duration::from_millis(500)).await?;
    let done = drive(&client, workers, Duration::from_secs(seconds)).await?;
    let pairs = done.pairs.max(1) as f64;
    println!(
        "{workers} workers, {transport:?}: {:.0} pairs/s, {:.2} us of processor a pair in the client",
        pairs / done.took.as_secs_f64(),
        done.processor.as_secs_f64() * 1e6 / pairs,
    );
    client.close().await;
    Ok(())
}

/// Takes and gives back for so long.
async fn drive(client: &Client, workers: u32, length: Duration) -> Result<Done> {
    let (is_over, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (began, spent) = (Instant::now(), processor());
    let work = |number: u32| {
        let (client, is_over, pairs) = (client.clone(), is_over.clone(), pairs.clone());
        async move {
            let (lock, owner) = (format!("bench/{number}"), format!("worker-{number}"));
            while !is_over.load(Ordering::Relaxed) {
                client.lock(&lock).owner(&owner).acquire().await?.release().await?;
                pairs.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        }
    };
    let running: Vec<_> = (0..workers).map(|number| tokio::spawn(work(number))).collect();
    tokio::time::sleep(length).await;
    is_over.store(true, Ordering::Relaxed);
    for one in running {
        one.await??;
    }
    let processor = processor().saturating_sub(spent);
    Ok(Done { pairs: pairs.load(Ordering::Relaxed), took: began.elapsed(), processor })
}

/// What this process has used of the processors.
fn processor() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(used.tv_nsec).unwrap_or(0))
}
