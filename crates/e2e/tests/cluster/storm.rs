//! Three servers around one store, in a storm of faults.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use leasehold_api::Code;
use leasehold_e2e::checker::{Rules, check};
use leasehold_e2e::client::{Ask, Client, Lease, Outcome, bound_unknown_to};
use leasehold_e2e::cluster::{Cluster, Store, note_leaders};
use leasehold_e2e::history::{Recorder, save};
use leasehold_e2e::is_full;
use leasehold_e2e::random::Random;
use leasehold_e2e::worker::Worker;
use leasehold_store::conformance::servers::{EtcdCluster, Postgres, Way};
use leasehold_store::{Campaign, Candidate, Leadership, Loaded, Location, Position, open};

const CLIENTS: u32 = 8;
const TTLS: [Duration; 2] = [Duration::from_millis(1500), Duration::from_secs(15)];
const SETTINGS: &str = "[cluster]\nleadership_ttl = \"1500ms\"\n";
/// A server that stood still may carry out afterwards what it had been sent before.
const UNKNOWN_FOR: Duration = Duration::from_secs(20);
const LEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    LeaderKilled,
    LeaderStops,
    LeaderLeaves,
    WireCut(Way),
    StoreFails,
}

/// How often each comes about in the long form, at least; in the short one each does once.
const FAULTS: [(Fault, usize); 7] = [
    (Fault::LeaderKilled, 20),
    (Fault::LeaderStops, 20),
    (Fault::WireCut(Way::Silent), 8),
    (Fault::WireCut(Way::NoAnswers), 8),
    (Fault::WireCut(Way::Broken), 4),
    (Fault::LeaderLeaves, 5),
    (Fault::StoreFails, 10),
];

/// What is to come about, in any order.
fn deck(random: &mut Random) -> Vec<Fault> {
    let mut deck: Vec<Fault> = FAULTS
        .into_iter()
        .flat_map(|(fault, times)| vec![fault; if is_full() { times } else { 1 }])
        .collect();
    for at in (1..deck.len()).rev() {
        deck.swap(at, pick(random, at + 1));
    }
    deck
}

fn length() -> Duration {
    Duration::from_secs(if is_full() { 300 } else { 60 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_postgres_live_through_a_storm() -> Result<()> {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await?;
    storm(Store::Postgres(Box::new(postgres)), 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_three_etcds_live_through_a_storm() -> Result<()> {
    let etcd = tokio::task::spawn_blocking(|| EtcdCluster::start(3)).await?;
    storm(Store::Etcd(etcd), 2).await
}

/// With settings as they come: how long clients have to do without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_takes_over() -> Result<()> {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await?;
    let mut cluster = Cluster::start(3, Store::Postgres(Box::new(postgres)), "").await?;
    let recorder = Recorder::default();
    let leader = cluster.wait_for_leader(LEADER_TIMEOUT).await?;
    let address = cluster.nodes[(leader + 1) % 3].server.address();
    let mut client = Client::new(address, 0, &recorder).impatient(Duration::from_secs(5));
    let mut lease = client.acquire(0, Ask::exclusive(TTLS[1])).await.done()?;

    let since = Instant::now();
    cluster.nodes[leader].server.kill()?;
    renewed(&mut client, &mut lease).await?;
    let after_a_kill = since.elapsed();
    cluster.nodes[leader].server.start_again().await?;

    let leader = cluster.wait_for_leader(LEADER_TIMEOUT).await?;
    client.turn_to(cluster.nodes[(leader + 1) % 3].server.address());
    let since = Instant::now();
    let stopping = cluster.nodes[leader].server.stop();
    let (status, kept) = tokio::join!(stopping, renewed(&mut client, &mut lease));
    kept?;
    ensure!(status?.success());
    println!(
        "served again {after_a_kill:?} after a kill (wanted: 4 s), {:?} after a stop was asked for (wanted: 0.5 s)",
        since.elapsed()
    );
    ensure!(after_a_kill < Duration::from_secs(8), "{after_a_kill:?}");
    let next = client.acquire(1, Ask::exclusive(TTLS[1])).await.done()?;
    ensure!(next.token > lease.token, "{} after {}", next.token, lease.token);
    Ok(())
}

/// Asks again and again, as somebody does who wants to keep a lock.
async fn renewed(client: &mut Client, lease: &mut Lease) -> Result<()> {
    let since = Instant::now();
    loop {
        match client.renew(lease).await {
            Outcome::Done(()) => return Ok(()),
            Outcome::Refused(problem)
                if problem.code != Code::NotLeader && problem.code != Code::Interrupted =>
            {
                anyhow::bail!("{}: {}", problem.code, problem.detail);
            }
            Outcome::Refused(_) | Outcome::NoAnswer(_) => {}
        }
        ensure!(since.elapsed() < LEADER_TIMEOUT, "nobody serves");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn storm(store: Store, seed: u64) -> Result<()> {
    let mut cluster = Cluster::start(3, store, SETTINGS).await?;
    let recorder = Recorder::default();
    cluster.wait_for_leader(LEADER_TIMEOUT).await?;
    let watcher = tokio::spawn(note_leaders(cluster.addresses(), recorder.clone()));
    let is_over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let worker = Worker::new(cluster.addresses(), id, TTLS, &recorder);
            tokio::spawn(worker.run(is_over.clone()))
        })
        .collect();
    let mut random = Random::new(leasehold_e2e::seed(seed));
    let began = Instant::now();
    let mut deck = deck(&mut random);
    let mut faults = Vec::new();
    while began.elapsed() < length() || !deck.is_empty() {
        let (any, _) = FAULTS[pick(&mut random, FAULTS.len())];
        let fault = deck.pop().unwrap_or(any);
        let since = Instant::now();
        inflict(&mut cluster, fault, &mut random).await?;
        cluster.wait_for_leader(LEADER_TIMEOUT).await?;
        faults.push((fault, since.elapsed()));
        tokio::time::sleep(random.between(Duration::from_millis(50), Duration::from_millis(800)))
            .await;
    }
    everybody_is_served(&mut cluster, &recorder).await?;
    is_over.store(true, Ordering::Relaxed);
    let (mut kept, mut refused) = (0, 0);
    for worker in workers {
        let work = worker.await?;
        kept += work.kept;
        refused += work.refused;
    }
    watcher.abort();
    let mut history = recorder.take();
    bound_unknown_to(&mut history, UNKNOWN_FOR);
    let saved = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("storm-{seed}.jsonl"));
    save(&saved, &history)?;
    println!("{} operations to judge, in {}", history.len(), saved.display());
    let checked = check(&history, Rules::default())?;
    tell(began.elapsed(), &faults);
    println!("{kept} grants seen again after one, {refused} times told to come back: {checked:?}");
    ensure!(checked.grants > 200 && kept > 20, "too little happened: {checked:?}");
    ensure!(checked.restarts >= 3, "too few changes of leader: {checked:?}");
    nobody_wrote_after_its_time(cluster).await
}

fn tell(length: Duration, faults: &[(Fault, Duration)]) {
    println!("{} faults in {:.0} s", faults.len(), length.as_secs_f64());
    for (fault, _) in FAULTS {
        let times: Vec<Duration> =
            faults.iter().filter(|(of, _)| *of == fault).map(|(_, took)| *took).collect();
        let longest = times.iter().max().copied().unwrap_or_default();
        println!("  {fault:?}: {}, over after {longest:?} at most", times.len());
    }
}

/// Reads the whole journal: no record may be of an older epoch than the one before it.
async fn nobody_wrote_after_its_time(mut cluster: Cluster) -> Result<()> {
    for node in &mut cluster.nodes {
        node.server.kill()?;
    }
    let journal = open(&Location::parse(&cluster.store.url())?, 0).await?;
    let candidate =
        Candidate { name: "judge".into(), address: String::new(), lease: Duration::from_secs(60) };
    let overdue = journal.leader().await?.map(|leader| leader.beat);
    let Campaign::Won(Leadership { epoch, .. }) = journal.campaign(candidate, overdue).await?
    else {
        bail!("nobody else can lead")
    };
    let (mut records, mut last) = (0, 0);
    let mut from = Some(Position::Start);
    while let Some(position) = from {
        let page = journal.load(epoch, position).await?;
        for item in page.items {
            let Loaded::Batch(batch) = item else { continue };
            let of = batch.epoch().0;
            ensure!(of >= last, "a record of epoch {of} after one of {last}");
            (records, last) = (records + 1, of);
        }
        from = page.next;
    }
    println!("{records} records up to epoch {last}, none of an epoch that was over");
    ensure!(records > 0 && last < epoch.0, "the journal tells nothing");
    Ok(())
}

async fn inflict(cluster: &mut Cluster, fault: Fault, random: &mut Random) -> Result<()> {
    let leader = cluster.wait_for_leader(LEADER_TIMEOUT).await?;
    let pause = random.between(Duration::from_millis(300), Duration::from_secs(4));
    let node = &mut cluster.nodes[leader];
    match fault {
        Fault::LeaderKilled => {
            node.server.kill()?;
            node.is_down = true;
            cluster.wait_for_leader(LEADER_TIMEOUT).await?;
            cluster.nodes[leader].is_down = false;
            cluster.nodes[leader].server.spawn_again()?;
        }
        Fault::LeaderStops => {
            node.server.pause()?;
            tokio::time::sleep(pause).await;
            node.server.go_on()?;
        }
        Fault::LeaderLeaves => {
            let status = node.server.stop().await?;
            ensure!(status.success(), "{status}: {}", node.server.log());
            node.server.spawn_again()?;
        }
        Fault::WireCut(way) => {
            node.set_wires(way);
            tokio::time::sleep(pause).await;
            node.set_wires(Way::Open);
        }
        Fault::StoreFails => store_fails(&mut cluster.store, random, pause).await,
    }
    Ok(())
}

async fn store_fails(store: &mut Store, random: &mut Random, pause: Duration) {
    match store {
        Store::Postgres(postgres) => tokio::task::block_in_place(|| postgres.crash()),
        Store::Etcd(etcd) => {
            let at = pick(random, etcd.members().len());
            let member = &mut etcd.members()[at];
            member.kill();
            tokio::time::sleep(pause).await;
            member.start_again();
            tokio::task::block_in_place(|| member.wait_until_ready());
        }
    }
}

/// When the storm is over, every client gets what it asks for, whichever server it asks.
async fn everybody_is_served(cluster: &mut Cluster, recorder: &Recorder) -> Result<()> {
    cluster.wait_for_leader(LEADER_TIMEOUT).await?;
    for (id, address) in (1000..).zip(cluster.addresses()) {
        let mut client = Client::new(address, id, recorder).impatient(Duration::from_secs(5));
        let since = Instant::now();
        loop {
            match client.acquire(id, Ask::exclusive(TTLS[1])).await.done() {
                Ok(lease) => break client.release(&lease).await.done()?,
                Err(error) if since.elapsed() > LEADER_TIMEOUT => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
    Ok(())
}

fn pick(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.below(len as u64)).expect("there are few")
}
