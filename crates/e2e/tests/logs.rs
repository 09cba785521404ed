//! What operators read: a line for each lock that is granted and ends, and who broke what.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(10);

/// The lines that the server has written with this message.
fn lines(server: &Server, message: &str) -> Vec<Value> {
    let log = server.log();
    let parsed = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["message"] == message).collect()
}

/// The line with this message about a lock, once it is there: the log may come a moment later than the answer.
async fn line(server: &Server, message: &str, lock: &str) -> Result<Value> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(line) = lines(server, message).into_iter().find(|line| line["lock"] == lock) {
            return Ok(line);
        }
        ensure!(
            tokio::time::Instant::now() < until,
            "no {message:?} of {lock} in {}",
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn posted(http: &mut Http, path: &str, body: &Value) -> Result<Value> {
    let answer = http.post(path, body).await?;
    ensure!(matches!(answer.status, 200 | 201), "{path}: {answer:?}");
    answer.json()
}

#[tokio::test]
async fn locks_are_logged_from_their_grant_to_their_end() -> Result<()> {
    let args = ["--store", "memory", "--access-log", "all", "--log", "leasehold_engine=debug"];
    let server = Server::start_with(&args).await?;
    let mut http = Http::new(server.address());
    let session = json!({"owner_id": "worker-a", "ttl_ms": 60_000});
    let session = posted(&mut http, "/v1/sessions", &session).await?;
    let under = json!({"owner_id": "worker-a", "session_id": session["session_id"]});
    let grant = posted(&mut http, "/v1/locks/job/a/acquire", &under).await?;
    let token = grant["fencing_token"].clone();
    let proof =
        json!({"owner_id": "worker-a", "lease_id": grant["lease_id"], "fencing_token": token});
    posted(&mut http, "/v1/locks/job/a/release", &proof).await?;
    let granted = line(&server, "granted", "job/a").await?;
    ensure!(granted["owner"] == "worker-a" && granted["fencing_token"] == token, "{granted}");
    ensure!(granted["session"] == session["session"], "{granted} and {session}");
    ensure!(granted["waited_ms"].is_u64() && granted["level"] == "INFO", "{granted}");
    let released = line(&server, "released", "job/a").await?;
    ensure!(released["fencing_token"] == token && released["held_ms"].is_u64(), "{released}");
    let access = line(&server, "request", "job/a").await?;
    ensure!(access["route"] == "/v1/locks/{lock}/acquire", "{access}");

    let short = json!({"owner_id": "worker-a", "ttl_ms": 100, "reclaim_ms": 60_000});
    posted(&mut http, "/v1/locks/short/acquire", &short).await?;
    line(&server, "expired", "short").await?;
    let swept = lines(&server, "processed what was due");
    ensure!(swept.iter().any(|line| line["took_us"].is_u64()), "{}", server.log());
    posted(&mut http, "/v1/locks/short/acquire", &short).await?;
    line(&server, "reclaimed", "short").await?;

    posted(&mut http, "/v1/locks/stuck/acquire", &json!({"owner_id": "a", "ttl_ms": 60_000}))
        .await?;
    let reason = json!({"reason": "its host is gone"});
    posted(&mut http, "/v1/locks/stuck/break", &reason).await?;
    posted(&mut http, "/v1/locks/stuck/break", &reason).await?;
    line(&server, "broken", "stuck").await?;
    let audited = line(&server, "a lock was broken", "stuck").await?;
    ensure!(
        audited["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")),
        "{audited}"
    );
    ensure!(audited["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{audited}");
    line(&server, "a break found nothing to end", "stuck").await?;
    ensure!(lines(&server, "a lock was broken").len() == 1, "{}", server.log());
    ensure!(
        !server.log().contains(grant["lease_id"].as_str().context("a lease")?),
        "it is a secret"
    );
    Ok(())
}

#[tokio::test]
async fn log_of_many_locks_is_sampled_and_says_so() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    for set in 0..6 {
        let locks: Vec<Value> = (0..64).map(|at| json!({"lock": format!("s{set}/{at}")})).collect();
        let body = json!({"owner_id": "a", "ttl_ms": 60_000, "locks": locks});
        posted(&mut http, "/v1/sets/acquire", &body).await?;
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    posted(&mut http, "/v1/locks/last/acquire", &json!({"owner_id": "a", "ttl_ms": 60_000}))
        .await?;
    line(&server, "granted", "last").await?;
    let sampled = "lock events are sampled: the rest of this second is only counted";
    ensure!(!lines(&server, sampled).is_empty(), "{}", server.log());
    let left_out = lines(&server, "lock events not logged");
    let left_out: u64 = left_out.iter().filter_map(|line| line["left_out"].as_u64()).sum();
    let written = lines(&server, "granted").len() as u64;
    ensure!(written + left_out == 6 * 64 + 1, "{written} written, {left_out} left out");
    Ok(())
}
