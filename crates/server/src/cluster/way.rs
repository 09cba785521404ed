//! A connection to another server, with TLS or without.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tower_service::Service;

use crate::net::tls::Tls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The log says so once in so long.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Makes connections to other servers.
#[derive(Clone, Debug)]
pub(super) struct Way {
    tcp: HttpConnector,
    tls: Option<Arc<Tls>>,
    is_http2: bool,
    /// When the log last said that there is no getting through.
    said: Arc<Mutex<Option<Instant>>>,
}

impl Way {
    pub(super) fn new(tls: Option<Arc<Tls>>) -> Way {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.enforce_http(false);
        Way { tcp, tls, is_http2: false, said: Arc::default() }
    }

    /// The same for requests in HTTP/2.
    pub(super) fn for_http2(&self) -> Way {
        Way { is_http2: true, ..self.clone() }
    }

    /// Why a leader is not forwarded to is in the log of who forwards, and nowhere else.
    fn note(&self, to: &Uri, error: &io::Error) {
        let mut said = self.said.lock();
        if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            *said = Some(Instant::now());
            tracing::warn!(leader = %to, %error, "a leader cannot be spoken to over TLS");
        }
    }
}

impl Service<Uri> for Way {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_ready(cx).map_err(io::Error::other)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.tcp.call(to.clone());
        let way = self.clone();
        Box::pin(async move {
            let tcp = connecting.await.map_err(io::Error::other)?.into_inner();
            if to.scheme() != Some(&Scheme::HTTPS) {
                return Ok(Stream(TokioIo::new(Either::Left(tcp))));
            }
            let secured = tokio::time::timeout(HANDSHAKE_TIMEOUT, way.secure(tcp, &to)).await;
            let secured = secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            secured.inspect_err(|error| way.note(&to, error))
        })
    }
}

impl Way {
    async fn secure(&self, tcp: TcpStream, to: &Uri) -> io::Result<Stream> {
        let config = self.tls.as_ref().and_then(|tls| tls.client(self.is_http2));
        let config = config.ok_or(io::ErrorKind::Unsupported)?;
        let host = to.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let secured = TlsConnector::from(config).connect(name, tcp).await?;
        Ok(Stream(TokioIo::new(Either::Right(Box::new(secured)))))
    }
}

/// A connection to another server.
#[derive(Debug)]
pub(super) struct Stream(TokioIo<Either<TcpStream, Box<TlsStream<TcpStream>>>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
