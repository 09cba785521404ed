//! Traces of requests that are part of one: their spans go to a collector of OpenTelemetry.
//!
//! The caller decides: a request whose `traceparent` says that it is sampled gets spans, every other costs a look at a header.
//!
//! ```text
//!  leasehold.acquire          from the request to its answer; linked to the release that made way
//!    ├─ leasehold.wait        in the queue
//!    └─ leasehold.commit      from the decision until it was durable
//!  leasehold.release
//! ```
//!
//! Nothing waits for the collector: spans that find no room are dropped, and the log says how many.

mod context;
mod export;
mod releases;

use std::time::{Duration, SystemTime};

use leasehold_api::Code;
use leasehold_core::{Claim, Namespace, Scope};
use tokio::sync::{mpsc, watch};

pub(crate) use context::TraceContext;

use crate::config::TraceConfig;
use crate::service::caller::Caller;
use crate::service::random;
use crate::telemetry::metrics::Stopwatch;
use export::{Exporter, Span, Value};
use releases::Releases;

/// Spans that wait to be sent.
const SPANS_AHEAD: usize = 4096;

/// Makes spans, if a collector is set.
#[derive(Debug, Default)]
pub(crate) struct Tracer(Option<Active>);

#[derive(Debug)]
struct Active {
    spans: mpsc::Sender<Span>,
    dropped: watch::Sender<u64>,
    releases: Releases,
    /// Whether spans tell the names of locks.
    names: bool,
}

/// One request for locks, as it was answered.
pub(crate) struct Acquired<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) claims: &'a [Claim],
    pub(crate) kind: &'static str,
    /// When it began to come in.
    pub(crate) since: Stopwatch,
    pub(crate) took: Duration,
    pub(crate) waited: Duration,
    pub(crate) outcome: Result<(), Code>,
}

/// A release that is being carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Releasing {
    parent: TraceContext,
    own: TraceContext,
}

impl Tracer {
    /// Needs a runtime if a collector is set: a task of its own sends what has gathered.
    pub(crate) fn new(
        config: &TraceConfig,
        instance: &str,
        stopped: watch::Receiver<bool>,
    ) -> Tracer {
        let Some(endpoint) = &config.endpoint else { return Tracer::default() };
        let (spans, waiting) = mpsc::channel(SPANS_AHEAD);
        let (dropped, lost) = watch::channel(0);
        tokio::spawn(Exporter::new(endpoint, instance, lost).run(waiting, stopped));
        Tracer(Some(Active { spans, dropped, releases: Releases::default(), names: config.names }))
    }

    /// The trace of a request that gets spans.
    pub(crate) fn sampled(&self, trace: Option<TraceContext>) -> Option<TraceContext> {
        self.0.as_ref()?;
        trace.filter(|trace| trace.is_sampled)
    }

    pub(crate) fn acquired(&self, caller: &Caller, parent: TraceContext, acquired: &Acquired<'_>) {
        let Some(active) = &self.0 else { return };
        let began = SystemTime::now() - acquired.took;
        let decided = began + acquired.waited.min(acquired.took);
        let own = parent.child(random::number());
        let mut span = Span::new("leasehold.acquire", own, parent.span, began, acquired.took);
        span.describe(caller, acquired.outcome);
        span.set("leasehold.lock.kind", Value::Text(acquired.kind.into()));
        span.set("leasehold.waited_ms", Value::millis(acquired.waited));
        if active.names {
            let names: Vec<String> =
                acquired.claims.iter().map(|claim| claim.scope.to_string()).collect();
            span.set("leasehold.lock", Value::Text(names.join(" ")));
        }
        let inner =
            |name, began, took| Span::new(name, own.child(random::number()), own.span, began, took);
        span.links = active.releases.since(acquired.namespace, acquired.claims, acquired.since);
        // A wait of less than a millisecond counts as none, but for whom it was waited is known.
        if !acquired.waited.is_zero() || !span.links.is_empty() {
            active.send(inner("leasehold.wait", began, acquired.waited.min(acquired.took)));
        }
        if acquired.outcome.is_ok() {
            let rest = acquired.took.saturating_sub(acquired.waited);
            active.send(inner("leasehold.commit", decided, rest));
        }
        active.send(span);
    }

    /// Called before a release is carried out: whoever is granted the lock by it may be answered first.
    pub(crate) fn releasing(
        &self,
        trace: Option<TraceContext>,
        namespace: &Namespace,
        scope: &Scope,
    ) -> Option<Releasing> {
        let (active, parent) = (self.0.as_ref()?, self.sampled(trace)?);
        let own = parent.child(random::number());
        active.releases.remember(namespace, scope, own);
        Some(Releasing { parent, own })
    }

    pub(crate) fn released(
        &self,
        caller: &Caller,
        releasing: Releasing,
        took: Duration,
        outcome: Result<(), Code>,
    ) {
        let Some(active) = &self.0 else { return };
        let began = SystemTime::now() - took;
        let Releasing { parent, own } = releasing;
        let mut span = Span::new("leasehold.release", own, parent.span, began, took);
        span.describe(caller, outcome);
        active.send(span);
    }
}

impl Active {
    fn send(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.dropped.send_modify(|dropped| *dropped += 1);
        }
    }
}
