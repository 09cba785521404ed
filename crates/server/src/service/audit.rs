//! Audit of operators and administrators: a line before the change, one for each grant that ended with it, and one after
//! it. Without an audit log of its own, the ordinary log is told at the target `leasehold::audit` what operators took away.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold_core::{Ending, Event, Namespace, News, Scope};
use leasehold_engine::{Cursor, Watch, Watched};

use super::app::App;
use super::caller::Caller;
use super::problems::Failure;
use crate::audit::Line;

/// So many grants have a line each; of more there is a number.
const ENDED_MAX: usize = 100_000;

impl App {
    /// Does something that the audit log has to have first. `line` says what is asked; what came of it adds to it.
    pub(crate) async fn audited<T>(
        &self,
        caller: &Caller,
        line: Line,
        doing: impl Future<Output = Result<T, Failure>>,
        told: impl FnOnce(Line, &T) -> Line,
    ) -> Result<T, Failure> {
        if !self.audit.is_on() {
            return doing.await;
        }
        let line = line.by(caller);
        self.audit.required(vec![line.came_to("asked")]).await?;
        let done = doing.await;
        let last = match &done {
            Ok(done) => told(line.came_to("ok"), done),
            Err(failure) => line.came_to("failed").with("code", failure.code().as_str()),
        };
        // It is done: that its end cannot be written does not undo it, and is counted and logged.
        let _ = self.audit.required(vec![last]).await;
        done
    }

    /// The same for what ends grants of others: each of them has a line.
    pub(super) async fn audited_endings<T>(
        &self,
        caller: &Caller,
        (namespace, line): (&Namespace, Line),
        is_ended_by_it: impl Fn(&Event) -> bool,
        doing: impl Future<Output = Result<T, Failure>>,
        told: impl FnOnce(Line, &T) -> Line,
    ) -> Result<T, Failure> {
        if !self.audit.is_on() {
            return doing.await;
        }
        let line = line.with("namespace", namespace.as_str());
        let (by, wanted) = (line.clone().by(caller), &is_ended_by_it);
        let with_endings = async {
            let engine = self.engine(namespace);
            let from = Cursor { epoch: None, revision: engine.status().revision };
            let mut events = engine.watch(from).ok();
            let done = doing.await;
            let ended =
                Ended::of(events.as_mut(), |event| event.namespace == *namespace && wanted(event));
            if !ended.lines.is_empty() || ended.missed {
                let _ = self.audit.required(ended.written(&by)).await;
            }
            done
        };
        self.audited(caller, line, with_endings, told).await
    }
}

/// Grants that have ended meanwhile.
#[derive(Default)]
struct Ended {
    lines: Vec<Arc<Event>>,
    /// There were more.
    missed: bool,
}

impl Ended {
    /// Takes what is there; events are published before the answer that they led to.
    fn of(events: Option<&mut Watch>, wanted: impl Fn(&Event) -> bool) -> Ended {
        let mut ended = Ended::default();
        let Some(events) = events else { return Ended { missed: true, ..ended } };
        while ended.lines.len() < ENDED_MAX {
            let next = std::pin::pin!(events.next());
            match next.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Watched::Event(published)) if wanted(&published.event) => {
                    ended.lines.push(published.event);
                }
                Poll::Ready(Watched::Event(_)) => {}
                Poll::Ready(Watched::Missed(_)) => ended.missed = true,
                Poll::Ready(Watched::End) | Poll::Pending => return ended,
            }
        }
        Ended { missed: true, ..ended }
    }

    fn written(&self, line: &Line) -> Vec<Line> {
        let of = |event: &Arc<Event>| {
            let News::Ended { scope, owner, fence, session, .. } = &event.news else { return None };
            let line = line.came_to("ended").with("ended", scope.to_string());
            let line = line.with("fencing_token", fence.get()).with("owner_id", owner.as_str());
            Some(line.with("of", owner.principal().as_str()).with_some("session", *session))
        };
        let mut lines: Vec<Line> = self.lines.iter().filter_map(of).collect();
        if self.missed {
            lines.push(line.came_to("more_ended"));
        }
        lines
    }
}

/// Whether an event is the end of a grant on, or in the way of, a scope by the hand of an operator who gave this reason.
pub(super) fn is_broken(event: &Event, on: &Scope, by: &str) -> bool {
    matches!(&event.news, News::Ended { scope, ending: Ending::Revoked(reason), .. }
        if **reason == *by && scope.overlaps(on))
}

pub(super) fn is_broken_session(event: &Event, number: u64) -> bool {
    matches!(&event.news, News::Ended { session: Some(session), ending: Ending::Revoked(_), .. }
        if *session == number)
}

pub(super) fn is_removed(event: &Event, file: &Scope) -> bool {
    matches!(&event.news, News::Ended { scope, ending: Ending::FileRemoved, .. }
        if scope.overlaps(file))
}

macro_rules! tell {
    ($app:ident, $caller:ident, $level:ident, $said:literal, $($field:tt)*) => {
        if !$app.audit.is_on() {
            tracing::$level!(
                target: "leasehold::audit",
                $($field)*,
                principal = $caller.principal.as_str(),
                transport = $caller.transport.as_str(),
                peer = %$caller.peer,
                request_id = &*$caller.request_id,
                $said
            )
        }
    };
}

pub(super) fn lock_broken(
    app: &App,
    caller: &Caller,
    (lock, namespace): (&str, &str),
    reason: &str,
    grants: usize,
) {
    if grants == 0 {
        tell!(app, caller, info, "a break found nothing to end", lock, namespace, reason);
    } else {
        tell!(app, caller, warn, "a lock was broken", lock, namespace, reason, grants);
    }
}

pub(super) fn session_broken(
    app: &App,
    caller: &Caller,
    (session, namespace): (u64, &str),
    reason: &str,
    grants: usize,
) {
    tell!(app, caller, warn, "a session was broken", session, namespace, reason, grants);
}

pub(super) fn fence_deleted(
    app: &App,
    caller: &Caller,
    (register, namespace): (&str, &str),
    reason: &str,
    high_water: u64,
) {
    tell!(
        app,
        caller,
        warn,
        "a fence register was deleted",
        register,
        namespace,
        reason,
        high_water
    );
}

pub(super) fn file_removed(
    app: &App,
    caller: &Caller,
    (inode, namespace): (u64, &str),
    grants: usize,
    waiters: usize,
) {
    tell!(app, caller, warn, "a file was removed", inode, namespace, grants, waiters);
}
