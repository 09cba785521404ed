//! How fast clients get and give back locks, beside Redis and etcd on the same machine in the same minutes.
//!
//! All of them do the same: 64 workers in one process over one connection, each taking a lock of its own and giving it
//! back, over and over; the server is a process of its own. Nothing here can fail; a peer that is not installed is named.

mod etcd;
mod link;
mod load;
mod process;
mod redis;
mod sdk;
mod stream;

use std::time::Duration;

use load::Load;
use process::Folder;

/// How many requests are in flight.
const WORKERS: usize = 64;

fn main() {
    // One thread: the two cores of a small machine are then one for the clients and one for the server.
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
    let folder = Folder::new();
    println!("acquire + release, {WORKERS} workers on one connection, {} s each", run().as_secs());
    println!("{:<44} {:>10} {:>11} {:>11}", "", "pairs/s", "client CPU", "server CPU");
    let ours = if wants("sqlite") {
        show("leasehold, stream, SQLite", stream::pairs(&folder, "sqlite").await)
    } else {
        None
    };
    if wants("memory") {
        show("leasehold, stream, memory", stream::pairs(&folder, "memory").await);
    }
    let session = if wants("session") {
        show("leasehold, stream, SQLite, one session", stream::session_pairs(&folder).await)
    } else {
        None
    };
    if wants("sdk") {
        show("leasehold, library for Rust, SQLite", sdk::pairs(&folder).await);
    }
    let durable = if wants("redis-durable") {
        show("redis, appendfsync always", redis::pairs(&folder, true).await)
    } else {
        None
    };
    let forgetful = if wants("redis") {
        show("redis, without persistence", redis::pairs(&folder, false).await)
    } else {
        None
    };
    let etcd =
        if wants("etcd") { show("etcd, lock service", etcd::pairs(&folder).await) } else { None };
    ratio("against redis, appendfsync always", ours, durable, ">= 2");
    ratio("  under one session", session, durable, ">= 2");
    ratio("against redis, without persistence", ours, forgetful, ">= 1");
    ratio("  under one session", session, forgetful, ">= 1");
    ratio("against etcd's lock service", ours, etcd, ">= 20");
    ratio("  under one session", session, etcd, ">= 20");
    println!();
    if wants("hot") {
        match stream::hot(&folder).await {
            Ok(hot) => {
                println!(
                    "{:<44} {:>9.0}/s   wanted >= 5000/s",
                    "hand-overs of one lock, 64 waiters, SQLite", hot.rate
                );
                println!(
                    "{:<44} {:>8.0} us",
                    "  release sent to next grant received, p50",
                    hot.p50.as_secs_f64() * 1e6
                );
            }
            Err(why) => println!("hand-overs: {why}"),
        }
    }
    if wants("renew") {
        match stream::renewals(&folder).await {
            Ok((load, written)) => {
                println!(
                    "{:<44} {:>9.0}/s   wanted >= 100000/s",
                    "renewals, 64 in flight, SQLite",
                    load.rate()
                );
                println!("{:<44} {:>9} B    wanted 0", "  written to disk meanwhile", written);
            }
            Err(why) => println!("renewals: {why}"),
        }
    }
}

fn show(name: &str, load: Result<Load, String>) -> Option<f64> {
    match load {
        Ok(load) => {
            println!(
                "{name:<44} {:>10.0} {:>8.1} us {:>8.1} us",
                load.rate(),
                load.client_micros(),
                load.server_micros()
            );
            Some(load.rate())
        }
        Err(why) => {
            println!("{name:<44} skipped: {why}");
            None
        }
    }
}

fn ratio(what: &str, ours: Option<f64>, peer: Option<f64>, wanted: &str) {
    if let (Some(ours), Some(peer)) = (ours, peer) {
        println!("{what:<44} {:>9.2}x   wanted {wanted}", ours / peer);
    }
}
