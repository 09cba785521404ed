//! Takes connections in, turns away what is too much, and lets go of what takes too long.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use leasehold_api::{Code, Problem};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::access::Shown;
use crate::convert::retry;
use crate::net::connection::{Connection, MeteredIo, Timeouts};
use crate::net::descriptors::{self, Spare};
use crate::net::flapping::Flapping;
use crate::net::limits::ConnectionLimiter;
use crate::net::request::{self, Origin, Routers};
use crate::net::rewrite::ProblemRewriter;
use crate::net::tls::Rewound;
use crate::service::app::App;
use crate::service::problems::RETRY_SOON;

const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: u32 = 16 * 1024;
const STREAMS_MAX: u32 = 128;
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// As much as 32 streams can leave unread: a server that forwards lets no more share a connection.
const CONNECTION_WINDOW_BYTES: u32 = 32 * STREAM_WINDOW_BYTES;
/// After a failure to accept (no more file descriptors, mostly) there is no use in trying again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// So many at a time are told why they are turned away; others are just closed.
const FAREWELLS_MAX: usize = 64;
/// The log says so once in so long.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// The source of connections: a socket, or a simulated one.
pub trait Listener: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and who is at its other end.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Remote)>> + Send;
}

/// The other end of a connection, as far as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    pub address: SocketAddr,
    /// The user at the other end of a Unix socket.
    pub uid: Option<u32>,
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Remote {
        Remote { address, uid: None }
    }
}

/// Serves until `stop` turns true; then no connection is taken in any more, and those there are finish what they do.
/// Returns once the last one is gone.
pub(crate) async fn accept(
    listener: impl Listener,
    app: Arc<App>,
    routers: Routers,
    mut stop: watch::Receiver<bool>,
) {
    let builder = Arc::new(builder());
    let limiter =
        ConnectionLimiter::new(app.config.connections_max, app.config.connections_per_peer_max);
    let flapping = Arc::new(Flapping::default());
    let farewells = Arc::new(Semaphore::new(FAREWELLS_MAX));
    // Each connection holds one end; when all are gone, the other end hears of it.
    let (alive, mut all_gone) = tokio::sync::mpsc::channel::<Infallible>(1);
    let mut failures = Failures { spare: Spare::new(), said: None };
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stopped| *stopped) => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                failures.bear(&listener, &error).await;
                continue;
            }
        };
        let address = peer.address.ip();
        // Another server stands for many clients.
        match limiter.enter((!app.servers.are_at(address)).then_some(address)) {
            Ok(permit) => {
                let (app, routers, builder) = (app.clone(), routers.clone(), builder.clone());
                let (stop, alive) = (stop.clone(), alive.clone());
                let flapping = flapping.clone();
                tokio::spawn(async move {
                    let begun = Instant::now();
                    if let Some(secured) = secure(stream, peer, &app, stop.clone()).await {
                        serve(secured, &app, routers, &builder, stop).await;
                    }
                    note_end(&app, &flapping, address, begun);
                    drop((permit, alive));
                });
            }
            Err(_) => {
                note_end(&app, &flapping, address, Instant::now());
                // In TLS it would take a handshake to say so.
                let permit = farewells.clone().try_acquire_owned();
                if let Some(permit) = permit.ok().filter(|_| app.tls.is_none()) {
                    tokio::spawn(async move {
                        turn_away(stream).await;
                        drop(permit);
                    });
                }
            }
        }
    }
    drop((listener, alive));
    all_gone.recv().await;
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Headers have a clock of ours: see `connection.rs`.
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        // What one stream leaves unread must not fill the connection for the others.
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5));
    builder
}

/// A connection on which requests come next.
struct Secured<S> {
    stream: Either<S, Box<TlsStream<Rewound<S>>>>,
    peer: SocketAddr,
    shown: Shown,
}

/// Speaks TLS first, if that is to be spoken; `None` if it came to nothing, or the server stops.
async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: Remote,
    app: &App,
    mut stop: watch::Receiver<bool>,
) -> Option<Secured<S>> {
    let Remote { address: peer, uid } = peer;
    let Some(tls) = &app.tls else {
        let shown = uid.map_or(Shown::Nothing, Shown::User);
        return Some(Secured { stream: Either::Left(stream), peer, shown });
    };
    let handshake = tokio::select! {
        _ = stop.wait_for(|stopped| *stopped) => return None,
        handshake = tls.handshake(stream, peer.ip()) => handshake?,
    };
    let shown = app.authenticator.introduce(handshake.certificates, tls);
    Some(Secured { stream: Either::Right(handshake.stream), peer, shown })
}

async fn serve(
    secured: Secured<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    app: &Arc<App>,
    routers: Routers,
    builder: &auto::Builder<TokioExecutor>,
    mut stop: watch::Receiver<bool>,
) {
    let Secured { stream, peer, shown } = secured;
    let timeouts = Timeouts { header: app.config.header_timeout, idle: app.config.idle_timeout };
    let connection = Arc::new(Connection::new(app.metrics.clone()));
    let io = TokioIo::new(ProblemRewriter::new(
        MeteredIo::new(stream, connection.clone()),
        connection.clone(),
    ));
    let service = service_fn(|request| {
        let origin = Origin { peer, shown: shown.clone(), connection: connection.clone() };
        request::answer(app.clone(), routers.clone(), origin, request)
    });
    let mut serving = std::pin::pin!(builder.serve_connection(io, service));
    let mut stopping = false;
    let mut pause = timeouts.header.min(Duration::from_secs(1));
    loop {
        tokio::select! {
            result = serving.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(peer = %peer, error = %error, "a connection broke");
                }
                return;
            }
            _ = stop.wait_for(|stopped| *stopped), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(pause) => match connection.time_left(timeouts) {
                Some(left) => pause = left,
                None => {
                    tracing::debug!(peer = %peer, "a connection took too long");
                    return;
                }
            }
        }
    }
}

fn note_end(app: &App, flapping: &Flapping, peer: IpAddr, begun: Instant) {
    if flapping.ended(Instant::now(), peer, begun.elapsed()) {
        app.metrics.flapped();
    }
}

/// Failures to accept connections: logged now and then; one connection is turned away where descriptors have run out.
struct Failures {
    spare: Spare,
    /// When the log last said so.
    said: Option<Instant>,
}

impl Failures {
    async fn bear(&mut self, listener: &impl Listener, error: &io::Error) {
        if self.said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            self.said = Some(Instant::now());
            tracing::warn!(error = %error, "a connection could not be accepted");
        }
        if !descriptors::is_exhausted(error) || !self.spare.turn_one_away(listener).await {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Says why, as well as a connection that nobody reads from can.
async fn turn_away(mut stream: impl AsyncWrite + Unpin) {
    let mut problem = Problem::new(Code::RateLimited, "too many connections from this address");
    let after = retry::not_before(RETRY_SOON);
    problem.recommended_retry_ms = Some(after);
    let body = serde_json::to_string(&problem).expect("a problem is plain data");
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\nretry-after: {}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        after.div_ceil(1000),
        body.len()
    );
    let said = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), said).await;
}
