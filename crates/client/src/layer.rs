//! A layer for HTTP services: a request with a stale `X-Fencing-Token` is answered with 412 and never reaches them.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::http::{HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::fence::{Fence, Stale};

/// The header that carries the token.
pub const FENCING_TOKEN: &str = "x-fencing-token";

/// Puts a fence before a service.
///
/// One mark is kept for each resource; which one a request is about is for the service to say, the path if it says
/// nothing. Requests without the header pass unless it is [`required`](FenceLayer::required).
///
/// The mark lives in this process. It stops stale requests that arrive late, which is what a paused writer sends; a
/// service that runs in several processes keeps its mark where its data is, see [`sql`](crate::sql).
///
/// ```
/// use axum::Router;
/// use axum::routing::put;
/// use leasehold_client::FenceLayer;
///
/// let service: Router =
///     Router::new().route("/document", put(|| async {})).layer(FenceLayer::new().required());
/// ```
#[derive(Clone)]
pub struct FenceLayer {
    marks: Arc<Marks>,
    resource: Resource,
    is_required: bool,
}

type Resource = Arc<dyn Fn(&hyper::http::request::Parts) -> String + Send + Sync>;

#[derive(Debug, Default)]
struct Marks(Mutex<HashMap<String, Fence>>);

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer").field("marks", &self.marks).finish_non_exhaustive()
    }
}

impl Default for FenceLayer {
    fn default() -> FenceLayer {
        FenceLayer::new()
    }
}

impl FenceLayer {
    /// A mark for each path.
    pub fn new() -> FenceLayer {
        FenceLayer {
            marks: Arc::default(),
            resource: Arc::new(|request| request.uri.path().to_string()),
            is_required: false,
        }
    }

    /// A mark for each of what `resource` says.
    pub fn by(
        resource: impl Fn(&hyper::http::request::Parts) -> String + Send + Sync + 'static,
    ) -> FenceLayer {
        FenceLayer { resource: Arc::new(resource), ..FenceLayer::new() }
    }

    /// Refuses requests without a token, too.
    #[must_use]
    pub fn required(mut self) -> FenceLayer {
        self.is_required = true;
        self
    }

    fn check(&self, request: &hyper::http::request::Parts) -> Result<(), Refused> {
        let Some(given) = request.headers.get(FENCING_TOKEN) else {
            return if self.is_required { Err(Refused::Missing) } else { Ok(()) };
        };
        let token =
            given.to_str().ok().and_then(|text| text.parse().ok()).ok_or(Refused::Unread)?;
        let mut marks = self.marks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = marks.entry((self.resource)(request)).or_default();
        mark.accept(token).map_err(Refused::Stale)
    }
}

enum Refused {
    Stale(Stale),
    Missing,
    Unread,
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { layer: self.clone(), inner }
    }
}

/// A service behind a fence.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    layer: FenceLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Answer<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.layer.check(&parts) {
            Ok(()) => Answer::Passed(Box::pin(self.inner.call(Request::from_parts(parts, body)))),
            Err(refused) => Answer::Refused(Some(refused.response())),
        }
    }
}

impl Refused {
    fn response<R: From<String>>(&self) -> Response<R> {
        let (status, code, detail, high_water) = match self {
            Refused::Stale(stale) => {
                let mark = format!(",\"high_water\":{}", stale.high_water);
                (StatusCode::PRECONDITION_FAILED, "stale_fence", stale.to_string(), mark)
            }
            Refused::Missing => {
                let said = format!("the header {FENCING_TOKEN} is missing");
                (StatusCode::PRECONDITION_REQUIRED, "invalid_request", said, String::new())
            }
            Refused::Unread => {
                let said = format!("the header {FENCING_TOKEN} is not a number");
                (StatusCode::BAD_REQUEST, "invalid_request", said, String::new())
            }
        };
        let body = format!(
            "{{\"status\":{},\"code\":\"{code}\",\"detail\":\"{detail}\",\"outcome\":\"not_applied\"{high_water}}}",
            status.as_u16()
        );
        let mut response = Response::new(R::from(body));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
        response
    }
}

/// The answer of a fenced service.
#[derive(Debug)]
pub enum Answer<F, R> {
    Passed(Pin<Box<F>>),
    Refused(Option<Response<R>>),
}

// Nothing in it is pinned by its own address: the future is behind a pointer.
impl<F, R> Unpin for Answer<F, R> {}

impl<F, R, E> Future for Answer<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Answer::Passed(inner) => Poll::Ready(ready!(inner.as_mut().poll(cx))),
            Answer::Refused(response) => {
                Poll::Ready(Ok(response.take().expect("a finished future is not asked again")))
            }
        }
    }
}
