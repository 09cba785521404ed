//! The journals that servers share, by themselves: one record after the other, each durable before the next.
//!
//! What servers make of them, beside what their engines offer for locks, is measured from the outside, in `e2e`.

use std::time::{Duration, Instant};

use leasehold_core::{
    Claim, Ending, FencingToken, Granted, LeaseId, Millis, Mode, Namespace, Owner, Scope,
    Timestamp, Transition,
};
use leasehold_store::conformance::servers::{Etcd, Postgres, use_disk};
use leasehold_store::{Batch, Campaign, Candidate, Journal, Location, Seq, open};

const LENGTH: Duration = Duration::from_secs(5);
const CHANGES: u64 = 64;

fn main() {
    use_disk();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(run());
}

async fn run() {
    println!("one record of {CHANGES} changes after the other; {LENGTH:?} each; durable");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let sqlite = format!("sqlite:{}", folder.path().join("locks.db").display());
    journal("sqlite", &sqlite).await;

    let postgres = Postgres::start();
    journal("postgres", &postgres.url("")).await;
    drop(postgres);

    let etcd = Etcd::start();
    journal("etcd", &etcd.url("")).await;
}

/// Appends one record after the other.
async fn journal(name: &str, url: &str) {
    let location = Location::parse(url).expect("it is an address");
    let journal = open(&location, 0).await.expect("it can be opened");
    let candidate = Candidate {
        name: "bench".into(),
        address: "bench.example:7420".into(),
        lease: Duration::from_secs(60),
    };
    let Ok(Campaign::Won(leadership)) = journal.campaign(candidate, None).await else {
        panic!("nobody else leads")
    };
    let since = Instant::now();
    let mut times = Vec::new();
    let mut seq = 0;
    while since.elapsed() < LENGTH {
        seq += 1;
        let changes = changes(seq);
        let batch = Batch::new(leadership.epoch, Seq(seq), &changes);
        let began = Instant::now();
        append(&*journal, batch).await;
        times.push(began.elapsed());
    }
    let seconds = since.elapsed().as_secs_f64();
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e3;
    let appends = seq as f64 / seconds;
    println!(
        "{name:10} {appends:8.0} appends/s {:9.0} changes/s   p50 {:.2} ms  p99 {:.2} ms",
        appends * CHANGES as f64,
        at(50),
        at(99),
    );
}

async fn append(journal: &dyn Journal, batch: Batch) {
    journal.append(batch).await.expect("it can be written");
}

/// Half of them grants, half of them ends.
fn changes(seq: u64) -> Vec<Transition> {
    let numbers = (0..CHANGES / 2).map(|place| seq * CHANGES + place);
    numbers.flat_map(|number| [granted(number), ended(number)]).collect()
}

fn granted(number: u64) -> Transition {
    Transition::Granted(Granted {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(number)),
        opens: Some(Millis::from_secs(30)),
        owner: Owner::new("worker-1").expect("it is a name"),
        claims: vec![Claim {
            scope: Scope::parse(&format!("job/{number}")).expect("it is a scope"),
            mode: Mode::Exclusive,
        }],
        fence: FencingToken::new(number).expect("it is small"),
        granted_at: Timestamp::from_millis(1_700_000_000_000 + number),
        reclaim_window: Millis::ZERO,
        request: None,
        metadata: None,
    })
}

fn ended(number: u64) -> Transition {
    Transition::LeaseEnded {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(number)),
        ending: Ending::Released,
    }
}
