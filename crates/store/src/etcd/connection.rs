//! An HTTP/2 connection to one member, as gRPC wants it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response, Uri};

/// The HTTP/2 window: the most bytes on their way to us.
const WINDOW_BYTES: u32 = 8 << 20;

/// Clones are the same connection, which ends with the last of them.
#[derive(Clone)]
pub(super) struct Connection {
    requests: SendRequest<Body>,
    /// Scheme and authority of the member.
    pub(super) origin: Uri,
}

impl Connection {
    /// Over a socket, or what protects one.
    pub(super) async fn over<T>(socket: T, origin: Uri) -> io::Result<Connection>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (requests, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(io::Error::other)?;
        // Why it ended, each request hears for itself.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { requests, origin })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.requests.send_request(request))
    }
}
