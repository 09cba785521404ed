//! Events as they happen.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_api::grpc::watch_server::Watch;
use leasehold_api::grpc::{Event, WatchRequest, WatchResponse};
use leasehold_api::{Code, Cursor, CursorError, grpc};
use prost::Message as _;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{Responder, read};
use crate::service::app::App;
use crate::service::problems::Failure;
use crate::service::watch::{Fed, Filter, Parcels, feed, follow};

/// A message goes out when it has so many events or nothing more is there.
const EVENTS_MAX: usize = 256;
/// Or when it is that large.
const BYTES_MAX: usize = 256 * 1024;

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream = Messages;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Messages>, Status> {
        let responder = Responder::of(&request);
        responder.answer(watch(&self.0, request.into_inner()).await)
    }
}

async fn watch(app: &Arc<App>, body: WatchRequest) -> Result<Messages, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let mut filter = Filter::new(namespace, body.prefix)?;
    let after = match (&body.cursor, body.after) {
        (Some(_), Some(_)) => return Err(Failure::field("cursor", "give it or `after`, not both")),
        (Some(cursor), None) => Some(
            cursor
                .parse()
                .map_err(|fault: CursorError| Failure::field("cursor", fault.to_string()))?,
        ),
        (None, after) => after.map(Cursor::from),
    };
    let watch = follow(app, &mut filter, after).await?;
    Ok(Messages(feed(app.clone(), filter, watch, Gathered::default())))
}

/// Messages as they come.
pub(super) struct Messages(Fed<Result<WatchResponse, Status>>);

impl Stream for Messages {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_next(cx)
    }
}

/// The message that is being put together, and how large it is.
#[derive(Default)]
struct Gathered {
    message: WatchResponse,
    bytes: usize,
}

impl Parcels for Gathered {
    type Parcel = Result<WatchResponse, Status>;

    fn add(&mut self, event: &leasehold_api::Event) {
        let event = Event::from(event);
        self.bytes += event.encoded_len();
        self.message.events.push(event);
    }

    fn is_full(&self) -> bool {
        self.message.events.len() >= EVENTS_MAX || self.bytes >= BYTES_MAX
    }

    fn take(&mut self) -> Option<Self::Parcel> {
        let is_empty = self.message.events.is_empty();
        (!is_empty).then(|| Ok(std::mem::take(self).message))
    }

    fn farewell() -> Option<Self::Parcel> {
        let failure = Failure::new(Code::Draining, "the server is stopping");
        Some(Err(grpc::status(&failure.0)))
    }
}
