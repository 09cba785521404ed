//! What the console is shown: a few programs at work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Requests that wait and leases that are renewed, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Scene {
    waiting: Vec<JoinHandle<()>>,
    kept: Arc<Mutex<Vec<(String, Value)>>>,
    keeping: JoinHandle<()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.waiting.iter().for_each(JoinHandle::abort);
        self.keeping.abort();
    }
}

/// Sends each of these requests in its turn, over and over: the leases are at different ages.
fn keep(server: &Server, kept: Arc<Mutex<Vec<(String, Value)>>>) -> JoinHandle<()> {
    const TURNS: usize = 5;
    let mut http = Http::new(server.address());
    tokio::spawn(async move {
        for turn in 0.. {
            let all = kept.lock().expect("nobody panics with it").clone();
            for (path, body) in all.iter().skip(turn % TURNS).step_by(TURNS) {
                let _ = http.post(path, body).await;
            }
            tokio::time::sleep(Duration::from_millis(1500)).await;
        }
    })
}

/// How much longer leases are than in the pictures: a test must not fail because a machine is slow.
fn slack() -> u64 {
    if std::env::var_os("LEASEHOLD_SCREENSHOTS").is_some() { 1 } else { 10 }
}

pub(crate) async fn acquire(http: &mut Http, lock: &str, body: &Value) -> Result<Value> {
    let path = lock.split('/').map(encoded).collect::<Vec<String>>().join("/");
    let answer = http.post(&format!("/v1/locks/{path}/acquire"), body).await?;
    ensure!(answer.status == 200, "{lock}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn encoded(part: &str) -> String {
    part.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Takes so many locks, in sets: a request for each would take a while.
pub(crate) async fn hold(server: &Server, locks: usize) -> Result<()> {
    const SET: usize = 64;
    const AT_ONCE: usize = 8;
    let next = Arc::new(AtomicUsize::new(0));
    let takers: Vec<_> = (0..AT_ONCE).map(|_| {
        let (next, mut http) = (next.clone(), Http::new(server.address()));
        tokio::spawn(async move {
            loop {
                let first = next.fetch_add(SET, Ordering::Relaxed);
                if first >= locks {
                    return anyhow::Ok(());
                }
                let names: Vec<Value> = (first..locks.min(first + SET))
                    .map(|number| json!({ "lock": format!("load/{:04}/{number:06}", number / 1000) }))
                    .collect();
                let body = json!({ "owner_id": format!("loader-{}", first / SET), "ttl_ms": 3_600_000, "locks": names });
                let answer = http.post("/v1/sets/acquire", &body).await?;
                ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
            }
        })
    }).collect();
    for taker in takers {
        taker.await??;
    }
    Ok(())
}

impl Scene {
    /// Two owners that hold what the other wants; the second is refused.
    pub(crate) async fn cross_wait(server: &Server) -> Result<Scene> {
        let kept: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let keeping = keep(server, kept.clone());
        let mut scene = Scene { waiting: Vec::new(), kept, keeping };
        let mut http = Http::new(server.address());
        let told =
            json!({ "host": "app-3", "release": "2026.11.3", "step": "0042_add_ledger_index" });
        let body = json!({ "owner_id": "worker-a", "ttl_ms": 30_000 * slack(), "metadata": told });
        scene.hold(&mut http, "db/migrate", &body).await?;
        let body = json!({ "owner_id": "worker-b", "ttl_ms": 45_000 * slack() });
        scene.hold(&mut http, "billing/close", &body).await?;
        scene.wait(server, "billing/close", "worker-a").await?;
        let ask = json!({ "owner_id": "worker-b", "ttl_ms": 600_000, "wait_ms": 40_000 });
        let refused = http.post("/v1/locks/db/migrate/acquire", &ask).await?.json::<Value>()?;
        ensure!(refused["code"] == "deadlock", "{refused}");
        Ok(scene)
    }

    /// A bit of everything: names, paths, bytes of a file, permits, sessions, queues, a past, a deadlock.
    pub(crate) async fn small(server: &Server) -> Result<Scene> {
        let mut http = Http::new(server.address());
        past(&mut http).await?;
        let mut scene = Scene::cross_wait(server).await?;
        for (lock, owner, ttl, more) in HELD {
            let mut body = json!({ "owner_id": owner, "ttl_ms": ttl * 300 * slack() });
            if let (Value::Object(body), Value::Object(more)) =
                (&mut body, serde_json::from_str(more)?)
            {
                body.extend(more);
            }
            scene.hold(&mut http, lock, &body).await?;
        }
        for shard in 1..=12 {
            let body = json!({ "owner_id": format!("store-{}", shard % 3 + 1), "ttl_ms": 20_000 * slack() });
            scene.hold(&mut http, &format!("shard/{shard:02}/leader"), &body).await?;
        }
        for (owner, adapter, kept) in SESSIONS {
            let body = json!({ "owner_id": owner, "ttl_ms": 15_000 * slack(), "adapter": adapter, "on_disconnect": if *kept { "keep" } else { "release" }, "disconnect_ttl_ms": kept.then_some(60_000) });
            let session: Value = http.post("/v1/sessions", &body).await?.json()?;
            let id = session["session_id"].as_str().unwrap_or_default();
            let beat = (format!("/v1/sessions/{id}/keepalive"), json!({}));
            scene.kept.lock().expect("nobody panics with it").push(beat);
            for number in 0..3 {
                let body = json!({ "owner_id": owner, "session_id": session["session_id"] });
                acquire(&mut http, &format!("cache/{owner}/{number}"), &body).await?;
            }
        }
        for (lock, owner) in WAITING {
            scene.wait(server, lock, owner).await?;
        }
        Ok(scene)
    }

    /// Takes a lock, and keeps it.
    async fn hold(&self, http: &mut Http, lock: &str, body: &Value) -> Result<()> {
        let grant = acquire(http, lock, body).await?;
        let path = lock.split('/').map(encoded).collect::<Vec<String>>().join("/");
        let renew = json!({ "owner_id": grant["owner_id"], "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"] });
        let mut kept = self.kept.lock().expect("nobody panics with it");
        kept.push((format!("/v1/locks/{path}/renew"), renew));
        Ok(())
    }

    /// Stands in a queue, and is known to stand there.
    async fn wait(&mut self, server: &Server, lock: &str, owner: &str) -> Result<()> {
        let (lock, owner) = (lock.to_string(), owner.to_string());
        let (mut http, asked) = (Http::new(server.address()), lock.clone());
        let body = json!({ "owner_id": owner, "ttl_ms": 600_000, "wait_ms": 50_000 });
        self.waiting.push(tokio::spawn(async move {
            // Until it is granted, or nobody is interested any more.
            while acquire(&mut http, &asked, &body).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }));
        let mut http = Http::new(server.address());
        for _ in 0..500 {
            let graph: Value = http.get("/v1/graph").await?.json()?;
            let waits = graph["edges"].as_array().cloned().unwrap_or_default();
            let is_there = waits.iter().any(|edge| {
                edge["type"] == "waits"
                    && edge["from"] == format!("owner:{owner}")
                    && edge["to"] == format!("lock:{lock}")
            });
            if is_there {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("{owner} does not wait for {lock}")
    }
}

/// Small jobs that come and go, one in nine of them without a word.
pub(crate) async fn churn(address: std::net::SocketAddr) {
    let mut http = Http::new(address);
    for number in 0_u64.. {
        let lock = format!("job/tick/{}", number % 7);
        let body = json!({ "owner_id": format!("cron-{}", number % 3 + 1), "ttl_ms": 3000 });
        if let Ok(grant) = acquire(&mut http, &lock, &body).await {
            tokio::time::sleep(Duration::from_millis(120 + number * 37 % 240)).await;
            let release = json!({ "owner_id": grant["owner_id"], "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"] });
            if number % 9 != 0 {
                let _ = http.post(&format!("/v1/locks/{lock}/release"), &release).await;
            }
        } else {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Who had db/migrate before: one let go, one lost it, one was broken.
async fn past(http: &mut Http) -> Result<()> {
    for (owner, end) in [
        ("worker-c", "release"),
        ("worker-b", "expire"),
        ("worker-d", "release"),
        ("worker-c", "break"),
        ("worker-a", "release"),
    ] {
        let ttl = if end == "expire" { 3000 / slack() + 100 } else { 60_000 };
        let grant = acquire(
            http,
            "db/migrate",
            &json!({ "owner_id": owner, "ttl_ms": ttl, "wait_ms": 10_000 }),
        )
        .await?;
        // In pictures they hold it for longer.
        tokio::time::sleep(Duration::from_millis(3500 / slack())).await;
        match end {
            "release" => {
                let body = json!({ "owner_id": owner, "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"] });
                http.post("/v1/locks/db/migrate/release", &body).await?;
            }
            "break" => {
                http.post(
                    "/v1/locks/db/migrate/break",
                    &json!({ "reason": "its host was replaced" }),
                )
                .await?;
            }
            _ => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
    Ok(())
}

/// Lock, owner, seconds, and what else is asked.
const HELD: &[(&str, &str, u64, &str)] = &[
    ("deploy/prod", "ci-runner-3", 90, r#"{"metadata":{"commit":"9f2c1e7","pipeline":"release"}}"#),
    ("inode:4711@0..4096", "nas-fuse-1", 120, "{}"),
    ("inode:4711@8192..16384", "nas-fuse-2", 150, r#"{"mode":"shared"}"#),
    ("inode:4711@8192..12288", "nas-fuse-3", 100, r#"{"mode":"shared"}"#),
    ("path:/srv/www/**", "rsync-eu-1", 200, "{}"),
    ("path:/srv/data/2026/report.xlsx", "excel-17", 75, "{}"),
    ("path:/srv/data/2026/q3/**", "backup-2", 300, "{}"),
    ("path:/srv/data/2026/q4/plan.md", "editor-4", 60, "{}"),
    ("job/nightly", "worker-4", 80, "{}"),
    ("job/reindex", "worker-2", 65, "{}"),
    ("job/invoices/eu", "worker-5", 110, "{}"),
    ("job/invoices/us", "worker-1", 95, "{}"),
    ("gpu/pool", "trainer-1", 130, r#"{"permits":3}"#),
    ("gpu/pool", "trainer-2", 125, r#"{"permits":3}"#),
    ("gpu/pool", "trainer-3", 115, r#"{"permits":3}"#),
];

const SESSIONS: &[(&str, &str, bool)] = &[
    ("nas-gateway-1", "fuse", true),
    ("nas-gateway-2", "fuse", false),
    ("etl-7", "http", false),
    ("smb-head-1", "nlm", true),
];

const WAITING: &[(&str, &str)] = &[
    ("deploy/prod", "ci-runner-4"),
    ("deploy/prod", "ci-runner-5"),
    ("db/migrate", "worker-c"),
    ("inode:4711@2048..10000", "nas-fuse-4"),
    ("path:/srv/www/site/index.html", "deployer"),
];
