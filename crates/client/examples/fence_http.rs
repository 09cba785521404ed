//! A stale writer meets a fence in front of an HTTP service: a layer that answers 412.
//!
//! Start a server (`leasehold serve`), then: `cargo run -p leasehold-client --example fence_http [http://host:port]`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::put;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use leasehold_client::{Client, FENCING_TOKEN, FenceLayer};

type Document = Arc<Mutex<String>>;

/// A service that knows nothing of locks, with a fence before it.
async fn serve(document: Document) -> std::io::Result<std::net::SocketAddr> {
    let write = |State(document): State<Document>, body: String| async move {
        *document.lock().expect("no writer panics") = body;
    };
    let service = Router::new()
        .route("/document", put(write))
        .layer(FenceLayer::new().required())
        .with_state(document);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    drop(tokio::spawn(async move { axum::serve(listener, service).await }));
    Ok(address)
}

async fn write(
    service: std::net::SocketAddr,
    token: u64,
    text: &'static str,
) -> anyhow::Result<StatusCode> {
    let http = HttpClient::builder(TokioExecutor::new()).build_http();
    let request = Request::put(format!("http://{service}/document"))
        .header(FENCING_TOKEN, token)
        .body(Full::new(Bytes::from_static(text.as_bytes())))?;
    Ok(http.request(request).await?.status())
}

pub async fn run(server: &str) -> anyhow::Result<()> {
    let client = Client::connect(server).await?;
    let document = Document::default();
    let service = serve(document.clone()).await?;

    // The first writer stops for longer than its lease.
    let lock = "example/fence-http";
    let ttl = Duration::from_millis(500);
    let paused = client.lock(lock).owner("paused").ttl(ttl).manual_heartbeat().acquire().await?;
    let in_time = write(service, paused.fencing_token(), "written in time").await?;
    assert_eq!(in_time, StatusCode::OK);
    let next = client.lock(lock).owner("next").wait(Duration::from_secs(10)).acquire().await?;
    write(service, next.fencing_token(), "written by the next holder").await?;

    // It goes on where it was, without looking at its lease.
    let stale = write(service, paused.fencing_token(), "written too late").await?;
    println!("the stale write: {stale}");
    assert_eq!(stale, StatusCode::PRECONDITION_FAILED);
    println!("and the document says: {}", document.lock().expect("no writer panics"));
    assert_eq!(*document.lock().expect("no writer panics"), "written by the next holder");
    next.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".into());
    run(&server).await
}
