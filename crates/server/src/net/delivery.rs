//! Bodies of replies that give something: with their bytes goes the guard of what they give, up to the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::net::connection::Connection;
use crate::service::delivery::{DeliveryGuard, Outbox};

/// Lets what the reply gives go out with its body.
pub(crate) fn with_body(
    mut response: Response,
    connection: &Arc<Connection>,
    is_http2: bool,
) -> Response {
    let extensions = response.extensions_mut();
    let guard = extensions.remove::<DeliveryGuard>();
    let outbox = extensions.remove::<Outbox>();
    if guard.is_none() && outbox.is_none() {
        return response;
    }
    let connection = connection.clone();
    let handed_out = None;
    response
        .map(|body| Body::new(Delivering { body, guard, outbox, handed_out, connection, is_http2 }))
}

/// A body that hands what it gives to the connection together with its bytes: a reply with its last ones, a stream with each
/// of its frames.
///
/// In HTTP/1.1 bytes that were asked for are written at once. In HTTP/2 they may still wait until the peer has room for
/// them; the body is asked for more only when they are under way. So there a reply does not say that its last bytes were
/// the last: it is asked once more.
struct Delivering {
    body: Body,
    guard: Option<DeliveryGuard>,
    outbox: Option<Outbox>,
    /// The grants of the frame that was handed out last.
    handed_out: Option<DeliveryGuard>,
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
        if let Some(guard) = this.handed_out.take() {
            this.connection.is_to_flush(guard);
        }
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if let (Some(outbox), Poll::Ready(Some(Ok(_)))) = (&this.outbox, &frame) {
            // All messages that were taken off the stream so far are in this frame.
            this.handed_out = outbox.take();
        }
        let is_under_way = match &frame {
            Poll::Ready(None) => true,
            // Nothing comes after trailers, and nobody asks.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => true,
            // Before the bytes are handed over: a flush that comes in between delivers too early, never too late.
            Poll::Ready(Some(Ok(_))) => !this.is_http2 && this.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if is_under_way && let Some(guard) = this.guard.take() {
            this.connection.is_to_flush(guard);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && (!self.is_http2 || self.guard.is_none())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
