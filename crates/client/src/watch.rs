//! Following what happens on the server.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use leasehold_api::{Code, Cursor, Event, News};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::address::query_value;
use crate::driver::Arrived;
use crate::error::Error;
use crate::http::{Answered, Ask, Http};
use crate::machine::Failure;

const EVENT_STREAM: &str = "text/event-stream";
const EVENTS_AHEAD: usize = 1024;
const PAUSE: Duration = Duration::from_millis(200);
/// Three heartbeats of a server that has nothing to say.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// An event is a few hundred bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Events as they happen. It goes on after the last one when the connection breaks, the server restarts or another one
/// leads. Where events were missed on the way, [`News::Resync`] stands in their place: look at the locks again.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<Result<Event, Error>>,
}

impl Watch {
    /// The next event; `None` after the end. Bookmarks are not shown. An error is final.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        self.events.recv().await
    }
}

/// The other end of a watch.
#[derive(Debug)]
pub(crate) struct Feed {
    events: mpsc::Sender<Result<Event, Error>>,
    namespace: String,
    prefix: String,
    /// Cursor of the last event that was delivered.
    after: Option<Cursor>,
    /// Events are missing after the cursor, which is still to be reported.
    has_gap: bool,
    begun: Option<oneshot::Sender<()>>,
}

/// Parts of the client that a feed needs.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) server: watch::Receiver<Http>,
    pub(crate) arrivals: mpsc::UnboundedSender<Arrived>,
    /// Timeout of the first connection.
    pub(crate) patience: Duration,
}

/// The reason why a connection ended.
enum Broken {
    /// It is worth another try.
    Passing(Error),
    /// There is no connection to this server.
    Unsent(Error),
    /// The watch is over.
    Final(Error),
}

pub(crate) fn feed(
    namespace: &str,
    prefix: &str,
    after: Option<Cursor>,
) -> (Watch, Feed, oneshot::Receiver<()>) {
    let (sender, events) = mpsc::channel(EVENTS_AHEAD);
    let (begun, begins) = oneshot::channel();
    let feed = Feed {
        events: sender,
        namespace: namespace.into(),
        prefix: prefix.into(),
        after,
        has_gap: false,
        begun: Some(begun),
    };
    (Watch { events }, feed, begins)
}

impl Feed {
    pub(crate) async fn run(mut self, way: Way) {
        let events = self.events.clone();
        tokio::select! {
            () = self.follow(way) => {}
            () = events.closed() => {}
        }
    }

    /// From the server that is in use, one connection after the other.
    async fn follow(&mut self, way: Way) {
        let since = Instant::now();
        loop {
            let http = way.server.borrow().clone();
            let broken = self.stream(&http, way.patience).await;
            let is_late = self.begun.is_some() && since.elapsed() >= way.patience;
            match broken {
                Ok(()) => {}
                Err(Broken::Passing(_)) if !is_late => {}
                Err(Broken::Unsent(_)) if !is_late => {
                    let _ = way.arrivals.send(Arrived::Unreachable(http.server().into()));
                }
                Err(Broken::Passing(error) | Broken::Unsent(error) | Broken::Final(error)) => {
                    let _ = self.events.send(Err(error)).await;
                    return;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn ask(&self) -> Ask {
        let (namespace, prefix) = (query_value(&self.namespace), query_value(&self.prefix));
        let mut path = format!("/v1/watch?namespace={namespace}&prefix={prefix}");
        if let Some(after) = self.after {
            path = format!("{path}&after={after}");
        }
        Ask::get(path)
    }

    /// One connection's worth of events.
    async fn stream(&mut self, http: &Http, patience: Duration) -> Result<(), Broken> {
        let ask = self.ask();
        let answer = tokio::time::timeout(patience, http.start(&ask, Some(EVENT_STREAM))).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err((Failure::Unsent, said))) => return Err(Broken::Unsent(Error::unsent(said))),
            Ok(Err((Failure::Unknown, said))) => {
                return Err(Broken::Passing(Error::unanswered(said)));
            }
            Err(_) => return Err(Broken::Passing(Error::unanswered("no answer in time"))),
        };
        if !answer.status().is_success() {
            return self.refused(answer).await;
        }
        let kind = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM.as_bytes())) {
            return Err(self.not_ours());
        }
        let mut body = answer.into_body();
        let mut lines = Lines::default();
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE_MAX, body.frame()).await {
            let Ok(chunk) = frame.into_data() else { continue };
            lines.push(&chunk);
            while let Some(line) = lines.next() {
                if !self.take_in(&line).await {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn refused(&mut self, answer: Response<Incoming>) -> Result<(), Broken> {
        let status = answer.status();
        let body = answer.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        let answered = Answered { status, body: body.unwrap_or_default() };
        match answered.refusal() {
            refusal if refusal.code() == Some(Code::RevisionCompacted) => {
                self.lose_track();
                Ok(())
            }
            refusal if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(Broken::Passing(refusal))
            }
            refusal if refusal.code().is_some() => Err(Broken::Final(refusal)),
            _ => Err(self.not_ours()),
        }
    }

    /// An answer that Leasehold does not give. In place of a server that was there before, something may stand in for a while.
    fn not_ours(&self) -> Broken {
        let error = Error::unanswered("the answer is not from a Leasehold server");
        if self.begun.is_some() { Broken::Final(error) } else { Broken::Passing(error) }
    }

    /// From now on, whatever was before.
    fn lose_track(&mut self) {
        self.after = None;
        self.has_gap = true;
    }

    /// One line of the stream; false when it is to be begun anew.
    async fn take_in(&mut self, line: &[u8]) -> bool {
        let Some(data) = line.strip_prefix(b"data:") else { return true };
        let Ok(mut event) = serde_json::from_slice::<Event>(data) else { return true };
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(());
        }
        let after = event.cursor.or(self.after);
        if event.news == News::Resync {
            self.lose_track();
            return false;
        }
        if event.news == News::Bookmark {
            if !std::mem::take(&mut self.has_gap) {
                self.after = after;
                return true;
            }
            // From here on nothing is missed: who looks at the locks now knows everything.
            event.news = News::Resync;
        }
        let is_told = self.events.send(Ok(event)).await.is_ok();
        self.after = after;
        is_told
    }
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
struct Lines(BytesMut);

impl Lines {
    fn push(&mut self, chunk: &Bytes) {
        if self.0.len() < LINE_BYTES_MAX {
            self.0.extend_from_slice(chunk);
        }
    }

    fn next(&mut self) -> Option<Bytes> {
        let end = self.0.iter().position(|&byte| byte == b'\n')?;
        let line = self.0.split_to(end).freeze();
        self.0.advance(1);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_chunks_end() {
        let mut lines = Lines::default();
        lines.push(&Bytes::from_static(b"id: 1\nda"));
        assert_eq!(lines.next().as_deref(), Some(&b"id: 1"[..]));
        assert_eq!(lines.next(), None);
        lines.push(&Bytes::from_static(b"ta: x\n\n"));
        assert_eq!(lines.next().as_deref(), Some(&b"data: x"[..]));
        assert_eq!(lines.next().as_deref(), Some(&b""[..]));
    }
}
