//! How fast clients acquire and release locks, beside Redis and etcd on the same machine in the same minutes.
//!
//! All of them do the same: workers in one process, each acquiring a lock that nobody has had before and releasing it, over and over; the
//! server is a process of its own. Leasehold is measured three times: through the SDK, as programs use it; over HTTP and JSON, with a
//! connection for each worker; and over its stream by a client that is made of nothing but messages, which shows what the server can do.
//! Redis is measured through its library too, and by a client made by hand: a library is compared with a library, and a bare client
//! with a bare client. Nothing here can fail; a peer that is not installed is named.
//!
//! All take turns, several times, and the median counts. A disk is slower in one minute than in the next; and which of a
//! client, a server and its writer share one of two processors is chance, stays so for seconds, and makes a fifth.

mod doors;
#[allow(dead_code, reason = "shared with a benchmark that asks for more")]
mod etcd;
mod groups;
mod growth;
mod held;
mod http;
mod link;
mod load;
mod machine;
mod page;
mod plot;
mod postgres;
mod process;
mod redis;
mod redis_bare;
mod sdk;
mod stream;
mod wanted;

use std::path::PathBuf;
use std::time::Duration;

use growth::Growth;
use leasehold_store::conformance::servers::use_disk;
use load::{Load, Row};
use page::Limits;
use process::Folder;

/// How many requests are in flight, unless the row says otherwise.
const WORKERS: usize = 64;

/// What is measured: its name in the arguments, and in the table.
const ROWS: &[(&str, &str)] = &[
    ("sdk", "Leasehold, SDK for Rust"),
    ("http", "Leasehold, HTTP and JSON, 64 connections"),
    ("redis-durable", "Redis, `appendfsync always`, library for Rust"),
    ("redis", "Redis, not durable, library for Rust"),
    ("etcd", "etcd, its lock service, over tonic"),
    ("raw", "Leasehold, bare stream"),
    ("session", "Leasehold, bare stream, one session"),
    ("memory", "Leasehold, bare stream, memory store, not durable"),
    ("redis-bare-durable", "Redis, `appendfsync always`, bare socket"),
    ("redis-bare", "Redis, not durable, bare socket"),
    ("token-sdk", "Leasehold with tokens, SDK for Rust"),
    ("token-http", "Leasehold with tokens, HTTP and JSON, 64 connections"),
    ("token-raw", "Leasehold with tokens, bare stream"),
    ("tls-sdk", "Leasehold with tokens and TLS, SDK for Rust"),
    ("lone-sdk", "one worker: Leasehold, SDK for Rust"),
    ("lone-http", "one worker: Leasehold, HTTP and JSON"),
    ("lone-redis", "one worker: Redis, `appendfsync always`, library"),
    ("hot-sdk", "one lock for 64 workers: Leasehold, SDK for Rust"),
    ("hot", "one lock for 64 workers: Leasehold, bare stream"),
    ("hot-postgres", "one lock for 64 workers: PostgreSQL advisory lock"),
    ("renew", "renewals, 64 in flight: Leasehold, bare stream"),
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
    let wanted = ROWS.iter().filter(|(key, _)| wants(key));
    let mut rows: Vec<_> = wanted.map(|(key, name)| (*key, Row::new(name))).collect();
    let mut growths = Growth::all(wants);
    use_disk();
    let folder = Folder::new();
    let limits = Limits::measure(&folder);
    let mut written = 0;
    for turn in 1..=load::turns() {
        eprintln!("turn {turn} of {}", load::turns());
        for (key, row) in rows.iter_mut().filter(|(_, row)| row.fault.is_none()) {
            row.take(measure(key, &folder, &mut written).await);
        }
        for growth in &mut growths {
            growth.measure(&folder).await;
        }
    }
    show(&rows, &limits, written);
    for growth in &growths {
        growth.show();
    }
    if let Some(root) = std::env::var_os("LEASEHOLD_BENCH_WRITE").map(PathBuf::from) {
        page::write(&root, &rows, &growths, &limits);
    }
}

async fn measure(key: &str, folder: &Folder, written: &mut u64) -> Result<Load, String> {
    match key {
        "raw" => stream::pairs(folder, "sqlite").await,
        "token-raw" => stream::pairs_behind_doors(folder).await,
        "token-http" => http::pairs_behind_doors(folder, WORKERS).await,
        "token-sdk" => sdk::pairs_behind_doors(folder, WORKERS, false).await,
        "tls-sdk" => sdk::pairs_behind_doors(folder, WORKERS, true).await,
        "memory" => stream::pairs(folder, key).await,
        "session" => stream::session_pairs(folder).await,
        "etcd" => etcd::pairs(folder).await,
        "lone-sdk" => pairs("sdk", folder, 1).await,
        "lone-http" => pairs("http", folder, 1).await,
        "lone-redis" => pairs("redis-durable", folder, 1).await,
        "hot-sdk" => sdk::pairs(folder, WORKERS, true).await,
        "redis-bare-durable" => redis_bare::pairs(folder, true).await,
        "redis-bare" => redis_bare::pairs(folder, false).await,
        "hot-postgres" => postgres::hot().await,
        "hot" => stream::hot(folder).await,
        "renew" => {
            let (load, bytes) = stream::renewals(folder).await?;
            *written += bytes;
            Ok(load)
        }
        _ => pairs(key, folder, WORKERS).await,
    }
}

async fn pairs(key: &str, folder: &Folder, workers: usize) -> Result<Load, String> {
    match key {
        "sdk" => sdk::pairs(folder, workers, false).await,
        "http" => http::pairs(folder, workers).await,
        "redis-durable" => redis::pairs(folder, true, workers).await,
        _ => redis::pairs(folder, false, workers).await,
    }
}

fn show(rows: &[(&str, Row)], limits: &Limits, written: u64) {
    println!("{}", limits.sentence());
    println!(
        "{:<52} {:>9} {:>17} {:>15} {:>19}",
        "acquire + release", "pairs/s", "lowest to highest", "p50, p99 us", "CPU us a pair"
    );
    println!("{:>115}", "server + client");
    for (_, row) in rows {
        let Some(load) = row.median() else {
            println!("{:<52} skipped: {}", row.name, row.fault.as_deref().unwrap_or("no turns"));
            continue;
        };
        println!(
            "{:<52} {:>9.0} {:>17} {:>15} {:>19}",
            row.name,
            load.rate(),
            row.range(),
            page::waits(&load),
            load.processor(),
        );
    }
    wanted::show(rows);
    if rows.iter().any(|(key, row)| *key == "renew" && row.median().is_some()) {
        println!("{:<52} {written:>9} B wanted 0", "written to disk by renewals");
    }
}
