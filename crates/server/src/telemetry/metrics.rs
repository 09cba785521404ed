//! The metrics. Their names are a contract; no lock's name ever is a label.
//!
//! Requests are counted where they are answered; everything else is read off the engine when somebody asks. Namespaces are
//! labels, so only the first few get one of their own: whoever can name a namespace must not be able to fill the memory of
//! the monitoring.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_api::Code;
use leasehold_core::Namespace;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::audit::AuditCounters;
use crate::telemetry::readings::{Gauges, Readings};

const NAMESPACES_MAX: usize = 100;
pub(crate) const OTHER_NAMESPACE: &str = "other";
/// The waits that percentiles are told of.
const WAITS_LEN_MAX: usize = 1000;
/// The label of what the store does for many requests at once.
const COMMIT: &str = "commit";

type Labels<const N: usize> = [(&'static str, String); N];

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    gauges: Arc<Gauges>,
    namespaces: NamespaceLabels,
    acquire: ByResult,
    renew: ByResult,
    release: ByResult,
    latency: Vec<(Op, Histogram)>,
    db_busy: Family<Labels<1>, Counter>,
    acquires: Family<Labels<3>, Counter>,
    blocking: Family<Labels<1>, Histogram>,
    connections: Family<Labels<1>, Gauge>,
    flapping: Counter,
    pub(crate) audit: AuditCounters,
    /// Headers and connections of servers that were not believed.
    pub(crate) peer_rejected: Counter,
    reload_failures: Family<Labels<1>, Counter>,
    waits: Mutex<VecDeque<Duration>>,
    /// The number of times the store was found busy, as of the last look.
    busy_seen: AtomicU64,
}

/// The namespaces that have a label of their own.
#[derive(Debug, Default)]
pub(crate) struct NamespaceLabels(Mutex<BTreeSet<String>>);

impl NamespaceLabels {
    pub(crate) fn label(&self, namespace: &str) -> String {
        let mut known = self.0.lock();
        if !known.contains(namespace) {
            if known.len() >= NAMESPACES_MAX {
                return OTHER_NAMESPACE.into();
            }
            known.insert(namespace.into());
        }
        namespace.into()
    }
}

/// The operations on locks, as the latencies are told apart.
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

/// The store is contended or away. A lock that is held is a failure to acquire it.
fn is_busy(code: Code) -> bool {
    code == Code::StoreUnavailable
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
            "How often SQLite was found locked (op commit), and requests refused because the store could not keep anything",
        );
        for op in ["acquire", "renew", "release", COMMIT] {
            let _ = db_busy.get_or_create(&[("op", op.into())]);
        }
        let acquires = registered(
            r,
            "leasehold_locks_acquire",
            "Requests for locks, by namespace, kind and status",
        );
        let blocking =
            Family::<Labels<1>, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        r.register(
            "leasehold_locks_blocking_duration_seconds",
            "How long requests waited in a queue, by namespace",
            blocking.clone(),
        );
        let connections: Family<Labels<1>, Gauge> =
            registered(r, "leasehold_connections_active_count", "Open connections, by adapter");
        for adapter in ["http", "grpc"] {
            let _ = connections.get_or_create(&[("adapter", adapter.into())]);
        }
        let flapping = registered(
            r,
            "leasehold_connections_flapping",
            "Brief connections of peers that connect and go more than 60 times a minute",
        );
        let peer_rejected = registered(
            r,
            "leasehold_peer_rejected",
            "Requests and connections that claimed to be of another server and were not believed",
        );
        let audit = AuditCounters {
            lost: registered(
                r,
                "leasehold_audit_lines_lost",
                "Lines that could not be written to the audit log",
            ),
            refused: registered(
                r,
                "leasehold_audit_refused",
                "Requests refused because the audit log could not be written",
            ),
        };
        let reload_failures: Family<Labels<1>, Counter> = registered(
            r,
            "leasehold_reload_failures",
            "Files that were read anew and refused; the last good ones stay in force",
        );
        for file in ["cert", "key", "client_ca", "crl", "cluster_ca", "access_file"] {
            let _ = reload_failures.get_or_create(&[("file", file.into())]);
        }
        r.register(
            "leasehold_build",
            "Which version this is",
            Info::new([("version", version.to_string())]),
        );
        let gauges = Arc::new(Gauges::default());
        r.register_collector(Box::new(gauges.clone()));
        let namespaces = NamespaceLabels::default();
        Metrics {
            registry,
            gauges,
            namespaces,
            acquire,
            renew,
            release,
            latency,
            db_busy,
            acquires,
            blocking,
            connections,
            flapping,
            audit,
            peer_rejected,
            reload_failures,
            waits: Mutex::default(),
            busy_seen: AtomicU64::new(0),
        }
    }

    /// A request stood in a queue for so long.
    fn waited(&self, namespace: &Namespace, waited: Duration) {
        let labels = [("namespace", self.namespaces.label(namespace.as_str()))];
        self.blocking.get_or_create(&labels).observe(waited.as_secs_f64());
        let mut waits = self.waits.lock();
        if waits.len() >= WAITS_LEN_MAX {
            waits.pop_front();
        }
        waits.push_back(waited);
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

    /// The median and the 99th percentile of the last waits, in milliseconds; none if nobody waited.
    pub(crate) fn waits(&self) -> (Option<u64>, Option<u64>) {
        let waits = self.waits.lock();
        let mut sorted: Vec<Duration> = waits.iter().copied().collect();
        drop(waits);
        sorted.sort_unstable();
        let at = |percent: usize| {
            let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(place).map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
        };
        (at(50), at(99))
    }

    pub(crate) fn connection_opened(&self, adapter: &str) {
        self.connections.get_or_create(&[("adapter", adapter.into())]).inc();
    }

    pub(crate) fn connection_closed(&self, adapter: &str) {
        self.connections.get_or_create(&[("adapter", adapter.into())]).dec();
    }

    /// A brief connection has ended whose peer flaps.
    pub(crate) fn flapped(&self) {
        self.flapping.inc();
    }

    /// A file that a setting names was read anew, and refused.
    pub(crate) fn reload_failed(&self, setting: &'static str) {
        self.reload_failures.get_or_create(&[("file", setting.into())]).inc();
    }

    /// Everything, as text: OpenMetrics, or the classic format that every scraper reads.
    pub(crate) fn text(&self, readings: Readings, format: Format) -> String {
        self.gauges.set(readings);
        let met = leasehold_store::sqlite::busy_total();
        let seen = self.busy_seen.fetch_max(met, Ordering::Relaxed);
        let commits = self.db_busy.get_or_create(&[("op", COMMIT.into())]);
        commits.inc_by(met.saturating_sub(seen));
        drop(commits);
        let mut text = String::with_capacity(16 * 1024);
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("a String takes everything");
        match format {
            Format::OpenMetrics => text,
            Format::Classic => classic(&text),
        }
    }
}

/// Counts the requests for locks of one caller. Counters are looked up once: a stream may have a hundred thousand requests a
/// second.
#[derive(Debug)]
pub(crate) struct Acquires {
    namespace: Namespace,
    counters: Vec<(&'static str, &'static str, Counter)>,
}

impl Acquires {
    pub(crate) fn new(namespace: &Namespace) -> Acquires {
        Acquires { namespace: namespace.clone(), counters: Vec::new() }
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A request of this kind was answered, after it had waited for so long.
    pub(crate) fn count(
        &mut self,
        metrics: &Metrics,
        kind: &'static str,
        waited: Duration,
        outcome: Result<(), Code>,
    ) {
        if !waited.is_zero() {
            metrics.waited(&self.namespace, waited);
        }
        let status = outcome.map_or_else(Code::as_str, |()| "granted");
        let known = self.counters.iter().find(|(k, s, _)| *k == kind && *s == status);
        if let Some((_, _, counter)) = known {
            counter.inc();
            return;
        }
        let namespace = metrics.namespaces.label(self.namespace.as_str());
        let labels = [("namespace", namespace), ("type", kind.into()), ("status", status.into())];
        let counter = metrics.acquires.get_or_create(&labels).clone();
        counter.inc();
        self.counters.push((kind, status, counter));
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

/// The bounds of the histograms of latencies and waits, in seconds.
const SECONDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
    15.0, 60.0,
];
const MILLISECONDS: [f64; 15] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0];

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stopwatch(tokio::time::Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(tokio::time::Instant::now())
    }

    pub(crate) fn took(self) -> Duration {
        self.0.elapsed()
    }

    /// The time it took until another one was started.
    pub(crate) fn until(self, other: Stopwatch) -> Duration {
        other.0.saturating_duration_since(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::forward::Forwarded;
    use crate::telemetry::usage::Usage;
    use leasehold_core::{Epoch, Namespace, Revision, ScopeKind, Stats};
    use leasehold_engine::{Commits, Counts, Phase, Status};

    fn readings() -> Readings {
        let status = Status {
            phase: Phase::Leading,
            epoch: Epoch(3),
            revision: Revision(9),
            grace: None,
            store: "memory",
            store_failure: None,
            leader: None,
        };
        let kinds = vec![(Namespace::default(), ScopeKind::Path, 2)];
        let stats = Stats { grants: 3, held: 2, kinds, ..Stats::default() };
        let mut counts = Counts::default();
        for (ending, count) in
            [("expired", 4), ("grace_expired", 1), ("released", 7), ("window_over", 2)]
        {
            counts.ended.insert((Some(Namespace::default()), ending), count);
        }
        counts.totals.expired = 5;
        let usage = Usage { cpu: Some(Duration::from_millis(1500)), ..Usage::default() };
        Readings {
            leads: vec![true, false],
            status,
            stats,
            counts,
            commits: Commits::default(),
            shed: leasehold_engine::ShedCounts::default(),
            watchers: 2,
            forwarded: Forwarded { answered: 6, failed: 1 },
            usage,
            tls_not_after: Some(1_900_000_000),
        }
    }

    #[test]
    fn classic_text_names_counters_by_their_samples() {
        let metrics = Metrics::new("1.2.3");
        let mut acquires = Acquires::new(&Namespace::default());
        for outcome in [Ok(()), Err(Code::LockHeld)] {
            metrics.answered(Op::Acquire, Duration::from_millis(3), outcome);
            acquires.count(&metrics, "named", Duration::ZERO, outcome);
        }
        metrics.answered(Op::Renew, Duration::ZERO, Err(Code::LeaseLost));
        let text = metrics.text(readings(), Format::Classic);
        for line in [
            "# TYPE lock_acquire_total counter",
            "lock_acquire_total{result=\"success\"} 1",
            "lock_acquire_total{result=\"busy\"} 0",
            "lock_acquire_total{result=\"fail\"} 1",
            "lock_renew_total{result=\"fail\"} 1",
            "# TYPE lock_op_latency_ms histogram",
            "lock_op_latency_ms_count{op=\"acquire\"} 2",
            "lock_db_busy_total{op=\"acquire\"} 0",
            "# TYPE locks_held gauge",
            "locks_held 2",
            "# TYPE lock_expired_total counter",
            "lock_expired_total 5",
            "leasehold_locks_active_count{namespace=\"default\",type=\"path\"} 2",
            "leasehold_locks_release_total{namespace=\"default\",reason=\"timeout\"} 4",
            "leasehold_locks_release_total{namespace=\"default\",reason=\"explicit\"} 7",
            "# TYPE leasehold_commit_seconds histogram",
            "leasehold_commit_seconds_bucket{le=\"+Inf\"} 0",
            "leasehold_locks_acquire_total{namespace=\"default\",type=\"named\",status=\"granted\"} 1",
            "leasehold_locks_acquire_total{namespace=\"default\",type=\"named\",status=\"lock_held\"} 1",
            "leasehold_epoch 3",
            "leasehold_leader 1",
            "leasehold_group_leader{group=\"0\"} 1",
            "leasehold_group_leader{group=\"1\"} 0",
            "leasehold_watchers 2",
            "leasehold_forwarded_requests_total{result=\"answered\"} 6",
            "leasehold_forwarded_requests_total{result=\"failed\"} 1",
            "# TYPE process_cpu_seconds_total counter",
            "process_cpu_seconds_total 1.5",
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
        let text = Metrics::new("1").text(readings(), Format::OpenMetrics);
        assert!(text.contains("# TYPE lock_acquire counter\n"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn namespaces_cannot_fill_the_labels() {
        let metrics = Metrics::new("1");
        for number in 0..1000 {
            let namespace = format!("n{number}");
            let mut acquires = Acquires::new(&Namespace::new(&namespace).unwrap());
            acquires.count(&metrics, "named", Duration::ZERO, Ok(()));
        }
        let text = metrics.text(readings(), Format::Classic);
        let labels = text.lines().filter(|line| line.starts_with("leasehold_locks_acquire_total{"));
        assert_eq!(labels.count(), NAMESPACES_MAX + 1);
    }
}
