//! Following what happens on the server.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use leasehold_api::{Code, Event, News};
use tokio::sync::{mpsc, watch};

use crate::address::query_value;
use crate::error::Error;
use crate::http::{Answered, Ask, Http};
use crate::machine::Failure;

const EVENTS_AHEAD: usize = 1024;
const PAUSE: Duration = Duration::from_millis(200);
/// An event is a few hundred bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Events as they happen. It takes up after the last one when the connection breaks, so nothing is missed; should too
/// much have happened meanwhile, it says so with `revision_compacted` and ends.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<Result<Event, Error>>,
}

impl Watch {
    /// The next event; `None` after the end. Bookmarks are not shown.
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
    /// Everything up to here has been told.
    after: Option<u64>,
    /// The id of the event that comes next; it counts once that event has been told.
    coming: Option<u64>,
    begun: Option<tokio::sync::oneshot::Sender<()>>,
}

pub(crate) fn feed(
    namespace: &str,
    prefix: &str,
    after: Option<u64>,
) -> (Watch, Feed, tokio::sync::oneshot::Receiver<()>) {
    let (sender, events) = mpsc::channel(EVENTS_AHEAD);
    let (begun, begins) = tokio::sync::oneshot::channel();
    let feed = Feed {
        events: sender,
        namespace: namespace.into(),
        prefix: prefix.into(),
        after,
        coming: None,
        begun: Some(begun),
    };
    (Watch { events }, feed, begins)
}

impl Feed {
    pub(crate) async fn run(mut self, server: watch::Receiver<Http>) {
        let events = self.events.clone();
        tokio::select! {
            () = self.follow(server) => {}
            () = events.closed() => {}
        }
    }

    /// From the server that is in use, one connection after the other.
    async fn follow(&mut self, server: watch::Receiver<Http>) {
        loop {
            let http = server.borrow().clone();
            match self.stream(&http).await {
                Ok(()) => {}
                Err(error) => {
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

    /// One connection's worth of events. An error is final; a broken connection is not.
    async fn stream(&mut self, http: &Http) -> Result<(), Error> {
        let answer = match http.start(&self.ask(), Some("text/event-stream")).await {
            Ok(answer) => answer,
            Err((Failure::Unsent | Failure::Unknown, _)) => return Ok(()),
        };
        let status = answer.status();
        if !status.is_success() {
            let body = answer.into_body().collect().await.map(http_body_util::Collected::to_bytes);
            let answered = Answered { status, body: body.unwrap_or_default() };
            let refusal = answered.refusal();
            // A server that cannot serve just now is asked again.
            let passes = refusal.code().is_none_or(|code| code.http_status() == 503);
            return if passes { Ok(()) } else { Err(refusal) };
        }
        let mut body = answer.into_body();
        let mut lines = Lines::default();
        self.coming = None;
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(chunk) = frame.into_data() else { continue };
            lines.push(&chunk);
            while let Some(line) = lines.next() {
                if !self.take_in(&line).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// One line of the stream; false when it is to be begun anew.
    async fn take_in(&mut self, line: &[u8]) -> Result<bool, Error> {
        let Ok(line) = std::str::from_utf8(line) else { return Ok(true) };
        // The id comes before the event that it belongs to, and only with the last one of a revision.
        if let Some(id) = line.strip_prefix("id:") {
            self.coming = id.trim().parse().ok();
            return Ok(true);
        }
        let Some(data) = line.strip_prefix("data:") else { return Ok(true) };
        let Ok(event) = serde_json::from_str::<Event>(data.trim()) else { return Ok(true) };
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(());
        }
        let after = self.coming.take().or(self.after);
        match event.news {
            News::Bookmark => {
                self.after = after;
                Ok(true)
            }
            News::Resync => {
                let problem = leasehold_api::Problem::new(
                    Code::RevisionCompacted,
                    "events came faster than they were read: list the locks, then watch again",
                );
                Err(Error::Refused(Box::new(problem)))
            }
            News::EpochBegan { .. }
            | News::GraceEnded
            | News::SessionOpened { .. }
            | News::SessionEnded { .. }
            | News::Granted { .. }
            | News::Ended { .. }
            | News::TtlChanged { .. }
            | News::FenceAccepted { .. }
            | News::Queued { .. }
            | News::Left { .. }
            | News::Deadlock { .. } => {
                let is_told = self.events.send(Ok(event)).await.is_ok();
                self.after = after;
                Ok(is_told)
            }
        }
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
