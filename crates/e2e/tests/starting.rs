//! A server that still loads says so: it lives, it is not ready, and it asks to be asked again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use leasehold_api::{AcquireRequest, Code, Grant, Problem, RenewRequest, Renewed, RequestOutcome};
use leasehold_e2e::client::{Ask, Client, Http};
use leasehold_e2e::history::Recorder;
use leasehold_e2e::server::Server;

const TTL: Duration = Duration::from_secs(3600);
const LOCKS: u32 = 150;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn port_answers_while_the_table_is_loaded() -> Result<()> {
    let mut server = Server::start().await?;
    let mut client = Client::new(server.address(), 1, &Recorder::default());
    let mut leases = Vec::new();
    for lock in 0..LOCKS {
        leases.push(client.acquire(lock, Ask::exclusive(TTL)).await.done()?);
    }
    server.kill()?;
    // Every page that is read takes a while, so that there is a table to be loaded for a while.
    server.start_again_injected("pread64:delay_enter=5ms")?;
    let first = first_answer(&server).await?;
    ensure!(first == 200, "/livez says {first}");
    let seen = until_ready(&server).await?;
    ensure!(seen > 0, "it was ready at once");
    println!("{seen} times it was not ready yet");
    for lease in &mut leases {
        client.renew(lease).await.done().context("what was held is held")?;
    }
    Ok(())
}

#[tokio::test]
async fn hangup_does_not_end_a_server_without_a_terminal() -> Result<()> {
    let mut server = Server::start().await?;
    let mut http = Http::new(server.address());
    let ask =
        AcquireRequest { owner_id: "a".into(), ttl_ms: Some(60_000), ..AcquireRequest::default() };
    ensure!(http.post("/v1/locks/kept/acquire", &ask).await?.status == 200);
    server.hang_up()?;
    let begun = Instant::now();
    while !server.log().contains("SIGHUP: roles, tokens and certificates are read anew") {
        ensure!(begun.elapsed() < PATIENCE, "no word about the signal: {}", server.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ensure!(http.get("/readyz").await?.status == 200, "{}", server.log());
    ensure!(server.stop().await?.success(), "{}", server.log());
    Ok(())
}

/// How long an idle server is looked at, and how often it may wake in a second.
const IDLE: Duration = Duration::from_secs(10);
const WAKES_A_SECOND_MAX: u64 = 2;

#[tokio::test]
async fn idle_server_sleeps() -> Result<()> {
    let server = Server::start().await?;
    let mut http = Http::new(server.address());
    let ask =
        AcquireRequest { owner_id: "a".into(), ttl_ms: Some(60_000), ..AcquireRequest::default() };
    ensure!(http.post("/v1/locks/kept/acquire", &ask).await?.status == 200);
    drop(http);
    // What it does once after the start and after a change is over by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = wakes(server.pid())?;
    tokio::time::sleep(IDLE).await;
    let after = wakes(server.pid())?;
    let new = after.iter().map(|(thread, wakes)| wakes - before.get(thread).unwrap_or(&0));
    let wakes: u64 = new.sum();
    println!("{wakes} wakes in {IDLE:?}");
    ensure!(wakes <= WAKES_A_SECOND_MAX * IDLE.as_secs(), "{wakes} wakes in {IDLE:?}");
    Ok(())
}

/// How often each thread of a process has gone to sleep so far.
fn wakes(process: u32) -> Result<BTreeMap<OsString, u64>> {
    let mut wakes = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?;
        let status = std::fs::read_to_string(thread.path().join("status"))?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        wakes.insert(thread.file_name(), count.context("the system counts them")?.trim().parse()?);
    }
    Ok(wakes)
}

/// Moves the wall clock of the process that it is loaded into by as many seconds as the file says.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, t);
    FILE *file = id == CLOCK_REALTIME ? fopen(getenv("WALL_CLOCK_SHIFT"), "r") : NULL;
    if (file) {
        long shift = 0;
        if (fscanf(file, "%ld", &shift) == 1) t->tv_sec += shift;
        fclose(file);
    }
    return result;
}
"#;

#[tokio::test]
async fn moments_are_shown_by_the_wall_clock_after_it_was_set() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (source, shim, shift) = (
        directory.path().join("shim.c"),
        directory.path().join("shim.so"),
        directory.path().join("shift"),
    );
    std::fs::write(&source, SHIM)?;
    std::fs::write(&shift, "0")?;
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).arg("-ldl");
    let built = compiler.status().context("a C compiler")?;
    ensure!(built.success(), "the shim does not compile");
    let preload = format!("LD_PRELOAD={}", shim.display());
    let shifted = format!("WALL_CLOCK_SHIFT={}", shift.display());
    let server = Server::start_under(&["env", &preload, &shifted], &["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    let ask = AcquireRequest {
        owner_id: "a".into(),
        ttl_ms: Some(3_600_000),
        ..AcquireRequest::default()
    };
    let grant: Grant = http.post("/v1/locks/shown/acquire", &ask).await?.json()?;
    let expiry = i64::try_from(grant.lease_expiry_ms)?;
    for hours in [5_i64, -3] {
        std::fs::write(&shift, (hours * 3600).to_string())?;
        let begun = Instant::now();
        let renew = RenewRequest {
            owner_id: "a".into(),
            lease_id: grant.lease_id.clone(),
            fencing_token: grant.fencing_token,
            ttl_ms: None,
        };
        loop {
            let renewed: Renewed = http.post("/v1/locks/shown/renew", &renew).await?.json()?;
            ensure!(
                renewed.expires_in_ms > 3_590_000,
                "the lease itself does not move: {renewed:?}"
            );
            let moved = i64::try_from(renewed.lease_expiry_ms)? - expiry - hours * 3_600_000;
            if (0..120_000).contains(&moved) {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "{renewed:?}: moved by {moved} ms more");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    ensure!(server.log().contains("wall clock stepped"), "{}", server.log());
    Ok(())
}

/// What `/livez` says as soon as anything is said.
async fn first_answer(server: &Server) -> Result<u16> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Ok(answer) = Http::new(server.address()).get("/livez").await {
            return Ok(answer.status);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("no answer in {PATIENCE:?}: {}", server.log())
}

/// How often it said that it is not ready yet, each time in the same way.
async fn until_ready(server: &Server) -> Result<usize> {
    let begun = Instant::now();
    let mut http = Http::new(server.address());
    let mut seen = 0;
    while begun.elapsed() < PATIENCE {
        // In this order: not ready after a refusal says that the refusal came before, too.
        let ask = AcquireRequest {
            owner_id: "early".into(),
            ttl_ms: Some(1000),
            ..AcquireRequest::default()
        };
        let asked = http.post("/v1/locks/new/acquire", &ask).await?;
        let ready = http.get("/readyz").await?;
        if ready.status == 200 {
            return Ok(seen);
        }
        not_yet(&ready)?;
        not_yet(&asked)?;
        seen += 1;
        ensure!(http.get("/livez").await?.status == 200);
    }
    bail!("not ready in {PATIENCE:?}: {}", server.log())
}

fn not_yet(answer: &leasehold_e2e::client::Answer) -> Result<()> {
    ensure!(answer.status == 503, "{answer:?}");
    let problem: Problem = answer.json()?;
    ensure!(problem.code == Code::NotLeader, "{problem:?}");
    ensure!(problem.outcome == RequestOutcome::NotApplied, "{problem:?}");
    ensure!(problem.recommended_retry_ms.is_some(), "{problem:?}");
    Ok(())
}
