//! What a reply gives is the caller's only once the reply is out.
//!
//! ```text
//!   handler ──► DeliveryGuard ──► body: its last bytes are taken ──► connection: they are flushed ──► the caller's
//!                 └──────────────┴── dropped anywhere before that ──┴──► taken back
//! ```
//!
//! Bytes that the kernel took count as delivered. A peer that resets the connection after that may well have read them,
//! and taking back what somebody believes to hold would be worse than letting it lapse.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use leasehold_core::Command;
use leasehold_engine::Handle;

use crate::net::connection::Connection;

/// Something that a reply gives. Dropped before it is delivered, it is taken back.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryGuard(Arc<Undelivered>);

#[derive(Debug)]
struct Undelivered {
    engine: Handle,
    undo: Mutex<Option<Command>>,
}

impl DeliveryGuard {
    pub(crate) fn new(engine: &Handle, undo: Command) -> DeliveryGuard {
        DeliveryGuard(Arc::new(Undelivered {
            engine: engine.clone(),
            undo: Mutex::new(Some(undo)),
        }))
    }

    pub(crate) fn is_delivered(&self) {
        *self.0.undo.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Goes with this reply from here on.
    pub(crate) fn attach(self, response: &mut Response) {
        response.extensions_mut().insert(self);
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let undo = self.undo.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(undo) = undo {
            self.engine.take_back(undo);
        }
    }
}

/// Lets what the reply gives go out with its body.
pub(crate) fn with_body(
    mut response: Response,
    connection: &Arc<Connection>,
    is_http2: bool,
) -> Response {
    let Some(given) = response.extensions_mut().remove::<DeliveryGuard>() else {
        return response;
    };
    let (given, connection) = (Some(given), connection.clone());
    response.map(|body| Body::new(Delivering { body, given, connection, is_http2 }))
}

/// A body that hands what it gives to the connection together with its last bytes.
///
/// In HTTP/1.1 bytes that were asked for are written at once. In HTTP/2 they may still wait until the peer has room for
/// them. So there the body does not say that its last bytes were the last: it is asked once more when they are under way.
struct Delivering {
    body: Body,
    given: Option<DeliveryGuard>,
    connection: Arc<Connection>,
    is_http2: bool,
}

impl HttpBody for Delivering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        let is_under_way = match &frame {
            Poll::Ready(None) => true,
            // Nothing comes after trailers, and nobody asks.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => true,
            // Before the bytes are handed over: a flush that comes in between delivers too early, never too late.
            Poll::Ready(Some(Ok(_))) => !this.is_http2 && this.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if is_under_way && let Some(given) = this.given.take() {
            this.connection.is_to_flush(given);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && (!self.is_http2 || self.given.is_none())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
