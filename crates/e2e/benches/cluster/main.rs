//! How fast clients get and give back locks when the locks are in PostgreSQL or etcd, beside what those two offer for locks
//! themselves, on the same server in the same minutes; and how long clients do without when the leader goes.
//!
//! All of them do the same: 64 workers in one process, each taking a lock of its own and giving it back, over and over.
//! Everything is durable: the data is on a disk, with a sync before every answer. Nothing here can fail.

#[path = "../../../cli/benches/clients/etcd.rs"]
#[allow(dead_code, reason = "shared with a benchmark that starts its own etcd")]
mod etcd;
mod failover;
#[path = "../../../cli/benches/clients/link.rs"]
#[allow(dead_code, reason = "shared with a benchmark that asks for more")]
mod link;
#[path = "../../../cli/benches/clients/load.rs"]
mod load;
#[path = "../../../cli/benches/clients/process.rs"]
#[allow(dead_code, reason = "shared with a benchmark that starts its own servers")]
mod process;
mod rows;

use std::time::Duration;

use leasehold_api::grpc::attach::Session;
use leasehold_e2e::server::{Server, binary};
use leasehold_store::conformance::servers::{Etcd, Postgres, use_disk};

use link::{Link, locks_of_session, own_locks, session};
use load::Load;

/// How many requests are in flight.
const WORKERS: usize = 64;

fn main() {
    use_disk();
    // One thread, as in the other comparison.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(compare());
}

/// How long each measurement takes.
fn run() -> Duration {
    let seconds = std::env::var("LEASEHOLD_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

async fn compare() {
    let only: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wants = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    // It may have to be built first, which takes minutes.
    eprintln!("looking for the server's binary");
    if let Err(why) = binary() {
        return println!("there is no server to measure: {why:#}");
    }
    println!("acquire + release, {WORKERS} workers, {} s each, durable", run().as_secs());
    println!(
        "{:<44} {:>10} {:>11} {:>11} {:>9} {:>9}",
        "", "pairs/s", "client CPU", "server CPU", "p50", "p99"
    );
    let mut ratios = Vec::new();
    if wants("etcd") {
        let store = Etcd::start();
        let ours = ours("leasehold on one etcd", &store.url("")).await;
        let theirs = etcd::pairs_on(store.port(), store.pid()).await;
        let theirs = show("  its own lock service", theirs);
        ratios.push(("against etcd's lock service", ours, theirs));
    }
    if wants("postgres") {
        let store = Postgres::start();
        let ours = ours("leasehold on PostgreSQL", &store.url("")).await;
        let theirs = show("  a lease row per operation", rows::pairs(&store).await);
        ratios.push(("against a lease row per operation", ours, theirs));
    }
    for (what, ours, theirs) in ratios {
        for (how, ours) in [(what, ours.0), ("  under one session", ours.1)] {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                println!("{how:<44} {:>9.1}x   wanted >= 10", ours / theirs);
            }
        }
    }
    if wants("three") {
        failover::three_nodes().await;
    }
}

/// A server of ours on that store, and what it manages: each lock under a lease of its own, and all under one session.
async fn ours(name: &str, store: &str) -> (Option<f64>, Option<f64>) {
    let plain = show(name, pairs(store, None).await);
    (plain, show("  the same, one session", pairs(store, Some(session())).await))
}

async fn pairs(store: &str, session: Option<Session>) -> Result<Load, String> {
    let server =
        Server::start_with(&["--store", store]).await.map_err(|error| error.to_string())?;
    let is_session = session.is_some();
    let mut link = Link::open(server.address().port(), session).await?;
    let load = match is_session {
        true => locks_of_session(server.pid(), &mut link).await,
        false => own_locks(server.pid(), &mut link).await,
    };
    commits(&server).await;
    load
}

/// How the server's commits went: what limits it.
async fn commits(server: &Server) {
    let mut http = leasehold_e2e::client::Http::new(server.address());
    let Ok(answer) = http.get("/metrics").await else { return };
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let number = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    };
    let count = number("leasehold_commit_batch_size_count").max(1.0);
    println!(
        "  {count:.0} commits, of {:.1} changes and {:.0} us each",
        number("leasehold_commit_batch_size_sum") / count,
        number("leasehold_commit_seconds_sum") / count * 1e6
    );
}

fn show(name: &str, load: Result<Load, String>) -> Option<f64> {
    match load {
        Ok(load) => {
            println!(
                "{name:<44} {:>10.0} {:>8.1} us {:>8.1} us {:>9} {:>9}",
                load.rate(),
                load.client_micros(),
                load.server_micros(),
                millis(load.p50),
                millis(load.p99),
            );
            Some(load.rate())
        }
        Err(why) => {
            println!("{name:<44} {why}");
            None
        }
    }
}

fn millis(length: Duration) -> String {
    if length.is_zero() {
        return String::new();
    }
    format!("{:.2} ms", length.as_secs_f64() * 1e3)
}
