//! What is counted. The names are a contract; no lock's name ever is a label.
//!
//! The counters of requests are raised where a request is answered, those of endings by a task that follows the events,
//! and the gauges are read off the engine when somebody asks. Namespaces are labels, so only the first few get one of
//! their own: whoever can name a namespace must not be able to fill the memory of the monitoring.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_api::Code;
use leasehold_core::{Ending, Event, News, Scope, ScopeKind, Stats};
use leasehold_engine::{Phase, Status};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

const NAMESPACES_MAX: usize = 100;
const OTHER_NAMESPACE: &str = "other";

type Labels<const N: usize> = [(&'static str, String); N];

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    namespaces: Mutex<BTreeSet<String>>,
    acquire: ByResult,
    renew: ByResult,
    release: ByResult,
    latency: Vec<(Op, Histogram)>,
    db_busy: Family<Labels<1>, Counter>,
    locks_held: Gauge,
    expired: Counter,
    acquires: Family<Labels<3>, Counter>,
    releases: Family<Labels<2>, Counter>,
    blocking: Histogram,
    active: Family<Labels<2>, Gauge>,
    connections: Family<Labels<1>, Gauge>,
    grace_active: Gauge,
    waiters: Gauge,
    deadlocks: Counter,
    pub(crate) commit_seconds: Histogram,
    pub(crate) commit_batch_size: Histogram,
    leader: Gauge,
    epoch: Gauge,
    events_missed: Counter,
}

/// What is asked of locks, as the latencies are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Acquire,
    Renew,
    Release,
    Get,
    List,
    Test,
    Check,
    Break,
    Session,
    Fence,
}

impl Op {
    const ALL: [Op; 10] = [
        Op::Acquire,
        Op::Renew,
        Op::Release,
        Op::Get,
        Op::List,
        Op::Test,
        Op::Check,
        Op::Break,
        Op::Session,
        Op::Fence,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Op::Acquire => "acquire",
            Op::Renew => "renew",
            Op::Release => "release",
            Op::Get => "get",
            Op::List => "list",
            Op::Test => "test",
            Op::Check => "check",
            Op::Break => "break",
            Op::Session => "session",
            Op::Fence => "fence",
        }
    }
}

/// Three counters of one family, found once: they are on the way of every request.
#[derive(Debug)]
struct ByResult {
    success: Counter,
    fail: Counter,
    busy: Counter,
}

impl ByResult {
    fn register(registry: &mut Registry, name: &str, help: &str) -> ByResult {
        let family = Family::<Labels<1>, Counter>::default();
        let of = |result: &str| family.get_or_create(&[("result", result.into())]).clone();
        let counters = ByResult { success: of("success"), fail: of("fail"), busy: of("busy") };
        registry.register(name, help, family);
        counters
    }

    fn count(&self, outcome: Result<(), Code>) {
        match outcome {
            Ok(()) => &self.success,
            Err(code) if is_busy(code) => &self.busy,
            Err(_) => &self.fail,
        }
        .inc();
    }
}

/// Somebody else is in the way; nothing is wrong.
fn is_busy(code: Code) -> bool {
    matches!(code, Code::LockHeld | Code::ReclaimWindow | Code::GracePeriod)
}

impl Metrics {
    pub(crate) fn new(version: &str) -> Metrics {
        let mut registry = Registry::default();
        let r = &mut registry;
        let acquire =
            ByResult::register(r, "lock_acquire", "Requests for locks, by what came of them");
        let renew = ByResult::register(
            r,
            "lock_renew",
            "Renewals of locks and sessions, by what came of them",
        );
        let release =
            ByResult::register(r, "lock_release", "Releases of locks, by what came of them");
        let latency = register_latency(r);
        let db_busy: Family<Labels<1>, Counter> = registered(
            r,
            "lock_db_busy",
            "Requests refused because the store could not keep anything",
        );
        for op in [Op::Acquire, Op::Renew, Op::Release] {
            let _ = db_busy.get_or_create(&[("op", op.as_str().into())]);
        }
        let locks_held = registered(r, "locks_held", "Grants that stand now");
        let expired = registered(r, "lock_expired", "Locks whose lease lapsed");
        let acquires = registered(
            r,
            "leasehold_locks_acquire",
            "Requests for locks, by namespace, kind and status",
        );
        let releases =
            registered(r, "leasehold_locks_release", "Locks that ended, by namespace and reason");
        let blocking = Histogram::new(SECONDS);
        r.register(
            "leasehold_locks_blocking_duration_seconds",
            "How long requests waited in a queue",
            blocking.clone(),
        );
        let active = registered(
            r,
            "leasehold_locks_active_count",
            "Grants that stand now, by namespace and kind",
        );
        let connections: Family<Labels<1>, Gauge> =
            registered(r, "leasehold_connections_active_count", "Open connections, by adapter");
        let _ = connections.get_or_create(&[("adapter", "http".into())]);
        let grace_active =
            registered(r, "leasehold_locks_grace_period_active", "1 while a recovery grace is on");
        let waiters = registered(r, "leasehold_waiters", "Requests that wait in a queue");
        let deadlocks =
            registered(r, "leasehold_deadlocks", "Requests refused because of a deadlock");
        let commit_seconds = Histogram::new(SECONDS);
        r.register(
            "leasehold_commit_seconds",
            "How long the store took to keep a batch",
            commit_seconds.clone(),
        );
        let commit_batch_size = Histogram::new(BATCHES);
        r.register(
            "leasehold_commit_batch_size",
            "How many changes went into one batch",
            commit_batch_size.clone(),
        );
        let leader = registered(r, "leasehold_leader", "1 if this server decides");
        let epoch = registered(r, "leasehold_epoch", "The number of the authority that decides");
        let events_missed = registered(
            r,
            "leasehold_events_missed",
            "Events that came too fast to be counted: if this is not 0, the counts of endings are too low",
        );
        r.register(
            "leasehold_build",
            "Which version this is",
            Info::new([("version", version.to_string())]),
        );
        Metrics {
            registry,
            namespaces: Mutex::default(),
            acquire,
            renew,
            release,
            latency,
            db_busy,
            locks_held,
            expired,
            acquires,
            releases,
            blocking,
            active,
            connections,
            grace_active,
            waiters,
            deadlocks,
            commit_seconds,
            commit_batch_size,
            leader,
            epoch,
            events_missed,
        }
    }

    /// A request for one lock or a set was answered. `waited` is not counted as latency.
    pub(crate) fn acquired(
        &self,
        namespace: &str,
        kind: &'static str,
        took: Duration,
        waited: Duration,
        outcome: Result<(), Code>,
    ) {
        self.answered(Op::Acquire, took.saturating_sub(waited), outcome);
        if !waited.is_zero() {
            self.blocking.observe(waited.as_secs_f64());
        }
        if outcome == Err(Code::Deadlock) {
            self.deadlocks.inc();
        }
        let status = outcome.map_or_else(Code::as_str, |()| "granted");
        let namespace = self.namespace_label(namespace);
        let labels = [("namespace", namespace), ("type", kind.into()), ("status", status.into())];
        self.acquires.get_or_create(&labels).inc();
    }

    /// A request was answered.
    pub(crate) fn answered(&self, op: Op, took: Duration, outcome: Result<(), Code>) {
        let counted = match op {
            Op::Acquire => Some(&self.acquire),
            Op::Renew => Some(&self.renew),
            Op::Release => Some(&self.release),
            Op::Get | Op::List | Op::Test | Op::Check | Op::Break | Op::Session | Op::Fence => None,
        };
        if let Some(counted) = counted {
            counted.count(outcome);
        }
        if let Some((_, histogram)) = self.latency.iter().find(|(of, _)| *of == op) {
            histogram.observe(took.as_secs_f64() * 1000.0);
        }
        if outcome == Err(Code::StoreUnavailable) {
            self.db_busy.get_or_create(&[("op", op.as_str().into())]).inc();
        }
    }

    pub(crate) fn connection_opened(&self, adapter: &str) {
        self.connections.get_or_create(&[("adapter", adapter.into())]).inc();
    }

    pub(crate) fn connection_closed(&self, adapter: &str) {
        self.connections.get_or_create(&[("adapter", adapter.into())]).dec();
    }

    /// Something happened that no answer tells of.
    pub(crate) fn happened(&self, event: &Event) {
        let namespace = event.namespace.as_str();
        match &event.news {
            News::Granted { scope, .. } => {
                self.active_gauge(namespace, scope).inc();
            }
            News::Ended { scope, ending, .. } => self.ended(namespace, scope, ending),
            News::EpochBegan { .. }
            | News::GraceEnded
            | News::SessionOpened { .. }
            | News::SessionEnded { .. }
            | News::TtlChanged { .. }
            | News::FenceAccepted { .. }
            | News::Queued { .. }
            | News::Left { .. }
            | News::Deadlock { .. } => {}
        }
    }

    fn ended(&self, namespace: &str, scope: &Scope, ending: &Ending) {
        if matches!(ending, Ending::Expired | Ending::GraceExpired) {
            self.expired.inc();
        }
        // The end of a reclaim window is not a second end of the lock.
        if !matches!(ending, Ending::WindowOver | Ending::Reclaimed) {
            self.active_gauge(namespace, scope).dec();
        }
        if let Some(reason) = reason(ending) {
            let labels =
                [("namespace", self.namespace_label(namespace)), ("reason", reason.into())];
            self.releases.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn events_missed(&self, number: u64) {
        self.events_missed.inc_by(number);
    }

    /// Locks that stood when counting began.
    pub(crate) fn stood_before(&self, namespace: &str, scope: &Scope, holders: usize) {
        let holders = i64::try_from(holders).unwrap_or(i64::MAX);
        self.active_gauge(namespace, scope).inc_by(holders);
    }

    fn active_gauge(&self, namespace: &str, scope: &Scope) -> Gauge {
        let labels =
            [("namespace", self.namespace_label(namespace)), ("type", kind(scope.kind()).into())];
        self.active.get_or_create(&labels).clone()
    }

    fn namespace_label(&self, namespace: &str) -> String {
        let mut known = self.namespaces.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !known.contains(namespace) {
            if known.len() >= NAMESPACES_MAX {
                return OTHER_NAMESPACE.into();
            }
            known.insert(namespace.into());
        }
        namespace.into()
    }

    /// Everything, as text: OpenMetrics, or the classic format that every scraper reads.
    pub(crate) fn text(&self, status: &Status, stats: &Stats, format: Format) -> String {
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.locks_held.set(whole(stats.grants));
        self.waiters.set(whole(stats.waiters));
        self.grace_active.set(i64::from(status.grace.is_some()));
        self.leader.set(i64::from(status.phase == Phase::Leading));
        self.epoch.set(i64::try_from(status.epoch.0).unwrap_or(i64::MAX));
        let mut text = String::with_capacity(16 * 1024);
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("a String takes everything");
        match format {
            Format::OpenMetrics => text,
            Format::Classic => classic(&text),
        }
    }
}

/// In which of the two formats metrics are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Classic,
    OpenMetrics,
}

impl Format {
    pub(crate) fn asked_by(accept: Option<&str>) -> Format {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
            Some(_) | None => Format::Classic,
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// How long ago, for latencies and waits.
const SECONDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
    15.0, 60.0,
];
const MILLISECONDS: [f64; 15] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0];
const BATCHES: [f64; 12] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

fn registered<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: prometheus_client::registry::Metric + Clone + Default,
{
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn register_latency(registry: &mut Registry) -> Vec<(Op, Histogram)> {
    let family =
        Family::<Labels<1>, Histogram>::new_with_constructor(|| Histogram::new(MILLISECONDS));
    registry.register(
        "lock_op_latency_ms",
        "How long requests took, without the time they waited for a lock, in milliseconds",
        family.clone(),
    );
    let of = |op: Op| family.get_or_create(&[("op", op.as_str().into())]).clone();
    Op::ALL.into_iter().map(|op| (op, of(op))).collect()
}

/// The label for a kind of lock.
pub(crate) const fn kind(kind: ScopeKind) -> &'static str {
    match kind {
        ScopeKind::Named => "named",
        ScopeKind::Path => "path",
        ScopeKind::Subtree => "subtree",
        ScopeKind::Inode => "inode",
        ScopeKind::Range => "range",
    }
}

/// Whose doing it was that a lock ended; `None` if nobody lost anything.
fn reason(ending: &Ending) -> Option<&'static str> {
    match ending {
        Ending::Released | Ending::Closed | Ending::FileRemoved => Some("explicit"),
        Ending::Expired => Some("timeout"),
        Ending::GraceExpired => Some("grace_expired"),
        Ending::Disconnected => Some("disconnect"),
        Ending::Revoked(_) => Some("revoked"),
        Ending::Replaced | Ending::Withdrawn | Ending::WindowOver | Ending::Reclaimed => None,
    }
}

/// The classic format from OpenMetrics: there a counter is named by its samples, and the end is not marked.
fn classic(openmetrics: &str) -> String {
    let counters: BTreeSet<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(openmetrics.len() + 256);
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                writeln!(text, "# {what} {name}_total {rest}").expect("a String takes everything");
            }
            // An info is a gauge that is always 1.
            (Some("#"), Some(what), Some(name), Some(rest))
                if rest == "info" || is_info(openmetrics, name) =>
            {
                let rest = if what == "TYPE" { "gauge" } else { rest };
                writeln!(text, "# {what} {name}_info {rest}").expect("a String takes everything");
            }
            _ => writeln!(text, "{line}").expect("a String takes everything"),
        }
    }
    text
}

fn is_info(openmetrics: &str, name: &str) -> bool {
    openmetrics.contains(&format!("# TYPE {name} info\n"))
}

/// Moments at which something is answered, for measuring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(std::time::Instant::now())
    }

    pub(crate) fn took(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{Epoch, Revision};

    fn status() -> Status {
        Status {
            phase: Phase::Leading,
            epoch: Epoch(3),
            revision: Revision(9),
            grace: None,
            store: "memory",
            store_failure: None,
        }
    }

    #[test]
    fn classic_text_names_counters_by_their_samples() {
        let metrics = Metrics::new("1.2.3");
        metrics.acquired("default", "named", Duration::from_millis(3), Duration::ZERO, Ok(()));
        metrics.acquired("default", "named", Duration::ZERO, Duration::ZERO, Err(Code::LockHeld));
        metrics.answered(Op::Renew, Duration::ZERO, Err(Code::LeaseLost));
        let text = metrics.text(&status(), &Stats::default(), Format::Classic);
        for line in [
            "# TYPE lock_acquire_total counter",
            "lock_acquire_total{result=\"success\"} 1",
            "lock_acquire_total{result=\"busy\"} 1",
            "lock_acquire_total{result=\"fail\"} 0",
            "lock_renew_total{result=\"fail\"} 1",
            "# TYPE lock_op_latency_ms histogram",
            "lock_op_latency_ms_count{op=\"acquire\"} 2",
            "lock_db_busy_total{op=\"acquire\"} 0",
            "# TYPE locks_held gauge",
            "locks_held 0",
            "lock_expired_total 0",
            "leasehold_locks_acquire_total{namespace=\"default\",type=\"named\",status=\"granted\"} 1",
            "leasehold_locks_acquire_total{namespace=\"default\",type=\"named\",status=\"lock_held\"} 1",
            "leasehold_epoch 3",
            "leasehold_leader 1",
            "# TYPE leasehold_build_info gauge",
            "leasehold_build_info{version=\"1.2.3\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("EOF"));
    }

    #[test]
    fn openmetrics_is_told_when_asked_for() {
        let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1";
        assert_eq!(Format::asked_by(Some(accept)), Format::OpenMetrics);
        assert_eq!(Format::asked_by(Some("*/*")), Format::Classic);
        let text = Metrics::new("1").text(&status(), &Stats::default(), Format::OpenMetrics);
        assert!(text.contains("# TYPE lock_acquire counter\n"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn namespaces_cannot_fill_the_labels() {
        let metrics = Metrics::new("1");
        for number in 0..1000 {
            let namespace = format!("n{number}");
            metrics.acquired(&namespace, "named", Duration::ZERO, Duration::ZERO, Ok(()));
        }
        let text = metrics.text(&status(), &Stats::default(), Format::Classic);
        let labels = text.lines().filter(|line| line.starts_with("leasehold_locks_acquire_total{"));
        assert_eq!(labels.count(), NAMESPACES_MAX + 1);
    }
}
