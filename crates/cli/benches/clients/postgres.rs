//! PostgreSQL's own locks: advisory locks of sessions, which are in its memory alone.

use std::path::Path;
use std::time::Instant;

use leasehold_store::conformance::servers::Postgres;
use tokio::task::LocalSet;
use tokio_postgres::{Client, Config, Error, NoTls};

use crate::WORKERS;
use crate::load::Load;
use crate::sdk::Count;

/// A server of our own with nothing in it.
pub(crate) fn start() -> Result<Postgres, String> {
    if !Path::new("/usr/lib/postgresql").exists() {
        return Err("PostgreSQL is not installed (Debian package postgresql)".into());
    }
    Ok(Postgres::start())
}

/// All workers want the same lock and wait for it, each on a connection of its own.
pub(crate) async fn hot() -> Result<Load, String> {
    let server = start()?;
    let (count, tasks) = (Count::default(), LocalSet::new());
    let mut running = Vec::new();
    for _ in 0..WORKERS {
        let client = connect(server.port()).await.map_err(|error| error.to_string())?;
        running.push(tasks.spawn_local(work(client, count.clone())));
    }
    count.measure(server.pid(), &tasks, running).await
}

async fn connect(port: u16) -> Result<Client, Error> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user(Postgres::USER).dbname(Postgres::USER);
    config.password(Postgres::PASSWORD);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn work(client: Client, count: Count) -> Result<(), Error> {
    let take = client.prepare("SELECT pg_advisory_lock(1)").await?;
    let give_back = client.prepare("SELECT pg_advisory_unlock(1)").await?;
    while !count.is_over() {
        let since = Instant::now();
        client.query_one(&take, &[]).await?;
        count.waited(since);
        client.query_one(&give_back, &[]).await?;
        count.done();
    }
    Ok(())
}
