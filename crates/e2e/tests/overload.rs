//! One client cannot stop the others, whatever it does.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command as Process, Stdio};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold_api::grpc::command::Ask;
use leasehold_api::grpc::sessions_client::SessionsClient;
use leasehold_api::grpc::{
    Attach, AttachRequest, AttachResponse, Command, StreamAcquire, StreamRenew, length,
};
use leasehold_api::{Code, Problem};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::{Server, binary};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tonic::transport::Endpoint;

const PATIENCE: Duration = Duration::from_secs(20);

/// The value of one sample.
async fn sample(http: &mut Http, name: &str) -> Result<u64> {
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
    ensure!(sample(&mut http, "process_max_fds").await? == 700);
    ensure!(server.log().contains(r#""connections_max":188"#), "{}", server.log());
    // As many as there may be, one of which is `http`; more than the soft limit allowed.
    let mut watches = Vec::new();
    for _ in 0..187 {
        watches.push(watch(server.address()).await?);
    }
    let open = sample(&mut http, "process_open_fds").await?;
    ensure!((188..400).contains(&open), "{open}");
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
    limit_open_files(server.pid(), open + 3)?;
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
    ensure!(sample(&mut http, "leasehold_connections_flapping_total").await? == 0);
    for _ in 0..100 {
        drop(TcpStream::connect(server.address()).await?);
    }
    let begun = Instant::now();
    while sample(&mut http, "leasehold_connections_flapping_total").await? < 40 {
        ensure!(begun.elapsed() < PATIENCE, "it is not counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let lines = server.log().matches("connections from this peer keep flapping").count();
    ensure!(lines == 1, "{lines} lines: {}", server.log());
    Ok(())
}

/// Takes so many sets of locks with long names that their events and their list are larger than a page.
async fn take_many(http: &mut Http, sets: usize) -> Result<()> {
    let name = "n".repeat(480);
    for set in 0..sets {
        let lock = |number: usize| serde_json::json!({"lock": format!("{name}-{set}-{number}")});
        let locks: Vec<_> = (0..64).map(lock).collect();
        let ask = serde_json::json!({"owner_id": "a", "ttl_ms": 600_000, "locks": locks});
        let status = http.post("/v1/sets/acquire", &ask).await?.status;
        ensure!(status == 200, "{status}");
    }
    Ok(())
}

#[tokio::test]
async fn answers_are_at_most_a_mebibyte_and_go_on_where_they_end() -> Result<()> {
    const SETS: usize = 24;
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    let page: Value = http.get("/v1/events").await?.json()?;
    take_many(&mut http, SETS).await?;
    let cursor = |page: &Value| page["cursor"].as_str().map(str::to_string).context("a cursor");
    let (mut after, mut events, mut pages) = (cursor(&page)?, 0, 0);
    loop {
        let answer = http.get(&format!("/v1/events?page_size=1000&after={after}")).await?;
        ensure!(answer.body.len() <= 1024 * 1024, "{} bytes", answer.body.len());
        let page: Value = answer.json()?;
        let told = page["events"].as_array().map_or(0, Vec::len);
        if told == 0 {
            break;
        }
        (events, pages) = (events + told, pages + 1);
        after = cursor(&page)?;
    }
    ensure!(events == SETS * 64 && pages > 1, "{events} events on {pages} pages");
    let (mut token, mut locks, mut pages) = (String::new(), 0, 0);
    loop {
        let answer = http.get(&format!("/v1/locks?page_size=1000{token}")).await?;
        ensure!(answer.body.len() <= 1024 * 1024, "{} bytes", answer.body.len());
        let page: Value = answer.json()?;
        (locks, pages) = (locks + page["locks"].as_array().map_or(0, Vec::len), pages + 1);
        let Some(next) = page["next_page_token"].as_str() else { break };
        token = format!("&page_token={next}");
    }
    ensure!(locks == SETS * 64 && pages > 2, "{locks} locks on {pages} pages");
    Ok(())
}

#[tokio::test]
async fn watchers_are_limited_and_one_that_gives_no_window_is_told_to_look_again() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("leasehold.toml");
    std::fs::write(&file, "[watch]\nper_peer_max = 2\nstall_timeout = \"500ms\"\n")?;
    let file = file.to_str().context("a path is text")?;
    let server = Server::start_with(&["--store", "memory", "--config", file]).await?;
    let mut http = Http::new(server.address());
    let first = watch(server.address()).await?;
    let mut stalled = Stalled::open(server.address()).await?;
    for path in ["/v1/watch", "/v1/events?wait_ms=10"] {
        let answer = http.get(path).await?;
        let problem: Problem = answer.json()?;
        ensure!((answer.status, problem.code) == (429, Code::QuotaExceeded), "{problem:?}");
        ensure!(problem.detail.contains("2 watches from your address"), "{problem:?}");
    }
    drop(first);
    let begun = Instant::now();
    while http.get("/v1/events").await?.status != 200 {
        ensure!(begun.elapsed() < PATIENCE, "the place is not free again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // More than lies ready for a watcher that takes nothing.
    take_many(&mut http, 20).await?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let text = stalled.rest().await?;
    let last = text.lines().rfind(|line| line.starts_with("event: "));
    ensure!(last == Some("event: resync"), "{}", &text[text.len().saturating_sub(300)..]);
    ensure!(text.matches("event: granted").count() < 20 * 64, "all was told");
    Ok(())
}

/// A watch over HTTP/2 that gives hardly any window until it is read.
struct Stalled {
    _connection: tokio::task::JoinHandle<()>,
    body: hyper::body::Incoming,
}

impl Stalled {
    async fn open(server: SocketAddr) -> Result<Stalled> {
        let stream = TokioIo::new(TcpStream::connect(server).await?);
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1024);
        let (mut sender, connection) =
            builder.handshake::<_, http_body_util::Empty<bytes::Bytes>>(stream).await?;
        let connection = tokio::spawn(async move { drop(connection.await) });
        let request = hyper::Request::get(format!("http://{server}/v1/watch"));
        let response = sender.send_request(request.body(http_body_util::Empty::new())?).await?;
        ensure!(response.status() == 200, "{response:?}");
        Ok(Stalled { _connection: connection, body: response.into_body() })
    }

    /// All that is left to read.
    async fn rest(&mut self) -> Result<String> {
        use http_body_util::BodyExt;
        let mut text = Vec::new();
        let reading = async {
            while let Some(frame) = self.body.frame().await {
                text.extend(frame?.into_data().unwrap_or_default());
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, reading).await.context("the watch does not end")??;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// The address of the one who abuses the server; the others have the addresses above it.
const ABUSER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const WAITERS: usize = 10_000;
const WATCHES: usize = 1000;
const SLOW_HEADERS: usize = 500;
/// Renewals of leases that nobody has, at a time.
const JUNK: usize = 250;
const SESSIONS: u8 = 100;
const TTL: Duration = Duration::from_secs(2);
const ABUSED: Duration = Duration::from_secs(45);
const HEARTBEAT_MAX: Duration = Duration::from_millis(200);
const MEMORY_MIB_MAX: u64 = 512;

/// The token of a principal; the line for it goes into the access file.
fn token(principal: &str, roles: &[&str], access: &mut String) -> Result<String> {
    let told = |args: &[&str], input: &str| -> Result<String> {
        let mut process = Process::new(binary()?);
        let process = process.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = process.spawn()?;
        running.stdin.take().context("stdin is piped")?.write_all(input.as_bytes())?;
        let output = running.wait_with_output()?;
        ensure!(output.status.success(), "{args:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let token = told(&["token", "new", "--offline"], "")?;
    let mut args = vec!["token", "hash", "--principal", principal];
    roles.iter().for_each(|role| args.extend(["--role", role]));
    access.push_str(&told(&args, &token)?);
    access.push('\n');
    Ok(token.trim().into())
}

/// The tokens of the one who abuses the server and of those who do not, and a configuration that knows them.
fn two_principals(directory: &Path) -> Result<(String, String, String)> {
    let mut access = String::new();
    let abuser = token("abuser", &["client:default", "operator"], &mut access)?;
    let good = token("good", &["client:default"], &mut access)?;
    let file = directory.join("access.toml");
    std::fs::write(&file, access)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
    let config = directory.join("leasehold.toml");
    let file = file.display();
    std::fs::write(&config, format!("[auth]\nenabled = true\naccess_file = \"{file}\"\n"))?;
    Ok((config.display().to_string(), abuser, good))
}

/// One principal does everything at once that costs the server something; a hundred clients of another keep their sessions
/// alive. Its loops pause between two requests, so that it is the server that is busy and not the machine.
#[test]
fn one_client_cannot_stop_the_others() -> Result<()> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let directory = tempfile::tempdir()?;
    let (config, abusers, good) = two_principals(directory.path())?;
    let server = runtime()?.block_on(Server::start_with(&["--config", &config]))?;
    let (address, pid) = (server.address(), server.pid());
    let (abusing, stop) = tokio::sync::watch::channel(None);
    let abuser = std::thread::spawn(move || -> Result<Abuse> {
        runtime()?.block_on(abuse(address, &abusers, abusing))
    });
    let heartbeats = runtime()?.block_on(async {
        let mut under_way = stop.clone();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..SESSIONS {
            let session = Session::open(address, &good, number).await?;
            tasks.spawn(session.keep_alive(stop.clone()));
        }
        // Some of the worst comes while the abuse begins.
        let ready = tokio::time::timeout(PATIENCE * 3, under_way.wait_for(Option::is_some)).await;
        ready.context("the abuse did not begin in time")?.context("the abuser failed")?;
        let mut took = Vec::new();
        while let Some(session) = tasks.join_next().await {
            took.extend(session??);
        }
        anyhow::Ok(took)
    });
    let abuse = abuser.join().map_err(|_| anyhow!("the abuser panicked"))??;
    let memory = memory_mib(pid, "VmHWM:")?;
    let mut took = heartbeats.with_context(|| format!("{abuse:?}; {}", server.log()))?;
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!(
        "{} heartbeats of {SESSIONS} sessions: median {:?}, p99 {:?}, longest {:?}; memory at most {memory} MiB; {abuse:?}",
        took.len(),
        at(50),
        at(99),
        at(100)
    );
    ensure!(at(99) <= HEARTBEAT_MAX, "the 99th percentile is {:?}", at(99));
    ensure!(memory <= MEMORY_MIB_MAX, "{memory} MiB");
    ensure!(abuse.waiters == WAITERS as u64, "{abuse:?}");
    ensure!(
        abuse.watches_refused >= WATCHES - 100 && abuse.graphs > 0 && abuse.lists > 0,
        "{abuse:?}"
    );
    Ok(())
}

/// What the abuser came to.
#[derive(Debug, Default)]
struct Abuse {
    waiters: u64,
    watches_refused: usize,
    graphs: usize,
    lists: usize,
    headers_cut: usize,
    junk: usize,
}

/// Says when all of it is under way; dropping the sender ends the heartbeats.
async fn abuse(
    server: SocketAddr,
    token: &str,
    under_way: tokio::sync::watch::Sender<Option<()>>,
) -> Result<Abuse> {
    let mut abuse = Abuse::default();
    let (stream, mut waiting) = wait_in_line(server, token).await?;
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = waiting.message().await {} });
    let mut asking = Raw::connect(server, ABUSER, token).await?;
    let begun = Instant::now();
    while abuse.waiters < WAITERS as u64 {
        ensure!(begun.elapsed() < PATIENCE, "{} wait", abuse.waiters);
        let (_, cluster) = asking.get("/v1/cluster").await?;
        abuse.waiters = serde_json::from_slice::<leasehold_api::Cluster>(&cluster)?.waiters;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let mut watch = Raw::connect(server, ABUSER, token).await?;
        let head = format!("GET /v1/watch HTTP/1.1\r\nhost: localhost\r\n{}\r\n", watch.bearer);
        watch.say(&head).await?;
        watches.push(watch);
    }
    let mut slow = Vec::new();
    for _ in 0..SLOW_HEADERS {
        let mut stream = Raw::connect(server, ABUSER, token).await?;
        stream.say("GET /livez HTTP/1.1\r\nx-slow: ").await?;
        slow.push(stream);
    }
    under_way.send_replace(Some(()));
    let mut listing = Raw::connect(server, ABUSER, token).await?;
    let begun = Instant::now();
    let mut said = Instant::now();
    while begun.elapsed() < ABUSED {
        let (status, graph) = asking.get("/v1/graph").await?;
        ensure!(status == 200, "the graph: {status}");
        let graph: Value = serde_json::from_slice(&graph)?;
        ensure!(graph["truncated"] == true, "it is too large to be whole");
        abuse.graphs += 1;
        let (status, _) = listing.get("/v1/locks?page_size=1000").await?;
        ensure!(status == 200, "the list: {status}");
        abuse.lists += 1;
        let commands: Vec<Command> = (0..JUNK).map(junk).collect();
        if stream.try_send(AttachRequest { attach: None, commands }).is_ok() {
            abuse.junk += JUNK;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        if said.elapsed() >= Duration::from_secs(1) {
            said = Instant::now();
            let mut left = Vec::new();
            for mut stream in slow {
                if stream.say("x").await.is_ok() {
                    left.push(stream);
                }
            }
            abuse.headers_cut = SLOW_HEADERS - left.len();
            slow = left;
        }
    }
    for watch in &watches {
        let mut head = [0; 12];
        if watch.stream.try_read(&mut head).is_ok() && &head == b"HTTP/1.1 429" {
            abuse.watches_refused += 1;
        }
    }
    reading.abort();
    Ok(abuse)
}

/// A renewal of a lease that nobody has.
fn junk(number: usize) -> Command {
    let renew = StreamRenew {
        lock: "hot".into(),
        owner_id: "nobody".into(),
        lease_id: format!("{number:032x}"),
        fencing_token: 1,
        ttl: None,
    };
    Command { id: (1 << 20) + number as u64, ask: Some(Ask::Renew(renew)) }
}

/// A stream with a holder and ten thousand who wait for it.
async fn wait_in_line(
    server: SocketAddr,
    token: &str,
) -> Result<(mpsc::Sender<AttachRequest>, tonic::Streaming<AttachResponse>)> {
    let endpoint = Endpoint::from_shared(format!("http://{server}"))?;
    let channel = endpoint.connect_with_connector(Connector(ABUSER)).await?;
    let (say, said) = mpsc::channel(64);
    let attach = Some(Attach::default());
    say.send(AttachRequest { attach, commands: Vec::new() }).await?;
    let mut request = tonic::Request::new(Said(said));
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    let heard = SessionsClient::new(channel).attach(request).await?.into_inner();
    let ask = |number: usize| {
        let acquire = StreamAcquire {
            lock: "hot".into(),
            owner_id: format!("w-{number}"),
            ttl: Some(length(Duration::from_secs(600))),
            wait_forever: number > 0,
            ..StreamAcquire::default()
        };
        Command { id: number as u64, ask: Some(Ask::Acquire(Box::new(acquire))) }
    };
    for first in (0..=WAITERS).step_by(250) {
        let commands = (first..(first + 250).min(WAITERS + 1)).map(ask).collect();
        say.send(AttachRequest { attach: None, commands }).await?;
    }
    Ok((say, heard))
}

struct Said(mpsc::Receiver<AttachRequest>);

impl tonic::codegen::tokio_stream::Stream for Said {
    type Item = AttachRequest;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<AttachRequest>> {
        self.get_mut().0.poll_recv(cx)
    }
}

/// Connects from an address of its own.
struct Connector(Ipv4Addr);

impl tower_service::Service<tonic::transport::Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: tonic::transport::Uri) -> Self::Future {
        let from = self.0;
        Box::pin(async move {
            let server = uri.authority().and_then(|to| to.as_str().parse().ok());
            let server = server.ok_or_else(|| std::io::Error::other("not an address"))?;
            Ok(TokioIo::new(connect_from(from, server).await?))
        })
    }
}

async fn connect_from(from: Ipv4Addr, server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection that speaks just enough HTTP.
struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
    /// The line of its credential.
    bearer: String,
}

impl Raw {
    async fn connect(server: SocketAddr, from: Ipv4Addr, token: &str) -> Result<Raw> {
        let stream = tokio::time::timeout(PATIENCE, connect_from(from, server)).await;
        let bearer = format!("authorization: Bearer {token}\r\n");
        Ok(Raw { stream: stream.context("no connection")??, read: Vec::new(), bearer })
    }

    async fn say(&mut self, text: &str) -> Result<()> {
        Ok(self.stream.write_all(text.as_bytes()).await?)
    }

    async fn get(&mut self, path: &str) -> Result<(u16, Vec<u8>)> {
        let bearer = &self.bearer;
        self.say(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{bearer}\r\n")).await?;
        self.answer().await
    }

    async fn post(&mut self, path: &str, body: &str) -> Result<(u16, Vec<u8>)> {
        let len = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{}",
            self.bearer
        );
        self.say(&format!("{head}content-length: {len}\r\n\r\n{body}")).await?;
        self.answer().await
    }

    /// The status and the body of the next answer.
    async fn answer(&mut self) -> Result<(u16, Vec<u8>)> {
        loop {
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                let status = status.with_context(|| format!("no status: {head}"))?;
                let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let len: usize =
                    len.with_context(|| format!("no length: {head}"))?.trim().parse()?;
                if self.read.len() >= end + 4 + len {
                    let body = self.read[end + 4..end + 4 + len].to_vec();
                    self.read.drain(..end + 4 + len);
                    return Ok((status, body));
                }
                self.read.reserve(len);
            }
            let reading = self.stream.read_buf(&mut self.read);
            let len = tokio::time::timeout(PATIENCE, reading).await.context("no answer")??;
            ensure!(len > 0, "the connection was closed");
        }
    }
}

/// A session of somebody who behaves, and the lock that stands under it.
struct Session {
    http: Raw,
    number: u8,
    id: String,
}

impl Session {
    async fn open(server: SocketAddr, token: &str, number: u8) -> Result<Session> {
        let from = Ipv4Addr::new(127, 0, 1, number + 1);
        let mut http = Raw::connect(server, from, token).await?;
        let ttl = TTL.as_millis();
        let body = format!(r#"{{"owner_id":"good-{number}","ttl_ms":{ttl},"adapter":"http"}}"#);
        let (status, opened) = http.post("/v1/sessions", &body).await?;
        ensure!(status == 201, "{}", String::from_utf8_lossy(&opened));
        let id = serde_json::from_slice::<leasehold_api::Opened>(&opened)?.session_id;
        let body = format!(r#"{{"owner_id":"good-{number}","session_id":"{id}"}}"#);
        let (status, granted) =
            http.post(&format!("/v1/locks/good/{number}/acquire"), &body).await?;
        ensure!(status == 200, "{}", String::from_utf8_lossy(&granted));
        Ok(Session { http, number, id })
    }

    /// Heartbeats until the abuse is over. Returns how long each took.
    async fn keep_alive(
        mut self,
        mut under_way: tokio::sync::watch::Receiver<Option<()>>,
    ) -> Result<Vec<Duration>> {
        let mut took = Vec::new();
        let path = format!("/v1/sessions/{}/keepalive", self.id);
        // Not all at the same moment.
        tokio::time::sleep(TTL / 3 * u32::from(self.number) / u32::from(SESSIONS)).await;
        loop {
            let begun = Instant::now();
            let (status, said) = self.http.post(&path, "{}").await?;
            took.push(begun.elapsed());
            ensure!(status == 200, "session {}: {}", self.number, String::from_utf8_lossy(&said));
            let rest = (TTL / 3).saturating_sub(begun.elapsed());
            let ended = async { while under_way.changed().await.is_ok() {} };
            if tokio::time::timeout(rest, ended).await.is_ok() {
                break;
            }
        }
        let (_, lock) = self.http.get(&format!("/v1/locks/good/{}", self.number)).await?;
        let lock: leasehold_api::Lock = serde_json::from_slice(&lock)?;
        let owner = lock.holders.first().map(|holder| holder.owner_id.clone());
        ensure!(owner == Some(format!("good-{}", self.number)), "it lapsed: {lock:?}");
        Ok(took)
    }
}

/// A line of `/proc/PID/status`, in MiB.
fn memory_mib(pid: u32, line: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_suffix("kB"));
    let kib: u64 = found.context("the line is there")?.trim().parse()?;
    Ok(kib / 1024)
}
