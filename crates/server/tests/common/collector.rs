//! A collector of OpenTelemetry that takes OTLP in JSON over HTTP, as far as the tests look at it.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<Value>>>);

impl Collector {
    pub(crate) async fn start() -> (Collector, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Collector::default();
        let taking = collector.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                taking.take(connection).await;
            }
        });
        (collector, address)
    }

    /// One batch, as OTLP over HTTP has it.
    async fn take(&self, connection: TcpStream) {
        let mut reader = BufReader::new(connection);
        let (mut len, mut line) = (0, String::new());
        reader.read_line(&mut line).await.unwrap();
        assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).await.unwrap();
            if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = said.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
        reader.get_mut().write_all(answer).await.unwrap();
        let batch: Value = serde_json::from_slice(&body).unwrap();
        let resource = batch["resourceSpans"][0]["resource"]["attributes"].to_string();
        assert!(resource.contains("\"stringValue\":\"leasehold\""), "{resource}");
        let spans = batch["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        self.0.lock().await.extend(spans.iter().cloned());
    }

    pub(crate) async fn all(&self) -> Vec<Value> {
        self.0.lock().await.clone()
    }

    /// The span of this name in this trace.
    pub(crate) async fn find(&self, trace: &str, name: &str) -> Option<Value> {
        let mut spans = self.all().await.into_iter();
        spans.find(|span| span["traceId"] == trace && span["name"] == name)
    }
}

/// What a span tells under a name, or null.
pub(crate) fn attribute<'a>(span: &'a Value, name: &str) -> &'a Value {
    let mut all = span["attributes"].as_array().unwrap().iter();
    let found = all.find(|one| one["key"] == name);
    found.map_or(&Value::Null, |one| &one["value"]["stringValue"])
}
