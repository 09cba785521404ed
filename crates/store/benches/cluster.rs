//! The journals that servers share, beside what their engines offer for locks themselves, on the same server.
//!
//! Each number is durable: on a disk, with a sync before every answer. What is compared is pairs (a lock taken and given
//! back): two changes of a journal, two requests to etcd's lock service, two statements on a row.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::{
    Claim, Ending, Fence, Granted, LeaseId, Millis, Mode, Namespace, Owner, Scope, Timestamp,
    Transition,
};
use leasehold_store::conformance::servers::{Etcd, Postgres, use_disk};
use leasehold_store::{Batch, Campaign, Candidate, Journal, Location, Seq, open};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

const LENGTH: Duration = Duration::from_secs(5);
const WORKERS: u64 = 64;
const CHANGES: u64 = 64;

fn main() {
    use_disk();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(run());
}

async fn run() {
    println!("{WORKERS} workers, or batches of {CHANGES} changes; {LENGTH:?} each; durable");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let sqlite = format!("sqlite:{}", folder.path().join("locks.db").display());
    journal("sqlite", &sqlite).await;

    let postgres = Postgres::start();
    let ours = journal("postgres", &postgres.url("")).await;
    let theirs = lease_rows(&postgres).await;
    println!("postgres: {:.1} times the pairs of a lease row per operation", ours / theirs);
    drop(postgres);

    let etcd = Etcd::start();
    let ours = journal("etcd", &etcd.url("")).await;
    let theirs = lock_service(&etcd).await;
    println!("etcd: {:.1} times the pairs of etcd's own lock service", ours / theirs);
}

/// Appends one record after the other; pairs a second.
async fn journal(name: &str, url: &str) -> f64 {
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
    let pairs = appends * CHANGES as f64 / 2.0;
    println!(
        "{name:10} {appends:8.0} appends/s {:9.0} changes/s {pairs:9.0} pairs/s   p50 {:.2} ms  p99 {:.2} ms",
        appends * CHANGES as f64,
        at(50),
        at(99),
    );
    pairs
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
        fence: Fence::new(number).expect("it is small"),
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

/// Lets all workers do pairs until the time is over; pairs a second.
async fn workers<W, F>(name: &str, worker: W) -> f64
where
    W: Fn(u64, Arc<AtomicU64>, Instant) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let pairs = Arc::new(AtomicU64::new(0));
    let since = Instant::now();
    let over = since + LENGTH;
    let tasks: Vec<_> =
        (0..WORKERS).map(|number| tokio::spawn(worker(number, pairs.clone(), over))).collect();
    for task in tasks {
        task.await.expect("a worker does its work");
    }
    let rate = pairs.load(Ordering::SeqCst) as f64 / since.elapsed().as_secs_f64();
    println!("{name:51} {rate:9.0} pairs/s");
    rate
}

/// What one would write without us: a row for each lock, taken when it is free or has lapsed.
async fn lease_rows(server: &Postgres) -> f64 {
    server.sql(
        "CREATE TABLE lease_rows (name text PRIMARY KEY, owner text NOT NULL,
         expires_at timestamptz NOT NULL, token bigint NOT NULL); CREATE SEQUENCE tokens",
    );
    let port = server.port();
    workers("postgres: a lease row per operation", move |number, pairs, over| async move {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(port).user(Postgres::USER).dbname(Postgres::USER);
        config.password(Postgres::PASSWORD);
        let connected = config.connect(tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("it can be reached");
        tokio::spawn(connection);
        let take = client
            .prepare(
                "INSERT INTO lease_rows VALUES ($1, $2, now() + interval '30 s', nextval('tokens'))
                 ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner,
                 expires_at = EXCLUDED.expires_at, token = EXCLUDED.token
                 WHERE lease_rows.expires_at < now() RETURNING token",
            )
            .await
            .expect("it is a statement");
        let give_back = client
            .prepare("DELETE FROM lease_rows WHERE name = $1 AND owner = $2")
            .await
            .expect("it is a statement");
        let (name, owner) = (format!("job/{number}"), format!("worker-{number}"));
        while Instant::now() < over {
            let rows = client.query(&take, &[&name, &owner]).await.expect("it can be asked");
            assert_eq!(rows.len(), 1, "nobody else has it");
            client.execute(&give_back, &[&name, &owner]).await.expect("it can be given back");
            pairs.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

/// The key of a lock: what `Lock` answers and `Unlock` asks for, though under different numbers.
#[derive(Clone, PartialEq, prost::Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

async fn lock_service(server: &Etcd) -> f64 {
    let address = format!("http://127.0.0.1:{}", server.port());
    let endpoint = Channel::from_shared(address).expect("it is an address");
    let channel = endpoint.connect().await.expect("it can be reached");
    workers("etcd: its own lock service", move |number, pairs, over| {
        let channel = channel.clone();
        async move {
            let lease: LeaseGrantResponse =
                call(&channel, "/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl: 60 })
                    .await;
            let name = format!("job/{number}").into_bytes();
            while Instant::now() < over {
                let request = LockRequest { name: name.clone(), lease: lease.id };
                let lock: LockResponse = call(&channel, "/v3lockpb.Lock/Lock", request).await;
                let request = UnlockRequest { key: lock.key };
                let _: Empty = call(&channel, "/v3lockpb.Lock/Unlock", request).await;
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await
}

async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> A
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the connection is there");
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let answer = client.unary(tonic::Request::new(request), path, codec).await;
    answer.expect("etcd answers").into_inner()
}
