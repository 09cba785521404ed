//! Any server serves any client: what is for a leader elsewhere goes there, and its answer comes back as it is.
//!
//! HTTP/2 lets many requests share a connection, and with it its limits. So there are as many connections as are needed to
//! give each request its own share of one, and heartbeats and releases have one to themselves: whatever lasts, or is not
//! read, is never in their way.
//!
//! Bodies go through as they come, so that streams and long polls work as if the leader had been asked itself. A request
//! is forwarded once: whoever gets one that was forwarded and does not lead says so.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, COOKIE, HOST, ORIGIN, TE, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use hyper_util::client::legacy::Builder;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use leasehold_api::Code;
use leasehold_core::Namespace;
use leasehold_engine::{Handle, Phase};
use parking_lot::Mutex;

use super::way::Way;
use crate::access::{FORWARDED, is_vouched};
use crate::net::tls::Tls;
use crate::service::app::App;
use crate::service::problems::Failure;

const GRPC_UNAVAILABLE: &[u8] = b"14";
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(250);
/// So many requests share a connection in HTTP/2.
const STREAMS_MAX: usize = 32;
/// The window of one of them; together they never fill the connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 32 * STREAM_WINDOW_BYTES;
/// So many connections in HTTP/2 there are at most.
const CONNECTIONS_MAX: usize = 512;

/// A pool of connections to other servers.
type Client = hyper_util::client::legacy::Client<Way, Body>;

/// The way to other servers.
#[derive(Debug)]
pub(crate) struct Forwarder {
    tls: Option<Arc<Tls>>,
    way: Way,
    clients: Mutex<Clients>,
    answered: AtomicU64,
    failed: AtomicU64,
}

/// All connections.
#[derive(Debug)]
struct Clients {
    http1: Client,
    /// For heartbeats and releases in HTTP/2, which take no time.
    urgent: Client,
    /// For everything else in HTTP/2: as many connections as there were ever needed at a time.
    shared: Vec<Shared>,
    way: Way,
    builder: Builder,
    /// The version of what they were secured with.
    version: u64,
}

/// The number of requests that went to a leader elsewhere since the start, by whether it answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
}

/// A connection that requests share.
#[derive(Debug)]
struct Shared {
    client: Client,
    requests: Arc<AtomicUsize>,
}

/// One request's share of a connection, given back when dropped.
#[derive(Debug)]
struct Share(Arc<AtomicUsize>);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Clients {
    fn new(way: &Way, version: u64) -> Clients {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).timer(TokioTimer::new());
        builder.pool_idle_timeout(IDLE_TIMEOUT);
        let http1 = builder.build(way.clone());
        builder.http2_only(true);
        builder.http2_keep_alive_interval(Duration::from_secs(2));
        builder.http2_keep_alive_timeout(Duration::from_secs(2));
        builder.http2_initial_stream_window_size(STREAM_WINDOW_BYTES);
        builder.http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let way = way.for_http2();
        let urgent = builder.build(way.clone());
        Clients { http1, urgent, shared: Vec::new(), way, builder, version }
    }

    /// The connection for a request, and its share of it.
    fn client<B>(&mut self, request: &Request<B>) -> Option<(Client, Option<Share>)> {
        if request.version() != Version::HTTP_2 {
            return Some((self.http1.clone(), None));
        }
        if is_urgent(request.method(), request.uri().path()) {
            return Some((self.urgent.clone(), None));
        }
        let has_room = |shared: &Shared| shared.requests.load(Relaxed) < STREAMS_MAX;
        let at = match self.shared.iter().position(has_room) {
            Some(at) => at,
            None if self.shared.len() >= CONNECTIONS_MAX => return None,
            None => {
                let client = self.builder.build(self.way.clone());
                self.shared.push(Shared { client, requests: Arc::default() });
                self.shared.len() - 1
            }
        };
        let Shared { client, requests } = &self.shared[at];
        requests.fetch_add(1, Relaxed);
        Some((client.clone(), Some(Share(requests.clone()))))
    }
}

impl Forwarder {
    /// Servers that speak TLS are forwarded to with this.
    pub(crate) fn new(tls: Option<Arc<Tls>>) -> Forwarder {
        let tls = tls.filter(|tls| tls.knows_servers());
        let way = Way::new(tls.clone());
        let clients = Mutex::new(Clients::new(&way, tls.as_ref().map_or(0, |tls| tls.version())));
        let (answered, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Forwarder { tls, way, clients, answered, failed }
    }

    pub(crate) fn forwarded(&self) -> Forwarded {
        Forwarded { answered: self.answered.load(Relaxed), failed: self.failed.load(Relaxed) }
    }

    /// The connection for a request, and its share of it. Those that were made with a certificate of before are left to the
    /// streams that they carry.
    fn client<B>(&self, request: &Request<B>) -> Option<(Client, Option<Share>)> {
        let version = self.tls.as_ref().map_or(0, |tls| tls.version());
        let mut clients = self.clients.lock();
        if clients.version != version {
            *clients = Clients::new(&self.way, version);
        }
        clients.client(request)
    }

    /// Whether a server with such an address is forwarded to. Nothing goes in the clear to one that speaks TLS, nor from one
    /// that knows the others by their certificates: the client is told where the leader is.
    fn reaches(&self, scheme: Option<&Scheme>) -> bool {
        let is_secure = scheme == Some(&Scheme::HTTPS);
        is_secure == self.tls.is_some()
    }

    /// The leader's answer. If that is that it does not serve, there may be another one soon.
    pub(crate) async fn send(
        &self,
        Elsewhere { engine, leader }: &Elsewhere<'_>,
        request: Request<Body>,
        vouched: HeaderValue,
    ) -> Result<Response, Failure> {
        let answer = self.send_to(leader, request, vouched).await;
        let counter = if answer.is_ok() { &self.answered } else { &self.failed };
        counter.fetch_add(1, Relaxed);
        if answer.as_ref().map_or(true, does_not_serve) {
            engine.refresh_leader();
        }
        answer
    }

    async fn send_to(
        &self,
        leader: &Authority,
        request: Request<Body>,
        vouched: HeaderValue,
    ) -> Result<Response, Failure> {
        let Some((client, share)) = self.client(&request) else {
            let said = "too many requests are being forwarded to the leader";
            return Err(Failure::new(Code::Overloaded, said));
        };
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().cloned();
        let scheme = if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let mut to = Uri::builder().scheme(scheme).authority(leader.clone());
        to = to.path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        parts.uri = match to.build() {
            Ok(uri) => uri,
            Err(_) => return Err(unreachable(leader, Code::NotLeader)),
        };
        only_end_to_end(&mut parts.headers);
        // Whether a page may ask this was settled here; the leader goes by another name.
        parts.headers.remove(ORIGIN);
        only_what_is_asked(&mut parts.headers);
        parts.headers.insert(FORWARDED, vouched);
        match client.request(Request::from_parts(parts, body)).await {
            Ok(mut response) => {
                only_end_to_end(response.headers_mut());
                Ok(response.map(|body| Body::new(Sharing { body: Body::new(body), _share: share })))
            }
            // Nothing was sent, or nobody knows what became of it.
            Err(error) if error.is_connect() => Err(unreachable(leader, Code::NotLeader)),
            Err(_) => Err(unreachable(leader, Code::Interrupted)),
        }
    }
}

/// Tests for requests that must not wait behind others: they keep or give back a grant.
fn is_urgent(method: &Method, path: &str) -> bool {
    const CALLS: [&str; 5] = [
        "/leasehold.v1.Locks/Renew",
        "/leasehold.v1.Locks/Release",
        "/leasehold.v1.Locks/Unlock",
        "/leasehold.v1.Sessions/KeepAlive",
        "/leasehold.v1.Sessions/Close",
    ];
    let is_urgent = ["/renew", "/release", "/unlock"].iter().any(|verb| path.ends_with(verb));
    let of_lock = path.starts_with("/v1/locks/") && is_urgent;
    let of_session = path.starts_with("/v1/sessions/");
    match *method {
        Method::POST => {
            of_lock || (of_session && path.ends_with("/keepalive")) || CALLS.contains(&path)
        }
        Method::DELETE => of_session || path == "/lock",
        _ => false,
    }
}

/// A body that keeps its request's share of the connection until its end.
struct Sharing {
    body: Body,
    _share: Option<Share>,
}

impl HttpBody for Sharing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn does_not_serve(response: &Response) -> bool {
    let status = response.headers().get("grpc-status").map(HeaderValue::as_bytes);
    response.status() == StatusCode::SERVICE_UNAVAILABLE || status == Some(GRPC_UNAVAILABLE)
}

/// Where a request has to go.
pub(crate) struct Elsewhere<'a> {
    /// Ours, of that group.
    engine: &'a Handle,
    leader: Authority,
}

/// Where a request about a namespace has to go, if that is not here. `namespace` is not asked for unless it matters; a
/// request that names none that could be is refused where it is read.
pub(crate) fn elsewhere<'a, B>(
    app: &'a App,
    request: &Request<B>,
    namespace: impl FnOnce() -> Result<Namespace, Failure>,
) -> Option<Elsewhere<'a>> {
    let is_possible = app.config.store.is_shared() && !is_forwarded(request);
    if !is_possible || !is_about_locks(request.uri().path()) {
        return None;
    }
    let engine = app.groups.engine(&namespace().ok()?);
    let status = engine.status();
    if status.phase != Phase::Following {
        return None;
    }
    let address: Uri = status.leader?.address.parse().ok()?;
    if !app.forwarder.reaches(address.scheme()) {
        return None;
    }
    Some(Elsewhere { engine, leader: address.authority()?.clone() })
}

/// Whether another server has sent the request on.
pub(crate) fn is_forwarded<B>(request: &Request<B>) -> bool {
    is_vouched(request.headers())
}

/// Tests for paths that the leader answers; its health, its version and tokens every server answers for itself.
fn is_about_locks(path: &str) -> bool {
    let own = ["/v1/version", "/v1/cluster", "/v1/limits"];
    // Roles and tokens are the store's, not a leader's.
    let is_own = own.contains(&path) || path.starts_with("/v1/auth/");
    let about_locks = path.starts_with("/v1/") && !is_own;
    let by_grpc = path.starts_with("/leasehold.v1.") && !path.starts_with("/leasehold.v1.Cluster/");
    about_locks || by_grpc || path == "/lock"
}

/// Drops what told this server who asks; the leader is told by [`FORWARDED`] alone.
fn only_what_is_asked(headers: &mut HeaderMap) {
    const KEPT: [&str; 2] = ["leasehold-namespace", "leasehold-session"];
    headers.remove(AUTHORIZATION);
    headers.remove(COOKIE);
    let is_ours = |name: &&HeaderName| {
        let name = name.as_str();
        name.starts_with("leasehold-") && !KEPT.contains(&name)
    };
    let ours: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Drops what is between two neighbours only.
fn only_end_to_end(headers: &mut HeaderMap) {
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    if headers.get(TE).is_some_and(|te| te != "trailers") {
        headers.remove(TE);
    }
}

fn unreachable(leader: &Authority, code: Code) -> Failure {
    Failure::new(code, format!("the leader at {leader} cannot be reached")).retried_after(RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, method: &str, path: &str) -> Request<()> {
        Request::builder().version(version).method(method).uri(path).body(()).expect("a request")
    }

    #[test]
    fn requests_that_last_never_share_with_heartbeats_and_only_with_a_few_others() {
        let forwarder = Forwarder::new(None);
        let watch = request(Version::HTTP_2, "POST", "/leasehold.v1.Watch/Watch");
        let mut shares = Vec::new();
        for _ in 0..STREAMS_MAX * 3 {
            let (_, share) = forwarder.client(&watch).expect("there is room");
            shares.push(share.expect("a share"));
        }
        assert_eq!(forwarder.clients.lock().shared.len(), 3);
        for path in
            ["/v1/locks/a/b/renew", "/v1/sessions/0f/keepalive", "/leasehold.v1.Locks/Release"]
        {
            let (_, share) =
                forwarder.client(&request(Version::HTTP_2, "POST", path)).expect("room");
            assert!(share.is_none(), "{path} has a connection of its own");
        }
        assert!(!is_urgent(&Method::POST, "/v1/locks/renew/acquire"));
        drop(shares);
        let _again = forwarder.client(&watch).expect("there is room");
        assert_eq!(forwarder.clients.lock().shared.len(), 3);
    }

    #[test]
    fn connections_are_bounded() {
        let forwarder = Forwarder::new(None);
        let watch = request(Version::HTTP_2, "GET", "/v1/watch");
        let shares: Vec<_> =
            (0..STREAMS_MAX * CONNECTIONS_MAX).map(|_| forwarder.client(&watch)).collect();
        assert!(shares.iter().all(Option::is_some) && forwarder.client(&watch).is_none());
    }
}
