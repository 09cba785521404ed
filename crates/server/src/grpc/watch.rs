//! Events as they happen.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_api::grpc::watch_server::Watch;
use leasehold_api::grpc::{Event, WatchRequest, WatchResponse};
use leasehold_api::{Code, CursorError, Problem, grpc};
use leasehold_core::Revision;
use leasehold_engine::Cursor;
use prost::Message as _;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{answer, opened, read};
use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use crate::service::watch::{Fed, Filter, FrameEncoder, Told, feed};

/// A message goes out when it has so many events or nothing more is there.
const EVENTS_MAX: usize = 256;
/// Or when it is that large.
const BYTES_MAX: usize = 256 * 1024;

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream = Messages;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Messages>, Status> {
        let (caller, body) = opened(request);
        answer(&self.0, &caller, watch(&self.0, &caller, body).await)
    }
}

async fn watch(app: &Arc<App>, caller: &Caller, body: WatchRequest) -> Result<Messages, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let mut filter = Filter::new(namespace, body.prefix)?;
    let wrong = |fault: CursorError| Failure::field("cursor", fault.to_string());
    let after = match (&body.cursor, body.after) {
        (Some(_), Some(_)) => return Err(Failure::field("cursor", "give it or `after`, not both")),
        (Some(cursor), None) => Some(cursor.parse().map(convert::cursor).map_err(wrong)?),
        (None, after) => after.map(|after| Cursor { epoch: None, revision: Revision(after) }),
    };
    let watch = app.watch(caller, &mut filter, after).await?;
    Ok(Messages(feed(app.clone(), caller, filter, watch, Gathered::default())))
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

impl FrameEncoder for Gathered {
    type Frame = Result<WatchResponse, Status>;

    fn add(&mut self, told: Told<'_>) {
        let event = Event::from(&convert::told(told));
        self.bytes += event.encoded_len();
        self.message.events.push(event);
    }

    fn is_full(&self) -> bool {
        self.message.events.len() >= EVENTS_MAX || self.bytes >= BYTES_MAX
    }

    fn take(&mut self) -> Option<Self::Frame> {
        let is_empty = self.message.events.is_empty();
        (!is_empty).then(|| Ok(std::mem::take(self).message))
    }

    fn farewell() -> Option<Self::Frame> {
        let problem = Problem::new(Code::Draining, "the server is stopping");
        Some(Err(grpc::status(&problem)))
    }

    fn refusal(app: &App, failure: &Failure) -> Option<Self::Frame> {
        let problem = convert::problem(app.now(), failure);
        Some(Err(grpc::status(&problem)))
    }
}
