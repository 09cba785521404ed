//! Events as they happen: as a stream (SSE or one JSON object a line), or by asking again and again.
//!
//! The id of an event in a stream is its revision, and a client resumes after the last id it has seen. Several events
//! can share a revision (the locks of a set); only the last of them carries the id, so that a client cut off in between
//! gets all of them again rather than losing the rest.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use hyper::body::Frame;
use leasehold_api::schema::{EventFrame, LockPrefix};
use leasehold_api::{Code, EventPage, News, Problem};
use leasehold_core::{Event, ListQuery, Namespace, Revision, is_prefix};
use leasehold_engine::{Phase, Published, Query, Status, View, Watch, Watched};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::locks::unexpected;
use super::{Answered, input, ok, with_type};
use crate::app::App;
use crate::convert;
use crate::openapi::{NamespaceParam, Problems};
use crate::problem::Failure;

/// A chunk goes out when it is that large or nothing more is there.
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks that lie ready for a reader; beyond them it is the reader who is slow.
const CHUNKS_AHEAD: usize = 4;
const PAGE_SIZE: usize = 100;
const PAGE_SIZE_MAX: usize = 1000;

/// Which events are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) namespace: Namespace,
    prefix: String,
    pub(crate) after: Revision,
}

impl Filter {
    fn of(params: &mut input::Params, after: Option<u64>) -> Result<(Filter, bool), Failure> {
        let namespace = params.namespace()?;
        let prefix = params.take("prefix").unwrap_or_default();
        Ok((Filter::new(namespace, prefix, after)?, after.is_some()))
    }

    pub(crate) fn new(
        namespace: Namespace,
        prefix: String,
        after: Option<u64>,
    ) -> Result<Filter, Failure> {
        if !is_prefix(&prefix) {
            return Err(Failure::field("prefix", "cannot begin the name of a lock"));
        }
        Ok(Filter { namespace, prefix, after: Revision(after.unwrap_or(0)) })
    }

    pub(crate) fn wants(&self, event: &Event) -> bool {
        if convert::is_for_all(event) {
            return event.revision > self.after;
        }
        let scopes = convert::scopes_of(event);
        let is_named = self.prefix.is_empty()
            || scopes.iter().any(|scope| scope.to_string().starts_with(&self.prefix));
        // News of the queues carry the revision of the last change.
        let is_new = event.revision > self.after
            || (event.revision == self.after && convert::is_of_queues(event));
        is_named && is_new && event.namespace == self.namespace
    }
}

/// The events from the filter's revision on; from now on, if it has none.
pub(crate) async fn follow(
    app: &App,
    filter: &mut Filter,
    has_after: bool,
) -> Result<Watch, Failure> {
    if !has_after {
        filter.after = durable_revision(app, filter.namespace.clone()).await?;
    }
    app.engine(&filter.namespace).watch(Some(filter.after)).map_err(|compacted| {
        let mut problem = Problem::new(
            Code::RevisionCompacted,
            format!("{compacted}: list the locks, then watch after the revision of that list"),
        );
        problem.oldest_revision = Some(compacted.oldest.0);
        problem.into()
    })
}

/// The revision up to which everything has been told to those who watch.
async fn durable_revision(app: &App, namespace: Namespace) -> Result<Revision, Failure> {
    let query = ListQuery {
        namespace,
        prefix: String::new(),
        owner: None,
        session: None,
        inode: None,
        state: None,
        after: None,
        len_max: 1,
        looked_at_max: 1,
    };
    let View::Page(page) = app.query(Query::List(query)).await? else { return Err(unexpected()) };
    Ok(page.revision)
}

/// Watch what happens
#[utoipa::path(
    get, path = "/v1/watch", tag = "watch",
    params(
        NamespaceParam,
        ("prefix" = Option<LockPrefix>, Query, description = "Only events of locks whose canonical name starts with this"),
        ("after" = Option<u64>, Query, maximum = 9_007_199_254_740_991_u64, description = "Events after this revision; from now on if left out"),
        ("Last-Event-ID" = Option<String>, Header, pattern = "^[0-9]{0,15}$", description = "The same, as a browser says it when it comes back"),
    ),
    responses(
        (status = 200, description = "Events, one after the other; as JSON, one a line, if Accept asks for application/x-ndjson",
            content((EventFrame = "text/event-stream"), (leasehold_api::Event = "application/x-ndjson"))),
        (status = 410, description = "revision_compacted", body = Problem, content_type = "application/problem+json"),
        Problems,
    )
)]
pub(crate) async fn watch(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Answered {
    let mut params = input::Params::of(&uri)?;
    let asked = params.number("after")?;
    let after = match last_event_id(&headers)? {
        Some(id) => Some(id),
        None => asked,
    };
    let (mut filter, has_after) = Filter::of(&mut params, after)?;
    params.done()?;
    let format = Format::asked_by(&headers);
    let watch = follow(&app, &mut filter, has_after).await?;
    let (chunks, body) = mpsc::channel(CHUNKS_AHEAD);
    let revision = filter.after;
    let feed = Feed { app, filter, format, watch, revision, text: String::new(), chunks };
    tokio::spawn(feed.run());
    let kind = HeaderValue::from_static(format.content_type());
    let mut response = with_type(StatusCode::OK, kind, Body::new(Chunks(body)));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(given) = headers.get("last-event-id").filter(|given| !given.is_empty()) else {
        return Ok(None);
    };
    let number = given.to_str().ok().and_then(input::whole_number);
    number.map(Some).ok_or_else(|| Failure::field("Last-Event-ID", "is not a revision"))
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Sse,
    Ndjson,
}

impl Format {
    fn asked_by(headers: &HeaderMap) -> Format {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        if accept.contains("ndjson") { Format::Ndjson } else { Format::Sse }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Format::Sse => "text/event-stream",
            Format::Ndjson => "application/x-ndjson",
        }
    }

    fn write(self, text: &mut String, event: &leasehold_api::Event, id: Option<Revision>) {
        let data = serde_json::to_string(event).expect("an event is plain data");
        match self {
            Format::Ndjson => writeln!(text, "{data}"),
            Format::Sse => {
                if let Some(Revision(id)) = id {
                    writeln!(text, "id: {id}").expect("a String takes everything");
                }
                writeln!(text, "event: {}\ndata: {data}\n", event.news.kind())
            }
        }
        .expect("a String takes everything");
    }
}

/// Writes one watcher's stream. It has a task of its own: the engine never waits for it, and it never for the engine.
struct Feed {
    app: Arc<App>,
    filter: Filter,
    format: Format,
    watch: Watch,
    /// Everything up to here has been looked at.
    revision: Revision,
    text: String,
    chunks: mpsc::Sender<Bytes>,
}

impl Feed {
    async fn run(mut self) {
        let mut status = self.app.engine(&self.filter.namespace).status_changes();
        self.mark(News::Bookmark);
        while self.flush().await.is_ok() {
            let heartbeat = self.app.config.watch_heartbeat;
            let happened = tokio::select! {
                happened = self.watch.next() => happened,
                () = self.chunks.closed() => return,
                _ = status.wait_for(is_ending) => return,
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

    /// Writes this event and all that lie ready; false if it is time to end.
    fn take_in(&mut self, first: Watched) -> bool {
        let mut happened = first;
        loop {
            let event = match happened {
                Watched::Event(event) => event,
                Watched::Missed(_) => {
                    self.mark(News::Resync);
                    return false;
                }
                Watched::End => return false,
            };
            let Published { event, last_of_revision: is_last } = &event;
            if self.filter.wants(event) {
                let id = is_last.then_some(event.revision);
                self.format.write(&mut self.text, &convert::event(event), id);
            }
            if *is_last {
                self.revision = self.revision.max(event.revision);
            }
            if self.text.len() >= CHUNK_BYTES {
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
        self.format.write(&mut self.text, &event, Some(self.revision));
    }

    async fn flush(&mut self) -> Result<(), ()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.text));
        self.chunks.send(chunk).await.map_err(|_| ())
    }
}

fn is_ending(status: &Status) -> bool {
    matches!(status.phase, Phase::Draining | Phase::Stopped)
}

/// What comes next, if it is there already.
pub(crate) fn ready(watch: &mut Watch) -> Option<Watched> {
    let next = std::pin::pin!(watch.next());
    match next.poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(happened) => Some(happened),
        Poll::Pending => None,
    }
}

/// The body of a stream: chunks as they come.
struct Chunks(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let chunk = self.get_mut().0.poll_recv(cx);
        chunk.map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// Ask what has happened since
#[utoipa::path(
    get, path = "/v1/events", tag = "watch",
    params(
        NamespaceParam,
        ("prefix" = Option<LockPrefix>, Query, description = "Only events of locks whose canonical name starts with this"),
        ("after" = Option<u64>, Query, maximum = 9_007_199_254_740_991_u64, description = "Events after this revision; from now on if left out"),
        ("wait_ms" = Option<u64>, Query, maximum = 86_400_000, description = "Wait so long if there are none yet; at most 50 s of it"),
        ("page_size" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "1 to 1000, 100 if left out"),
    ),
    responses(
        (status = 200, description = "What has happened, and the revision to ask after next", body = EventPage),
        (status = 410, description = "revision_compacted", body = Problem, content_type = "application/problem+json"),
        Problems,
    )
)]
pub(crate) async fn events(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let mut params = input::Params::of(&uri)?;
    let after = params.number("after")?;
    let wait = convert::wait(params.number("wait_ms")?.unwrap_or(0))?;
    let size = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    let (mut filter, has_after) = Filter::of(&mut params, after)?;
    params.done()?;
    let mut watch = follow(&app, &mut filter, has_after).await?;
    ok(&page(&app, &filter, &mut watch, wait, size).await?)
}

async fn page(
    app: &App,
    filter: &Filter,
    watch: &mut Watch,
    wait: Duration,
    size: usize,
) -> Result<EventPage, Failure> {
    let mut page = EventPage { events: Vec::new(), revision: filter.after.0 };
    let deadline = Instant::now() + wait;
    let mut status = app.engine(&filter.namespace).status_changes();
    loop {
        let next = match ready(watch) {
            Some(next) => next,
            // Nothing lies ready: enough, if there is something to tell or no time left.
            None if !page.events.is_empty() => return Ok(page),
            None => tokio::select! {
                next = timeout_at(deadline, watch.next()) => match next {
                    Ok(next) => next,
                    Err(_) => return Ok(page),
                },
                _ = status.wait_for(is_ending) => return Ok(page),
            },
        };
        let published = match next {
            Watched::Event(published) => published,
            Watched::Missed(_) => {
                let said = "events came faster than they could be told: list the locks";
                return Err(Failure::new(Code::RevisionCompacted, said));
            }
            Watched::End => return Ok(page),
        };
        let event = &published.event;
        // A page never ends in the middle of a revision.
        if page.events.len() >= size && event.revision.0 > page.revision {
            return Ok(page);
        }
        page.revision = page.revision.max(event.revision.0);
        if filter.wants(event) {
            page.events.push(convert::event(event));
        }
    }
}
