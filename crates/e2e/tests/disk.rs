//! The disk fails, is full, is slow: injected into the system calls of the running server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::Method;
use leasehold_api::{Code, LockPage};
use leasehold_e2e::checker::{Checked, Rules, check};
use leasehold_e2e::client::{Ask, Client, Http, Lease, Outcome, bound_unknown};
use leasehold_e2e::faults::{Injected, can_inject};
use leasehold_e2e::history::Recorder;
use leasehold_e2e::server::{Server, binary};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const TTL: Duration = Duration::from_secs(300);
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// A server with a few locks held, and the history so far.
struct Held {
    server: Server,
    recorder: Recorder,
    client: Client,
    leases: Vec<Lease>,
}

impl Held {
    async fn start() -> Result<Held> {
        let server = Server::start().await?;
        let recorder = Recorder::default();
        let mut client = Client::new(server.address(), 0, &recorder);
        let mut leases = Vec::new();
        for lock in 0..4 {
            leases.push(client.acquire(lock, Ask::exclusive(TTL)).await.done()?);
        }
        Ok(Held { server, recorder, client, leases })
    }

    /// Asks for locks that are free. Returns how many were granted, and how many refused because of the store.
    async fn ask(&mut self, locks: std::ops::Range<u32>) -> Result<(usize, usize)> {
        let (mut granted, mut refused) = (0, 0);
        for lock in locks {
            match self.client.acquire(lock, Ask::exclusive(TTL)).await {
                Outcome::Done(lease) => {
                    self.leases.push(lease);
                    granted += 1;
                }
                Outcome::Refused(problem) => {
                    ensure!(problem.code == Code::StoreUnavailable, "{}", problem.code);
                    refused += 1;
                }
                Outcome::NoAnswer(_) => refused += 1,
            }
        }
        Ok((granted, refused))
    }

    async fn renew_all(&mut self) -> Result<()> {
        for lease in &mut self.leases {
            self.client.renew(lease).await.done()?;
        }
        Ok(())
    }

    /// So many requests were counted as refused because of the store.
    async fn counts_as_busy(&self, expected: u32) -> Result<()> {
        let answer = Http::new(self.server.address()).get("/metrics").await?;
        let text = String::from_utf8(answer.body.to_vec())?;
        let sample = format!("lock_db_busy_total{{op=\"acquire\"}} {expected}\n");
        ensure!(text.contains(&sample), "{sample} is not in\n{text}");
        let sample = format!("lock_acquire_total{{result=\"busy\"}} {expected}\n");
        ensure!(text.contains(&sample), "{sample} is not in\n{text}");
        Ok(())
    }

    /// The server is not ready, and says which part of it fails and why.
    async fn says_why(&self) -> Result<()> {
        let answer = Http::new(self.server.address()).get("/readyz?verbose").await?;
        ensure!(answer.status == 503, "{answer:?}");
        let problem: Value = answer.json()?;
        let checks = problem["checks"].as_array().context("it has checks")?;
        let store = checks.iter().find(|check| check["name"] == "store").context("of the store")?;
        let detail = store["detail"].as_str().unwrap_or_default();
        // The sync itself, or the attempt to open the file anew after it.
        let is_told = ["I/O", "cannot be opened again"].iter().any(|why| detail.contains(why));
        ensure!(store["ok"] == false && is_told, "{problem}");
        Ok(())
    }

    /// How long it takes until something is granted again, all by itself.
    async fn recovers(&mut self, lock: u32) -> Result<Duration> {
        let began = Instant::now();
        while began.elapsed() < RECOVERY_MAX {
            if let Some(status) = self.server.ended() {
                // To end is allowed after a failed sync; a supervisor starts it again.
                println!("the server ended with {status}; it is started again");
                self.server.start_again().await?;
            }
            if let Outcome::Done(lease) = self.client.acquire(lock, Ask::exclusive(TTL)).await {
                self.leases.push(lease);
                return Ok(began.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("not back after {RECOVERY_MAX:?}; the log:\n{}", self.server.log())
    }

    /// The end of every story: the server is killed, and all that was acknowledged must still be there.
    async fn survives_a_kill(mut self) -> Result<Checked> {
        self.server.crash(&self.recorder).await?;
        self.renew_all().await?;
        let mut history = self.recorder.take();
        bound_unknown(&mut history);
        Ok(check(&history, Rules::default())?)
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_after_a_failed_sync() -> Result<()> {
    if !can_inject() {
        return Ok(());
    }
    let mut held = Held::start().await?;
    let injected = Injected::into_process(held.server.pid(), &["fsync,fdatasync:error=EIO"])?;
    let (granted, refused) = held.ask(100..110).await?;
    ensure!((granted, refused) == (0, 10), "{granted} granted, {refused} refused");
    held.counts_as_busy(10).await?;
    held.says_why().await?;
    ensure!(injected.end()? > 0, "nothing was injected");
    let took = held.recovers(200).await?;
    println!("back {took:?} after syncs work again");
    println!("{:?}", held.survives_a_kill().await?);
    Ok(())
}

#[tokio::test]
async fn single_failed_syncs_lose_nothing() -> Result<()> {
    if !can_inject() {
        return Ok(());
    }
    let mut held = Held::start().await?;
    let what = ["fsync,fdatasync:error=EIO:when=2+5"];
    let injected = Injected::into_process(held.server.pid(), &what)?;
    // The server may write anew what it could not sync, or refuse; what it grants must last.
    let (granted, refused) = held.ask(100..200).await?;
    let failed = injected.end()?;
    println!("{failed} syncs failed, {granted} granted, {refused} refused");
    ensure!(failed >= 10 && granted > 0, "{failed} syncs failed, {granted} granted");
    held.recovers(900).await?;
    println!("{:?}", held.survives_a_kill().await?);
    Ok(())
}

#[tokio::test]
async fn full_disk_refuses_new_grants_and_nothing_else() -> Result<()> {
    if !can_inject() {
        return Ok(());
    }
    let mut held = Held::start().await?;
    // Calls that only files see: answers and the log go other ways.
    let what = ["pwrite64,ftruncate,fallocate:error=ENOSPC"];
    let injected = Injected::into_process(held.server.pid(), &what)?;
    let (granted, refused) = held.ask(100..105).await?;
    ensure!((granted, refused) == (0, 5), "{granted} granted, {refused} refused");
    held.renew_all().await?;
    let released = held.leases.remove(0);
    held.client.release(&released).await.done()?;
    held.renew_all().await?;
    ensure!(injected.end()? > 0, "nothing was injected");
    let took = held.recovers(200).await?;
    println!("back {took:?} after there is room again");
    println!("{:?}", held.survives_a_kill().await?);
    Ok(())
}

#[tokio::test]
async fn slow_disk_delays_grants_and_no_renewal() -> Result<()> {
    const DELAY: Duration = Duration::from_millis(500);
    if !can_inject() {
        return Ok(());
    }
    let mut held = Held::start().await?;
    let what = format!("fsync,fdatasync:delay_enter={}", DELAY.as_micros());
    let injected = Injected::into_process(held.server.pid(), &[&what])?;
    let address = held.server.address();
    let recorder = held.recorder.clone();
    let slow = tokio::spawn(async move {
        let mut client = Client::new(address, 1, &recorder);
        let began = Instant::now();
        let outcome = client.acquire(300, Ask::exclusive(TTL)).await.done();
        (outcome, began.elapsed())
    });
    tokio::time::sleep(DELAY / 5).await;
    let began = Instant::now();
    held.renew_all().await?;
    let renewed = began.elapsed();
    let (outcome, granted) = slow.await?;
    outcome?;
    ensure!(injected.end()? > 0, "nothing was injected");
    println!("a grant took {granted:?}, four renewals {renewed:?}");
    ensure!(granted >= DELAY, "it was acknowledged before its sync: {granted:?}");
    ensure!(renewed < DELAY / 2, "renewals waited for the disk: {renewed:?}");
    held.survives_a_kill().await?;
    Ok(())
}

/// Over HTTP/1.1 what the kernel took counts as delivered. Peers that are gone before that, while their grant is being
/// made durable, leave nothing behind.
#[tokio::test]
async fn grants_to_peers_that_went_before_their_answer_are_taken_back() -> Result<()> {
    const DELAY: Duration = Duration::from_millis(1000);
    const PEERS: u64 = 20;
    if !can_inject() {
        return Ok(());
    }
    let server = Server::start().await?;
    let mut http = Http::new(server.address());
    let what = format!("fsync,fdatasync:delay_enter={}", DELAY.as_micros());
    let injected = Injected::into_process(server.pid(), &[&what])?;
    let before: LockPage = http.get("/v1/locks").await?.json()?;
    let mut peers = Vec::new();
    for peer in 0..PEERS {
        let mut stream = TcpStream::connect(server.address()).await?;
        let body = r#"{"owner_id":"a","ttl_ms":600000}"#;
        let head = format!("POST /v1/locks/gone/{peer}/acquire HTTP/1.1\r\nhost: localhost");
        let length = format!("content-type: application/json\r\ncontent-length: {}", body.len());
        stream.write_all(format!("{head}\r\n{length}\r\n\r\n{body}").as_bytes()).await?;
        peers.push(stream);
    }
    tokio::time::sleep(DELAY / 4).await;
    for peer in peers {
        peer.set_zero_linger()?;
    }
    let since = Instant::now();
    loop {
        let now: LockPage = http.get("/v1/locks").await?.json()?;
        // Each grant is a change, and so is what takes it back.
        if now.revision >= before.revision + 2 * PEERS {
            ensure!(now.locks.is_empty(), "{} locks are held by nobody", now.locks.len());
            break;
        }
        ensure!(since.elapsed() < RECOVERY_MAX, "{} locks are held", now.locks.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ensure!(injected.end()? > 0, "nothing was injected");
    Ok(())
}

/// Another process holds the database: what is refused as not applied never happens, heartbeats go on with the old ttl, and
/// readers see what is durable.
#[tokio::test]
async fn what_a_busy_store_refuses_never_happens() -> Result<()> {
    let server = Server::start().await?;
    let mut http = Http::new(server.address());
    let mine = json!({"owner_id": "worker-a", "ttl_ms": 60_000});
    let held: Value = http.post("/v1/locks/job/x/acquire", &mine).await?.json()?;
    let other: Value = http.post("/v1/locks/job/y/acquire", &mine).await?.json()?;
    let proof = |lease: &Value| json!({"owner_id": "worker-a", "lease_id": lease["lease_id"], "fencing_token": lease["fencing_token"]});
    let mut shorter = proof(&held);
    shorter["ttl_ms"] = json!(500);
    let lock_for = "/lock?client=worker-s&ttl=60s";
    ensure!(http.ask(Method::POST, lock_for).await?.status == 200, "the simple lock is free");
    let session: Value = http.post("/v1/sessions", &mine).await?.json()?;
    let session = session["session_id"].as_str().context("an id")?;
    let under = json!({"owner_id": "worker-a", "session_id": session});
    ensure!(http.post("/v1/locks/inode:7@0..10/acquire", &under).await?.status == 200);

    let elsewhere = rusqlite::Connection::open(server.data().join("leasehold.db"))?;
    elsewhere.execute_batch("BEGIN IMMEDIATE")?;
    let broken = json!({"reason": "test"});
    let accept = json!({"fencing_token": held["fencing_token"]});
    let keepalive = format!("/v1/sessions/{session}/keepalive");
    for (path, body) in [
        ("/v1/locks/job/x/renew", Some(&shorter)),
        ("/v1/locks/job/x/break", Some(&broken)),
        ("/v1/fences/disk/accept", Some(&accept)),
        (&keepalive, Some(&json!({"ttl_ms": 500}))),
        ("/v1/inodes/7", None),
    ] {
        let refused = match body {
            Some(body) => http.post(path, body).await?,
            None => http.ask(Method::DELETE, path).await?,
        };
        let problem: Value = refused.json()?;
        ensure!(
            (refused.status, &problem["code"], &problem["outcome"])
                == (503, &json!("store_unavailable"), &json!("not_applied")),
            "{path}: {problem}"
        );
    }
    let simple = http.ask(Method::POST, "/lock?client=worker-s&ttl=1s").await?;
    ensure!(simple.status == 503, "/lock with another ttl: {}", simple.status);
    let renewed: Value = http.post("/v1/locks/job/x/renew", &proof(&held)).await?.json()?;
    ensure!(renewed["ttl_ms"] == json!(60_000), "{renewed}");
    let released = http.post("/v1/locks/job/y/release", &proof(&other)).await?;
    ensure!(released.status == 200, "a release is acknowledged: {}", released.status);
    for path in ["/v1/graph", "/v1/overview", "/v1/sessions", "/v1/locks/job/x", "/v1/locks"] {
        let seen = http.get(path).await?;
        ensure!(seen.status == 200, "{path} while the store is away: {}", seen.status);
    }
    let ready = http.get("/readyz?verbose").await?;
    let problem: Value = ready.json()?;
    ensure!(ready.status == 503 && problem["checks"].is_array(), "{problem}");
    ensure!(problem["detail"].as_str().is_some_and(|said| said.contains("locked")), "{problem}");
    let mut doctor = std::process::Command::new(binary()?);
    doctor.args(["doctor", "--addr", &format!("http://{}", server.address())]);
    let doctor = doctor.output()?;
    let said = String::from_utf8(doctor.stdout)?;
    ensure!(said.contains("BAD   write:") && !said.contains("ok    ready:"), "{said}");
    ensure!(doctor.status.code() == Some(1), "{said}");
    let metrics = String::from_utf8(http.get("/metrics").await?.body.to_vec())?;
    let busy =
        metrics.lines().find_map(|line| line.strip_prefix("lock_db_busy_total{op=\"commit\"} "));
    ensure!(busy.context("a sample")?.parse::<u64>()? > 0, "the store was busy:\n{metrics}");
    let listed = String::from_utf8(http.get("/v1/locks").await?.body.to_vec())?;
    ensure!(listed.contains("job/x") && listed.contains("job/y"), "what is durable: {listed}");

    elsewhere.execute_batch("COMMIT")?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let theirs = json!({"owner_id": "worker-b", "ttl_ms": 60_000});
    let refused = http.post("/v1/locks/job/x/acquire", &theirs).await?;
    ensure!(
        refused.status == 409,
        "a lease of a minute is over after a second: {}",
        refused.status
    );
    let freed = http.post("/v1/locks/job/y/acquire", &theirs).await?;
    ensure!(freed.status == 200, "what was released is free: {}", freed.status);
    let simple = http.ask(Method::POST, "/lock?client=worker-t&ttl=60s").await?;
    ensure!(simple.status == 409, "the simple lock is held for a minute: {}", simple.status);
    let bytes = http.post("/v1/locks/inode:7@5..6/acquire", &theirs).await?;
    ensure!(bytes.status == 409, "the file was not removed, its session stands: {}", bytes.status);
    let fence = http.get("/v1/fences/disk").await?;
    ensure!(fence.status == 404, "a register that was never accepted: {}", fence.status);
    Ok(())
}
