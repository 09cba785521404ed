//! A stale writer meets a fence in PostgreSQL: a table and a function, in the transaction of the write itself.
//!
//! Start a server (`leasehold serve`), then:
//! `cargo run -p leasehold-client --example fence_postgres http://host:port 'host=/var/run/postgresql user=postgres'`

use std::time::Duration;

use leasehold_client::{Client, sql};
use tokio_postgres::{Error, NoTls};

async fn write(database: &mut tokio_postgres::Client, token: u64, text: &str) -> Result<(), Error> {
    let transaction = database.transaction().await?;
    let token = i64::try_from(token).unwrap_or(i64::MAX);
    transaction.execute(sql::POSTGRES_ACCEPT, &[&"document", &token]).await?;
    transaction.execute("UPDATE document SET text = $1", &[&text]).await?;
    transaction.commit().await
}

async fn connect(database: &str) -> Result<tokio_postgres::Client, Error> {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
    drop(tokio::spawn(connection));
    client.batch_execute("CREATE SCHEMA IF NOT EXISTS example; SET search_path TO example").await?;
    Ok(client)
}

pub async fn run(server: &str, database: &str) -> anyhow::Result<()> {
    let client = Client::connect(server).await?;
    let (mut first, mut second) = (connect(database).await?, connect(database).await?);
    first.batch_execute(sql::POSTGRES).await?;
    let table = "DROP TABLE IF EXISTS document; CREATE TABLE document (text text);
        INSERT INTO document VALUES (''); DELETE FROM leasehold_fences WHERE name = 'document'";
    first.batch_execute(table).await?;

    // The first writer stops for longer than its lease.
    let lock = "example/fence-postgres";
    let ttl = Duration::from_millis(500);
    let paused = client.lock(lock).owner("paused").ttl(ttl).manual_heartbeat().acquire().await?;
    write(&mut first, paused.fencing_token(), "written in time").await?;
    let next = client.lock(lock).owner("next").wait(Duration::from_secs(10)).acquire().await?;
    write(&mut second, next.fencing_token(), "written by the next holder").await?;

    // It goes on where it was, without looking at its lease.
    let stale = write(&mut first, paused.fencing_token(), "written too late").await;
    let refused = stale.expect_err("the function refuses it");
    let said = refused.as_db_error().map_or_else(|| refused.to_string(), ToString::to_string);
    println!("the stale write: {said}");
    assert!(said.contains(sql::STALE), "{said}");
    let text: String = second.query_one("SELECT text FROM document", &[]).await?.get(0);
    println!("and the document says: {text}");
    assert_eq!(text, "written by the next holder");
    next.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".into());
    let local = "host=/var/run/postgresql user=postgres";
    run(&server, &arguments.next().unwrap_or_else(|| local.into())).await
}
