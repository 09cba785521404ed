//! gRPC, on the port that HTTP is on. The same requests, the same words, the same problems.
//!
//! ```text
//!  request ──► limits, deadline ──► service: locks, sessions, …  ──► engine
//!                                   attach: a stream with a port of its own
//! ```

mod cluster;
mod fences;
mod locks;
mod read;
mod sessions;
pub(crate) mod stream;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, Request, Version};
use axum::response::Response as HttpResponse;
use hyper::body::Frame;
use leasehold_api::grpc::cluster_server::ClusterServer;
use leasehold_api::grpc::fences_server::FencesServer;
use leasehold_api::grpc::inodes_server::InodesServer;
use leasehold_api::grpc::locks_server::LocksServer;
use leasehold_api::grpc::sessions_server::SessionsServer;
use leasehold_api::grpc::watch_server::WatchServer;
use leasehold_api::{Code, Problem, grpc};
use leasehold_core::Namespace;
use leasehold_engine::{Condition, Phase};
use tokio::time::{Instant, Sleep};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Request as Call, Response, Status};

use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::delivery::DeliveryGuard;
use crate::service::problems::Failure;
use crate::telemetry::traces::TraceContext;

/// A deadline further off than this is none.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const ATTACH: &str = "/leasehold.v1.Sessions/Attach";

/// The namespace that a call is about, percent-encoded: its message is not looked at on the way to a leader.
const NAMESPACE: HeaderName = HeaderName::from_static("leasehold-namespace");

/// Our methods, as they may be logged.
const METHODS: [&str; 25] = [
    "/leasehold.v1.Locks/Acquire",
    "/leasehold.v1.Locks/Renew",
    "/leasehold.v1.Locks/Release",
    "/leasehold.v1.Locks/Unlock",
    "/leasehold.v1.Locks/Test",
    "/leasehold.v1.Locks/Check",
    "/leasehold.v1.Locks/GetToken",
    "/leasehold.v1.Locks/Get",
    "/leasehold.v1.Locks/List",
    "/leasehold.v1.Locks/Break",
    "/leasehold.v1.Locks/AcquireSet",
    "/leasehold.v1.Locks/GetGraph",
    "/leasehold.v1.Sessions/Open",
    "/leasehold.v1.Sessions/KeepAlive",
    "/leasehold.v1.Sessions/Get",
    "/leasehold.v1.Sessions/List",
    "/leasehold.v1.Sessions/Close",
    "/leasehold.v1.Sessions/Break",
    ATTACH,
    "/leasehold.v1.Watch/Watch",
    "/leasehold.v1.Fences/Accept",
    "/leasehold.v1.Fences/Get",
    "/leasehold.v1.Fences/List",
    "/leasehold.v1.Fences/Delete",
    "/leasehold.v1.Inodes/Remove",
];

/// A method by its path, if it is one of ours.
pub(crate) fn method(path: &str) -> Option<&'static str> {
    METHODS.into_iter().find(|&method| method == path)
}

/// Whether a request speaks gRPC.
pub(crate) fn is_asked<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    request.version() == Version::HTTP_2
        && kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// All services. A method that is not among them is answered with `unimplemented`.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let max = app.config.body_bytes_max;
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(grpc::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(
                tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
            )
    };
    let limit = "the descriptors are our own";
    let routes =
        Routes::new(LocksServer::new(locks::Service(app.clone())).max_decoding_message_size(max))
            .add_service(
                SessionsServer::new(sessions::Service(app.clone())).max_decoding_message_size(max),
            )
            .add_service(
                WatchServer::new(watch::Service(app.clone())).max_decoding_message_size(max),
            )
            .add_service(
                FencesServer::new(fences::Service(app.clone())).max_decoding_message_size(max),
            )
            .add_service(
                InodesServer::new(fences::Service(app.clone())).max_decoding_message_size(max),
            )
            .add_service(
                ClusterServer::new(cluster::Service(app.clone())).max_decoding_message_size(max),
            )
            .add_service(health.max_decoding_message_size(max))
            .add_service(reflection().build_v1().expect(limit).max_decoding_message_size(max))
            .add_service(reflection().build_v1alpha().expect(limit).max_decoding_message_size(max));
    tokio::spawn(report_health(app.clone(), reporter));
    routes.prepare().into_axum_router()
}

/// The health service says what `/readyz` says.
async fn report_health(app: Arc<App>, reporter: tonic_health::server::HealthReporter) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    const NAMES: [&str; 7] = [
        "",
        LocksServer::<locks::Service>::NAME,
        SessionsServer::<sessions::Service>::NAME,
        WatchServer::<watch::Service>::NAME,
        FencesServer::<fences::Service>::NAME,
        InodesServer::<fences::Service>::NAME,
        ClusterServer::<cluster::Service>::NAME,
    ];
    let mut changes: Vec<_> =
        app.groups.all().iter().map(leasehold_engine::Handle::condition_changes).collect();
    drop(app);
    loop {
        let serving = changes.iter_mut().all(|changes| is_serving(*changes.borrow_and_update()));
        for name in NAMES {
            reporter.set_service_status(name, if serving { Serving } else { NotServing }).await;
        }
        let mut waiting: Vec<_> =
            changes.iter_mut().map(|changes| Box::pin(changes.changed())).collect();
        let changed = std::future::poll_fn(|cx| {
            let polled = waiting.iter_mut().map(|waiting| waiting.as_mut().poll(cx));
            polled.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
        });
        if changed.await.is_err() {
            return;
        }
    }
}

/// A server that follows serves as well: it forwards.
fn is_serving(condition: Condition) -> bool {
    matches!(condition.phase, Phase::Leading | Phase::Following) && !condition.store_failed
}

/// The namespace that a call is about, as far as its header tells.
pub(crate) fn namespace<B>(request: &Request<B>) -> Result<Namespace, Failure> {
    let named = request.headers().get(NAMESPACE).map(|name| name.to_str().unwrap_or_default());
    let decoded = named.map(|name| convert::percent_decoded(name).unwrap_or_default());
    convert::namespace(decoded.as_deref())
}

/// Readies a request for its service: what is left of its time, how long its body may take, its caller.
///
/// Returns how long the caller is ready to wait.
pub(crate) fn prepare(
    app: &App,
    request: Request<Body>,
    caller: Caller,
) -> Result<(Request<Body>, Option<Duration>), Failure> {
    let timeout = timeout(request.headers())?;
    let is_stream = request.uri().path() == ATTACH;
    let mut request = match is_stream {
        true => request,
        false => request.map(|body| Body::new(InTime::new(body, app.config.body_timeout))),
    };
    request.extensions_mut().insert(caller);
    Ok((request, timeout))
}

/// `grpc-timeout`: up to eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
    let Some(given) = headers.get("grpc-timeout") else { return Ok(None) };
    let wrong = || Failure::field("grpc-timeout", "is not up to eight digits and a unit");
    let text = given.to_str().map_err(|_| wrong())?;
    let at = text.len().checked_sub(1).filter(|&at| text.is_char_boundary(at)).ok_or_else(wrong)?;
    let (digits, unit) = text.split_at(at);
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let amount: u64 = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let length = match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return Err(wrong()),
    };
    Ok(Some(length).filter(|&length| length < TIMEOUT_MAX))
}

/// A problem as the whole answer to a call.
pub(crate) fn refusal(app: &App, failure: &Failure, request_id: &str) -> HttpResponse {
    status(app, failure, request_id).into_http()
}

/// A failure as the status of a call, in the words of this interface.
fn status(app: &App, failure: &Failure, request_id: &str) -> Status {
    let mut problem = read::reworded(convert::problem(app.now(), failure));
    problem.request_id = request_id.into();
    grpc::status(&problem)
}

/// The deadline of the call has passed.
pub(crate) fn too_late() -> HttpResponse {
    Status::deadline_exceeded("the call's own deadline has passed").into_http()
}

/// The code of a problem that a call was answered with, for the log.
pub(crate) fn code_of(response: &HttpResponse) -> Option<Code> {
    let status = Status::from_header_map(response.headers())?;
    match (status.code(), grpc::problem_of(&status)) {
        (tonic::Code::Ok, _) => None,
        (_, Some(problem)) => Some(problem.code),
        (tonic::Code::DeadlineExceeded, None) => Some(Code::RequestTimeout),
        (tonic::Code::Unimplemented, None) => Some(Code::NotFound),
        // What tonic answers by itself is about bytes that are not what they say.
        (_, None) => Some(Code::InvalidRequest),
    }
}

/// The caller of a call, and its message.
fn opened<T>(call: Call<T>) -> (Caller, T) {
    let caller = call.extensions().get::<Caller>().cloned();
    let caller = caller.expect("every call is given its caller when it comes in");
    let trace = TraceContext::of(call.metadata().as_ref());
    (Caller { trace, ..caller }, call.into_inner())
}

fn answer<T>(
    app: &App,
    caller: &Caller,
    answer: Result<T, Failure>,
) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(|failure| status(app, &failure, &caller.request_id))
}

/// An answer that gives something.
fn guarded<T>(
    app: &App,
    caller: &Caller,
    given: Result<(T, Option<DeliveryGuard>), Failure>,
) -> Result<Response<T>, Status> {
    let (given, guard) = given.map_err(|failure| status(app, &failure, &caller.request_id))?;
    let mut response = Response::new(given);
    if let Some(guard) = guard {
        response.extensions_mut().insert(guard);
    }
    Ok(response)
}

/// A body that has to be there in time.
struct InTime {
    body: Body,
    timeout: Pin<Box<Sleep>>,
}

impl InTime {
    fn new(body: Body, timeout: Duration) -> InTime {
        InTime { body, timeout: Box::pin(tokio::time::sleep_until(Instant::now() + timeout)) }
    }
}

impl HttpBody for InTime {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Poll::Pending if this.timeout.as_mut().poll(cx).is_ready() => {
                let problem =
                    Problem::new(Code::RequestTimeout, "the message did not come in time");
                Poll::Ready(Some(Err(Box::new(grpc::status(&problem)))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_digits_and_a_unit() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            timeout(&headers)
        };
        assert_eq!(of("100m").unwrap(), Some(Duration::from_millis(100)));
        assert_eq!(of("1H").unwrap(), Some(Duration::from_secs(3600)));
        assert_eq!(of("99999999H").unwrap(), None, "so far off that it is none");
        for wrong in ["", "m", "1", "123456789S", "-1S", "+1S", "1.5S", "1 S", "1s", "1Sm"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
    }
}
