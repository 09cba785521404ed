//! A stale writer meets a fence in SQLite: a table and a trigger, in the transaction of the write itself.
//!
//! Start a server (`leasehold serve`), then: `cargo run -p leasehold-client --example fence_sqlite [http://host:port]`

use std::time::Duration;

use leasehold_client::{Client, sql};
use rusqlite::Connection;

fn write(database: &mut Connection, token: u64, text: &str) -> rusqlite::Result<()> {
    let transaction = database.transaction()?;
    transaction
        .execute(sql::SQLITE_ACCEPT, ("document", i64::try_from(token).unwrap_or(i64::MAX)))?;
    transaction.execute("UPDATE document SET text = ?1", [text])?;
    transaction.commit()
}

pub async fn run(server: &str) -> anyhow::Result<()> {
    let client = Client::connect(server).await?;
    let mut database = Connection::open_in_memory()?;
    database.execute_batch(sql::SQLITE)?;
    database
        .execute_batch("CREATE TABLE document (text TEXT); INSERT INTO document VALUES ('')")?;

    // The first writer stops for longer than its lease.
    let lock = "example/fence-sqlite";
    let ttl = Duration::from_millis(500);
    let paused = client.lock(lock).owner("paused").ttl(ttl).manual_heartbeat().acquire().await?;
    write(&mut database, paused.fencing_token(), "written in time")?;
    let next = client.lock(lock).owner("next").wait(Duration::from_secs(10)).acquire().await?;
    write(&mut database, next.fencing_token(), "written by the next holder")?;

    // It goes on where it was, without looking at its lease.
    let stale = write(&mut database, paused.fencing_token(), "written too late");
    let refused = stale.expect_err("the trigger refuses it").to_string();
    println!("the stale write: {refused}");
    assert!(refused.contains(sql::STALE), "{refused}");
    let text: String = database.query_row("SELECT text FROM document", [], |row| row.get(0))?;
    println!("and the document says: {text}");
    assert_eq!(text, "written by the next holder");
    next.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".into());
    run(&server).await
}
