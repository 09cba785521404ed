//! `leasehold bench`: load of three kinds, without a judge's writes in between.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold_client::{Change, Client, Lease};
use serde::Serialize;
use tokio::task::JoinSet;

use super::Answered;
use super::load::{Percentiles, connect, histogram, measure, percentiles, record};
use crate::args::{self, Global};
use crate::failure::{EXIT_FAULT, EXIT_NO, Failure};
use crate::output::Output;

const HEAD: [&str; 7] = ["WHAT", "A SECOND", "P50", "P90", "P99", "P99.9", "MAX"];
/// The ttl of leases that are renewed all the time, so that no heartbeat is ever due.
const TTL: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
struct Bench {
    clients: u32,
    transport: &'static str,
    store: String,
    rounds: Vec<Round>,
}

#[derive(Debug, Serialize)]
struct Round {
    what: &'static str,
    per_second: f64,
    ms: Percentiles,
    broken: Vec<String>,
}

pub(crate) async fn run(global: &Global, args: &args::Bench) -> Answered {
    let out = Output::of(global);
    let client = connect(global, args.transport).await?;
    let store = client.api().cluster().await?.store;
    let rounds = vec![
        pairs(&out, &client, "own locks", &args.load(args.clients)).await?,
        pairs(&out, &client, "one lock for all", &args.load(1)).await?,
        renewals(&client, args).await?,
    ];
    client.close().await;
    let transport = args.transport.name();
    let bench = Bench { clients: args.clients, transport, store, rounds };
    out.answer(&bench, |out| told(out, args, &bench));
    let is_broken = bench.rounds.iter().any(|round| !round.broken.is_empty());
    Ok(if is_broken { EXIT_NO } else { 0 })
}

async fn pairs(
    out: &Output,
    client: &Client,
    what: &'static str,
    load: &args::Load,
) -> Result<Round, Failure> {
    let report = measure(out, client, load).await?;
    let (per_second, ms) = (report.pairs_per_second, report.acquire_ms);
    Ok(Round { what, per_second, ms, broken: report.broken })
}

/// Each client keeps one lease, and renews it as soon as the last renewal is confirmed.
async fn renewals(client: &Client, args: &args::Bench) -> Result<Round, Failure> {
    let run = getrandom::u32().unwrap_or_default();
    let mut leases = Vec::new();
    for number in 0..args.clients {
        let name = format!("{}{run:08x}/{number}", args.prefix);
        leases.push(client.lock(&name).ttl(TTL).acquire().await?);
    }
    let (start, mut clients) = (Instant::now(), JoinSet::new());
    let until = start + args.duration;
    for lease in leases {
        clients.spawn(renew_until(lease, until));
    }
    let mut all = histogram();
    while let Some(ended) = clients.join_next().await {
        let micros = ended.map_err(|error| Failure::new(EXIT_FAULT, error.to_string()))??;
        all.add(&micros).expect("both have the same range");
    }
    let per_second = all.len() as f64 / start.elapsed().as_secs_f64();
    let ms = percentiles(&all);
    Ok(Round { what: "renewals", per_second, ms, broken: Vec::new() })
}

/// Renews a lease until a moment; gives the duration of each renewal.
async fn renew_until(lease: Lease, until: Instant) -> leasehold_client::Result<Histogram<u64>> {
    let (mut micros, mut changes) = (histogram(), lease.changes());
    while Instant::now() < until {
        let start = Instant::now();
        lease.renew();
        match changes.next().await {
            Change::Renewed(_) => record(&mut micros, start),
            Change::Jeopardy | Change::Lost(_) => lease.check()?,
        }
    }
    lease.release().await?;
    Ok(micros)
}

fn told(out: &Output, args: &args::Bench, bench: &Bench) -> String {
    let rows: Vec<Vec<String>> = bench.rounds.iter().map(row).collect();
    let mut text = format!(
        "{} clients, {}, {:.1} s each; the server keeps its locks in {}\n\n",
        bench.clients,
        bench.transport,
        args.duration.as_secs_f64(),
        bench.store
    );
    text += &out.table(&HEAD, &rows);
    for broken in bench.rounds.iter().flat_map(|round| &round.broken) {
        text += &format!("broken: {broken}\n");
    }
    text
}

fn row(round: &Round) -> Vec<String> {
    let Percentiles { p50, p90, p99, p999, max } = &round.ms;
    let mut row = vec![round.what.to_string(), format!("{:.0}", round.per_second)];
    row.extend([p50, p90, p99, p999, max].map(|ms| format!("{ms:.2} ms")));
    row
}
