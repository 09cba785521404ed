//! One connection: what is known about it, and how long it may take.
//!
//! hyper's own header timeout would also close a connection that is merely idle, and a connection that never says which
//! HTTP it speaks has no timeout at all. So the bytes are watched on their way in: the clock of a header runs from its
//! first byte, the clock of the first header from the start.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed, Release},
};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::net::scan::RequestScan;
use crate::service::delivery::DeliveryGuard;
use crate::telemetry::metrics::Metrics;

/// A peer that does not take its answer for so long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A clock that starts meanwhile is noticed this late at the latest.
const LOOK_AGAIN_MS: u64 = 1000;

/// The state of one connection. Times are milliseconds since it began, 0 for "not now".
#[derive(Debug)]
pub(crate) struct Connection {
    began: Instant,
    in_flight: AtomicU32,
    is_http2: AtomicBool,
    header_since: AtomicU64,
    last_busy: AtomicU64,
    write_blocked_since: AtomicU64,
    /// A header had both a Content-Length and a Transfer-Encoding: the way to smuggle a second request.
    is_ambiguous: AtomicBool,
    /// It has spoken gRPC; then it counts as a connection of that.
    is_grpc: AtomicBool,
    metrics: Arc<Metrics>,
    /// Answers in HTTP/1.1 that are not completely handed to hyper.
    answering: AtomicU32,
    /// No byte of an answer of ours is on its way.
    is_between_responses: AtomicBool,
    has_to_flush: AtomicBool,
    /// The grants of replies whose bytes are not flushed yet. They are taken back if the connection ends like this.
    to_flush: Mutex<Vec<DeliveryGuard>>,
}

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) header: Duration,
    pub(crate) idle: Duration,
}

impl Connection {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Connection {
        metrics.connection_opened("http");
        Connection {
            began: Instant::now(),
            in_flight: AtomicU32::new(0),
            is_http2: AtomicBool::new(false),
            // The first header is awaited from now on.
            header_since: AtomicU64::new(1),
            last_busy: AtomicU64::new(1),
            write_blocked_since: AtomicU64::new(0),
            is_ambiguous: AtomicBool::new(false),
            is_grpc: AtomicBool::new(false),
            metrics,
            answering: AtomicU32::new(0),
            is_between_responses: AtomicBool::new(true),
            has_to_flush: AtomicBool::new(false),
            to_flush: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// A request has begun; it ends when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Connection>, is_http2: bool) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.header_since.store(0, Relaxed);
        self.is_http2.store(is_http2, Relaxed);
        InFlight(self.clone())
    }

    /// An answer in HTTP/1.1 is being made; its last byte is handed to hyper when the guard is dropped.
    pub(crate) fn answering(self: &Arc<Connection>) -> Answering {
        self.answering.fetch_add(1, Relaxed);
        self.is_between_responses.store(false, Relaxed);
        Answering(self.clone())
    }

    /// Whether the next byte that goes out is the first one of a response.
    pub(crate) fn is_between_responses(&self) -> bool {
        self.is_between_responses.load(Relaxed)
    }

    /// It speaks gRPC.
    pub(crate) fn note_grpc(&self) {
        if !self.is_grpc.swap(true, Relaxed) {
            self.metrics.connection_closed("http");
            self.metrics.connection_opened("grpc");
        }
    }

    pub(crate) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous.load(Relaxed)
    }

    /// The last bytes of a reply are on their way, and with them what it gives.
    pub(crate) fn is_to_flush(&self, guard: DeliveryGuard) {
        self.to_flush.lock().push(guard);
        self.has_to_flush.store(true, Release);
    }

    /// Everything that was written is out.
    fn flushed(&self) {
        if self.answering.load(Relaxed) == 0 && !self.is_http2.load(Relaxed) {
            self.is_between_responses.store(true, Relaxed);
        }
        if self.has_to_flush.swap(false, AcqRel) {
            let mut to_flush = self.to_flush.lock();
            for guard in to_flush.drain(..) {
                guard.is_delivered();
            }
        }
    }

    /// The time until the connection has to be looked at again; `None` if its time is up.
    pub(crate) fn time_left(&self, timeouts: Timeouts) -> Option<Duration> {
        let now = self.now();
        let left = |since: u64, timeout: Duration| {
            let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            since.saturating_add(timeout).checked_sub(now).filter(|&left| left > 0)
        };
        let mut soonest = LOOK_AGAIN_MS;
        match self.write_blocked_since.load(Relaxed) {
            0 => {}
            since => soonest = soonest.min(left(since, WRITE_TIMEOUT)?),
        }
        if self.in_flight.load(Relaxed) == 0 {
            soonest = soonest.min(match self.header_since.load(Relaxed) {
                0 => left(self.last_busy.load(Relaxed), timeouts.idle)?,
                since => left(since, timeouts.header)?,
            });
        }
        Some(Duration::from_millis(soonest))
    }

    /// Bytes without a request begin one; in HTTP/2 they may as well be a ping, which is no reason to stay.
    fn bytes_came(&self) {
        if self.in_flight.load(Relaxed) == 0 && !self.is_http2.load(Relaxed) {
            let _ = self.header_since.compare_exchange(0, self.now(), Relaxed, Relaxed);
        }
    }

    fn bytes_went(&self, blocked: bool) {
        if blocked {
            let _ = self.write_blocked_since.compare_exchange(0, self.now(), Relaxed, Relaxed);
        } else {
            self.write_blocked_since.store(0, Relaxed);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let adapter = if *self.is_grpc.get_mut() { "grpc" } else { "http" };
        self.metrics.connection_closed(adapter);
    }
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
        self.0.last_busy.store(self.0.now(), Relaxed);
    }
}

/// An answer in HTTP/1.1 that is not completely handed to hyper.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Relaxed);
    }
}

/// The bytes of a connection, watched on their way.
#[derive(Debug)]
pub(crate) struct MeteredIo<S> {
    stream: S,
    connection: Arc<Connection>,
    scan: RequestScan,
}

impl<S> MeteredIo<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> MeteredIo<S> {
        MeteredIo { stream, connection, scan: RequestScan::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buf);
        let read = &buf.filled()[before..];
        if !read.is_empty() {
            this.connection.bytes_came();
            if !this.connection.is_http2.load(Relaxed) {
                this.scan.read(read);
                if this.scan.is_ambiguous() {
                    this.connection.is_ambiguous.store(true, Relaxed);
                }
            }
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.connection.bytes_went(result.is_pending());
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.connection.bytes_went(result.is_pending());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(cx);
        if matches!(result, Poll::Ready(Ok(()))) {
            this.connection.flushed();
        }
        result
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_header_must_come_in_time() {
        let connection = Arc::new(Connection::new(Arc::new(Metrics::new("0"))));
        let timeouts = Timeouts { header: Duration::ZERO, idle: Duration::from_secs(9) };
        assert_eq!(connection.time_left(timeouts), None);
        let request = connection.begin(false);
        assert!(connection.time_left(timeouts).is_some());
        drop(request);
        assert!(connection.time_left(timeouts).is_some());
        connection.bytes_came();
        assert_eq!(connection.time_left(timeouts), None);
    }

    #[test]
    fn idle_connection_is_closed_after_the_idle_timeout_only() {
        let connection = Arc::new(Connection::new(Arc::new(Metrics::new("0"))));
        drop(connection.begin(false));
        let idle = |idle| connection.time_left(Timeouts { header: Duration::ZERO, idle });
        assert!(idle(Duration::from_secs(9)).is_some());
        assert_eq!(idle(Duration::ZERO), None);
    }
}
