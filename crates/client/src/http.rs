//! Requests in JSON over HTTP.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::http::Uri;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioIo;
use leasehold_api::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_service::Service;

use crate::access::{Access, ConnectError, Io, Protocol};
use crate::error::Error;
use crate::machine::Failure;

/// Shorter than the server's: a connection that is about to be closed is not used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// No answer of the server is nearly as large.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Connections to one server, kept for the next request.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    server: String,
    access: Access,
    pool: Client<Dialler, Full<Bytes>>,
}

/// Makes the connections of the pool.
#[derive(Clone, Debug)]
struct Dialler {
    server: String,
    access: Access,
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<Io>;
    type Error = NoConnection;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Io>, NoConnection>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Dialler { server, access } = self.clone();
        Box::pin(async move {
            let connected = access.connect(&server, Protocol::Http1).await;
            connected.map(TokioIo::new).map_err(NoConnection)
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{}", .0.said)]
struct NoConnection(ConnectError);

/// One request before it is sent. Its body and its path may hold secrets.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// The trace that it is part of.
    pub(crate) traceparent: Option<HeaderValue>,
}

/// A whole answer. Its body may hold secrets.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn get(path: String) -> Ask {
        Ask { method: Method::GET, path, body: Bytes::new(), traceparent: None }
    }

    pub(crate) fn delete(path: String) -> Ask {
        Ask { method: Method::DELETE, path, body: Bytes::new(), traceparent: None }
    }

    pub(crate) fn post(path: String, body: &impl Serialize) -> Ask {
        let body = serde_json::to_vec(body).expect("a request has no keys that are not text");
        Ask { method: Method::POST, path, body: body.into(), traceparent: None }
    }
}

impl Ask {
    /// True if the same request may be sent again: it was not carried out, or it changes nothing.
    pub(crate) fn may_be_repeated(&self, answered: &Result<Answered, (Failure, String)>) -> bool {
        match answered {
            Err((Failure::Unsent, _)) => true,
            Err((Failure::Unknown, _)) => self.method == Method::GET,
            Ok(answered) if answered.is_success() => false,
            Ok(answered) => answered.problem().is_some_and(|p| p.code == Code::NotLeader),
        }
    }
}

impl Http {
    pub(crate) fn new(server: String, access: Access) -> Http {
        let dialler = Dialler { server: server.clone(), access: access.clone() };
        let pool = Client::builder(access.clone()).pool_idle_timeout(IDLE_TIMEOUT).build(dialler);
        Http { server, access, pool }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends, and waits until the answer begins. When the token is not taken and there is another one by now, it is sent again with
    /// that.
    pub(crate) async fn start(
        &self,
        ask: &Ask,
        accept: Option<&'static str>,
    ) -> Result<Response<Incoming>, (Failure, String)> {
        let Some(tokens) = self.access.tokens() else { return self.shown(ask, accept, None).await };
        let token = tokens.current();
        let answer = self.shown(ask, accept, Some(&token)).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        match tokens.newer_than(&token) {
            Some(token) => self.shown(ask, accept, Some(&token)).await,
            None => Ok(answer),
        }
    }

    async fn shown(
        &self,
        ask: &Ask,
        accept: Option<&'static str>,
        token: Option<&HeaderValue>,
    ) -> Result<Response<Incoming>, (Failure, String)> {
        let mut request =
            Request::builder().method(&ask.method).uri(format!("{}{}", self.server, ask.path));
        if !ask.body.is_empty() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(traceparent) = &ask.traceparent {
            request = request.header("traceparent", traceparent);
        }
        if let Some(accept) = accept {
            request = request.header(hyper::header::ACCEPT, HeaderValue::from_static(accept));
        }
        let request = request
            .body(Full::new(ask.body.clone()))
            .map_err(|error| (Failure::Unsent, error.to_string()))?;
        self.pool.request(request).await.map_err(|error| match connection_failure(&error) {
            Some(error) => (Failure::Unsent, error.said.clone()),
            None if error.is_connect() => (Failure::Unsent, self.said(&error)),
            None => (Failure::Unknown, self.said(&error)),
        })
    }

    fn said(&self, error: &dyn std::error::Error) -> String {
        format!("{}: {}", self.server, with_causes(error))
    }

    /// Sends one after the other, and says what came of the first that was refused, or else of the last.
    pub(crate) async fn send_each(&self, asks: &[Ask]) -> Result<Answered, (Failure, String)> {
        let mut refused = None;
        for (number, ask) in asks.iter().enumerate() {
            let answered = self.send(ask).await?;
            if number + 1 == asks.len() && refused.is_none() {
                return Ok(answered);
            }
            if !answered.is_success() && refused.is_none() {
                refused = Some(answered);
            }
        }
        refused.ok_or_else(|| (Failure::Unsent, "there was nothing to ask".into()))
    }

    pub(crate) async fn send(&self, ask: &Ask) -> Result<Answered, (Failure, String)> {
        let answer = self.start(ask, None).await?;
        let status = answer.status();
        let body = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|error| (Failure::Unknown, error.to_string()))?;
        Ok(Answered { status, body: body.to_bytes() })
    }
}

/// The reason why no connection was made, if that is what the error is about.
fn connection_failure<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a ConnectError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(NoConnection(error)) = error.downcast_ref() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        said = format!("{said}: {deeper}");
        cause = deeper.source();
    }
    said
}

impl Answered {
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// Decodes the answer, or the refusal.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if !self.is_success() {
            return Err(self.refusal());
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::unanswered(format!("the answer cannot be read: {error}")))
    }

    pub(crate) fn refusal(&self) -> Error {
        match self.problem() {
            Some(problem) => Error::Refused(problem),
            None => Error::unanswered("the answer is not from a Leasehold server"),
        }
    }

    pub(crate) fn problem(&self) -> Option<Box<Problem>> {
        let said = serde_json::from_slice(&self.body).ok();
        // A proxy in front of the server need not answer as it does.
        let denied = match self.status {
            StatusCode::UNAUTHORIZED => Some(Code::Unauthenticated),
            StatusCode::FORBIDDEN => Some(Code::PermissionDenied),
            _ => None,
        };
        let denied =
            || denied.map(|code| Problem::new(code, format!("the answer is {}", self.status)));
        said.or_else(denied).map(Box::new)
    }
}
