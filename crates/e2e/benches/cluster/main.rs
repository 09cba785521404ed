//! How fast clients get and give back locks when the locks are in PostgreSQL or etcd, beside what those two offer for locks
//! themselves, on the same server in the same minutes; and how long clients do without when the leader goes.
//!
//! All of them do the same: 64 workers in one process, each taking a lock of its own and giving it back, over and over.
//! Everything is durable: the data is on a disk, with a sync before every answer. Nothing here can fail. What is compared
//! takes turns, several times, and the median counts: a disk is slower in one minute than in the next.
//!
//! Everybody runs wherever the scheduler puts them, and that is what is compared. On a machine of few processors it moves
//! client, server and store out of each other's way over and over; what that costs shows a row in which our client and server
//! share one processor.

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
mod processor;
mod rows;

use std::time::Duration;

use leasehold_api::grpc::attach::Session;
use leasehold_e2e::server::{Server, binary};
use leasehold_store::conformance::servers::{Etcd, Postgres, use_disk};

use etcd::Leases;
use link::{Link, locks_of_session, own_locks, session};
use load::{Load, Row};
use processor::OneProcessor;

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

/// How long each turn takes.
fn run() -> Duration {
    Duration::from_secs(load::setting("LEASEHOLD_BENCH_SECONDS", 2))
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
    let (turns, seconds) = (load::turns(), run().as_secs());
    println!("acquire + release, {WORKERS} workers, {turns} turns of {seconds} s, durable");
    println!(
        "{:<44} {:>10} {:>17} {:>11} {:>11} {:>9} {:>9}",
        "", "pairs/s", "lowest to highest", "client CPU", "server CPU", "p50", "p99"
    );
    let mut ratios = Vec::new();
    if wants("etcd") {
        let store = Etcd::start();
        let mut table = Table::new("leasehold on one etcd", "  its own lock service, one lease");
        let mut each = Row::new("  its own lock service, a lease for each lock");
        for _ in 0..turns {
            table.ours(&store.url("")).await;
            table.theirs.take(etcd::pairs_on(store.port(), store.pid(), Leases::One).await);
            each.take(etcd::pairs_on(store.port(), store.pid(), Leases::Each).await);
        }
        table.show();
        show(&each);
        ratios.extend([
            ratio("a lease for each lock, against the same of etcd", &table.own, &each),
            ratio("one lease for all, against the same of etcd", &table.session, &table.theirs),
            ratio("a lease for each lock, against one in etcd", &table.own, &table.theirs),
        ]);
    }
    if wants("postgres") {
        let store = Postgres::start();
        let mut table = Table::new("leasehold on PostgreSQL", "  a lease row per operation");
        for _ in 0..turns {
            table.ours(&store.url("")).await;
            table.theirs.take(rows::pairs(&store).await);
        }
        table.show();
        ratios.extend([
            ratio("against a lease row per operation", &table.own, &table.theirs),
            ratio("  under one session", &table.session, &table.theirs),
        ]);
    }
    for line in ratios {
        println!("{line}");
    }
    if wants("three") {
        failover::three_nodes().await;
    }
}

fn ratio(what: &str, ours: &Row, theirs: &Row) -> String {
    match (ours.median(), theirs.median()) {
        (Some(ours), Some(theirs)) => {
            format!("{what:<48} {:>5.1}x   wanted >= 10", ours.rate() / theirs.rate())
        }
        (None, _) | (_, None) => format!("{what:<48} not measured"),
    }
}

/// What is measured on one store.
struct Table {
    /// Each lock under a lease of its own.
    own: Row,
    /// All under one session.
    session: Row,
    /// The second with client and server on one processor. It is compared with nobody: the others had no such choice.
    placed: Row,
    theirs: Row,
    /// How the commits of the last turn went.
    commits: String,
}

impl Table {
    fn new(ours: &'static str, theirs: &'static str) -> Table {
        Table {
            own: Row::new(ours),
            session: Row::new("  the same, one session"),
            placed: Row::new("  one session, client and server on one CPU"),
            theirs: Row::new(theirs),
            commits: String::new(),
        }
    }

    /// A server of ours on that store, and what it manages.
    async fn ours(&mut self, store: &str) {
        let commits = &mut self.commits;
        self.own.take(pairs(store, None, OneProcessor::default, commits).await);
        self.session.take(pairs(store, Some(session()), OneProcessor::default, commits).await);
        let mut of_placed = String::new();
        let placed = pairs(store, Some(session()), OneProcessor::keep, &mut of_placed).await;
        self.placed.take(placed);
    }

    fn show(&self) {
        for row in [&self.own, &self.session, &self.placed, &self.theirs] {
            show(row);
        }
        println!("  {}", self.commits);
    }
}

async fn pairs(
    store: &str,
    session: Option<Session>,
    place: fn() -> OneProcessor,
    commits: &mut String,
) -> Result<Load, String> {
    // The server stays where it is started.
    let placed = place();
    let mut server =
        Server::start_with(&["--store", store]).await.map_err(|error| error.to_string())?;
    let is_session = session.is_some();
    let mut link = Link::open(server.address().port(), session).await?;
    let load = match is_session {
        true => locks_of_session(server.pid(), &mut link).await,
        false => own_locks(server.pid(), &mut link).await,
    };
    drop(placed);
    *commits = commits_of(&server).await;
    // The next one need not wait until nobody confirms this one's leadership.
    server.stop().await.map_err(|error| error.to_string())?;
    load
}

/// How the server's commits went: what limits it.
async fn commits_of(server: &Server) -> String {
    let mut http = leasehold_e2e::client::Http::new(server.address());
    let Ok(answer) = http.get("/metrics").await else { return String::new() };
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let number = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    };
    let count = number("leasehold_commit_batch_size_count").max(1.0);
    format!(
        "{count:.0} commits in the last turn, of {:.1} changes and {:.0} us each",
        number("leasehold_commit_batch_size_sum") / count,
        number("leasehold_commit_seconds_sum") / count * 1e6
    )
}

fn show(row: &Row) {
    match (&row.fault, row.median()) {
        (Some(why), _) => println!("{:<44} {why}", row.name),
        (None, Some(load)) => println!(
            "{:<44} {:>10.0} {:>17} {:>8.1} us {:>8.1} us {:>9} {:>9}",
            row.name,
            load.rate(),
            row.range(),
            load.client_micros(),
            load.server_micros(),
            millis(load.p50),
            millis(load.p99),
        ),
        (None, None) => {}
    }
}

fn millis(length: Duration) -> String {
    if length.is_zero() {
        return String::new();
    }
    format!("{:.2} ms", length.as_secs_f64() * 1e3)
}
