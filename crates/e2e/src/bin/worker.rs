//! A worker that holds a lock and writes, as a process of its own: it can be stopped with a signal.
//!
//! It says on its standard output what it believes and what became of its writes, one line each, with the moment on
//! the clock of the machine. A write is checked, prepared for a while, and then done: a pause in between makes it stale.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_client::{Client, Clock, SystemClock, Transport, sql};
use rusqlite::Connection;

/// Between the check and the write.
const PREPARATION: Duration = Duration::from_millis(40);
/// Two looks at the clock that lie further apart say nothing about the moment between them.
const LOOK_MAX: Duration = Duration::from_millis(1);

struct Arguments {
    url: String,
    lock: String,
    owner: String,
    ttl: Duration,
    document: PathBuf,
    is_fenced: bool,
    transport: Transport,
}

fn arguments() -> Result<Arguments> {
    let mut given = std::env::args().skip(1);
    let mut next = |name: &str| given.next().with_context(|| format!("{name} is missing"));
    Ok(Arguments {
        url: next("url")?,
        lock: next("lock")?,
        owner: next("owner")?,
        ttl: Duration::from_millis(next("ttl in milliseconds")?.parse()?),
        document: next("document")?.into(),
        is_fenced: next("fenced or unfenced")? == "fenced",
        transport: if next("http or stream")? == "http" {
            Transport::Http
        } else {
            Transport::Stream
        },
    })
}

fn say(words: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} {words}", SystemClock.now().as_nanos())?;
    Ok(out.flush()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = arguments()?;
    let mut document = Connection::open(&arguments.document)?;
    document.busy_timeout(Duration::from_millis(200))?;
    document.pragma_update(None, "synchronous", "OFF")?;
    let client = Client::builder(&arguments.url).transport(arguments.transport).connect().await?;
    loop {
        let lease = client
            .lock(&arguments.lock)
            .owner(&arguments.owner)
            .ttl(arguments.ttl)
            .wait_forever()
            .acquire()
            .await
            .with_context(|| format!("{} on {}", arguments.owner, arguments.lock))?;
        let token = lease.fencing_token();
        say(&format!("granted {token}"))?;
        loop {
            let before = SystemClock.now();
            let is_valid = lease.is_valid();
            if SystemClock.now().since(before) > LOOK_MAX {
                continue;
            }
            if !is_valid {
                break;
            }
            say(&format!("believes {token}"))?;
            tokio::time::sleep(PREPARATION).await;
            match write(&mut document, token, arguments.is_fenced) {
                Ok(()) => say(&format!("wrote {token}"))?,
                Err(error) if error.to_string().contains(sql::STALE) => {
                    say(&format!("refused {token}"))?;
                }
                // The other was stopped in the middle of its own write.
                Err(error)
                    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {}
                Err(error) => return Err(error.into()),
            }
        }
        say(&format!("lost {token}"))?;
        let mut lease = lease;
        let _ = lease.release_once().await;
    }
}

/// The write itself. Its fence is in the same transaction.
fn write(document: &mut Connection, token: u64, is_fenced: bool) -> rusqlite::Result<()> {
    let token = i64::try_from(token).unwrap_or(i64::MAX);
    let transaction =
        document.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if is_fenced {
        transaction.execute(sql::SQLITE_ACCEPT, ("document", token))?;
    }
    transaction.execute("INSERT INTO writes (token) VALUES (?1)", [token])?;
    transaction.commit()
}
