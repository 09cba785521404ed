//! A stream through this server ends with the certificate of its client: only this server has seen it, and lists of revoked
//! certificates are its own. What ends a token, or a certificate by the store, the leader knows itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use leasehold_engine::Clock;

use crate::access::{Authenticator, Changes};
use crate::service::app::App;
use crate::service::caller::Caller;

struct WhileGood {
    body: Body,
    authenticator: Arc<Authenticator>,
    clock: Arc<dyn Clock>,
    caller: Caller,
    changes: Changes,
}

/// The answer of a leader, for as long as the certificate that its client has shown is good.
pub(crate) fn while_good(app: &App, caller: &Caller, answer: Response) -> Response {
    let is_certified = caller.shown.certificate().is_some();
    let Some(changes) = app.authenticator.changes_for(caller).filter(|_| is_certified) else {
        return answer;
    };
    let (authenticator, clock) = (app.authenticator.clone(), app.clock.clone());
    let caller = caller.clone();
    answer.map(|body| Body::new(WhileGood { body, authenticator, clock, caller, changes }))
}

impl HttpBody for WhileGood {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        while this.changes.poll(cx).is_ready() {
            if this.authenticator.again(this.clock.now(), &mut this.caller).is_err() {
                let said = "the certificate of the client is not good any more";
                return Poll::Ready(Some(Err(axum::Error::new(said))));
            }
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
