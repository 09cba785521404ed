//! Spans on their way to the collector: batches, in the JSON of OTLP over HTTP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leasehold_api::Code;
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, watch};

use super::TraceContext;
use crate::service::caller::{Caller, Transport};

const PATH: &str = "/v1/traces";
const BATCH_LEN_MAX: usize = 512;
/// The time that the first span of a batch waits for others.
const GATHERING: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(5);
/// The numbers of OTLP for kinds of spans and for their status.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// One span that is over.
#[derive(Debug)]
pub(super) struct Span {
    name: &'static str,
    context: TraceContext,
    parent: u64,
    began: SystemTime,
    took: Duration,
    is_of_request: bool,
    is_failure: bool,
    attributes: Vec<(&'static str, Value)>,
    pub(super) links: Vec<TraceContext>,
}

#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    Number(u64),
}

impl Value {
    pub(super) fn millis(length: Duration) -> Value {
        Value::Number(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Span {
    pub(super) fn new(
        name: &'static str,
        context: TraceContext,
        parent: u64,
        began: SystemTime,
        took: Duration,
    ) -> Span {
        let (attributes, links) = (Vec::new(), Vec::new());
        let (is_of_request, is_failure) = (false, false);
        Span { name, context, parent, began, took, is_of_request, is_failure, attributes, links }
    }

    pub(super) fn set(&mut self, name: &'static str, value: Value) {
        self.attributes.push((name, value));
    }

    /// Adds what all spans of requests tell. An expected "no" is an answer, not a failure.
    pub(super) fn describe(&mut self, caller: &Caller, outcome: Result<(), Code>) {
        self.is_of_request = true;
        self.is_failure = outcome.is_err_and(|code| code.http_status() >= 500);
        let result = outcome.map_or_else(Code::as_str, |()| "ok");
        let system = match caller.transport {
            Transport::Http => "http",
            Transport::Grpc => "grpc",
        };
        self.set("leasehold.result", Value::Text(result.into()));
        self.set("network.protocol.name", Value::Text(system.into()));
        self.set("leasehold.request_id", Value::Text(caller.request_id.to_string()));
    }

    fn json(&self) -> Json {
        let nanos = |at: SystemTime| {
            at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
        };
        let links = self.links.iter().map(|link| {
            json!({
                "traceId": format!("{:032x}", link.trace),
                "spanId": format!("{:016x}", link.span),
            })
        });
        json!({
            "traceId": format!("{:032x}", self.context.trace),
            "spanId": format!("{:016x}", self.context.span),
            "parentSpanId": format!("{:016x}", self.parent),
            "name": self.name,
            "kind": if self.is_of_request { SERVER } else { INTERNAL },
            "startTimeUnixNano": nanos(self.began),
            "endTimeUnixNano": nanos(self.began + self.took),
            "attributes": attributes(&self.attributes),
            "links": links.collect::<Vec<_>>(),
            "status": if self.is_failure { json!({ "code": ERROR }) } else { json!({}) },
        })
    }
}

fn attributes(all: &[(&'static str, Value)]) -> Json {
    let one = |(name, value): &(&'static str, Value)| {
        let value = match value {
            Value::Text(text) => json!({ "stringValue": text }),
            // A 64-bit number is text in JSON.
            Value::Number(number) => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": name, "value": value })
    };
    all.iter().map(one).collect()
}

/// Sends what has gathered.
#[derive(Debug)]
pub(super) struct Exporter {
    url: String,
    resource: Json,
    client: Client<HttpConnector, Full<Bytes>>,
    /// The number of spans that found no room.
    lost: watch::Receiver<u64>,
    is_away: bool,
}

impl Exporter {
    pub(super) fn new(endpoint: &str, instance: &str, lost: watch::Receiver<u64>) -> Exporter {
        let resource = attributes(&[
            ("service.name", Value::Text("leasehold".into())),
            ("service.version", Value::Text(env!("CARGO_PKG_VERSION").into())),
            ("service.instance.id", Value::Text(instance.into())),
        ]);
        let client = Client::builder(TokioExecutor::new()).build_http();
        let url = format!("{}{PATH}", endpoint.trim_end_matches('/'));
        Exporter { url, resource, client, lost, is_away: false }
    }

    pub(super) async fn run(
        mut self,
        mut waiting: mpsc::Receiver<Span>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut batch = Vec::new();
        loop {
            let is_over = tokio::select! {
                first = waiting.recv() => match first {
                    Some(first) => {
                        batch.push(first);
                        let others = gather(&mut waiting, &mut batch);
                        tokio::time::timeout(GATHERING, others).await.is_ok_and(|more| !more)
                    }
                    None => true,
                },
                _ = stopped.changed() => {
                    while batch.len() < BATCH_LEN_MAX && let Ok(span) = waiting.try_recv() {
                        batch.push(span);
                    }
                    true
                }
            };
            self.send(&mut batch).await;
            if is_over {
                return;
            }
        }
    }

    /// A batch that is not taken is lost: traces are no ledger.
    async fn send(&mut self, batch: &mut Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let spans: Vec<Json> = batch.drain(..).map(|span| span.json()).collect();
        let fault = match tokio::time::timeout(TIMEOUT, self.post(&spans)).await {
            Ok(posted) => posted.err(),
            Err(_) => Some("no answer in time".into()),
        };
        let (url, lost) = (self.url.as_str(), *self.lost.borrow_and_update());
        match &fault {
            Some(fault) if !self.is_away => {
                tracing::warn!(url, lost, "the collector takes no traces: {fault}");
            }
            None if self.is_away => tracing::info!(url, lost, "the collector takes traces again"),
            Some(_) | None => {}
        }
        self.is_away = fault.is_some();
    }

    async fn post(&self, spans: &[Json]) -> Result<(), String> {
        let scope = json!({ "name": "leasehold", "version": env!("CARGO_PKG_VERSION") });
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": self.resource },
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }] });
        let request = Request::post(&self.url).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| error.to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answers {status}")),
        }
    }
}

/// Adds what comes; false when nothing more ever will.
async fn gather(waiting: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) -> bool {
    while batch.len() < BATCH_LEN_MAX {
        match waiting.recv().await {
            Some(span) => batch.push(span),
            None => return false,
        }
    }
    true
}
