//! hyper refuses by itself what it cannot read as HTTP/1.1, with a status and nothing else. Here such a refusal gets the
//! shape of all the others on its way out.
//!
//! It is told from an answer of ours by what it lacks: every answer of ours carries the id of its request. Only the first
//! bytes of a response are looked at: as long as any byte of an answer of ours may still be on its way, nothing is
//! replaced, whatever the bytes look like. In HTTP/2 the same is not possible: there it is frames that go out, and what
//! cannot be read as a request has no stream to answer on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_api::{Code, Problem};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::connection::Connection;
use crate::service::random;

/// A stream whose bare refusals are dressed.
#[derive(Debug)]
pub(crate) struct ProblemRewriter<S> {
    stream: S,
    connection: Arc<Connection>,
    /// The problem that goes out in place of a bare refusal, and how much of it is out.
    instead: Vec<u8>,
    out: usize,
}

impl<S> ProblemRewriter<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> ProblemRewriter<S> {
        ProblemRewriter { stream, connection, instead: Vec::new(), out: 0 }
    }

    /// The code of a bare refusal that begins here.
    fn refusal(&self, bytes: &[u8]) -> Option<Code> {
        if self.connection.is_between_responses() { refusal(bytes) } else { None }
    }
}

impl<S: AsyncWrite + Unpin> ProblemRewriter<S> {
    /// Writes what is left of a refusal.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out < self.instead.len() {
            let rest = &self.instead[self.out..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(len)) => self.out += len,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn is_refusal(&mut self, bytes: &[u8]) -> bool {
        let Some(code) = self.refusal(bytes) else { return false };
        self.instead = dressed(code);
        self.out = 0;
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ProblemRewriter<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProblemRewriter<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.poll_rest(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        if this.is_refusal(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.first().is_some_and(|first| self.refusal(first).is_some()) {
            return self.poll_write(cx, &bufs[0]);
        }
        let this = self.get_mut();
        match this.poll_rest(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.stream).poll_write_vectored(cx, bufs),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.poll_rest(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.stream).poll_flush(cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.poll_rest(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.stream).poll_shutdown(cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The problem that a bare refusal stands for.
fn refusal(bytes: &[u8]) -> Option<Code> {
    let rest = bytes.strip_prefix(b"HTTP/1.1 4").or_else(|| bytes.strip_prefix(b"HTTP/1.0 4"))?;
    if bytes.windows(REQUEST_ID.len()).any(|part| part == REQUEST_ID) {
        return None;
    }
    match rest.get(..2)? {
        b"00" => Some(Code::InvalidRequest),
        b"14" => Some(Code::UriTooLong),
        b"31" => Some(Code::HeaderTooLarge),
        _ => None,
    }
}

const REQUEST_ID: &[u8] = b"\r\nx-request-id: ";

fn dressed(code: Code) -> Vec<u8> {
    let mut problem = Problem::new(code, detail(code));
    problem.request_id = format!("{:016x}", random::number());
    let body = serde_json::to_string(&problem).expect("a problem is plain data");
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\nx-request-id: {}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        problem.status,
        reason(code),
        problem.request_id,
        body.len()
    );
    (head + &body).into_bytes()
}

fn detail(code: Code) -> &'static str {
    if code == Code::HeaderTooLarge {
        "there are more than 64 headers, or more than 16 KiB of them"
    } else if code == Code::UriTooLong {
        "the URI is too long"
    } else {
        "not an HTTP/1.1 request"
    }
}

fn reason(code: Code) -> &'static str {
    if code == Code::HeaderTooLarge {
        "Request Header Fields Too Large"
    } else if code == Code::UriTooLong {
        "URI Too Long"
    } else {
        "Bad Request"
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use axum::http::{Request, Response};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::net::connection::MeteredIo;
    use crate::net::request::Kept;
    use crate::telemetry::metrics::Metrics;

    /// The bytes that come back over a connection whose every write stops after `room` bytes.
    async fn answers(room: usize, body: &'static str, requests: &[u8]) -> String {
        let (mut client, server) = tokio::io::duplex(room);
        let connection = Arc::new(Connection::new(Arc::new(Metrics::new("0"))));
        let watched = MeteredIo::new(server, connection.clone());
        let io = TokioIo::new(ProblemRewriter::new(watched, connection.clone()));
        let service = service_fn(move |_: Request<Incoming>| {
            let answering = Some(connection.answering());
            let response = Response::builder().header("x-request-id", "1").body(Body::from(body));
            let response = response
                .expect("a plain response")
                .map(|body| Body::new(Kept { body, in_flight: None, answering, permit: None }));
            async move { Ok::<_, Infallible>(response) }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let serving = builder.serve_connection(io, service);
        let asking = async {
            client.write_all(requests).await.expect("the server reads");
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).await.expect("the server answers");
            String::from_utf8(answers).expect("text")
        };
        tokio::join!(serving, asking).1
    }

    #[tokio::test]
    async fn bytes_of_a_body_are_never_replaced_however_they_are_cut() {
        const LOOKALIKE: &str = "HTTP/1.1 400 Bad Request\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n";
        for room in 10..100 {
            let asked = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
            let said = answers(room, LOOKALIKE, asked).await;
            let (_, body) = said.split_once("\r\n\r\n").expect("a head and a body");
            assert_eq!(body, LOOKALIKE, "{room}");
        }
    }

    #[test]
    fn only_refusals_without_a_request_id_are_bare() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(refusal(bare), Some(Code::HeaderTooLarge));
        assert_eq!(refusal(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Some(Code::InvalidRequest));
        let ours = b"HTTP/1.1 400 Bad Request\r\nx-request-id: 12\r\ncontent-length: 9\r\n\r\n{";
        assert_eq!(refusal(ours), None);
        assert_eq!(refusal(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), None);
        assert_eq!(refusal(b"HTTP/1.1 4"), None);
    }
}
