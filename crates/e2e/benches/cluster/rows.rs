//! What one would write without us: a row for each lock, taken when it is free or has lapsed, given back by whoever has it.
//!
//! As fast as it gets: a connection for each worker, statements prepared, each a transaction of its own, so that PostgreSQL
//! syncs the commits of many connections at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_store::conformance::servers::Postgres;
use tokio_postgres::{Client, Config, Error, NoTls};

use crate::load::{Load, Meter, fresh};
use crate::{WORKERS, run};

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS lease_rows (name text PRIMARY KEY, owner text NOT NULL,
    expires_at timestamptz NOT NULL, token bigint NOT NULL) WITH (fillfactor = 50);
    CREATE SEQUENCE IF NOT EXISTS tokens";
const TAKE: &str =
    "INSERT INTO lease_rows VALUES ($1, $2, now() + interval '30 s', nextval('tokens'))
    ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at,
    token = EXCLUDED.token WHERE lease_rows.expires_at < now() RETURNING token";
const GIVE_BACK: &str = "DELETE FROM lease_rows WHERE name = $1 AND owner = $2 AND token = $3";

pub(crate) async fn pairs(server: &Postgres) -> Result<Load, String> {
    server.sql(TABLE);
    let done = Arc::new(AtomicU64::new(0));
    let waits = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (mut workers, prefix) = (Vec::new(), fresh());
    for number in 0..WORKERS {
        let name = format!("bench/{prefix}/lock-{number}");
        let client = connect(server.port()).await.map_err(|error| error.to_string())?;
        let (done, waits) = (done.clone(), waits.clone());
        workers.push(tokio::spawn(async move { work(&client, &name, &done, &waits).await }));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = done.load(Ordering::Relaxed);
    if let Ok(mut waits) = waits.lock() {
        waits.clear();
    }
    let meter = Meter::start(server.pid());
    tokio::time::sleep(run()).await;
    let load = meter.stop(done.load(Ordering::Relaxed) - before);
    let failed = workers.iter().any(tokio::task::JoinHandle::is_finished);
    for worker in workers {
        worker.abort();
    }
    let waits = waits.lock().map(|mut waits| std::mem::take(&mut *waits)).unwrap_or_default();
    if failed { Err("a worker failed".into()) } else { Ok(load.with_waits(waits)) }
}

async fn connect(port: u16) -> Result<Client, Error> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user(Postgres::USER).dbname(Postgres::USER);
    config.password(Postgres::PASSWORD);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn work(
    client: &Client,
    name: &str,
    done: &AtomicU64,
    waits: &std::sync::Mutex<Vec<Duration>>,
) -> Result<(), Error> {
    let take = client.prepare(TAKE).await?;
    let give_back = client.prepare(GIVE_BACK).await?;
    let owner = format!("worker-of-{name}");
    loop {
        let asked = Instant::now();
        let row = client.query_one(&take, &[&name, &owner]).await?;
        if let Ok(mut waits) = waits.lock() {
            waits.push(asked.elapsed());
        }
        let token: i64 = row.get(0);
        client.execute(&give_back, &[&name, &owner, &token]).await?;
        done.fetch_add(1, Ordering::Relaxed);
    }
}
