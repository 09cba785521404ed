//! What is counted is true, and others can read it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use leasehold_e2e::client::{Ask, Client, Http};
use leasehold_e2e::history::Recorder;
use leasehold_e2e::server::Server;
use leasehold_e2e::tools::python_tool;
use serde_json::json;

/// Names that programs of others rely on, and that we keep although promtool would have chosen others.
const KEPT: [&str; 3] =
    ["leasehold_connections_active_count", "leasehold_locks_active_count", "lock_op_latency_ms"];

const GRANTS: u32 = 40;
const REFUSALS: u32 = 25;
const RENEWALS: u32 = 12;
const RELEASES: u32 = 15;
const LAPSES: u32 = 3;
/// Lapsed, and not yet to be had by others: neither held nor free.
const WINDOWS: u32 = 1;
/// Taken and given back by the simple way.
const SIMPLE: u32 = 1;

#[tokio::test]
async fn counters_are_true_and_promtool_can_read_them() -> Result<()> {
    let server = Server::start().await?;
    traffic(&server).await?;
    let text = scrape(&server, "text/plain").await?;
    let samples = samples(&text);
    for (name, expected) in [
        (r#"lock_acquire_total{result="success"}"#, GRANTS + LAPSES + WINDOWS + SIMPLE),
        (r#"lock_acquire_total{result="busy"}"#, 0),
        (r#"lock_acquire_total{result="fail"}"#, REFUSALS + 1),
        (r#"lock_renew_total{result="success"}"#, RENEWALS),
        (r#"lock_release_total{result="success"}"#, RELEASES + SIMPLE),
        (r#"lock_release_total{result="fail"}"#, 1),
        ("lock_expired_total", LAPSES + WINDOWS),
        ("locks_held", GRANTS - RELEASES),
        (r#"lock_db_busy_total{op="acquire"}"#, 0),
        (r#"lock_db_busy_total{op="commit"}"#, 0),
        (
            r#"lock_op_latency_ms_count{op="acquire"}"#,
            GRANTS + LAPSES + WINDOWS + SIMPLE + REFUSALS + 1,
        ),
        (
            r#"leasehold_locks_release_total{namespace="default",reason="timeout"}"#,
            LAPSES + WINDOWS,
        ),
        (r#"leasehold_locks_release_total{namespace="default",reason="explicit"}"#, RELEASES),
        (
            r#"leasehold_locks_active_count{namespace="default",type="named"}"#,
            GRANTS - RELEASES - 1,
        ),
        (r#"leasehold_locks_active_count{namespace="q\"uo\\te",type="named"}"#, 1),
        (
            r#"leasehold_locks_active_by_mode{namespace="default",mode="exclusive"}"#,
            GRANTS - RELEASES - 2,
        ),
        (r#"leasehold_locks_active_by_mode{namespace="default",mode="shared"}"#, 1),
        (
            r#"leasehold_locks_granted_total{namespace="default",mode="exclusive"}"#,
            GRANTS - 2 + LAPSES + WINDOWS,
        ),
        (r#"leasehold_locks_granted_total{namespace="default",mode="shared"}"#, 1),
        (r#"leasehold_sessions_active{adapter="http"}"#, 1),
        (r#"leasehold_sessions_active{adapter="other"}"#, 0),
        (r#"leasehold_locks_blocking_duration_seconds_count{namespace="default"}"#, 1),
        (
            r#"leasehold_locks_acquire_total{namespace="leasehold.simple",type="named",status="granted"}"#,
            SIMPLE,
        ),
    ] {
        let found = samples.get(name).with_context(|| format!("{name} is not in\n{text}"))?;
        ensure!(*found == expected.to_string(), "{name} is {found}, not {expected}");
    }
    let swept = samples.get("leasehold_sweep_seconds_count").context("no sweeps")?;
    ensure!(swept.parse::<u32>()? > 0, "leases have expired, and nothing was swept");
    promtool(&text)?;
    openmetrics(&scrape(&server, "application/openmetrics-text; version=1.0.0").await?)
}

async fn traffic(server: &Server) -> Result<()> {
    let recorder = Recorder::default();
    let mut holder = Client::new(server.address(), 1, &recorder);
    let mut other = Client::new(server.address(), 2, &recorder);
    let ask = Ask::exclusive(Duration::from_secs(600));
    let mut leases = Vec::new();
    for lock in 1..GRANTS - 1 {
        leases.push(holder.acquire(lock, ask).await.done()?);
    }
    for at in 0..REFUSALS - 1 {
        other.acquire(1 + at, ask).await.refused()?;
    }
    for lease in leases.iter_mut().take(RENEWALS as usize) {
        holder.renew(lease).await.done()?;
    }
    for lease in leases.drain(..RELEASES as usize) {
        holder.release(&lease).await.done()?;
    }
    let mut stale = leases.pop().context("some are left")?;
    stale.token += 1;
    holder.release(&stale).await.refused()?;
    for lock in 0..LAPSES {
        holder.acquire(1000 + lock, Ask::exclusive(Duration::from_millis(100))).await.done()?;
    }
    let mut http = Http::new(server.address());
    let elsewhere = "/v1/locks/there/acquire?namespace=q%22uo%5Cte";
    let granted = http.post(elsewhere, &json!({"owner_id": "a", "ttl_ms": 600_000})).await?;
    ensure!(granted.status == 200, "{granted:?}");
    let shared = json!({"owner_id": "a", "ttl_ms": 600_000, "mode": "shared"});
    ensure!(http.post("/v1/locks/read/acquire", &shared).await?.status == 200);
    let window = json!({"owner_id": "a", "ttl_ms": 100, "reclaim_ms": 600_000});
    ensure!(http.post("/v1/locks/window/acquire", &window).await?.status == 200);
    let waits = json!({"owner_id": "b", "ttl_ms": 1000, "wait_ms": 20});
    ensure!(http.post("/v1/locks/read/acquire", &waits).await?.status == 409);
    let session = json!({"owner_id": "s", "ttl_ms": 600_000, "adapter": "http"});
    ensure!(http.post("/v1/sessions", &session).await?.status == 201);
    let refused = http.post("/v1/locks/x/acquire", &json!({"owner_id": "a"})).await?;
    ensure!(refused.status == 400, "{refused:?}");
    http.ask(Method::POST, "/lock?client=x").await?;
    http.ask(Method::DELETE, "/lock?client=x").await?;
    until_lapsed(server).await
}

async fn until_lapsed(server: &Server) -> Result<()> {
    for _ in 0..1000 {
        let text = scrape(server, "text/plain").await?;
        if samples(&text).get("lock_expired_total")
            == Some(&(LAPSES + WINDOWS).to_string().as_str())
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("the leases did not lapse")
}

async fn scrape(server: &Server, accept: &'static str) -> Result<String> {
    let answer = Http::new(server.address()).accepting(accept).get("/metrics").await?;
    ensure!(answer.status == 200);
    Ok(String::from_utf8(answer.body.to_vec())?)
}

fn samples(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|l| l.rsplit_once(' ')).collect()
}

/// Clean, but for the names that we keep.
fn promtool(text: &str) -> Result<()> {
    let output = fed(Command::new("promtool").args(["check", "metrics"]), text)
        .context("promtool is missing: run `cargo xtask needs`")?;
    let said = String::from_utf8(output.stderr)?;
    // 3 is "readable, but I would have chosen other names".
    ensure!(matches!(output.status.code(), Some(0 | 3)), "{}: {said}", output.status);
    for line in said.lines() {
        ensure!(KEPT.iter().any(|name| line.starts_with(&format!("{name} "))), "{line}");
    }
    Ok(())
}

/// promtool reads the classic format only; the parser of Prometheus' own library for Python is as strict about the other.
fn openmetrics(text: &str) -> Result<()> {
    let program = "import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families
print(sum(len(family.samples) for family in families(sys.stdin.read())))";
    let output = fed(Command::new(python_tool("python")?).args(["-c", program]), text)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let count: usize = String::from_utf8(output.stdout)?.trim().parse()?;
    ensure!(count > 100, "only {count} samples were found");
    Ok(())
}

fn fed(command: &mut Command, text: &str) -> Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("it has an input")?.write_all(text.as_bytes())?;
    Ok(child.wait_with_output()?)
}
