//! How fast the whole service is over HTTP, beside what limits it on this machine. Nothing here can fail.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const WORKERS: u64 = 64;
const RUN: Duration = Duration::from_secs(5);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(async {
        println!("{:<58} {:>16}   wanted", "service, HTTP/1.1 keep-alive, JSON", "measured");
        let folder = Folder::new();
        let sync = fdatasync_p50(&folder.0);
        report("fdatasync of 200 bytes, p50", &micros(sync), "");
        let trivial = one_worker(&folder, sync).await;
        let sqlite = pairs(&folder, "sqlite").await;
        let memory = pairs(&folder, "memory").await;
        let ratio = 100.0 * sqlite / memory;
        let wanted = ">= 25 k/s or >= 60 % of memory";
        report("acquire + release pairs, 64 workers, SQLite", &thousands(sqlite), wanted);
        report("  the same, memory store", &thousands(memory), "");
        report("  SQLite reaches of memory", &format!("{ratio:.0} %"), "");
        report("trivial requests, one worker", &micros(trivial), "");
        if std::env::var_os("LEASEHOLD_BENCH_SMALL").is_none() {
            million(&folder).await;
        }
    });
}

fn report(what: &str, measured: &str, wanted: &str) {
    println!("{what:<58} {measured:>16}   {wanted}");
}

fn thousands(rate: f64) -> String {
    format!("{:.1} k/s", rate / 1000.0)
}

fn micros(length: Duration) -> String {
    format!("{:.0} us", length.as_secs_f64() * 1e6)
}

/// A folder that goes when it is no longer needed.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("leasehold-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The real server, in a process of its own.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    async fn start(store: &str) -> Server {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port is free")
            .port();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["serve", "--listen", &address, "--store", store])
            .env("LEASEHOLD_LOG", "error")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server can be started");
        let server = Server { child, address };
        let start = Instant::now();
        while !server.is_ready().await {
            assert!(start.elapsed() < Duration::from_secs(60), "the server does not get ready");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server
    }

    async fn is_ready(&self) -> bool {
        let Ok(stream) = TcpStream::connect(&self.address).await else { return false };
        let mut client = Client::over(stream, &self.address);
        client.get("/readyz").await.0 == 200
    }

    fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.child.id());
        let statm = std::fs::read_to_string(path).unwrap_or_default();
        let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * 4096
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The least that speaks HTTP/1.1: one connection, one request at a time.
struct Client {
    stream: TcpStream,
    address: String,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(&server.address).await.expect("the server listens");
        Client::over(stream, &server.address)
    }

    fn over(stream: TcpStream, address: &str) -> Client {
        let _ = stream.set_nodelay(true);
        Client { stream, address: address.to_owned(), buffer: Vec::with_capacity(4096) }
    }

    async fn get(&mut self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        self.exchange(&request).await
    }

    async fn post(&mut self, path: &str, body: &str) -> (u16, String) {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.exchange(&request).await
    }

    async fn exchange(&mut self, request: &str) -> (u16, String) {
        self.stream.write_all(request.as_bytes()).await.expect("the server reads");
        self.buffer.clear();
        loop {
            self.stream.read_buf(&mut self.buffer).await.expect("the server answers");
            let text = String::from_utf8_lossy(&self.buffer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
                })
                .unwrap_or(0_usize);
            if body.len() >= length {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                return (status.unwrap_or(0), body.to_owned());
            }
        }
    }

    /// What a release needs.
    async fn acquire(&mut self, lock: &str, owner: &str) -> (String, String) {
        let body = format!(r#"{{"owner_id":"{owner}","ttl_ms":3600000}}"#);
        let (status, answer) = self.post(&format!("/v1/locks/{lock}/acquire"), &body).await;
        assert_eq!(status, 200, "{answer}");
        (field(&answer, "lease_id"), field(&answer, "fencing_token"))
    }

    async fn release(&mut self, lock: &str, owner: &str, held: &(String, String)) {
        let (lease, token) = held;
        let body =
            format!(r#"{{"owner_id":"{owner}","lease_id":"{lease}","fencing_token":{token}}}"#);
        let (status, answer) = self.post(&format!("/v1/locks/{lock}/release"), &body).await;
        assert_eq!(status, 200, "{answer}");
    }
}

/// A field of a flat JSON object, without its quotes.
fn field(json: &str, name: &str) -> String {
    let key = format!("\"{name}\":");
    let rest = json.split_once(&key).map_or("", |(_, rest)| rest);
    rest.split([',', '}']).next().unwrap_or("").trim_matches('"').to_owned()
}

fn p50(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

fn fdatasync_p50(folder: &Path) -> Duration {
    let mut file = File::create(folder.join("sync")).expect("a file can be made");
    let samples = (0..500).map(|_| {
        let start = Instant::now();
        file.write_all(&[7; 200]).expect("the disk has room");
        file.sync_data().expect("the disk syncs");
        start.elapsed()
    });
    p50(samples.collect())
}

async fn one_worker(folder: &Folder, sync: Duration) -> Duration {
    let server = Server::start(&format!("sqlite:{}", folder.0.join("one.db").display())).await;
    let mut client = Client::connect(&server).await;
    let (mut trivial, mut acquires) = (Vec::new(), Vec::new());
    for round in 0..3000 {
        let start = Instant::now();
        client.get("/livez").await;
        trivial.push(start.elapsed());
        let lock = format!("job/{round}");
        let start = Instant::now();
        let held = client.acquire(&lock, "worker").await;
        acquires.push(start.elapsed());
        client.release(&lock, "worker", &held).await;
    }
    let (trivial, acquire) = (p50(trivial), p50(acquires));
    let ratio = acquire.as_secs_f64() / (sync + trivial).as_secs_f64();
    report("one worker, durable acquire, p50", &micros(acquire), "");
    report("  of one fdatasync + one trivial request", &format!("{ratio:.2}x"), "<= 1.5x");
    trivial
}

async fn pairs(folder: &Folder, kind: &str) -> f64 {
    let store = match kind {
        "memory" => "memory".to_owned(),
        _ => format!("sqlite:{}", folder.0.join("pairs.db").display()),
    };
    let server = Server::start(&store).await;
    let (done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let mut client = Client::connect(&server).await;
        let (done, count) = (done.clone(), count.clone());
        workers.push(tokio::spawn(async move {
            let owner = format!("worker-{number}");
            let mut round = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let lock = format!("job/{number}/{}", round % 1000);
                let held = client.acquire(&lock, &owner).await;
                client.release(&lock, &owner, &held).await;
                count.fetch_add(1, Ordering::Relaxed);
                round += 1;
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, start) = (count.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(RUN).await;
    let made = count.load(Ordering::Relaxed) - before;
    let rate = made as f64 / start.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    for worker in workers {
        let _ = worker.await;
    }
    if kind != "memory" {
        let (_, metrics) = Client::connect(&server).await.get("/metrics").await;
        let number = |name: &str| -> f64 {
            let line = metrics.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
        };
        let commits = number("leasehold_commit_batch_size_count");
        let changes = number("leasehold_commit_batch_size_sum");
        report("  changes per commit", &format!("{:.1}", changes / commits.max(1.0)), "");
        report("  commits/s", &format!("{:.0}", commits / (RUN.as_secs_f64() + 1.0)), "");
    }
    rate
}

/// A million held locks: what they cost, and how long a restart takes.
async fn million(folder: &Folder) {
    const LOCKS: u64 = 1_000_000;
    let store = format!("sqlite:{}", folder.0.join("million.db").display());
    let server = Server::start(&store).await;
    Client::connect(&server).await.acquire("first", "worker").await;
    let before = server.resident_bytes();
    let start = Instant::now();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let mut client = Client::connect(&server).await;
        workers.push(tokio::spawn(async move {
            let owner = format!("worker-{number}");
            for round in 0..LOCKS / WORKERS {
                client.acquire(&format!("job/{number}-{round}"), &owner).await;
            }
        }));
    }
    for worker in workers {
        worker.await.expect("every lock was free");
    }
    let rate = LOCKS as f64 / start.elapsed().as_secs_f64();
    report("acquires up to 1 M held locks", &thousands(rate), "");
    let bytes = (server.resident_bytes().saturating_sub(before)) / LOCKS;
    report("memory per held lock, 1 M held", &format!("{bytes} B"), "<= 300 B");
    drop(server);
    let start = Instant::now();
    let _server = Server::start(&store).await;
    let took = format!("{:.2} s", start.elapsed().as_secs_f64());
    report("restart after kill -9 with 1 M held locks, until ready", &took, "<= 3 s");
}
