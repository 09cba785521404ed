//! `leasehold load`: many clients that compete for locks, and a judge that looks on.

mod judge;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold_api::{Code, DeleteFenceRequest};
use leasehold_client::Client;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Answered;
use crate::args::{Global, Load, Transport};
use crate::asking::builder;
use crate::failure::{EXIT_FAULT, EXIT_NO, EXIT_NOT_GOT, EXIT_UNREACHABLE, Failure};
use crate::output::{Output, Style, counted};
use judge::{Broken, Judge};
use worker::{Counts, Worker};
pub(super) use worker::{histogram, record};

const DELETIONS_AT_ONCE: usize = 64;
/// After so many registers that cannot be deleted the rest stays.
const GIVE_UP_AFTER: u32 = 3;

/// The result of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    clients: u32,
    locks: u32,
    transport: &'static str,
    seconds: f64,
    acquired: u64,
    pub(super) pairs_per_second: f64,
    pub(super) acquire_ms: Percentiles,
    release_ms: Percentiles,
    refused: u64,
    /// Of all tries, how many met another worker.
    conflict_percent: f64,
    crashed: u64,
    lost: u64,
    register_writes: u64,
    stale_writes_tried: u64,
    stale_writes_refused: u64,
    unreachable: u64,
    pub(super) broken: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

pub(crate) async fn run(global: &Global, args: &Load) -> Answered {
    let out = Output::of(global);
    let client = connect(global, args.transport).await?;
    let report = measure(&out, &client, args).await?;
    client.close().await;
    out.answer(&report, |out| told(out, &report));
    Ok(match &report {
        Report { broken, .. } if !broken.is_empty() => EXIT_NO,
        Report { acquired: 1.., .. } => 0,
        Report { unreachable: 1.., .. } => EXIT_UNREACHABLE,
        Report { .. } => EXIT_NOT_GOT,
    })
}

pub(super) async fn connect(global: &Global, transport: Transport) -> Result<Client, Failure> {
    let transport = match transport {
        Transport::Http => leasehold_client::Transport::Http,
        Transport::Stream => leasehold_client::Transport::Stream,
    };
    builder(global)?.transport(transport).connect().await.map_err(Failure::from)
}

pub(super) async fn measure(out: &Output, client: &Client, args: &Load) -> Result<Report, Failure> {
    // Names of its own: an earlier load may have left locks and registers.
    let run = getrandom::u32().unwrap_or_default();
    let judge = Arc::new(Judge::new(args.hot, args.plant));
    let (stop, stopped) = watch::channel(false);
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for number in 0..args.clients {
        let (judge, stopped) = (judge.clone(), stopped.clone());
        workers.spawn(Worker::new(number, run, client.clone(), args, judge, stopped).run());
    }
    let mut counts = Ok(Counts::new());
    tokio::select! {
        () = wait(out, args.duration, &judge) => {}
        // None ends before it is told, unless it cannot go on.
        Some(ended) = workers.join_next() => counts = added(counts, ended),
    }
    stop.send_replace(true);
    let seconds = start.elapsed().as_secs_f64();
    while let Some(ended) = workers.join_next().await {
        counts = added(counts, ended);
    }
    delete_registers(out, client, &args.prefix, run, &judge).await;
    Ok(report(args, &counts?, seconds, &judge.broken()))
}

/// Removes what the workers wrote to, several at a time.
async fn delete_registers(out: &Output, client: &Client, prefix: &str, run: u32, judge: &Judge) {
    let mut names = judge.written_to().map(|lock| lock_name(prefix, run, lock));
    let mut deletions = JoinSet::new();
    let (mut left, mut last) = (0_u32, None);
    loop {
        while deletions.len() < DELETIONS_AT_ONCE
            && left < GIVE_UP_AFTER
            && let Some(name) = names.next()
        {
            let client = client.clone();
            deletions.spawn(async move {
                let request = DeleteFenceRequest { reason: "made by leasehold load".into() };
                client.api().delete_fence(&name, &request).await
            });
        }
        match deletions.join_next().await {
            None => break,
            Some(Ok(Err(error))) if error.code() != Some(Code::NotFound) => {
                left += 1;
                last = Some(error);
            }
            Some(_) => {}
        }
    }
    if let Some(error) = last {
        out.say(&format!("fence registers of this load are left: {error}"));
    }
}

fn lock_name(prefix: &str, run: u32, lock: u32) -> String {
    format!("{prefix}{run:08x}/{lock}")
}

fn added(
    counts: Result<Counts, Failure>,
    ended: Result<leasehold_client::Result<Counts>, tokio::task::JoinError>,
) -> Result<Counts, Failure> {
    let mut counts = counts?;
    counts.add(&joined(ended)?);
    Ok(counts)
}

fn joined(
    ended: Result<leasehold_client::Result<Counts>, tokio::task::JoinError>,
) -> Result<Counts, Failure> {
    match ended {
        Ok(counts) => counts.map_err(Failure::from),
        Err(error) => Err(Failure::new(EXIT_FAULT, error.to_string())),
    }
}

/// Until the time is over; the bar is for terminals alone.
async fn wait(out: &Output, length: Duration, judge: &Judge) {
    let target =
        if out.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let total = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(total), target);
    if let Ok(style) = ProgressStyle::with_template("{elapsed} [{bar:40}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let start = Instant::now();
    while start.elapsed() < length {
        tokio::time::sleep((length - start.elapsed()).min(Duration::from_millis(200))).await;
        bar.set_position(u64::try_from(start.elapsed().as_millis()).unwrap_or(total));
        let rate = judge.granted() as f64 / start.elapsed().as_secs_f64();
        bar.set_message(format!(
            "{} grants, {rate:.0}/s, {} broken",
            judge.granted(),
            judge.broken().len()
        ));
    }
    bar.finish_and_clear();
}

fn report(args: &Load, counts: &Counts, seconds: f64, broken: &[Broken]) -> Report {
    let tries = counts.acquired + counts.refused;
    Report {
        clients: args.clients,
        locks: args.hot,
        transport: args.transport.name(),
        seconds,
        acquired: counts.acquired,
        pairs_per_second: counts.acquired as f64 / seconds,
        acquire_ms: percentiles(&counts.acquire_micros),
        release_ms: percentiles(&counts.release_micros),
        refused: counts.refused,
        conflict_percent: 100.0 * (counts.refused + counts.waited) as f64 / tries.max(1) as f64,
        crashed: counts.crashed,
        lost: counts.lost,
        register_writes: counts.written,
        stale_writes_tried: counts.stale_tried,
        stale_writes_refused: counts.stale_refused,
        unreachable: counts.unreachable,
        broken: broken.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn percentiles(micros: &Histogram<u64>) -> Percentiles {
    let at = |quantile| micros.value_at_quantile(quantile) as f64 / 1000.0;
    Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
}

fn told(out: &Output, report: &Report) -> String {
    let Report { clients, locks, transport, seconds, .. } = report;
    let line = |of: &Percentiles| {
        format!(
            "p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
            of.p50, of.p90, of.p99, of.p999, of.max
        )
    };
    let (clients, locks) = (counted((*clients).into(), "client"), counted((*locks).into(), "lock"));
    let mut text = format!("{clients}, {locks}, {transport}, {seconds:.1} s\n\n");
    text += &out.fields(&[
        (
            "acquire + release",
            format!("{:.0}/s ({} in all)", report.pairs_per_second, report.acquired),
        ),
        ("acquire", line(&report.acquire_ms)),
        ("release", line(&report.release_ms)),
        (
            "met somebody else",
            format!("{:.1} %, {} of them were refused", report.conflict_percent, report.refused),
        ),
        (
            "vanished",
            format!("{} holders; {} leases were lost on the way", report.crashed, report.lost),
        ),
        (
            "register writes",
            format!(
                "{} accepted, {} stale ones refused",
                report.register_writes, report.stale_writes_refused
            ),
        ),
        ("unreachable", format!("{} requests", report.unreachable)),
    ]);
    text.push('\n');
    if report.acquired == 0 {
        text += "nothing was held, so no promise was put to the test\n";
    } else if report.broken.is_empty() {
        text += &out.styled(Style::Good, "all promises held");
        text += match report.stale_writes_tried {
            0 => {
                ": no stale write could be tried, no two clients believed at once, tokens only rose\n"
            }
            _ => {
                ": no stale write was accepted, no two clients believed at once, tokens only rose\n"
            }
        };
    } else {
        let broken = counted(report.broken.len() as u64, "promise");
        text += &out.styled(Style::Bad, &format!("{broken} broken"));
        text.push('\n');
        for broken in &report.broken {
            text += &format!("  {broken}\n");
        }
    }
    text
}
