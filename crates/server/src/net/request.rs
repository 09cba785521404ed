//! Around every request: its id, what is refused before anybody looks at it, and a line in the log.

use std::any::Any;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use leasehold_api::Code;
use tower_service::Service as _;

use crate::access::{SEC_FETCH_SITE, Shown, authority_of, cookie_shown, unauthenticated};
use crate::cluster::forward::{self, Elsewhere};
use crate::cluster::while_good::while_good;
use crate::grpc;
use crate::http::{encode, extract};
use crate::net::connection::{Answering, Connection, InFlight};
use crate::net::delivery;
use crate::net::limits::{ConnectionPermit, Full};
use crate::service::app::App;
use crate::service::caller::{Caller, Transport};
use crate::service::problems::Failure;
use crate::service::random;
use crate::telemetry::access_log::{self, Line};
use crate::telemetry::metrics::Stopwatch;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_LEN_MAX: usize = 128;
const URI_LEN_MAX: usize = 8 * 1024;

/// The origin of a request.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    /// The client's identity by its connection.
    pub(crate) shown: Shown,
    pub(crate) connection: Arc<Connection>,
}

/// Answers one request, whatever it is.
pub(crate) async fn answer(
    app: Arc<App>,
    routers: Routers,
    origin: Origin,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let watch = Stopwatch::start();
    let is_http2 = request.version() == Version::HTTP_2;
    let in_flight = origin.connection.begin(is_http2);
    let answering = (!is_http2).then(|| origin.connection.answering());
    let request_id = request_id(request.headers());
    let is_grpc = grpc::is_asked(&request);
    let transport = if is_grpc { Transport::Grpc } else { Transport::Http };
    let shown = origin.shown.clone();
    let audit = app.audit.clone();
    let caller = Caller::anonymous(origin.peer, shown, transport, request_id.clone(), watch, audit);
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let is_secure = cookie_shown(request.headers()).is_some_and(|shown| shown.is_secure);
    let entered = check(&app, &origin, &request)
        .and_then(|()| app.authenticator.enter(app.now(), &request, is_grpc, caller))
        .and_then(|caller| {
            app.quotas.count_request(app.now(), &caller)?;
            Ok((watcher(&app, &origin, &request)?, caller))
        });
    let (entered, permit) = match entered {
        Ok((permit, caller)) => (Ok(caller), permit),
        Err(failure) => (Err(failure), None),
    };
    let cookie = match &entered {
        Ok(caller) => app.authenticator.cookie_used(app.now(), caller, is_secure),
        Err(_) => None,
    };
    let (mut response, code) = if is_grpc {
        origin.connection.note_grpc();
        let response = match entered {
            Ok(caller) => call(&app, routers.grpc, request, caller).await,
            Err(failure) => grpc::refusal(&app, &failure, &request_id),
        };
        let code = grpc::code_of(&response);
        (response, code)
    } else {
        let response = match entered {
            Ok(caller) => serve(&app, routers.http, request.map(Body::new), caller).await,
            Err(failure) => failure.into_response(),
        };
        let (mut response, code) = encode::finish(app.now(), response, &request_id);
        encode::guard_browser(response.headers_mut(), cookie);
        (response, code)
    };
    if access_log::is_wanted(app.config.access_log, code) {
        let status = response.status().as_u16();
        access_log::write(&Line {
            peer: origin.peer,
            method: &method,
            uri: &uri,
            status,
            code,
            request_id: &request_id,
            watch,
        });
    }
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let response = delivery::with_body(response, &origin.connection, is_http2);
    // A stream is on its way until its last byte; everything else goes out at once.
    let in_flight = response.body().size_hint().exact().is_none().then_some(in_flight);
    if in_flight.is_none() && answering.is_none() && permit.is_none() {
        return Ok(response);
    }
    Ok(response.map(|body| Body::new(Kept { body, in_flight, answering, permit })))
}

/// Both interfaces.
#[derive(Clone, Debug)]
pub(crate) struct Routers {
    pub(crate) http: Router,
    pub(crate) grpc: Router,
}

/// Answers one gRPC call, unless its own deadline passes first.
async fn call(app: &App, router: Router, request: Request<Incoming>, caller: Caller) -> Response {
    let mut request = request.map(Body::new);
    let request_id = caller.request_id.clone();
    if let Some(elsewhere) = forward::elsewhere(app, &request, || grpc::namespace(&request)) {
        name(&mut request, &request_id);
        return match forward(app, &elsewhere, request, &caller).await {
            Ok(response) => response,
            Err(failure) => grpc::refusal(app, &failure, &request_id),
        };
    }
    let (request, timeout) = match grpc::prepare(app, request, caller) {
        Ok(prepared) => prepared,
        Err(failure) => return grpc::refusal(app, &failure, &request_id),
    };
    let handling = dispatch(router, request);
    let handled = match timeout {
        Some(timeout) => match tokio::time::timeout(timeout, handling).await {
            Ok(handled) => handled,
            Err(_) => return grpc::too_late(),
        },
        None => handling.await,
    };
    handled.unwrap_or_else(|failure| grpc::refusal(app, &failure, &request_id))
}

/// Answers one request over HTTP: here, or where the leader is.
async fn serve(app: &App, router: Router, mut request: Request<Body>, caller: Caller) -> Response {
    let uri = request.uri();
    let Some(elsewhere) = forward::elsewhere(app, &request, || extract::namespace(uri)) else {
        request.extensions_mut().insert(caller);
        return dispatch(router, request).await.into_response();
    };
    name(&mut request, &caller.request_id);
    forward(app, &elsewhere, request, &caller).await.into_response()
}

/// Sends a request to the leader, with the word of this server for who asks.
async fn forward(
    app: &App,
    elsewhere: &Elsewhere<'_>,
    request: Request<Body>,
    caller: &Caller,
) -> Result<Response, Failure> {
    let vouched = app.authenticator.vouch(app.now(), &app.name, caller, &request)?;
    let answer = app.forwarder.send(elsewhere, request, vouched).await?;
    Ok(while_good(app, caller, answer))
}

/// Gives the request its id to take along.
fn name(request: &mut Request<Body>, request_id: &str) {
    if let Ok(value) = HeaderValue::from_str(request_id) {
        request.headers_mut().insert(REQUEST_ID, value);
    }
}

/// A body that keeps what is known about its request until hyper has taken all of it.
pub(crate) struct Kept {
    pub(crate) body: Body,
    #[expect(dead_code, reason = "held, never read")]
    pub(crate) in_flight: Option<InFlight>,
    #[expect(dead_code, reason = "held, never read")]
    pub(crate) answering: Option<Answering>,
    #[expect(dead_code, reason = "held, never read")]
    pub(crate) permit: Option<ConnectionPermit>,
}

impl HttpBody for Kept {
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

/// Runs the handler. A panic in it is a bug of ours, and no reason to leave the caller without an answer.
async fn dispatch(mut router: Router, request: Request<Body>) -> Result<Response, Failure> {
    let handling = router.call(request);
    let mut handling = std::pin::pin!(handling);
    let handled = std::future::poll_fn(|cx| {
        match catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(response))) => Poll::Ready(Ok(response)),
            Ok(Poll::Ready(Err(never))) => match never {},
            Err(panic) => Poll::Ready(Err(panic)),
        }
    });
    match handled.await {
        Ok(response) => Ok(response),
        Err(panic) => {
            tracing::error!(panic = said(&*panic), "a handler panicked");
            Err(Failure::new(Code::Internal, "internal error; the server's log has the cause"))
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// The caller's own id for the request if it is fit to be logged, else a new one.
fn request_id(headers: &HeaderMap) -> Arc<str> {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(given) if is_request_id(given) => given.into(),
        Some(_) | None => format!("{:016x}", random::number()).into(),
    }
}

fn is_request_id(text: &str) -> bool {
    (1..=REQUEST_ID_LEN_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte))
}

/// Finds faults of a request that do not depend on what it asks.
fn check<B>(app: &App, origin: &Origin, request: &Request<B>) -> Result<(), Failure> {
    if origin.connection.is_ambiguous() {
        let said = "a request has a Content-Length or a Transfer-Encoding, not both";
        return Err(Failure::new(Code::InvalidRequest, said));
    }
    let uri = request.uri();
    let uri_len = uri.path().len() + uri.query().map_or(0, str::len);
    if uri_len > URI_LEN_MAX {
        let said = format!("path and query have {uri_len} bytes, the limit is {URI_LEN_MAX}");
        return Err(Failure::new(Code::UriTooLong, said));
    }
    check_host(app, request)?;
    let checked = check_same_origin(request);
    // A cookie counts for the server's own pages alone: for others there is none.
    if checked.is_err() && app.authenticator.is_on() && cookie_shown(request.headers()).is_some() {
        return Err(unauthenticated());
    }
    checked
}

/// The permit of a watcher, for a request that watches; it is kept until the answer is over. What another server forwards
/// was counted there by its address.
fn watcher<B>(
    app: &App,
    origin: &Origin,
    request: &Request<B>,
) -> Result<Option<ConnectionPermit>, Failure> {
    const PATHS: [&str; 3] = ["/v1/watch", "/v1/events", "/leasehold.v1.Watch/Watch"];
    if !PATHS.contains(&request.uri().path()) {
        return Ok(None);
    }
    let is_forwarded = app.config.store.is_shared() && forward::is_forwarded(request);
    let peer = (!is_forwarded).then(|| origin.peer.ip());
    app.watchers.enter(peer).map(Some).map_err(|full| {
        let (max, whose, name) = match full {
            Full::InAll(max) => (max, "", "watch.max"),
            Full::OfPeer(max) => (max, " from your address", "watch.per_peer_max"),
        };
        let said = format!("there are {max} watches{whose} already, the limit ({name})");
        Failure::new(Code::QuotaExceeded, said).retried_soon()
    })
}

/// Only names of this server are answered to: see `hosts.rs`. Browsers cannot reach a Unix socket.
fn check_host<B>(app: &App, request: &Request<B>) -> Result<(), Failure> {
    let mut given = request.headers().get_all(HOST).iter();
    let host = match (request.uri().authority(), given.next()) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => host.to_str().unwrap_or(""),
        (None, None) => {
            return Err(Failure::new(Code::InvalidRequest, "the Host header is missing"));
        }
    };
    if given.next().is_some() {
        return Err(Failure::new(Code::InvalidRequest, "there is more than one Host header"));
    }
    if app.config.listen.unix().is_some() || app.hosts.is_own(host, app.tls.as_deref()) {
        return Ok(());
    }
    let host: String = host.chars().filter(|c| !c.is_control()).take(255).collect();
    let said = format!(
        "this server does not answer to the host {host}: add it to `hosts` in its configuration"
    );
    Err(Failure::new(Code::MisdirectedRequest, said))
}

/// A page of somebody else's can make a browser send requests to us; the browser then says so. It does not get to see the
/// answer, but has the server look for it: so only what is a file, or costs nothing, is open to it.
fn check_same_origin<B>(request: &Request<B>) -> Result<(), Failure> {
    let is_safe = request.method().is_safe();
    if is_safe && is_for_pages(request.uri().path()) {
        return Ok(());
    }
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_foreign_site = request.headers().contains_key(SEC_FETCH_SITE)
        && !matches!(header(SEC_FETCH_SITE), Some("same-origin" | "none"));
    let own = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => header(HOST),
    };
    let is_foreign_origin = !is_safe
        && request.headers().contains_key(ORIGIN)
        && header(ORIGIN)
            .and_then(authority_of)
            .is_none_or(|origin| !own.is_some_and(|own| own.eq_ignore_ascii_case(origin)));
    if is_foreign_site || (is_foreign_origin && !is_safe) {
        let said = "the request comes from a page of another site";
        return Err(Failure::new(Code::PermissionDenied, said));
    }
    Ok(())
}

/// Files, and what costs nothing.
fn is_for_pages(path: &str) -> bool {
    const FREE: [&str; 5] = ["/", "/livez", "/readyz", "/openapi.json", "/v1/version"];
    FREE.contains(&path) || path.starts_with("/console/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_that_could_break_a_log_line_is_replaced() {
        assert!(is_request_id("5f2c-a.b:c/d+e="));
        for text in ["", "a b", "a\"b", "a{b", &"x".repeat(129)] {
            assert!(!is_request_id(text), "{text}");
        }
    }
}
