//! Any server serves any client: what is for a leader elsewhere goes there, and its answer comes back as it is.
//!
//! Bodies go through as they come, so that streams and long polls work as if the leader had been asked itself. A request
//! is forwarded once: whoever gets one that was forwarded and does not lead says so.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, ORIGIN, TE, TRANSFER_ENCODING, UPGRADE};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, Version};
use axum::response::Response;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use leasehold_api::{Code, Problem};
use leasehold_core::Namespace;
use leasehold_engine::{Handle, Phase};

use crate::app::App;
use crate::convert::SIMPLE_NAMESPACE;
use crate::http::input;
use crate::problem::Failure;

/// Set on what was forwarded.
const FORWARDED: HeaderName = HeaderName::from_static("leasehold-forwarded");
/// Which namespace a gRPC call is about, percent-encoded: its message is not looked at on the way.
const NAMESPACE: HeaderName = HeaderName::from_static("leasehold-namespace");
const GRPC_UNAVAILABLE: &[u8] = b"14";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_MS: u64 = 250;

/// The way to other servers.
#[derive(Debug)]
pub(crate) struct Forwarder {
    http1: Client<HttpConnector, Body>,
    http2: Client<HttpConnector, Body>,
}

impl Forwarder {
    pub(crate) fn new() -> Forwarder {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).timer(TokioTimer::new());
        builder.pool_idle_timeout(IDLE_TIMEOUT);
        let http1 = builder.build(connector.clone());
        builder.http2_only(true);
        builder.http2_keep_alive_interval(Duration::from_secs(2));
        builder.http2_keep_alive_timeout(Duration::from_secs(2));
        Forwarder { http1, http2: builder.build(connector) }
    }

    /// The leader's answer. If that is that it does not serve, there may be another one soon.
    pub(crate) async fn send(
        &self,
        Elsewhere { engine, leader }: &Elsewhere<'_>,
        request: Request<Body>,
    ) -> Result<Response, Failure> {
        let answer = self.send_to(leader, request).await;
        if answer.as_ref().map_or(true, does_not_serve) {
            engine.look();
        }
        answer
    }

    async fn send_to(
        &self,
        leader: &Authority,
        request: Request<Body>,
    ) -> Result<Response, Failure> {
        let client = match request.version() {
            Version::HTTP_2 => &self.http2,
            _ => &self.http1,
        };
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().cloned();
        let mut to = Uri::builder().scheme(Scheme::HTTP).authority(leader.clone());
        to = to.path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        parts.uri = match to.build() {
            Ok(uri) => uri,
            Err(_) => return Err(unreachable(leader, Code::NotLeader)),
        };
        only_end_to_end(&mut parts.headers);
        // Whether a page may ask this was settled here; the leader goes by another name.
        parts.headers.remove(ORIGIN);
        parts.headers.insert(FORWARDED, HeaderValue::from_static("1"));
        match client.request(Request::from_parts(parts, body)).await {
            Ok(mut response) => {
                only_end_to_end(response.headers_mut());
                Ok(response.map(Body::new))
            }
            // Nothing was sent, or nobody knows what became of it.
            Err(error) if error.is_connect() => Err(unreachable(leader, Code::NotLeader)),
            Err(_) => Err(unreachable(leader, Code::Interrupted)),
        }
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

/// Where the request has to go, if that is not here.
pub(crate) fn elsewhere<'a, B>(app: &'a App, request: &Request<B>) -> Option<Elsewhere<'a>> {
    if request.headers().contains_key(FORWARDED) || !is_about_locks(request.uri().path()) {
        return None;
    }
    let engine = app.groups.engine(&namespace_of(request)?);
    let status = engine.status();
    if status.phase != Phase::Following {
        return None;
    }
    let address: Uri = status.leader?.address.parse().ok()?;
    Some(Elsewhere { engine, leader: address.authority()?.clone() })
}

/// What every server answers for itself: how it is, and what it is.
fn is_about_locks(path: &str) -> bool {
    let own = ["/v1/version", "/v1/cluster", "/v1/limits"];
    let about_locks = path.starts_with("/v1/") && !own.contains(&path);
    let by_grpc = path.starts_with("/leasehold.v1.") && !path.starts_with("/leasehold.v1.Cluster/");
    about_locks || by_grpc || path == "/lock"
}

/// The namespace that a request names; `None` if it is none, which whoever reads it will find out.
fn namespace_of<B>(request: &Request<B>) -> Option<Namespace> {
    if request.uri().path() == "/lock" {
        return Namespace::new(SIMPLE_NAMESPACE).ok();
    }
    let is_grpc = request
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let named = if is_grpc {
        let header = request.headers().get(NAMESPACE);
        header.map(|name| name.to_str().unwrap_or_default())
    } else {
        let query = request.uri().query().unwrap_or_default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(name, _)| *name == "namespace").map(|(_, value)| value).next()
    };
    match named {
        None => Some(Namespace::default()),
        Some(name) => Namespace::new(&input::percent_decoded(name).unwrap_or_default()).ok(),
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
    let mut problem = Problem::new(code, format!("the leader at {leader} cannot be reached"));
    problem.recommended_retry_ms = Some(RETRY_MS);
    problem.into()
}
