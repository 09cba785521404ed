//! A stale writer meets a fence that is a plain value beside the data.
//!
//! Start a server (`leasehold serve`), then: `cargo run -p leasehold-client --example fence_pure [http://host:port]`

use std::sync::Mutex;
use std::time::Duration;

use leasehold_client::{Client, Fence, Stale};

/// What is protected: its data and its mark change together, under one mutex.
#[derive(Debug, Default)]
struct Document {
    text: String,
    fence: Fence,
}

fn write(document: &Mutex<Document>, token: u64, text: &str) -> Result<(), Stale> {
    let mut document = document.lock().expect("no writer panics");
    document.fence.accept(token)?;
    document.text = text.into();
    Ok(())
}

pub async fn run(server: &str) -> anyhow::Result<()> {
    let client = Client::connect(server).await?;
    let ttl = Duration::from_millis(500);
    let document = Mutex::new(Document::default());

    // The first writer gets the lock, and then stops for longer than its lease: a long pause of its runtime, a laptop
    // that was closed, a machine that was moved. Nothing renews the lease meanwhile.
    let lock = "example/fence-pure";
    let paused = client.lock(lock).owner("paused").ttl(ttl).manual_heartbeat().acquire().await?;
    write(&document, paused.fencing_token(), "written in time")?;
    let next = client.lock(lock).owner("next").wait(Duration::from_secs(10)).acquire().await?;
    write(&document, next.fencing_token(), "written by the next holder")?;

    // It goes on where it was, without looking at its lease.
    let stale = write(&document, paused.fencing_token(), "written too late");
    println!("the stale write: {}", stale.expect_err("the fence refuses it"));
    println!("and the document says: {}", document.lock().expect("no writer panics").text);
    assert_eq!(document.lock().expect("no writer panics").text, "written by the next holder");
    next.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".into());
    run(&server).await
}
