//! The line to one member: HTTP/2, as gRPC wants it, made for few requests that are in a hurry.
//!
//! A request goes out in one write: its head, its message and its end. And etcd has to wait for the answers to its pings.
//! It measures its lines with them: one goes out with each message that comes in, unless the last is still unanswered.
//! That makes two writes, three reads and as many threads to wake, in the midst of every commit.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep};
use tonic::codegen::http::uri::{Authority, Parts, Scheme};
use tonic::codegen::http::{HeaderMap, Request, Response, Uri};
use tonic::codegen::{Body, Bytes, Service};

/// How much may be on its way to us.
const WINDOW_BYTES: u32 = 8 << 20;

/// How long etcd waits for the answer to a ping. Where it uses them to see whether we are alive, it waits for seconds.
const PONG_DELAY: Duration = Duration::from_millis(100);

/// The frame with the answer to a ping, but for what was asked.
const PONG: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];
const PONG_BYTES: usize = PONG.len() + 8;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub(super) struct Line {
    requests: SendRequest<Bytes>,
    scheme: Scheme,
    authority: Authority,
    driver: Arc<Driver>,
}

/// What reads and writes, as long as somebody has the line.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Line {
    /// Over a socket, or what protects one.
    pub(super) async fn over<T>(socket: T, scheme: Scheme, authority: Authority) -> io::Result<Line>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (requests, connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(Unhurried::new(socket))
            .await
            .map_err(io::Error::other)?;
        // Why it ended, each request hears for itself.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Line { requests, scheme, authority, driver: Arc::new(Driver(driver)) })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.driver.0.is_finished()
    }

    async fn ask(self, request: Request<tonic::body::Body>) -> Result<Response<Answer>, Failure> {
        let (mut head, message) = request.into_parts();
        let mut uri = Parts::default();
        uri.scheme = Some(self.scheme.clone());
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = head.uri.path_and_query().cloned();
        head.uri = Uri::from_parts(uri)?;
        let message = message.collect().await?.to_bytes();
        let mut requests = self.requests.clone().ready().await?;
        let (answer, mut rest) = requests.send_request(Request::from_parts(head, ()), false)?;
        rest.send_data(message, true)?;
        let (head, stream) = answer.await?.into_parts();
        Ok(Response::from_parts(head, Answer { stream, _line: self }))
    }
}

impl Service<Request<tonic::body::Body>> for Line {
    type Response = Response<Answer>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.clone().ask(request))
    }
}

/// The message of an answer, and what is said after it.
pub(super) struct Answer {
    stream: RecvStream,
    /// It is read as long as this is there.
    _line: Line,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let stream = &mut self.stream;
        match ready!(stream.poll_data(context)) {
            Some(Ok(bytes)) => {
                stream.flow_control().release_capacity(bytes.len())?;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            // It has what it wants and does not care for the rest.
            Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                let trailers: Option<HeaderMap> = ready!(stream.poll_trailers(context))?;
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
    }
}

/// Keeps answers to pings back for a while.
struct Unhurried<T> {
    inner: T,
    pongs: Vec<u8>,
    due: Pin<Box<Sleep>>,
    /// The first of them has been sent in part.
    is_sending: bool,
    /// The last write was done in part, so what comes next is no frame but the rest of one.
    is_within: bool,
}

impl<T: AsyncWrite + Unpin> Unhurried<T> {
    fn new(inner: T) -> Unhurried<T> {
        let due = Box::pin(sleep(Duration::ZERO));
        Unhurried { inner, pongs: Vec::new(), due, is_sending: false, is_within: false }
    }

    /// Takes the bytes if they are an answer to a ping and nothing else.
    fn keeps(&mut self, bytes: &[u8]) -> bool {
        let keeps = !self.is_within && bytes.len() == PONG_BYTES && bytes.starts_with(&PONG);
        if keeps {
            if self.pongs.is_empty() {
                self.due.as_mut().reset(Instant::now() + PONG_DELAY);
            }
            self.pongs.extend_from_slice(bytes);
        }
        keeps
    }

    /// Sends what has been kept for long enough.
    fn poll_pongs(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pongs.is_empty() || self.is_within {
            return Poll::Ready(Ok(()));
        }
        if !self.is_sending && self.due.as_mut().poll(context).is_pending() {
            return Poll::Ready(Ok(()));
        }
        while !self.pongs.is_empty() {
            let len = ready!(Pin::new(&mut self.inner).poll_write(context, &self.pongs))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pongs.drain(..len);
            self.is_sending = !self.pongs.is_empty();
        }
        Pin::new(&mut self.inner).poll_flush(context)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Unhurried<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = self.poll_pongs(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Unhurried<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pongs(context))?;
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if let [only] = slices
            && self.keeps(only)
        {
            return Poll::Ready(Ok(total));
        }
        let len = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, slices))?;
        self.is_within = len < total;
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;

    fn pong(asked: u8) -> [u8; PONG_BYTES] {
        let mut pong = [asked; PONG_BYTES];
        pong[..PONG.len()].copy_from_slice(&PONG);
        pong
    }

    async fn hear(other: &mut DuplexStream, len: usize) -> Vec<u8> {
        let mut heard = vec![0; len];
        other.read_exact(&mut heard).await.expect("it is said");
        heard
    }

    #[tokio::test(start_paused = true)]
    async fn answer_to_a_ping_waits_and_everything_else_does_not() {
        let (socket, mut etcd) = duplex(1 << 10);
        let mut line = Unhurried::new(socket);
        let began = Instant::now();
        line.write_all(&pong(7)).await.expect("it is taken");
        line.write_all(b"a request").await.expect("it is sent");
        assert_eq!(hear(&mut etcd, 9).await, b"a request");
        assert_eq!(began.elapsed(), Duration::ZERO);
        // Whoever reads sends it when its time has come, though nothing comes in.
        let mut byte = [0];
        assert!(timeout(PONG_DELAY * 2, line.read(&mut byte)).await.is_err());
        assert_eq!(hear(&mut etcd, PONG_BYTES).await, pong(7));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_pings_go_before_the_next_request_when_they_are_due() {
        let (socket, mut etcd) = duplex(1 << 10);
        let mut line = Unhurried::new(socket);
        line.write_all(&pong(1)).await.expect("it is taken");
        line.write_all(&pong(2)).await.expect("it is taken");
        sleep(PONG_DELAY).await;
        line.write_all(b"next").await.expect("it is sent");
        let wanted = [&pong(1)[..], &pong(2)[..], b"next"].concat();
        assert_eq!(hear(&mut etcd, wanted.len()).await, wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn rest_of_a_message_is_not_taken_for_an_answer_to_a_ping() {
        let (socket, mut etcd) = duplex(100);
        let mut line = Unhurried::new(socket);
        let message = [&[9; 100][..], &pong(3)[..]].concat();
        let (sent, heard) = tokio::join!(line.write_all(&message), hear(&mut etcd, message.len()));
        sent.expect("it is sent");
        assert_eq!(heard, message);
    }
}
