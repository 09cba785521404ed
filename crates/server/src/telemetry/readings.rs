//! What is read off the engine when somebody asks for the metrics: its own counts, and how things stand.

use std::collections::BTreeMap;
use std::fmt::Error;

use leasehold_core::{Adapter, Namespace, ScopeKind, Stats};
use leasehold_engine::{Commits, Counts, Handle, Histogram, Phase, Status};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::telemetry::metrics::{NamespaceLabels, OTHER_NAMESPACE};

/// The adapters that have a label of their own.
const ADAPTERS: [&str; 7] = ["http", "grpc", "fuse", "nlm", "nfs", "smb", OTHER_ADAPTER];
const OTHER_ADAPTER: &str = "other";

/// One look at the engine.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    /// How many groups this server leads.
    pub(crate) leads: u64,
    pub(crate) status: Status,
    pub(crate) stats: Stats,
    pub(crate) counts: Counts,
    pub(crate) commits: Commits,
}

impl Readings {
    pub(crate) fn of(engine: &Handle, stats: Stats) -> Readings {
        let status = engine.status();
        Readings {
            leads: u64::from(status.phase == Phase::Leading),
            status,
            stats,
            counts: engine.counts(),
            commits: engine.commits(),
        }
    }

    /// Both together, for a server with several groups.
    pub(crate) fn and(mut self, other: Readings) -> Readings {
        self.leads += other.leads;
        self.status.grace = self.status.grace.or(other.status.grace);
        self.status.epoch = self.status.epoch.max(other.status.epoch);
        self.stats.held += other.stats.held;
        self.stats.waiters += other.stats.waiters;
        self.stats.kept_places += other.stats.kept_places;
        self.stats.kinds.extend(other.stats.kinds);
        self.stats.modes.extend(other.stats.modes);
        self.stats.adapters.extend(other.stats.adapters);
        self.counts.add(&other.counts);
        self.commits.add(&other.commits);
        self
    }
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
        let Readings { leads, status, stats, counts, commits } = &readings;
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
        out.gauge("leasehold_leader", "How many groups of namespaces this server leads", *leads)?;
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
        out.counter("leasehold_commit_failures", "Batches the store did not keep", commits.failures)
    }
}

/// Whose doing it was that a lock ended; `None` if nobody lost anything. The words are those of `Ending`.
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
