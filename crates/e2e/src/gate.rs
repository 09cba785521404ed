//! Somebody at the door: lets in who shows the right token, and sends the others away.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use leasehold_client::wire::{Code, Problem};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

type Body = BoxBody<Bytes, hyper::Error>;

/// A door before a server, until this is dropped.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    token: Arc<Mutex<String>>,
    accepting: JoinHandle<()>,
}

/// What is said to those who are sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Nothing but a status: who stands before a server need not speak as it does.
    Unauthorized,
    Forbidden,
    /// Another server leads, as a server of ours says it.
    NotLeader(SocketAddr),
}

#[derive(Debug)]
struct Door {
    server: SocketAddr,
    token: Arc<Mutex<String>>,
    away: Away,
    http1: Client<HttpConnector, Incoming>,
    http2: Client<HttpConnector, Incoming>,
}

impl Gate {
    pub async fn before(server: SocketAddr, token: &str, away: Away) -> Result<Gate> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let client = |http2| {
            Client::builder(TokioExecutor::new()).http2_only(http2).build(HttpConnector::new())
        };
        let (http1, http2) = (client(false), client(true));
        let token = Arc::new(Mutex::new(token.to_owned()));
        let door = Arc::new(Door { server, token: token.clone(), away, http1, http2 });
        let accepting = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let door = door.clone();
                drop(tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let door = door.clone();
                        async move { door.answer(request).await }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(caller), service).await;
                }));
            }
        });
        Ok(Gate { address, token, accepting })
    }

    /// From now on this token is the right one. Requests that were let in go on.
    pub fn rotate(&self, token: &str) {
        *self.token.lock() = token.to_owned();
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let shown = request.headers().get(AUTHORIZATION).map(|shown| shown.as_bytes());
        let right = format!("Bearer {}", self.token.lock());
        if shown == Some(right.as_bytes()) {
            let answer = self.pass(request).await?;
            return Ok(answer.map(BodyExt::boxed));
        }
        let (status, said) = match self.away {
            Away::Unauthorized => (StatusCode::UNAUTHORIZED, String::new()),
            Away::Forbidden => (StatusCode::FORBIDDEN, String::new()),
            Away::NotLeader(leader) => {
                let mut problem = Problem::new(Code::NotLeader, "another server leads");
                problem.leader = Some(format!("http://{leader}"));
                (StatusCode::SERVICE_UNAVAILABLE, serde_json::to_string(&problem)?)
            }
        };
        let body = Full::from(said).map_err(|never| match never {}).boxed();
        Ok(Response::builder().status(status).body(body)?)
    }

    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>> {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(Authority::try_from(self.server.to_string())?);
        *request.uri_mut() = Uri::from_parts(parts)?;
        let client = if request.version() == Version::HTTP_2 { &self.http2 } else { &self.http1 };
        Ok(client.request(request).await?)
    }
}
