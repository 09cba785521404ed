//! The configuration: from a TOML file, the environment, and the command line. The later wins.
//!
//! This module knows the TOML file and the defaults; `leasehold serve` lays the environment and its flags over them.

mod file;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use file::File;
use leasehold_access::CertificateMapping;
use leasehold_api::format_duration;
use leasehold_core::{GracePolicy, Limits};
use leasehold_engine::{EngineConfig, HistoryLimits};
use leasehold_store::LocationError;
use serde::Deserialize;

use crate::listen::Listen;
use crate::net::tls::{ClientAuth, TlsConfig};
use crate::quota::QuotaConfig;

const GROUPS_MAX: usize = 64;
const THREADS: RangeInclusive<usize> = 1..=1024;
const LEADERSHIP_TTL: RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(60);

/// The location of the store.
pub use leasehold_store::Location as Store;

/// Everything a server needs to know before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Listen,
    pub store: Store,
    /// The directory in which a memory store notes how far its fencing tokens have come.
    pub data: Option<PathBuf>,
    pub cluster: ClusterConfig,
    /// The time for which the simple lock stays reserved for its last holder after it expired.
    pub simple_grace: Duration,
    /// Serve others than this machine without TLS: a proxy in front has it.
    pub insecure_http: bool,
    /// Serve others than this machine without authentication.
    pub insecure_anonymous: bool,
    /// Names, beside its own, under which the server may be asked for.
    pub hosts: Vec<String>,
    /// The number of threads that serve requests.
    pub threads: usize,
    pub access_log: AccessLog,
    pub connections_max: usize,
    /// More connections than that from one address are turned away.
    pub connections_per_peer_max: usize,
    pub body_bytes_max: usize,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub idle_timeout: Duration,
    /// The interval of heartbeats to a watcher while nothing happens.
    pub watch_heartbeat: Duration,
    /// The number of events that are remembered for watchers that come back.
    pub events_max: usize,
    /// The most watches and long polls for events at a time.
    pub watchers_max: usize,
    /// More than that from one address are refused.
    pub watchers_per_peer_max: usize,
    /// A watcher that takes nothing for so long is told to look again.
    pub watch_stall_timeout: Duration,
    /// The number of endings that are remembered.
    pub history: HistoryLimits,
    pub grace: Grace,
    pub auth: AuthConfig,
    pub trace: TraceConfig,
    pub audit: AuditConfig,
    /// Without it the port speaks plain HTTP.
    pub tls: Option<TlsConfig>,
    pub limits: Limits,
    pub quota: QuotaConfig,
    /// After so many bytes of records a snapshot is taken, at the latest.
    pub snapshot_bytes: u64,
}

/// The settings for several servers that share one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// For people: tells this server from the others.
    pub name: Option<String>,
    /// The address at which the others reach this server, if not where it listens.
    pub advertise: Option<String>,
    /// The authorities that sign for the servers: with them they know each other by their certificates, and forward over TLS.
    pub ca: Option<PathBuf>,
    /// The number of groups that the namespaces are spread over. The same for all servers of a store, for ever.
    pub groups: usize,
    /// The time a leader may lead without a heartbeat.
    pub leadership_ttl: Duration,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        let leadership_ttl = EngineConfig::new(0).candidate.lease;
        ClusterConfig { name: None, advertise: None, ca: None, groups: 1, leadership_ttl }
    }
}

/// Whether credentials are needed, and where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthConfig {
    pub enabled: bool,
    /// Roles and tokens beside those of the store.
    pub access_file: Option<PathBuf>,
    /// Holds a token that becomes the first one of a store without any.
    pub bootstrap_token_file: Option<PathBuf>,
    /// The principals of clients' certificates; if there are none, those of `leasehold cert issue`.
    pub cert: Vec<CertificateMapping>,
}

impl AuthConfig {
    pub(crate) fn certificates(&self) -> Vec<CertificateMapping> {
        if self.cert.is_empty() { vec![CertificateMapping::own()] } else { self.cert.clone() }
    }
}

/// The settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// Without it there is none, and what operators do is told to the ordinary log.
    pub to: Option<AuditTo>,
    /// Holds the key that secrets are hashed with; `audit.key` beside the file if it is left out.
    pub key: Option<PathBuf>,
    /// Credentials that were used or refused, and what was not allowed.
    pub auth: bool,
    /// Each grant, refusal and end of a grant.
    pub grant: bool,
    /// Start, stop, who leads.
    pub server: bool,
    pub file_bytes_max: u64,
    /// The number of old files that are kept.
    pub files_max: usize,
}

/// The place of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTo {
    Stderr,
    File(PathBuf),
}

impl Default for AuditConfig {
    fn default() -> AuditConfig {
        let (file_bytes_max, files_max) = (100 * 1024 * 1024, 10);
        AuditConfig {
            to: None,
            key: None,
            auth: true,
            grant: false,
            server: true,
            file_bytes_max,
            files_max,
        }
    }
}

/// Where spans of traced requests go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceConfig {
    /// A collector that takes OTLP over HTTP, such as `http://127.0.0.1:4318`. None: there are no spans.
    pub endpoint: Option<String>,
    /// Whether spans tell the names of locks.
    pub names: bool,
}

/// The requests that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessLog {
    All,
    /// Those answered with an error. That somebody else holds a lock is none.
    #[default]
    Errors,
    Off,
}

/// The recovery grace after a start, as far as it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grace {
    pub policy: Option<Policy>,
    pub length: Option<Duration>,
}

/// The requests that the recovery grace refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Only what conflicts with a grant that has not come back yet.
    Conflicting,
    /// Every new grant.
    Strict,
}

impl Grace {
    pub fn length(&self) -> Duration {
        self.length.unwrap_or_else(|| EngineConfig::new(0).recovery.grace_length)
    }

    /// The policy for a store. In one that forgets nothing is known to conflict: a grace that is set is strict.
    pub fn policy(&self, store: &Store) -> GracePolicy {
        match self.policy {
            _ if *store == Store::Memory => match self {
                Grace { policy: None, length: None } => GracePolicy::Conflicting,
                Grace { .. } => GracePolicy::StrictUnknown,
            },
            Some(Policy::Strict) => GracePolicy::Strict,
            Some(Policy::Conflicting) | None => GracePolicy::Conflicting,
        }
    }
}

/// The reason why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}, line {line}: {message}", path.display())]
    Parse { path: PathBuf, line: usize, message: String },
    #[error(transparent)]
    Store(#[from] LocationError),
    #[error("{field} is {value}: {message}")]
    Value { field: &'static str, value: String, message: &'static str },
    #[error("{listen} can be reached by others, {missing}")]
    Exposed { listen: Listen, missing: Missing },
}

/// A protection that a server needs if others can reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Tls,
    Authentication,
    Both,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Tls => {
                "and there is no TLS: run `leasehold init` for a certificate, or say --insecure-http \
                 (no TLS, for a proxy in front)"
            }
            Missing::Authentication => {
                "and there is no authentication: run `leasehold init` for a first token, or say \
                 --insecure-anonymous (every client may do everything)"
            }
            Missing::Both => {
                "and there is neither TLS nor authentication: run `leasehold init` for a certificate and a \
                 first token, or say --insecure-http (no TLS, for a proxy in front) and \
                 --insecure-anonymous (every client may do everything)"
            }
        })
    }
}

/// The engine's settings have the engine's own defaults.
impl Default for Config {
    fn default() -> Config {
        let engine = EngineConfig::new(0);
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, leasehold_api::PORT)).into(),
            store: Store::in_directory(Path::new("leasehold-data")),
            data: None,
            cluster: ClusterConfig::default(),
            simple_grace: Duration::from_secs(5),
            insecure_http: false,
            insecure_anonymous: false,
            hosts: Vec::new(),
            threads: 1,
            access_log: AccessLog::default(),
            connections_max: 20_000,
            connections_per_peer_max: 2000,
            body_bytes_max: 64 * 1024,
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            watch_heartbeat: Duration::from_secs(15),
            events_max: engine.events_len_max,
            watchers_max: 10_000,
            watchers_per_peer_max: 200,
            watch_stall_timeout: Duration::from_secs(30),
            history: engine.history,
            grace: Grace::default(),
            auth: AuthConfig::default(),
            trace: TraceConfig::default(),
            audit: AuditConfig::default(),
            tls: None,
            limits: engine.recovery.limits,
            quota: QuotaConfig::default(),
            snapshot_bytes: engine.snapshot_bytes,
        }
    }
}

impl Config {
    /// The defaults with the file's settings over them.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Config::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            ConfigError::Parse {
                path: path.into(),
                line: text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1,
                message: error.message().replace('\n', " "),
            }
        })?;
        let mut config = Config::default();
        file.lay_over(&mut config)?;
        Ok(config)
    }

    /// The protection from others that is missing, unless the server may do without.
    fn missing(&self) -> Option<Missing> {
        let has_tls = self.tls.is_some() || self.insecure_http;
        let has_authentication = self.auth.enabled || self.insecure_anonymous;
        match (has_tls, has_authentication) {
            (true, true) => None,
            (false, true) => Some(Missing::Tls),
            (true, false) => Some(Missing::Authentication),
            (false, false) => Some(Missing::Both),
        }
    }

    /// Whether clients may show certificates.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_auth != ClientAuth::Off)
    }

    /// Whether the settings go together.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(missing) = self.missing().filter(|_| self.listen.is_open_to_others()) {
            return Err(ConfigError::Exposed { listen: self.listen.clone(), missing });
        }
        let fault =
            |field, value: String, message| Err(ConfigError::Value { field, value, message });
        if let Some(path) = self.auth.access_file.as_ref().filter(|_| !self.auth.enabled) {
            let message = "it is of no use without auth.enabled = true";
            return fault("auth.access_file", path.display().to_string(), message);
        }
        if self.audit.to.is_none() && self.audit != AuditConfig::default() {
            let message = "name a file, or \"stderr\"";
            return fault("audit.to", "left out".into(), message);
        }
        if self.audit.file_bytes_max < 64 * 1024 || self.audit.files_max == 0 {
            let value = self.audit.file_bytes_max.to_string();
            let message = "a file of the audit log has at least 64 KiB, and one old one is kept";
            return fault("audit.file_bytes_max", value, message);
        }
        if let Some(tls) = &self.tls {
            check_tls(tls)?;
        }
        if let (Some(path), Some(_)) = (self.listen.unix(), &self.tls) {
            let message = "a Unix socket needs no TLS";
            return fault("tls.cert", path.display().to_string(), message);
        }
        let has_use = self.asks_for_certificates() && self.auth.enabled;
        if !has_use && !self.auth.cert.is_empty() {
            let message = "it needs auth.enabled = true, and tls.client_ca";
            return fault("auth.cert", "set".into(), message);
        }
        let cluster = &self.cluster;
        if !(1..=GROUPS_MAX).contains(&cluster.groups) {
            let value = cluster.groups.to_string();
            return fault("cluster.groups", value, "there must be between 1 and 64");
        }
        if cluster.groups > 1 && !self.store.is_shared() {
            let value = cluster.groups.to_string();
            let message = "more than one group needs a shared store: postgres or etcd";
            return fault("cluster.groups", value, message);
        }
        if !LEADERSHIP_TTL.contains(&cluster.leadership_ttl) {
            let value = format_duration(cluster.leadership_ttl);
            return fault("cluster.leadership_ttl", value, "it must be between 500ms and 1m");
        }
        if let Some(path) = cluster.ca.as_ref().filter(|_| self.tls.is_none()) {
            let message =
                "it needs [tls]: servers know each other by the certificates that they show";
            return fault("cluster.ca", path.display().to_string(), message);
        }
        let scheme = if self.tls.is_some() { "https://" } else { "http://" };
        if let Some(address) = &cluster.advertise
            && !address.starts_with(scheme)
        {
            let message = match self.tls {
                Some(_) => "write it as https://HOST:PORT",
                None => "write it as http://HOST:PORT",
            };
            return fault("cluster.advertise", address.clone(), message);
        }
        if let Some(endpoint) = &self.trace.endpoint
            && !endpoint.starts_with("http://")
        {
            let message =
                "write it as http://HOST:PORT; a collector on this machine speaks TLS to others";
            return fault("trace.endpoint", endpoint.clone(), message);
        }
        if !THREADS.contains(&self.threads) {
            return fault("threads", self.threads.to_string(), "it must be between 1 and 1024");
        }
        if self.limits.lease_ttl_min > self.limits.lease_ttl_max {
            let value = format_duration(self.limits.lease_ttl_min);
            return fault("limits.ttl_min", value, "it must not be above limits.ttl_max");
        }
        if self.simple_grace > self.limits.reclaim_window_max {
            let value = format_duration(self.simple_grace);
            return fault("simple_grace", value, "it must not be above limits.reclaim_max");
        }
        if self.store == Store::Memory && self.grace.policy == Some(Policy::Conflicting) {
            let message = "a store that forgets knows of no conflict: there a grace is strict";
            return fault("grace.policy", "conflicting".into(), message);
        }
        if self.grace.policy(&self.store) == GracePolicy::StrictUnknown
            && self.grace.length() < self.limits.lease_ttl_max
        {
            let value = format_duration(self.grace.length());
            let message = "with the memory store it must be at least limits.ttl_max, or a lock could be granted to a second holder";
            return fault("grace.length", value, message);
        }
        Ok(())
    }
}

fn check_tls(tls: &TlsConfig) -> Result<(), ConfigError> {
    let is_asked = tls.client_auth != ClientAuth::Off;
    let (field, value, message) = match &tls.client_ca {
        None if is_asked => (
            "tls.client_auth",
            "on".into(),
            "it needs tls.client_ca, which says who may sign certificates of clients",
        ),
        None => match &tls.crl {
            Some(crl) => {
                ("tls.crl", crl.display().to_string(), "it is of no use without tls.client_ca")
            }
            None => return Ok(()),
        },
        Some(_) => return Ok(()),
    };
    Err(ConfigError::Value { field, value, message })
}
