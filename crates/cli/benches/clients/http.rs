//! Our own server over HTTP and JSON: a connection for each worker, requests written and answers read by hand.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::doors::{self, Door};
use crate::load::Load;
use crate::process::{Folder, Server};
use crate::sdk::Count;
use crate::stream;

const READY_MAX: Duration = Duration::from_secs(10);
const READY_PAUSE: Duration = Duration::from_millis(20);

/// Each worker acquires and releases a lock that nobody has had before, over and over.
pub(crate) async fn pairs(folder: &Folder, workers: usize) -> Result<Load, String> {
    let (server, port) = stream::serve(folder, "sqlite").await?;
    through(&server, &Door::open(port), workers).await
}

/// The same with a token.
pub(crate) async fn pairs_behind_doors(folder: &Folder, workers: usize) -> Result<Load, String> {
    let (server, door) = doors::serve(folder, false).await?;
    through(&server, &door, workers).await
}

async fn through(server: &Server, door: &Door, workers: usize) -> Result<Load, String> {
    until_it_leads(door).await?;
    let (count, tasks) = (Count::default(), LocalSet::new());
    let work = |worker| tasks.spawn_local(work(door.clone(), worker, count.clone()));
    let running = (0..workers).map(work).collect();
    count.measure(server.id(), &tasks, running).await
}

/// The server listens before it grants anything.
async fn until_it_leads(door: &Door) -> Result<(), String> {
    let since = Instant::now();
    let mut connection = Connection::open(door).await.map_err(|error| error.to_string())?;
    let ask = serde_json::json!({ "owner_id": "first", "ttl_ms": 30_000 });
    loop {
        match connection.post("/v1/locks/bench/first/acquire", &ask).await {
            Err(_) if since.elapsed() < READY_MAX => tokio::time::sleep(READY_PAUSE).await,
            answer => return answer.map(drop),
        }
    }
}

async fn work(door: Door, worker: usize, count: Count) -> Result<(), String> {
    let mut connection = Connection::open(&door).await.map_err(|error| error.to_string())?;
    let mut turn = 0;
    while !count.is_over() {
        turn += 1;
        let path = format!("/v1/locks/bench/{worker}/{turn}");
        let since = Instant::now();
        let ask = serde_json::json!({
            "owner_id": format!("worker-{worker}"), "ttl_ms": 30_000, "request_id": format!("{worker}-{turn}"),
        });
        let grant = connection.post(&format!("{path}/acquire"), &ask).await?;
        count.waited(since);
        let ask = serde_json::json!({
            "owner_id": grant["owner_id"], "lease_id": grant["lease_id"],
            "fencing_token": grant["fencing_token"],
        });
        connection.post(&format!("{path}/release"), &ask).await?;
        count.done();
    }
    Ok(())
}

/// A connection that is kept alive.
struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    /// The header that lets it in.
    credential: String,
}

impl Connection {
    async fn open(door: &Door) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", door.port)).await?;
        stream.set_nodelay(true)?;
        let header = |token| format!("authorization: Bearer {token}\r\n");
        let credential = door.token.as_ref().map(header).unwrap_or_default();
        Ok(Connection { stream, read: Vec::new(), credential })
    }

    async fn post(
        &mut self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<serde_json::Value, String> {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{}content-length: {}\r\n\r\n{body}",
            self.credential,
            body.len()
        );
        let sent = self.stream.write_all(request.as_bytes()).await;
        sent.map_err(|error| error.to_string())?;
        self.read.clear();
        loop {
            if let Some((head, end)) = answer(&self.read) {
                let said = &self.read[head.len()..end];
                if !head.starts_with(b"HTTP/1.1 200") {
                    return Err(format!("unexpected: {}", String::from_utf8_lossy(said)));
                }
                return serde_json::from_slice(said).map_err(|error| error.to_string());
            }
            let read = self.stream.read_buf(&mut self.read).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}

/// The head of a whole answer, and where the answer ends.
fn answer(read: &[u8]) -> Option<(&[u8], usize)> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&read[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (read.len() >= head + length).then_some((&read[..head], head + length))
}
