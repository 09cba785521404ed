//! Events as they happen.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_api::grpc::watch_server::Watch;
use leasehold_api::grpc::{Event, WatchRequest, WatchResponse};
use leasehold_api::{Code, News, grpc};
use leasehold_core::Revision;
use leasehold_engine::{Condition, Phase, Published, Watched};
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{Caller, read};
use crate::app::App;
use crate::convert;
use crate::http::watch::{Filter, follow, ready};
use crate::problem::Failure;

/// A message goes out when it has so many events or nothing more is there.
const EVENTS_MAX: usize = 256;
/// Messages that lie ready for a reader; beyond them it is the reader who is slow.
const MESSAGES_AHEAD: usize = 4;

pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream = Messages;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Messages>, Status> {
        let caller = Caller::of(&request);
        caller.answer(watch(&self.0, request.into_inner()).await)
    }
}

async fn watch(app: &Arc<App>, body: WatchRequest) -> Result<Messages, Failure> {
    let namespace = read::namespace(&body.namespace)?;
    let mut filter = Filter::new(namespace, body.prefix, body.after)?;
    let watch = follow(app, &mut filter, body.after.is_some()).await?;
    let (messages, stream) = mpsc::channel(MESSAGES_AHEAD);
    let revision = filter.after;
    let feed = Feed { app: app.clone(), filter, watch, revision, events: Vec::new(), messages };
    tokio::spawn(feed.run());
    Ok(Messages(stream))
}

fn is_ending(condition: &Condition) -> bool {
    matches!(condition.phase, Phase::Draining | Phase::Stopped)
}

/// Messages as they come.
pub(super) struct Messages(mpsc::Receiver<Result<WatchResponse, Status>>);

impl Stream for Messages {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_recv(cx)
    }
}

/// Writes one watcher's stream. It has a task of its own: the engine never waits for it, and it never for the engine.
struct Feed {
    app: Arc<App>,
    filter: Filter,
    watch: leasehold_engine::Watch,
    /// Everything up to here has been looked at.
    revision: Revision,
    events: Vec<Event>,
    messages: mpsc::Sender<Result<WatchResponse, Status>>,
}

impl Feed {
    async fn run(mut self) {
        let mut condition = self.app.engine(&self.filter.namespace).condition_changes();
        self.mark(News::Bookmark);
        while self.flush().await.is_ok() {
            let heartbeat = self.app.config.watch_heartbeat;
            let happened = tokio::select! {
                happened = self.watch.next() => happened,
                () = self.messages.closed() => return,
                () = async { drop(condition.wait_for(is_ending).await) } => {
                    let failure = Failure::new(Code::Draining, "the server is stopping");
                    let _ = self.messages.send(Err(grpc::status(&failure.0))).await;
                    return;
                }
                () = tokio::time::sleep(heartbeat) => {
                    self.mark(News::Bookmark);
                    continue;
                }
            };
            if !self.take_in(happened) {
                // Told so, and closed: the reader has to look at the table again.
                let _ = self.flush().await;
                return;
            }
        }
    }

    /// Adds this event and all that lie ready; false if it is time to end.
    fn take_in(&mut self, first: Watched) -> bool {
        let mut happened = first;
        loop {
            let published = match happened {
                Watched::Event(published) => published,
                Watched::Missed(_) => {
                    self.mark(News::Resync);
                    return false;
                }
                Watched::End => return false,
            };
            let Published { event, last_of_revision } = &published;
            if self.filter.wants(event) {
                let mut said = Event::from(&convert::event(event));
                said.last_of_revision = *last_of_revision;
                self.events.push(said);
            }
            if *last_of_revision {
                self.revision = self.revision.max(event.revision);
            }
            if self.events.len() >= EVENTS_MAX {
                return true;
            }
            match ready(&mut self.watch) {
                Some(next) => happened = next,
                None => return true,
            }
        }
    }

    /// Says how far the stream has come.
    fn mark(&mut self, news: News) {
        let event = leasehold_api::Event {
            revision: self.revision.0,
            at: convert::moment(self.app.now()),
            namespace: self.filter.namespace.to_string(),
            news,
        };
        let mut said = Event::from(&event);
        said.last_of_revision = true;
        self.events.push(said);
    }

    async fn flush(&mut self) -> Result<(), ()> {
        if self.events.is_empty() {
            return Ok(());
        }
        let message = WatchResponse { events: std::mem::take(&mut self.events) };
        self.messages.send(Ok(message)).await.map_err(|_| ())
    }
}
