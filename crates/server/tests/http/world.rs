//! A real server on a free port, and a small client that speaks to it over a socket.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_server::{AccessLog, Config, Server, Store};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::polling::eventually;

/// Nothing here takes longer unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!(matches!(self.status, 200 | 201), "{self:?}");
        self.json()
    }

    /// A problem with this code, told in full.
    #[track_caller]
    pub(crate) fn problem(&self, code: &str) -> Value {
        let problem = self.json();
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"), "{self:?}");
        assert_eq!(problem["type"], format!("urn:leasehold:problem:{code}"));
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
        assert!(matches!(problem["outcome"].as_str(), Some("not_applied" | "unknown")));
        problem
    }
}

/// Picks the bug that `cargo xtask planted` names, in a build that has them.
pub(crate) fn plant() {
    #[cfg(feature = "planted")]
    if let Ok(name) = std::env::var("LEASEHOLD_PLANTED") {
        leasehold_core::planted::activate(&name);
    }
}

pub(crate) fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: Store::Memory,
        access_log: AccessLog::Off,
        ..Config::default()
    }
}

impl World {
    pub(crate) async fn start() -> World {
        World::with(config()).await
    }

    pub(crate) async fn with(config: Config) -> World {
        plant();
        let server = Server::start(config).await.unwrap();
        let address = server.address();
        World { server, address }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], Some(body)).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Reply {
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        } else {
            text.push_str("\r\n");
        }
        self.raw(text.as_bytes()).await
    }

    /// Sends exactly these bytes, and reads until the server closes.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        // A server that has seen enough may close before everything is sent.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let reading = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(PATIENCE, reading).await.expect("an answer comes in time");
        parse(&answer)
    }

    /// What must not change when a request is refused.
    pub(crate) async fn state(&self) -> (Value, Value) {
        let mut locks = self.get("/v1/locks").await.ok();
        for lock in locks["locks"].as_array_mut().unwrap() {
            for holder in lock["holders"].as_array_mut().unwrap() {
                holder["expires_in_ms"] = Value::Null;
            }
        }
        (locks, self.get("/v1/cluster").await.ok())
    }

    /// Acquires, and says with which lease and token.
    pub(crate) async fn acquire(&self, lock: &str, owner: &str) -> (String, u64) {
        let body = format!(r#"{{"owner_id":"{owner}","ttl_ms":30000}}"#);
        let grant = self.post(&format!("/v1/locks/{lock}/acquire"), &body).await.ok();
        let lease = grant["lease_id"].as_str().unwrap().to_string();
        (lease, grant["fencing_token"].as_u64().unwrap())
    }

    pub(crate) async fn release(&self, lock: &str, owner: &str, lease: &str, token: u64) -> Reply {
        let body =
            format!(r#"{{"owner_id":"{owner}","lease_id":"{lease}","fencing_token":{token}}}"#);
        self.post(&format!("/v1/locks/{lock}/release"), &body).await
    }

    /// Waits until so many requests stand in queues.
    pub(crate) async fn wait_for_waiters(&self, number: u64) {
        let waiters = async || self.get("/v1/cluster").await.ok()["waiters"] == number;
        eventually(&format!("{number} waiters"), waiters).await;
    }

    /// Waits until the server has let go of every connection but the one it is asked on.
    pub(crate) async fn wait_until_alone(&self) {
        let open = r#"leasehold_connections_active_count{adapter="http"}"#;
        eventually("nobody else is connected", async || self.sample(open).await < 1.5).await;
    }

    /// Waits until the lease that it is held under is over.
    pub(crate) async fn wait_until_free(&self, lock: &str) {
        let path = format!("/v1/locks/{lock}");
        eventually("it is free", async || self.get(&path).await.ok()["state"] == "free").await;
    }

    /// The value of one sample.
    pub(crate) async fn sample(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await.text;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    }
}

/// A POST that may have to wait for its answer, for a task of its own.
pub(crate) async fn post_to(address: SocketAddr, path: &str, body: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let length = body.len();
    let text =
        format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    parse(&answer)
}

fn parse(bytes: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
        .collect();
    let reply = Reply { status, headers, text: String::new() };
    let is_chunked = reply.header("transfer-encoding") == Some("chunked");
    let text = if is_chunked { unchunked(body) } else { body.to_string() };
    Reply { text, ..reply }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((len, rest)) = body.split_once("\r\n") {
        let len = usize::from_str_radix(len, 16).unwrap_or(0);
        let Some(chunk) = rest.get(..len).filter(|_| len > 0) else { break };
        text.push_str(chunk);
        body = rest.get(len + 2..).unwrap_or("");
    }
    text
}
