//! Following what happens: which events somebody wants, from where on, and how they get there.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_access::{Object, Operation};
use leasehold_api::Code;
use leasehold_core::{
    Event, ListQuery, Namespace, News, Revision, Scope, Timestamp, is_prefix, planted,
};
use leasehold_engine::{Condition, Cursor, Phase, Published, Query, View, Watch, Watched};
use tokio::sync::{mpsc, oneshot, watch};

use super::app::App;
use super::caller::Caller;
use super::problems::{Failure, unexpected};
use super::quotas::WatchPermit;
use super::sight::Sight;
use crate::access::Changes;

/// The most frames that lie ready for a reader; beyond them it is the reader who is slow.
const FRAMES_AHEAD: usize = 4;
/// So many events are looked at before others have their turn.
const LOOKED_AT_MAX: usize = 256;

/// The filter of events.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) namespace: Namespace,
    prefix: String,
    /// Everything up to here is known to the watcher; what it said is settled by `follow`.
    after: Revision,
    /// The part of the namespace that its caller may see.
    sight: Option<Sight>,
    /// Its place among the watches of its principal and its namespace.
    permit: Option<Arc<WatchPermit>>,
}

impl Filter {
    pub(crate) fn new(namespace: Namespace, prefix: String) -> Result<Filter, Failure> {
        if !is_prefix(&prefix) {
            return Err(Failure::field("prefix", "cannot begin the name of a lock"));
        }
        Ok(Filter { namespace, prefix, after: Revision(0), sight: None, permit: None })
    }

    /// Settles who watches; again when its rights have changed.
    pub(crate) fn look_as(&mut self, caller: &Caller) -> Result<(), Failure> {
        caller.may(Operation::Watch, Object::Namespace(&self.namespace))?;
        self.sight = Some(caller.sight(&self.namespace));
        Ok(())
    }

    /// The event, as far as it is wanted and may be seen. Nothing may be before it is known whose filter it is.
    pub(crate) fn shown<'a>(&self, event: &'a Event) -> Option<Cow<'a, Event>> {
        if planted!("filter-forgets-an-event", matches!(event.news, News::Ended { .. })) {
            return None;
        }
        let event = self.sight.as_ref()?.event(event)?;
        self.wants(&event).then_some(event)
    }

    fn wants(&self, event: &Event) -> bool {
        if is_for_all(event) {
            return event.revision > self.after;
        }
        let scopes = scopes_of(event);
        let is_named = self.prefix.is_empty()
            || scopes.iter().any(|scope| scope.to_string().starts_with(&self.prefix));
        // News of the queues carry the revision of the last change.
        let is_new =
            event.revision > self.after || (event.revision == self.after && is_of_queues(event));
        is_named && is_new && event.namespace == self.namespace
    }
}

impl App {
    /// The events after a cursor; from now on, if there is none.
    pub(crate) async fn watch(
        &self,
        caller: &Caller,
        filter: &mut Filter,
        after: Option<Cursor>,
    ) -> Result<Watch, Failure> {
        filter.look_as(caller)?;
        filter.permit = self.quotas.watch(caller, &filter.namespace)?.map(Arc::new);
        let current = self.durable_revision(caller, filter.namespace.clone()).await?;
        let after = after.unwrap_or(Cursor { epoch: None, revision: current });
        let engine = self.engine(&filter.namespace);
        if after.revision > current {
            let said =
                format!("revision {} is ahead of the current one, {}", after.revision.0, current.0);
            return Err(compacted(&said, engine.events_after()));
        }
        let watch =
            engine.watch(after).map_err(|gone| compacted(&gone.to_string(), gone.oldest))?;
        filter.after = watch.after();
        Ok(watch)
    }

    /// The revision up to which everything has been told to those who watch.
    async fn durable_revision(
        &self,
        caller: &Caller,
        namespace: Namespace,
    ) -> Result<Revision, Failure> {
        let query = ListQuery {
            namespace,
            prefix: String::new(),
            owner: None,
            session: None,
            within: None,
            inode: None,
            state: None,
            after: None,
            len_max: 1,
            looked_at_max: 1,
        };
        let View::Page(page) = self.look(caller, Query::List(query)).await? else {
            return Err(unexpected());
        };
        Ok(page.revision)
    }
}

fn compacted(said: &str, oldest: Revision) -> Failure {
    let said = format!("{said}: list the locks, then watch after the cursor of that list");
    Failure::new(Code::RevisionCompacted, said).with_oldest(oldest)
}

/// The next item, if it is there already.
pub(crate) fn ready(watch: &mut Watch) -> Option<Watched> {
    let next = std::pin::pin!(watch.next());
    match next.poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(happened) => Some(happened),
        Poll::Pending => None,
    }
}

/// An item for a watcher.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told<'a> {
    /// An event. The last one of its revision has a cursor.
    Event { event: &'a Event, cursor: Option<Cursor> },
    /// A word about the stream itself.
    Mark { mark: Mark, cursor: Cursor, at: Timestamp, namespace: &'a Namespace },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Everything up to the cursor was told.
    Bookmark,
    /// Something was left out: the watcher has to look at the table again.
    Resync,
}

/// An event as a watcher reads it.
pub(crate) fn told<'a>(watch: &Watch, published: &Published, event: &'a Event) -> Told<'a> {
    let (epoch, revision) = (Some(watch.epoch()), published.event.revision);
    let cursor = published.last_of_revision.then_some(Cursor { epoch, revision });
    Told::Event { event, cursor }
}

/// Waits until the server stops.
pub(crate) async fn ending(condition: &mut watch::Receiver<Condition>) {
    let is_ending =
        |condition: &Condition| matches!(condition.phase, Phase::Draining | Phase::Stopped);
    // If nobody can say so any more, it has stopped.
    let _ = condition.wait_for(is_ending).await;
}

/// Waits for a change of rights, if there can be one.
pub(crate) async fn changed(changes: &mut Option<Changes>) {
    match changes {
        Some(changes) => std::future::poll_fn(|cx| changes.poll(cx)).await,
        None => std::future::pending().await,
    }
}

/// Waits until the credential is not good any more.
async fn lost(app: &App, caller: &Caller, changes: &mut Option<Changes>) {
    let mut caller = caller.clone();
    loop {
        changed(changes).await;
        if app.authenticator.again(app.now(), &mut caller).is_err() {
            return;
        }
    }
}

/// The encoding of events for their transport.
pub(crate) trait FrameEncoder: Send + 'static {
    type Frame: Send + 'static;

    /// Adds an event; after one with a cursor a reader has seen the whole change.
    fn add(&mut self, told: Told<'_>);

    /// Whether it is time to send them.
    fn is_full(&self) -> bool;

    /// Takes the text that was added since the last time, if any.
    fn take(&mut self) -> Option<Self::Frame>;

    /// The last item when the server stops.
    fn farewell() -> Option<Self::Frame>;

    /// The last item for a reader that may not watch any more.
    fn refusal(app: &App, failure: &Failure) -> Option<Self::Frame>;
}

/// Begins to send events, until the reader has gone or the server stops.
pub(crate) fn feed<P: FrameEncoder>(
    app: Arc<App>,
    caller: &Caller,
    filter: Filter,
    watch: Watch,
    parcels: P,
) -> Fed<P::Frame> {
    let (reader, parcels_ahead) = mpsc::channel(FRAMES_AHEAD);
    let (last, last_word) = oneshot::channel();
    let revision = watch.after();
    let last = Some(last);
    let changes = app.authenticator.changes_for(caller);
    let caller = caller.clone();
    tokio::spawn(
        Feed { app, caller, changes, filter, watch, revision, parcels, reader, last }.run(),
    );
    Fed { parcels: parcels_ahead, last_word: Some(last_word) }
}

/// A watcher's stream, as its reader takes it.
pub(crate) struct Fed<P> {
    parcels: mpsc::Receiver<P>,
    /// The item after all others, for a reader that took nothing for too long.
    last_word: Option<oneshot::Receiver<P>>,
}

impl<P> Fed<P> {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<P>> {
        match self.parcels.poll_recv(cx) {
            // Its sender is gone: it has said something by now, or never will.
            Poll::Ready(None) => {
                let last = self.last_word.take().and_then(|mut last| last.try_recv().ok());
                Poll::Ready(last)
            }
            Poll::Ready(Some(parcel)) => Poll::Ready(Some(parcel)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Writes one watcher's stream. It has a task of its own: the engine never waits for it, and it never for the engine.
struct Feed<P: FrameEncoder> {
    app: Arc<App>,
    caller: Caller,
    /// Of its rights.
    changes: Option<Changes>,
    filter: Filter,
    watch: Watch,
    /// Everything up to here has been looked at.
    revision: Revision,
    parcels: P,
    reader: mpsc::Sender<P::Frame>,
    last: Option<oneshot::Sender<P::Frame>>,
}

impl<P: FrameEncoder> Feed<P> {
    async fn run(mut self) {
        let mut condition = self.app.engine(&self.filter.namespace).condition_changes();
        self.mark(Mark::Bookmark);
        // What has changed since the request came in counts as well.
        let mut is_changed = self.changes.is_some();
        while self.flush().await.is_ok() {
            if is_changed && let Err(failure) = self.look_again() {
                if let Some(parcel) = P::refusal(&self.app, &failure) {
                    // A reader that takes nothing hears nothing more.
                    let _ = self.reader.try_send(parcel);
                }
                return;
            }
            is_changed = false;
            let heartbeat = self.app.config.watch_heartbeat;
            let happened = tokio::select! {
                happened = self.watch.next() => happened,
                () = self.reader.closed() => return,
                () = changed(&mut self.changes) => {
                    is_changed = true;
                    continue;
                }
                () = ending(&mut condition) => return self.say_farewell().await,
                () = tokio::time::sleep(heartbeat) => {
                    self.mark(Mark::Bookmark);
                    continue;
                }
            };
            if !self.take_in(happened) {
                // Told so, and closed: the reader has to look at the table again.
                let _ = self.flush().await;
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Looks at what the caller may see by now.
    fn look_again(&mut self) -> Result<(), Failure> {
        self.app.authenticator.again(self.app.now(), &mut self.caller)?;
        self.filter.look_as(&self.caller)
    }

    /// Adds this event and all that lie ready; false if it is time to end.
    fn take_in(&mut self, first: Watched) -> bool {
        let mut happened = first;
        for looked_at in 1.. {
            let published = match happened {
                Watched::Event(published) => published,
                Watched::Missed(_) => {
                    self.mark(Mark::Resync);
                    return false;
                }
                Watched::End => return false,
            };
            if let Some(event) = self.filter.shown(&published.event) {
                self.parcels.add(told(&self.watch, &published, &event));
            }
            if published.last_of_revision {
                self.revision = self.revision.max(published.event.revision);
            }
            if self.parcels.is_full() || looked_at == LOOKED_AT_MAX {
                return true;
            }
            match ready(&mut self.watch) {
                Some(next) => happened = next,
                None => return true,
            }
        }
        true
    }

    /// Says how far the stream has come.
    fn mark(&mut self, mark: Mark) {
        let cursor = Cursor { epoch: Some(self.watch.epoch()), revision: self.revision };
        let (at, namespace) = (self.app.now(), &self.filter.namespace);
        self.parcels.add(Told::Mark { mark, cursor, at, namespace });
    }

    async fn flush(&mut self) -> Result<(), ()> {
        let Some(parcel) = self.parcels.take() else { return Ok(()) };
        let timeout = self.app.config.watch_stall_timeout;
        let sending = tokio::time::timeout(timeout, self.reader.send(parcel));
        let sent = tokio::select! {
            sent = sending => sent,
            // A reader that takes nothing loses its rights as soon as any other.
            () = lost(&self.app, &self.caller, &mut self.changes) => return Err(()),
        };
        match sent {
            Ok(sent) => sent.map_err(|_| ()),
            Err(_) => {
                self.give_up();
                Err(())
            }
        }
    }

    /// The reader takes nothing. What lies ready for it is followed by a word that it has to look again, whenever it reads.
    fn give_up(&mut self) {
        tracing::debug!("a watcher stalled and was closed");
        self.mark(Mark::Resync);
        if let (Some(parcel), Some(last)) = (self.parcels.take(), self.last.take()) {
            let _ = last.send(parcel);
        }
    }

    async fn say_farewell(self) {
        if let Some(parcel) = P::farewell() {
            // A reader that has gone already misses nothing.
            let _ = self.reader.send(parcel).await;
        }
    }
}

/// The locks that an event is about; none for those about sessions, registers and the server itself.
pub(super) fn scopes_of(event: &Event) -> &[Scope] {
    match &event.news {
        News::Granted { scope, .. } | News::Ended { scope, .. } => std::slice::from_ref(scope),
        News::Queued { scopes, .. } | News::Left { scopes, .. } => scopes,
        News::EpochBegan { .. }
        | News::GraceEnded
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::FenceDeleted { .. }
        | News::Deadlock { .. } => &[],
    }
}

/// Whether an event tells of a queue, not of a lasting change.
fn is_of_queues(event: &Event) -> bool {
    matches!(event.news, News::Queued { .. } | News::Left { .. } | News::Deadlock { .. })
}

/// Whether an event concerns every namespace.
fn is_for_all(event: &Event) -> bool {
    matches!(event.news, News::EpochBegan { .. } | News::GraceEnded)
}
