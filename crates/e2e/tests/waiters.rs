//! Ten thousand requests wait for one lock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold_api::{AcquireRequest, Grant, Lock, ReleaseRequest};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// The most that may wait for one lock.
const WAITERS: usize = 10_000;
/// Below the limit of streams that the server allows on a connection.
const STREAMS: usize = 100;
const LOCK: &str = "/v1/locks/crowd";

type Connection = SendRequest<Full<Bytes>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_served_in_order() -> Result<()> {
    let server = Server::start().await?;
    let mut connections = Vec::new();
    for _ in 0..WAITERS.div_ceil(STREAMS) {
        connections.push(connect(server.address()).await?);
    }
    let mut http = Http::new(server.address());
    let first: Grant = http.post(&format!("{LOCK}/acquire"), &asked(0)).await?.json()?;

    let (granted, mut grants) = mpsc::unbounded_channel();
    let woken = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    for waiter in 1..=WAITERS {
        let connection = connections[waiter % connections.len()].clone();
        let (granted, woken) = (granted.clone(), woken.clone());
        tokio::spawn(async move {
            let grant = wait(connection, waiter).await;
            woken.fetch_add(1, Ordering::SeqCst);
            let _ = granted.send((waiter, grant));
        });
        // In blocks, so that their order is known: those of one block may come in any order.
        if waiter % STREAMS == 0 {
            until_queued(&mut http, waiter).await?;
        }
    }
    println!("{WAITERS} wait after {:?}", began.elapsed());

    let began = Instant::now();
    let mut holder = first;
    let mut seen = vec![false; WAITERS + 1];
    for turn in 1..=WAITERS {
        ensure!(woken.load(Ordering::SeqCst) == turn - 1, "one is woken for each release");
        release(&mut http, &holder).await?;
        let next = tokio::time::timeout(Duration::from_secs(20), grants.recv()).await;
        let (waiter, grant) = next.context("a waiter was lost")?.context("all are gone")?;
        let grant = grant?;
        ensure!(grant.fencing_token > holder.fencing_token);
        ensure!(!std::mem::replace(&mut seen[waiter], true), "{waiter} came twice");
        let block = |position: usize| (position - 1) / STREAMS;
        ensure!(block(waiter) == block(turn), "waiter {waiter} came at turn {turn}");
        holder = grant;
    }
    let took = began.elapsed();
    println!("{WAITERS} hand-overs in {took:?}: {:?} each", took / u32::try_from(WAITERS)?);
    release(&mut http, &holder).await?;
    Ok(())
}

async fn connect(address: SocketAddr) -> Result<Connection> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn wait(mut connection: Connection, waiter: usize) -> Result<Grant> {
    let mut ticket = None;
    loop {
        connection.ready().await?;
        let answer = connection.send_request(request(waiter, ticket)?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status == 200 {
            return Ok(serde_json::from_slice(&body)?);
        }
        // The wait in one request is limited; the ticket keeps the place.
        let problem: leasehold_api::Problem = serde_json::from_slice(&body)?;
        ticket = Some(problem.ticket.with_context(|| format!("{status}: {}", problem.detail))?);
    }
}

fn request(waiter: usize, ticket: Option<String>) -> Result<Request<Full<Bytes>>> {
    let body = AcquireRequest { ticket, ..asked(waiter) };
    Ok(Request::post(format!("http://127.0.0.1{LOCK}/acquire"))
        .header("content-type", "application/json")
        .body(Full::new(json(&body)))?)
}

fn asked(waiter: usize) -> AcquireRequest {
    AcquireRequest {
        owner_id: format!("waiter-{waiter}"),
        ttl_ms: Some(3_600_000),
        wait_ms: if waiter == 0 { 0 } else { 50_000 },
        ..AcquireRequest::default()
    }
}

async fn until_queued(http: &mut Http, waiters: usize) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(30) {
        let lock: Lock = http.get(LOCK).await?.json()?;
        if lock.waiters_total == u64::try_from(waiters)? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    anyhow::bail!("{waiters} should wait")
}

async fn release(http: &mut Http, holder: &Grant) -> Result<()> {
    let body = ReleaseRequest {
        owner_id: holder.owner_id.clone(),
        lease_id: holder.lease_id.clone(),
        fencing_token: holder.fencing_token,
    };
    let answer = http.post(&format!("{LOCK}/release"), &body).await?;
    ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    Ok(())
}

fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("a request has no keys that are not text").into()
}
