//! Readings: the engine's own counts and its state, taken when the metrics are scraped.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::time::Duration;

use leasehold_core::{Adapter, Namespace, ScopeKind, Stats};
use leasehold_engine::{Commits, Counts, Handle, Histogram, Phase, ShedCounts, Status};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::cluster::forward::Forwarded;
use crate::service::app::App;
use crate::telemetry::metrics::{NamespaceLabels, OTHER_NAMESPACE};
use crate::telemetry::usage::Usage;

/// The adapters that have a label of their own.
const ADAPTERS: [&str; 7] = ["http", "grpc", "fuse", "nlm", "nfs", "smb", OTHER_ADAPTER];
const OTHER_ADAPTER: &str = "other";

/// One look at the server and its engines.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    /// Of each group, whether this server leads it.
    pub(crate) leads: Vec<bool>,
    pub(crate) status: Status,
    pub(crate) stats: Stats,
    pub(crate) counts: Counts,
    pub(crate) commits: Commits,
    pub(crate) shed: ShedCounts,
    pub(crate) watchers: u64,
    pub(crate) forwarded: Forwarded,
    pub(crate) usage: Usage,
    /// When the server's certificate ends, if it has one.
    pub(crate) tls_not_after: Option<u64>,
}

impl Readings {
    /// Scraped also while an engine is away: then its gauges are at zero.
    pub(crate) async fn now(app: &App) -> Readings {
        let mut engines = Vec::new();
        for engine in app.groups.all() {
            engines.push(Readings::of(engine, app.stats(engine).await.unwrap_or_default()));
        }
        let all = engines.into_iter().reduce(Readings::and).expect("there is always a group");
        let usage = if app.clock.runs_by_itself() {
            let store = app.config.store.clone();
            tokio::task::spawn_blocking(move || Usage::now(&store)).await.unwrap_or_default()
        } else {
            Usage::default()
        };
        let watchers = app.watchers.taken() as u64;
        let tls_not_after = app.tls.as_ref().map(|tls| tls.not_after());
        Readings { watchers, forwarded: app.forwarder.forwarded(), usage, tls_not_after, ..all }
    }

    fn of(engine: &Handle, stats: Stats) -> Readings {
        let status = engine.status();
        Readings {
            leads: vec![status.phase == Phase::Leading],
            status,
            stats,
            counts: engine.counts(),
            commits: engine.commits(),
            shed: engine.shed(),
            watchers: 0,
            forwarded: Forwarded::default(),
            usage: Usage::default(),
            tls_not_after: None,
        }
    }

    /// Both together, for a server with several groups. Fields are named one by one, so that a new one does not compile
    /// before it is added up as well; those of the whole server are set afterwards.
    fn and(mut self, other: Readings) -> Readings {
        let Readings {
            leads,
            status,
            stats,
            counts,
            commits,
            shed,
            watchers: _,
            forwarded: _,
            usage: _,
            tls_not_after: _,
        } = other;
        self.leads.extend(leads);
        self.counts.add(&counts);
        self.commits.add(&commits);
        self.shed.add(shed);
        let Status { phase: _, epoch, revision: _, grace, store: _, store_failure, leader: _ } =
            status;
        self.status.epoch = self.status.epoch.max(epoch);
        self.status.grace = self.status.grace.or(grace);
        self.status.store_failure = self.status.store_failure.or(store_failure);
        self.stats = sum(self.stats, stats);
        self
    }
}

/// The sum of two groups. Numbers of which each group has its own stay those of the first.
fn sum(mut all: Stats, of_another: Stats) -> Stats {
    let Stats {
        epoch: _,
        revision: _,
        fence: _,
        namespaces,
        grants,
        held,
        leases,
        sessions,
        recovering,
        waiters,
        kept_places,
        kinds,
        modes,
        adapters,
    } = of_another;
    all.namespaces += namespaces;
    all.grants += grants;
    all.held += held;
    all.leases += leases;
    all.sessions += sessions;
    all.recovering += recovering;
    all.waiters += waiters;
    all.kept_places += kept_places;
    all.kinds.extend(kinds);
    all.modes.extend(modes);
    all.adapters.extend(adapters);
    all
}

/// Tells the last look at the engine as metrics.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    readings: Mutex<Option<Readings>>,
    namespaces: NamespaceLabels,
}

impl Gauges {
    pub(crate) fn set(&self, readings: Readings) {
        *self.readings() = Some(readings);
    }

    fn readings(&self) -> MutexGuard<'_, Option<Readings>> {
        self.readings.lock()
    }

    /// Ends by namespace and by whose doing it was.
    fn releases(&self, counts: &Counts) -> BTreeMap<(String, &'static str), u64> {
        let mut releases = BTreeMap::new();
        for ((namespace, ending), count) in &counts.ended {
            if let Some(reason) = reason(ending) {
                let label = match namespace {
                    Some(namespace) => self.namespaces.label(namespace.as_str()),
                    None => OTHER_NAMESPACE.into(),
                };
                *releases.entry((label, reason)).or_insert(0) += count;
            }
        }
        releases
    }

    fn by_mode<'a>(
        &self,
        counts: impl Iterator<Item = (Option<&'a Namespace>, &'static str, u64)>,
    ) -> BTreeMap<(String, &'static str), u64> {
        let mut modes = BTreeMap::new();
        for (namespace, mode, count) in counts {
            let label = match namespace {
                Some(namespace) => self.namespaces.label(namespace.as_str()),
                None => OTHER_NAMESPACE.into(),
            };
            *modes.entry((label, mode)).or_insert(0) += count;
        }
        modes
    }

    fn active(&self, stats: &Stats) -> BTreeMap<(String, &'static str), u64> {
        let mut active = BTreeMap::new();
        for (namespace, scope_kind, count) in &stats.kinds {
            let label = self.namespaces.label(namespace.as_str());
            *active.entry((label, kind(*scope_kind))).or_insert(0) += *count as u64;
        }
        active
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(readings) = self.readings().clone() else { return Ok(()) };
        let Readings {
            leads,
            status,
            stats,
            counts,
            commits,
            shed,
            watchers,
            forwarded,
            usage,
            tls_not_after,
        } = &readings;
        let mut out = Out(&mut encoder);
        out.gauge("locks_held", "Grants whose lease is not over", stats.held as u64)?;
        out.counter("lock_expired", "Locks whose lease lapsed", counts.totals.expired)?;
        out.by(
            "leasehold_locks_release",
            "Locks that ended, by namespace and reason",
            MetricType::Counter,
            "reason",
            &self.releases(counts),
        )?;
        out.by(
            "leasehold_locks_active_count",
            "Grants that stand now, by namespace and kind",
            MetricType::Gauge,
            "type",
            &self.active(stats),
        )?;
        let modes = stats.modes.iter().map(|(name, mode, len)| (Some(name), *mode, *len as u64));
        out.by(
            "leasehold_locks_active_by_mode",
            "Grants that stand now, by namespace and mode",
            MetricType::Gauge,
            "mode",
            &self.by_mode(modes),
        )?;
        let granted = counts.granted.iter().map(|((name, mode), len)| (name.as_ref(), *mode, *len));
        out.by(
            "leasehold_locks_granted",
            "Locks that were granted, by namespace and mode",
            MetricType::Counter,
            "mode",
            &self.by_mode(granted),
        )?;
        out.sessions(&stats.adapters)?;
        out.gauge("leasehold_waiters", "Requests that wait in a queue", stats.waiters as u64)?;
        out.gauge(
            "leasehold_kept_places",
            "Places in queues that are kept for callers who are away",
            stats.kept_places as u64,
        )?;
        out.counter("leasehold_deadlocks", "Deadlocks found and refused", counts.totals.deadlocks)?;
        out.gauge(
            "leasehold_locks_grace_period_active",
            "1 while a recovery grace is active",
            u64::from(status.grace.is_some()),
        )?;
        let led = leads.iter().filter(|leads| **leads).count() as u64;
        out.gauge("leasehold_leader", "How many groups of namespaces this server leads", led)?;
        out.groups(leads)?;
        out.gauge("leasehold_epoch", "The number of the authority that decides", status.epoch.0)?;
        out.histogram(
            "leasehold_commit_seconds",
            "How long the store took to keep a batch",
            &commits.seconds,
        )?;
        out.histogram(
            "leasehold_commit_batch_size",
            "How many changes went into one batch",
            &commits.batch_size,
        )?;
        out.histogram(
            "leasehold_sweep_seconds",
            "How long it took to end what was due, each time something was",
            &commits.sweep_seconds,
        )?;
        out.counter(
            "leasehold_commit_failures",
            "Batches the store did not keep",
            commits.failures,
        )?;
        if let Some(committed) = commits.snapshot {
            let name = "leasehold_snapshot_age_seconds";
            let help = "Time since this server last wrote a snapshot of a group; the oldest counts";
            out.seconds(name, help, committed.elapsed())?;
        }
        let help = "When the server's certificate ends, in seconds since 1970";
        out.gauge_or_none("leasehold_tls_not_after_seconds", help, *tls_not_after)?;
        out.gauge("leasehold_watchers", "Watches that are open here", *watchers)?;
        out.forwarded(*forwarded)?;
        out.shed(*shed)?;
        out.usage(usage)
    }
}

/// The cause for which a lock ended; `None` if nobody lost anything. The words are those of `Ending`.
fn reason(ending: &str) -> Option<&'static str> {
    match ending {
        "released" | "closed" | "file_removed" => Some("explicit"),
        "expired" => Some("timeout"),
        "grace_expired" => Some("grace_expired"),
        "disconnected" => Some("disconnect"),
        "revoked" => Some("revoked"),
        // Replaced, withdrawn, reclaimed; and the end of a window is not a second end of the lock.
        _ => None,
    }
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

/// Writes metrics that are known by their value alone.
struct Out<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Out<'_, '_> {
    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.begin(name, help, MetricType::Gauge)?.encode_gauge(&signed(value))
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let mut out = self.begin(name, help, MetricType::Counter)?;
        out.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    fn by(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        label: &'static str,
        values: &BTreeMap<(String, &'static str), u64>,
    ) -> Result<(), Error> {
        let mut out = self.begin(name, help, kind)?;
        for ((namespace, other), value) in values {
            let labels = [("namespace", namespace.as_str()), (label, *other)];
            let mut out = out.encode_family(&labels)?;
            match kind {
                MetricType::Counter => out.encode_counter::<NoLabelSet, u64, f64>(value, None)?,
                MetricType::Gauge
                | MetricType::Histogram
                | MetricType::Info
                | MetricType::Unknown => out.encode_gauge(&signed(*value))?,
            }
        }
        Ok(())
    }

    fn seconds(&mut self, name: &str, help: &str, value: Duration) -> Result<(), Error> {
        self.begin(name, help, MetricType::Gauge)?.encode_gauge(&value.as_secs_f64())
    }

    /// Named also where there is no value.
    fn gauge_or_none(&mut self, name: &str, help: &str, value: Option<u64>) -> Result<(), Error> {
        let mut out = self.begin(name, help, MetricType::Gauge)?;
        value.map_or(Ok(()), |value| out.encode_gauge(&signed(value)))
    }

    fn gauge_if(&mut self, name: &str, help: &str, value: Option<u64>) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.gauge(name, help, value))
    }

    /// 1 for each group that this server leads.
    fn groups(&mut self, leads: &[bool]) -> Result<(), Error> {
        let help = "1 if this server leads the group of namespaces";
        let mut out = self.begin("leasehold_group_leader", help, MetricType::Gauge)?;
        for (group, leads) in leads.iter().enumerate() {
            let labels = [("group", group.to_string())];
            out.encode_family(&labels)?.encode_gauge(&i64::from(*leads))?;
        }
        Ok(())
    }

    fn forwarded(&mut self, forwarded: Forwarded) -> Result<(), Error> {
        let help = "Requests that were forwarded to a leader, by whether it answered";
        let mut out = self.begin("leasehold_forwarded_requests", help, MetricType::Counter)?;
        for (result, value) in [("answered", forwarded.answered), ("failed", forwarded.failed)] {
            let labels = [("result", result)];
            let mut out = out.encode_family(&labels)?;
            out.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        Ok(())
    }

    /// Writes the number of calls that the engines refused because too many came, or waited too long.
    fn shed(&mut self, shed: ShedCounts) -> Result<(), Error> {
        let help = "Calls that were refused because too many were queued or waited too long";
        let mut out = self.begin("leasehold_shed_calls", help, MetricType::Counter)?;
        for (reason, value) in
            [("queue_full", shed.full), ("reads", shed.reads), ("ordinary", shed.ordinary)]
        {
            let labels = [("reason", reason)];
            let mut out = out.encode_family(&labels)?;
            out.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        let help = "What is refused because calls wait too long: 0 nothing, 1 reads of those above their share, 2 their ordinary calls too, 3 both of all that have any waiting";
        self.gauge("leasehold_shedding_level", help, shed.level.into())
    }

    fn usage(&mut self, usage: &Usage) -> Result<(), Error> {
        if let Some(cpu) = usage.cpu {
            let help = "Processor time, user and system";
            let mut out = self.begin("process_cpu_seconds", help, MetricType::Counter)?;
            out.encode_counter::<NoLabelSet, f64, f64>(&cpu.as_secs_f64(), None)?;
        }
        let resident = "Memory that is in RAM";
        self.gauge_if("process_resident_memory_bytes", resident, usage.resident_bytes)?;
        self.gauge_if("process_virtual_memory_bytes", "Address space", usage.virtual_bytes)?;
        self.gauge_if("process_open_fds", "Open file descriptors", usage.open_fds)?;
        let max = "How many file descriptors may be open";
        self.gauge_if("process_max_fds", max, usage.max_fds)?;
        self.gauge_if("leasehold_store_bytes", "Size of the database file", usage.database_bytes)?;
        let log = "Size of the log beside the database file";
        self.gauge_if("leasehold_store_log_bytes", log, usage.log_bytes)
    }

    /// Open sessions by adapter. All that are named have a sample, so that a rate begins at zero.
    fn sessions(&mut self, adapters: &[(Adapter, usize)]) -> Result<(), Error> {
        let help = "Open sessions, by adapter";
        let mut out = self.begin("leasehold_sessions_active", help, MetricType::Gauge)?;
        let is_other = |name: &str| !ADAPTERS.contains(&name) || name == OTHER_ADAPTER;
        for adapter in ADAPTERS {
            let counted = adapters.iter().filter(|(name, _)| match adapter {
                OTHER_ADAPTER => is_other(name.as_str()),
                adapter => name.as_str() == adapter,
            });
            let open: usize = counted.map(|(_, open)| open).sum();
            out.encode_family(&[("adapter", adapter)])?.encode_gauge(&signed(open as u64))?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, values: &Histogram) -> Result<(), Error> {
        let bounds = values.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(values.counts.iter().copied()).collect();
        let count = values.counts.iter().sum();
        let mut out = self.begin(name, help, MetricType::Histogram)?;
        out.encode_histogram::<NoLabelSet>(values.sum, count, &buckets, None)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
