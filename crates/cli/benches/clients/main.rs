//! How fast clients get and give back locks, beside Redis and etcd on the same machine in the same minutes.
//!
//! All of them do the same: 64 workers in one process over one connection, each taking a lock of its own and giving it
//! back, over and over; the server is a process of its own. Nothing here can fail; a peer that is not installed is named.
//!
//! All take turns, several times, and the median counts. A disk is slower in one minute than in the next; and which of a
//! client, a server and its writer share one of two processors is chance, stays so for seconds, and makes a fifth.

#[allow(dead_code, reason = "shared with a benchmark that asks for more")]
mod etcd;
mod link;
mod load;
mod process;
mod redis;
mod sdk;
mod stream;

use std::time::Duration;

use load::{Load, Row};
use process::Folder;

/// How many requests are in flight.
const WORKERS: usize = 64;

/// What is measured: its name in the arguments, and in the table.
const ROWS: [(&str, &str); 9] = [
    ("sqlite", "leasehold, stream, SQLite"),
    ("memory", "leasehold, stream, memory"),
    ("session", "leasehold, stream, SQLite, one session"),
    ("sdk", "leasehold, library for Rust, SQLite"),
    ("redis-durable", "redis, appendfsync always"),
    ("redis", "redis, without persistence"),
    ("etcd", "etcd, lock service"),
    ("hot", "hand-overs of one lock, 64 waiters, SQLite"),
    ("renew", "renewals, 64 in flight, SQLite"),
];

/// What our pairs are compared with, and what is wanted.
const PEERS: [(&str, &str, &str); 3] = [
    ("redis-durable", "against redis, appendfsync always", ">= 2"),
    ("redis", "against redis, without persistence", ">= 1"),
    ("etcd", "against etcd's lock service", ">= 20"),
];

fn main() {
    // One thread: the two cores of a small machine are then one for the clients and one for the server.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(compare());
}

/// How long each turn takes.
fn run() -> Duration {
    Duration::from_secs(load::setting("LEASEHOLD_BENCH_SECONDS", 2))
}

async fn compare() {
    let only: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wants = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let wanted = ROWS.into_iter().filter(|(key, _)| wants(key));
    let mut rows: Vec<_> = wanted.map(|(key, name)| (key, Row::new(name))).collect();
    let folder = Folder::new();
    let mut written = 0;
    for turn in 1..=load::turns() {
        eprintln!("turn {turn} of {}", load::turns());
        for (key, row) in rows.iter_mut().filter(|(_, row)| row.fault.is_none()) {
            row.take(measure(key, &folder, &mut written).await);
        }
    }
    show(&rows, written);
}

async fn measure(key: &str, folder: &Folder, written: &mut u64) -> Result<Load, String> {
    match key {
        "sqlite" | "memory" => stream::pairs(folder, key).await,
        "session" => stream::session_pairs(folder).await,
        "sdk" => sdk::pairs(folder).await,
        "redis-durable" => redis::pairs(folder, true).await,
        "redis" => redis::pairs(folder, false).await,
        "etcd" => etcd::pairs(folder).await,
        "hot" => stream::hot(folder).await,
        _ => {
            let (load, bytes) = stream::renewals(folder).await?;
            *written += bytes;
            Ok(load)
        }
    }
}

fn show(rows: &[(&str, Row)], written: u64) {
    let (turns, seconds) = (load::turns(), run().as_secs());
    println!(
        "acquire + release, {WORKERS} workers on one connection, {turns} turns of {seconds} s"
    );
    println!(
        "{:<44} {:>10} {:>17} {:>11} {:>11}",
        "", "pairs/s", "lowest to highest", "client CPU", "server CPU"
    );
    for (key, row) in rows {
        if let Some(why) = &row.fault {
            println!("{:<44} skipped: {why}", row.name);
        } else if let Some(load) = row.median().filter(|_| !matches!(*key, "hot" | "renew")) {
            println!(
                "{:<44} {:>10.0} {:>17} {:>8.1} us {:>8.1} us",
                row.name,
                load.rate(),
                row.range(),
                load.client_micros(),
                load.server_micros()
            );
        }
    }
    let row = |wanted: &str| rows.iter().find(|(key, _)| *key == wanted).map(|(_, row)| row);
    let rate = |key: &str| Some(row(key)?.median()?.rate());
    for (peer, what, wanted) in PEERS {
        for (key, what) in [("sqlite", what), ("session", "  under one session")] {
            if let (Some(ours), Some(peer)) = (rate(key), rate(peer)) {
                println!("{what:<44} {:>9.2}x   wanted {wanted}", ours / peer);
            }
        }
    }
    println!();
    for (key, wanted) in [("hot", 5000), ("renew", 100_000)] {
        let Some((row, load)) = row(key).and_then(|row| Some((row, row.median()?))) else {
            continue;
        };
        println!(
            "{:<44} {:>9.0}/s {:>17}   wanted >= {wanted}/s",
            row.name,
            load.rate(),
            row.range()
        );
        if key == "hot" {
            let p50 = load.p50.as_secs_f64() * 1e6;
            println!("{:<44} {p50:>8.0} us", "  release sent to next grant received, p50");
        } else {
            println!("{:<44} {written:>9} B    wanted 0", "  written to disk meanwhile");
        }
    }
}
