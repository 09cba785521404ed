//! Events as they happen: as a stream (SSE or one JSON object a line), or by asking again and again.
//!
//! The id of an event in a stream is its cursor, and a client resumes after the last id it has seen. Several events
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
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::Frame;
use leasehold_api::schema::{Cursor as CursorText, EventFrame, LockPrefix};
use leasehold_api::{Code, CursorError, EventPage, Problem};
use leasehold_engine::{Cursor, Watch, Watched};
use tokio::time::{Instant, timeout_at};

use super::encode::{Answered, ok, with_type};
use super::extract::{self, Params};
use super::openapi::{NamespaceParam, Problems};
use crate::convert;
use crate::convert::page::Room;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use crate::service::watch::{Fed, Filter, FrameEncoder, Told, changed, ending, feed, ready, told};

/// A chunk goes out when it is that large or nothing more is there.
const CHUNK_BYTES: usize = 16 * 1024;
const PAGE_SIZE: usize = 100;
const PAGE_SIZE_MAX: usize = 1000;

/// Watch events
///
/// Streams events as server-sent events, or as one JSON object a line. Resumes after `after` or `Last-Event-ID`.
#[utoipa::path(
    get, path = "/v1/watch", operation_id = "watch_events", tag = "watch",
    params(
        NamespaceParam,
        ("prefix" = Option<LockPrefix>, Query, description = "Only events of locks whose canonical name starts with this"),
        ("after" = Option<CursorText>, Query, description = "Events after this cursor or revision; from now on if left out"),
        ("Last-Event-ID" = Option<CursorText>, Header, description = "The same, as a browser sends it when it reconnects"),
    ),
    responses(
        (status = 200, description = "Events, one after the other; as JSON, one a line, if Accept asks for application/x-ndjson",
            content((EventFrame = "text/event-stream"), (leasehold_api::Event = "application/x-ndjson"))),
        (status = 410, description = "revision_compacted", body = Problem, content_type = "application/problem+json"),
        Problems,
    )
)]
pub(crate) async fn watch(
    State(app): State<Arc<App>>,
    caller: Caller,
    mut params: Params,
    headers: HeaderMap,
) -> Answered {
    let asked = params.cursor("after")?;
    let after = last_event_id(&headers)?.or(asked);
    let mut filter = filter_of(&mut params)?;
    params.done()?;
    let format = Format::asked_by(&headers);
    let watch = app.watch(&caller, &mut filter, after).await?;
    let body = feed(app, &caller, filter, watch, Text { format, written: String::new() });
    let kind = HeaderValue::from_static(format.content_type());
    let mut response = with_type(StatusCode::OK, kind, Body::new(Chunks(body)));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn filter_of(params: &mut Params) -> Result<Filter, Failure> {
    let namespace = params.namespace()?;
    Filter::new(namespace, params.take("prefix").unwrap_or_default())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Cursor>, Failure> {
    let Some(given) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let text =
        given.to_str().map_err(|_| Failure::field("Last-Event-ID", CursorError.to_string()))?;
    extract::cursor("Last-Event-ID", text).map(Some)
}

/// The format of events.
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
}

/// Events as text.
struct Text {
    format: Format,
    written: String,
}

impl FrameEncoder for Text {
    type Frame = Bytes;

    fn add(&mut self, told: Told<'_>) {
        let event = convert::told(told);
        let data = serde_json::to_string(&event).expect("an event is plain data");
        let written = &mut self.written;
        match self.format {
            Format::Ndjson => writeln!(written, "{data}"),
            Format::Sse => {
                if let Some(cursor) = &event.cursor {
                    writeln!(written, "id: {cursor}").expect("a String takes everything");
                }
                writeln!(written, "event: {}\ndata: {data}\n", event.news.kind())
            }
        }
        .expect("a String takes everything");
    }

    fn is_full(&self) -> bool {
        self.written.len() >= CHUNK_BYTES
    }

    fn take(&mut self) -> Option<Bytes> {
        let is_empty = self.written.is_empty();
        (!is_empty).then(|| Bytes::from(std::mem::take(&mut self.written)))
    }

    /// The end of the body says it.
    fn farewell() -> Option<Bytes> {
        None
    }

    /// So it does here: whoever comes back is told why.
    fn refusal(_: &App, _: &Failure) -> Option<Bytes> {
        None
    }
}

/// The body of a stream: chunks as they come.
struct Chunks(Fed<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let chunk = self.get_mut().0.poll_next(cx);
        chunk.map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// Poll for events
///
/// Returns the events after a revision, and waits for the next one if there is none yet.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "poll_events", tag = "watch",
    params(
        NamespaceParam,
        ("prefix" = Option<LockPrefix>, Query, description = "Only events of locks whose canonical name starts with this"),
        ("after" = Option<CursorText>, Query, description = "Events after this cursor or revision; from now on if left out"),
        ("wait_ms" = Option<u64>, Query, maximum = 50_000, description = "Long poll: how long to wait for the first event, up to 50 s"),
        ("page_size" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "1 to 1000, 100 if left out"),
    ),
    responses(
        (status = 200, description = "What has happened, and the cursor to ask after next", body = EventPage),
        (status = 410, description = "revision_compacted", body = Problem, content_type = "application/problem+json"),
        Problems,
    )
)]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    mut params: Params,
) -> Answered {
    let after = params.cursor("after")?;
    let wait = convert::poll_wait(params.number("wait_ms")?.unwrap_or(0))?;
    let size = params.size("page_size", PAGE_SIZE, PAGE_SIZE_MAX)?;
    let mut filter = filter_of(&mut params)?;
    params.done()?;
    let mut watch = app.watch(&caller, &mut filter, after).await?;
    ok(&page(&app, &caller, &mut filter, &mut watch, wait, size).await?)
}

async fn page(
    app: &App,
    caller: &Caller,
    filter: &mut Filter,
    watch: &mut Watch,
    wait: Duration,
    size: usize,
) -> Result<EventPage, Failure> {
    let (epoch, revision) = (watch.epoch(), watch.after().0);
    let cursor = leasehold_api::Cursor::new(epoch.0, revision);
    let mut page = EventPage { events: Vec::new(), revision, cursor };
    let mut room = Room::new();
    let mut is_full = false;
    let deadline = Instant::now() + wait;
    let mut condition = app.engine(&filter.namespace).condition_changes();
    let (mut caller, mut changes) = (caller.clone(), app.authenticator.changes_for(caller));
    if changes.is_some() {
        app.authenticator.again(app.now(), &mut caller)?;
        filter.look_as(&caller)?;
    }
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
                () = ending(&mut condition) => return Ok(page),
                () = changed(&mut changes) => {
                    app.authenticator.again(app.now(), &mut caller)?;
                    filter.look_as(&caller)?;
                    continue;
                }
            },
        };
        let published = match next {
            Watched::Event(published) => published,
            Watched::Missed(_) => {
                let said = "the watcher fell behind: list the locks again";
                return Err(Failure::new(Code::RevisionCompacted, said));
            }
            Watched::End => return Ok(page),
        };
        let event = &published.event;
        // A page never ends in the middle of a revision.
        is_full |= page.events.len() >= size;
        if is_full && event.revision.0 > page.revision {
            return Ok(page);
        }
        page.revision = page.revision.max(event.revision.0);
        page.cursor.revision = page.revision;
        if let Some(event) = filter.shown(event) {
            let event = convert::told(told(watch, &published, &event));
            let bytes = serde_json::to_string(&event).map_or(0, |text| text.len());
            is_full |= !room.has_for(bytes);
            page.events.push(event);
        }
    }
}
