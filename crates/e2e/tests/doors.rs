//! Attacks that need a real browser, or data that a real server has written.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_e2e::browser::Browser;
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use leasehold_store::Seq;
use leasehold_store::conformance::Corruption;
use rusqlite::Connection;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// Serves this page to everybody, as another site; its port.
fn site(page: String) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                page.len()
            );
            let _ = stream.write_all((head + &page).as_bytes());
        }
    });
    Ok(port)
}

/// Attack 51.
#[tokio::test]
async fn page_of_another_site_cannot_have_the_server_look_for_anything() -> Result<()> {
    let server = Server::start_with(&["--store", "memory", "--access-log", "all"]).await?;
    let own = format!("http://{}", server.address());
    let page = format!(
        "<!doctype html><title>x</title><script>window.refused = 0</script>\
         <img src='{own}/v1/graph' onerror='refused++'>\
         <script src='{own}/v1/locks' onerror='refused++'></script>\
         <script>fetch('{own}/v1/overview', {{mode: 'no-cors'}}).then(() => refused++, () => refused++)</script>"
    );
    // To a browser another name is another site.
    let port = site(page)?;
    let mut browser = Browser::start().await?;
    browser.open(&format!("http://localhost:{port}/")).await?;
    browser.wait_for("all were refused", "return window.refused === 3").await?;
    let log = server.log();
    for asked in ["/v1/graph", "/v1/locks", "/v1/overview"] {
        let route = format!("\"route\":\"{asked}\"");
        let line = log.lines().find(|line| line.contains(&route)).context(log.clone())?;
        ensure!(line.contains("\"status\":403") && line.contains("permission_denied"), "{line}");
    }
    // The same from a page of its own, or from no page.
    ensure!(Http::new(server.address()).get("/v1/graph").await?.status == 200);
    Ok(())
}

/// All records, by their table and number.
fn records(db: &Path) -> Result<BTreeMap<(String, i64), Vec<u8>>> {
    let connection = Connection::open(db)?;
    let mut all = BTreeMap::new();
    for (table, key) in [("journal", "seq"), ("chunks", "chunk")] {
        let mut rows = connection.prepare(&format!("SELECT {key}, record FROM {table}"))?;
        for row in rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))? {
            let (number, record) = row?;
            all.insert((table.to_owned(), number), record);
        }
    }
    Ok(all)
}

async fn refuses_to_start(server: &mut Server, said: &str) -> Result<()> {
    let before = server.log().len();
    server.spawn_again()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = server.ended() {
            break status;
        }
        ensure!(begun.elapsed() < PATIENCE, "it goes on: {}", server.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let log = server.log();
    let told = log.get(before..).unwrap_or(&log);
    ensure!(!status.success() && told.contains(said), "{status}: {told}");
    Ok(())
}

/// Attack 70.
#[tokio::test]
async fn what_a_newer_version_has_written_is_left_to_it() -> Result<()> {
    let mut server = Server::start().await?;
    let mut http = Http::new(server.address());
    let ask = json!({ "owner_id": "a", "ttl_ms": 3_600_000 });
    ensure!(http.post("/v1/locks/kept/acquire", &ask).await?.status == 200);
    server.kill()?;
    let db = server.data().join("leasehold.db");
    let written = records(&db)?;
    let ((_, last), record) = written
        .iter()
        .rfind(|((table, _), _)| table == "journal")
        .context("the lock was written")?;
    let newer = Corruption::NewerRecord(Seq(u64::try_from(*last)?)).apply(record.clone());
    let put = "UPDATE journal SET record = ?2 WHERE seq = ?1";
    Connection::open(&db)?.execute(put, rusqlite::params![last, newer])?;
    let before = records(&db)?;
    ensure!(before != written);
    refuses_to_start(&mut server, "this build is too old for the store").await?;
    ensure!(records(&db)? == before, "a record was changed");
    Connection::open(&db)?.execute(put, rusqlite::params![last, record])?;

    let connection = Connection::open(&db)?;
    let schema: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", schema + 1)?;
    drop(connection);
    let before = std::fs::read(&db)?;
    refuses_to_start(&mut server, "a newer version of Leasehold has written it").await?;
    ensure!(std::fs::read(&db)? == before, "the file was changed");
    Connection::open(&db)?.pragma_update(None, "user_version", schema)?;

    // The version that has written it finds everything.
    server.start_again().await?;
    let kept = http.get("/v1/locks/kept").await?;
    ensure!(
        kept.status == 200 && kept.json::<serde_json::Value>()?["holders"][0]["owner_id"] == "a"
    );
    Ok(())
}
