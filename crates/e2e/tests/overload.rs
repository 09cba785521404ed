//! One client cannot stop the others, whatever it does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);

/// The value of one sample.
async fn sample(http: &mut Http, name: &str) -> Result<f64> {
    let answer = http.get("/metrics").await?;
    let text = String::from_utf8_lossy(&answer.body);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.with_context(|| format!("{name} is not in\n{text}"))?.parse().context("a number")
}

/// A watch whose first bytes have come.
async fn watch(server: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"GET /v1/watch HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    let mut head = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await.context("no answer")??;
    ensure!(&head == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

#[tokio::test]
async fn soft_limit_of_open_files_is_raised_and_the_hard_one_is_never_reached() -> Result<()> {
    // Soft far below what is asked for, hard just above it.
    let limits = r#"ulimit -S -n 64; ulimit -H -n 700; exec "$0" "$@""#;
    let server = Server::start_under(&["sh", "-c", limits], &["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    ensure!(sample(&mut http, "process_max_fds").await? == 700.0);
    ensure!(server.log().contains(r#""connections_max":188"#), "{}", server.log());
    // As many as there may be, one of which is `http`; more than the soft limit allowed.
    let mut watches = Vec::new();
    for _ in 0..187 {
        watches.push(watch(server.address()).await?);
    }
    let open = sample(&mut http, "process_open_fds").await?;
    ensure!((188.0..400.0).contains(&open), "{open}");
    ensure!(watch(server.address()).await.is_err(), "one too many");
    watches.pop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    watches.push(watch(server.address()).await?);
    Ok(())
}

#[tokio::test]
async fn connection_without_a_descriptor_is_closed_and_the_others_are_served() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    let open = sample(&mut http, "process_open_fds").await?;
    limit_open_files(server.pid(), open as u64 + 3)?;
    let mut others = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.address()).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
        let mut head = [0; 12];
        let answered = tokio::time::timeout(PATIENCE, stream.read(&mut head)).await;
        let answered = answered.context("neither answered nor closed")?;
        others.push((stream, matches!(answered, Ok(12))));
    }
    let served = others.iter().filter(|(_, served)| *served).count();
    ensure!((1..20).contains(&served), "{served} of 20 were served");
    ensure!(http.get("/readyz").await?.status == 200, "one that was there before");
    drop(others);
    let begun = Instant::now();
    while Http::new(server.address()).get("/livez").await.is_err() {
        ensure!(begun.elapsed() < PATIENCE, "nobody is served any more: {}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Sets the soft limit of another process.
fn limit_open_files(pid: u32, soft: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let pid = libc::pid_t::try_from(pid).context("a process id is small")?;
    // SAFETY: the limit is valid for both calls; each either reads or writes it.
    #[allow(unsafe_code, reason = "the standard library has no limits")]
    let is_set = unsafe {
        let seen = libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit);
        limit.rlim_cur = soft;
        let none = std::ptr::null_mut();
        seen == 0 && libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, none) == 0
    };
    if !is_set {
        bail!("cannot set the limit: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

#[tokio::test]
async fn peer_that_connects_and_goes_again_and_again_is_told_of() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    ensure!(sample(&mut http, "leasehold_connections_flapping_total").await? == 0.0);
    for _ in 0..100 {
        drop(TcpStream::connect(server.address()).await?);
    }
    let begun = Instant::now();
    while sample(&mut http, "leasehold_connections_flapping_total").await? < 40.0 {
        ensure!(begun.elapsed() < PATIENCE, "it is not counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let lines = server.log().matches("a peer connects and goes").count();
    ensure!(lines == 1, "{lines} lines: {}", server.log());
    Ok(())
}
