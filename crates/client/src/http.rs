//! Requests in JSON over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leasehold_api::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::machine::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Shorter than the server's: a connection that is about to be closed is not used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// No answer of the server is nearly as large.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Connections to one server, kept for the next request.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    server: String,
    pool: Client<HttpConnector, Full<Bytes>>,
}

/// One request before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) is_success: bool,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn get(path: String) -> Ask {
        Ask { method: Method::GET, path, body: Bytes::new() }
    }

    pub(crate) fn delete(path: String) -> Ask {
        Ask { method: Method::DELETE, path, body: Bytes::new() }
    }

    pub(crate) fn post(path: String, body: &impl Serialize) -> Ask {
        let body = serde_json::to_vec(body).expect("a request has no keys that are not text");
        Ask { method: Method::POST, path, body: body.into() }
    }
}

impl Ask {
    /// Whether the same request may be sent again: it was not carried out, or it changes nothing.
    pub(crate) fn may_be_repeated(&self, answered: &Result<Answered, (Failure, String)>) -> bool {
        match answered {
            Err((Failure::Unsent, _)) => true,
            Err((Failure::Unknown, _)) => self.method == Method::GET,
            Ok(answered) if answered.is_success => false,
            Ok(answered) => answered.problem().is_some_and(|p| p.code == Code::NotLeader),
        }
    }
}

impl Http {
    pub(crate) fn new(server: String) -> Http {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let pool =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE_TIMEOUT).build(connector);
        Http { server, pool }
    }

    /// Sends, and waits until the answer begins.
    pub(crate) async fn start(
        &self,
        ask: &Ask,
        accept: Option<&'static str>,
    ) -> Result<Response<Incoming>, (Failure, String)> {
        let mut request =
            Request::builder().method(&ask.method).uri(format!("{}{}", self.server, ask.path));
        if !ask.body.is_empty() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(accept) = accept {
            request = request.header(hyper::header::ACCEPT, HeaderValue::from_static(accept));
        }
        let request = request
            .body(Full::new(ask.body.clone()))
            .map_err(|error| (Failure::Unsent, error.to_string()))?;
        self.pool.request(request).await.map_err(|error| {
            let failure = if error.is_connect() { Failure::Unsent } else { Failure::Unknown };
            (failure, format!("{}: {}", self.server, with_causes(&error)))
        })
    }

    pub(crate) async fn send(&self, ask: &Ask) -> Result<Answered, (Failure, String)> {
        let answer = self.start(ask, None).await?;
        let is_success = answer.status().is_success();
        let body = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|error| (Failure::Unknown, error.to_string()))?;
        Ok(Answered { is_success, body: body.to_bytes() })
    }
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
    /// What was asked for, or why not.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if !self.is_success {
            return Err(self.refusal());
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::unanswered(format!("the answer cannot be read: {error}")))
    }

    pub(crate) fn refusal(&self) -> Error {
        match self.problem() {
            Some(problem) => Error::Refused(problem),
            None => Error::unanswered("something that is no Leasehold server answered"),
        }
    }

    pub(crate) fn problem(&self) -> Option<Box<Problem>> {
        serde_json::from_slice(&self.body).ok().map(Box::new)
    }
}
