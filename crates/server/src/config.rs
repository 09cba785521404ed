//! The configuration: from a TOML file, the environment, and the command line. The later wins.
//!
//! This file knows the TOML file and the defaults; `leasehold serve` lays the environment and its flags over them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_access::{CertificateMapping, MappingError};
use leasehold_api::{format_duration, parse_duration};
use leasehold_core::{GracePolicy, Limits};
use leasehold_engine::{EngineConfig, HistoryLimits};
use leasehold_store::LocationError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::listen::Listen;
use crate::net::tls::{ClientAuth, MinVersion, TlsConfig};
use crate::quota::{QuotaConfig, QuotaFile};

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
    /// The number of groups that the namespaces are spread over. The same for all servers of a store, for ever.
    pub groups: usize,
    /// The time a leader may lead without a heartbeat.
    pub leadership_ttl: Duration,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        let leadership_ttl = EngineConfig::new(0).candidate.lease;
        ClusterConfig { name: None, advertise: None, groups: 1, leadership_ttl }
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

/// The file, as it is written. A key it does not know is a mistake.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    listen: Option<Listen>,
    data: Option<PathBuf>,
    store: Option<String>,
    cluster: ClusterFile,
    simple_grace: Option<Length>,
    insecure: Option<bool>,
    insecure_http: Option<bool>,
    insecure_anonymous: Option<bool>,
    hosts: Option<Vec<String>>,
    threads: Option<usize>,
    access_log: Option<AccessLog>,
    connections: Connections,
    watch: Watching,
    history: HistoryFile,
    grace: GraceFile,
    auth: AuthFile,
    audit: Option<AuditFile>,
    tls: Option<TlsFile>,
    limits: LimitsFile,
    quota: QuotaFile,
    snapshot_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClusterFile {
    name: Option<String>,
    advertise: Option<String>,
    groups: Option<usize>,
    leadership_ttl: Option<Length>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Connections {
    max: Option<usize>,
    per_peer_max: Option<usize>,
    body_bytes_max: Option<usize>,
    header_timeout: Option<Length>,
    body_timeout: Option<Length>,
    idle_timeout: Option<Length>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Watching {
    heartbeat: Option<Length>,
    events_max: Option<usize>,
    max: Option<usize>,
    per_peer_max: Option<usize>,
    stall_timeout: Option<Length>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HistoryFile {
    endings_max: Option<usize>,
    deadlocks_max: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GraceFile {
    policy: Option<Policy>,
    length: Option<Length>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AuthFile {
    enabled: Option<bool>,
    access_file: Option<PathBuf>,
    cert: Vec<CertFile>,
}

/// A mapping of certificates, as it is written.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RawCert")]
struct CertFile(CertificateMapping);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCert {
    uri: Option<String>,
    dns: Option<String>,
    principal: String,
    #[serde(default)]
    roles: Vec<String>,
}

impl TryFrom<RawCert> for CertFile {
    type Error = MappingError;

    fn try_from(raw: RawCert) -> Result<CertFile, MappingError> {
        let RawCert { uri, dns, principal, roles } = raw;
        CertificateMapping::new(uri.as_deref(), dns.as_deref(), &principal, &roles).map(CertFile)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsFile {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    client_auth: Option<ClientAuth>,
    crl: Option<PathBuf>,
    #[serde(default)]
    min_version: MinVersion,
}

impl TlsFile {
    fn config(self) -> TlsConfig {
        let TlsFile { cert, key, client_ca, client_auth, crl, min_version } = self;
        // Whoever names an authority wants to know who comes.
        let unless_told = if client_ca.is_some() { ClientAuth::Optional } else { ClientAuth::Off };
        let client_auth = client_auth.unwrap_or(unless_told);
        TlsConfig { cert, key, client_ca, client_auth, crl, min_version }
    }
}

/// `audit = "PATH"`, `audit = "stderr"`, or a table.
#[derive(Debug)]
struct AuditFile(AuditTable);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AuditTable {
    to: Option<String>,
    key: Option<PathBuf>,
    auth: Option<bool>,
    grant: Option<bool>,
    server: Option<bool>,
    file_bytes_max: Option<u64>,
    files_max: Option<usize>,
}

impl<'de> Deserialize<'de> for AuditFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AuditFile, D::Error> {
        struct Spelled;
        impl<'de> Visitor<'de> for Spelled {
            type Value = AuditFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a file, \"stderr\", or a table")
            }

            fn visit_str<E: serde::de::Error>(self, to: &str) -> Result<AuditFile, E> {
                Ok(AuditFile(AuditTable { to: Some(to.into()), ..AuditTable::default() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AuditFile, A::Error> {
                AuditTable::deserialize(MapAccessDeserializer::new(map)).map(AuditFile)
            }
        }
        deserializer.deserialize_any(Spelled)
    }
}

impl AuditFile {
    fn lay_over(self, config: &mut AuditConfig) {
        let AuditFile(table) = self;
        let to = table.to.map(|to| match &*to {
            "stderr" => AuditTo::Stderr,
            path => AuditTo::File(path.into()),
        });
        set(&mut config.to, to.map(Some));
        set(&mut config.key, table.key.map(Some));
        set(&mut config.auth, table.auth);
        set(&mut config.grant, table.grant);
        set(&mut config.server, table.server);
        set(&mut config.file_bytes_max, table.file_bytes_max);
        set(&mut config.files_max, table.files_max);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsFile {
    ttl_min: Option<Length>,
    ttl_max: Option<Length>,
    reclaim_max: Option<Length>,
    disconnect_ttl_max: Option<Length>,
    set_max: Option<usize>,
    permits_max: Option<u32>,
    metadata_bytes_max: Option<usize>,
    waiters_per_lock_max: Option<usize>,
    waiters_max: Option<usize>,
    waiter_bytes_max: Option<usize>,
    locks_max: Option<usize>,
    bytes_max: Option<usize>,
    sessions_max: Option<usize>,
    locks_per_session_max: Option<usize>,
    sessions_per_adapter_max: Option<usize>,
    registers_per_namespace_max: Option<usize>,
    registers_max: Option<usize>,
    namespaces_max: Option<usize>,
    ticket_kept: Option<Length>,
    kept_places_max: Option<usize>,
}

/// A length of time: `"30s"`, or a whole number of seconds.
#[derive(Clone, Copy, Debug)]
struct Length(Duration);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a length such as \"30s\", or a whole number of seconds")]
        enum Spelled {
            Seconds(u64),
            Text(String),
        }
        match Spelled::deserialize(deserializer)? {
            Spelled::Seconds(seconds) => Ok(Length(Duration::from_secs(seconds))),
            Spelled::Text(text) => {
                parse_duration(&text).map(Length).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl File {
    fn lay_over(self, config: &mut Config) -> Result<(), ConfigError> {
        set(&mut config.listen, self.listen);
        set(&mut config.store, self.data.as_deref().map(Store::in_directory));
        set(&mut config.store, self.store.as_deref().map(Store::parse).transpose()?);
        set(&mut config.data, self.data.map(Some));
        set(&mut config.cluster.name, self.cluster.name.map(Some));
        set(&mut config.cluster.advertise, self.cluster.advertise.map(Some));
        set(&mut config.cluster.groups, self.cluster.groups);
        set_length(&mut config.cluster.leadership_ttl, self.cluster.leadership_ttl);
        set_length(&mut config.simple_grace, self.simple_grace);
        set(&mut config.insecure_http, self.insecure_http.or(self.insecure));
        set(&mut config.insecure_anonymous, self.insecure_anonymous.or(self.insecure));
        set(&mut config.hosts, self.hosts);
        set(&mut config.threads, self.threads);
        set(&mut config.access_log, self.access_log);
        set(&mut config.snapshot_bytes, self.snapshot_bytes);
        set(&mut config.connections_max, self.connections.max);
        set(&mut config.connections_per_peer_max, self.connections.per_peer_max);
        set(&mut config.body_bytes_max, self.connections.body_bytes_max);
        set_length(&mut config.header_timeout, self.connections.header_timeout);
        set_length(&mut config.body_timeout, self.connections.body_timeout);
        set_length(&mut config.idle_timeout, self.connections.idle_timeout);
        set_length(&mut config.watch_heartbeat, self.watch.heartbeat);
        set(&mut config.events_max, self.watch.events_max);
        set(&mut config.watchers_max, self.watch.max);
        set(&mut config.watchers_per_peer_max, self.watch.per_peer_max);
        set_length(&mut config.watch_stall_timeout, self.watch.stall_timeout);
        set(&mut config.history.endings_max, self.history.endings_max);
        set(&mut config.history.deadlocks_max, self.history.deadlocks_max);
        set(&mut config.grace.policy, self.grace.policy.map(Some));
        set(&mut config.grace.length, self.grace.length.map(|length| Some(length.0)));
        set(&mut config.auth.enabled, self.auth.enabled);
        set(&mut config.auth.access_file, self.auth.access_file.map(Some));
        if let Some(audit) = self.audit {
            audit.lay_over(&mut config.audit);
        }
        config.auth.cert.extend(self.auth.cert.into_iter().map(|cert| cert.0));
        set(&mut config.tls, self.tls.map(|tls| Some(tls.config())));
        self.limits.lay_over(&mut config.limits);
        self.quota.lay_over(&mut config.quota);
        Ok(())
    }
}

impl LimitsFile {
    fn lay_over(self, limits: &mut Limits) {
        set_length(&mut limits.lease_ttl_min, self.ttl_min);
        set_length(&mut limits.lease_ttl_max, self.ttl_max);
        set_length(&mut limits.reclaim_window_max, self.reclaim_max);
        set_length(&mut limits.disconnect_ttl_max, self.disconnect_ttl_max);
        set(&mut limits.set_len_max, self.set_max);
        set(&mut limits.permits_max, self.permits_max);
        set(&mut limits.metadata_bytes_max, self.metadata_bytes_max);
        set(&mut limits.waiters_per_scope_max, self.waiters_per_lock_max);
        set(&mut limits.waiters_max, self.waiters_max);
        set(&mut limits.waiter_bytes_max, self.waiter_bytes_max);
        set(&mut limits.locks_max, self.locks_max);
        set(&mut limits.bytes_max, self.bytes_max);
        set(&mut limits.sessions_max, self.sessions_max);
        set(&mut limits.locks_per_session_max, self.locks_per_session_max);
        set(&mut limits.sessions_per_adapter_max, self.sessions_per_adapter_max);
        set(&mut limits.registers_per_namespace_max, self.registers_per_namespace_max);
        set(&mut limits.registers_max, self.registers_max);
        set(&mut limits.namespaces_max, self.namespaces_max);
        set_length(&mut limits.ticket_kept, self.ticket_kept);
        set(&mut limits.kept_places_max, self.kept_places_max);
    }
}

fn set<T>(setting: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *setting = said;
    }
}

fn set_length(setting: &mut Duration, said: Option<Length>) {
    set(setting, said.map(|said| said.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("leasehold.toml"), text)
    }

    #[test]
    fn empty_file_is_the_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.store, Store::Sqlite("leasehold-data/leasehold.db".into()));
        assert_eq!(config.limits, Limits::default());
        config.check().unwrap();
    }

    #[test]
    fn file_is_read_as_it_is_documented() {
        let text = "listen = \"127.0.0.1:9090\"\nstore = \"memory\"\nsimple_grace = \"1m30s\"\n\
            [connections]\nidle_timeout = 20\n[limits]\nttl_max = \"1h\"\n[grace]\nlength = \"10s\"\n";
        let config = parse(text).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:9090");
        assert_eq!(config.store, Store::Memory);
        assert_eq!(config.simple_grace, Duration::from_secs(90));
        assert_eq!(config.idle_timeout, Duration::from_secs(20));
        assert_eq!(config.limits.lease_ttl_max, Duration::from_secs(3600));
        assert_eq!(config.grace.length, Some(Duration::from_secs(10)));
    }

    #[test]
    fn unknown_key_is_refused_with_its_line() {
        let said = parse("listen = \"127.0.0.1:1\"\n\nlisten_port = 3\n").unwrap_err().to_string();
        assert!(said.starts_with("leasehold.toml, line 3: unknown field `listen_port`"), "{said}");
        let said = parse("[limits]\nttl = 3\n").unwrap_err().to_string();
        assert!(said.starts_with("leasehold.toml, line 2: unknown field `ttl`"), "{said}");
    }

    #[test]
    fn wrong_value_is_refused_with_its_line() {
        for (text, line) in [
            ("threads = \"two\"", 1),
            ("\nsimple_grace = \"soon\"", 2),
            ("a = ", 1),
            ("[grace]\npolicy = \"none\"", 2),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.starts_with(&format!("leasehold.toml, line {line}: ")), "{said}");
        }
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused() {
        for text in [
            "listen = \"0.0.0.0:80\"",
            "[auth]\naccess_file = \"access.toml\"",
            "threads = 0",
            "threads = 9999999",
            "[cluster]\ngroups = 0",
            "[cluster]\ngroups = 2",
            "[cluster]\nleadership_ttl = \"100ms\"",
            "[cluster]\nadvertise = \"locks-1:8080\"",
            "[limits]\nttl_min = \"2h\"\nttl_max = \"1h\"",
            "store = \"memory\"\n[grace]\npolicy = \"strict\"\nlength = \"1s\"",
            "store = \"memory\"\n[grace]\nlength = \"1s\"",
            "store = \"memory\"\n[grace]\npolicy = \"conflicting\"",
        ] {
            assert!(parse(text).unwrap().check().is_err(), "{text}");
        }
    }

    /// Attack 55.
    #[test]
    fn server_that_others_can_reach_needs_tls_and_authentication_or_says_otherwise() {
        const TLS: &str = "[tls]\ncert = \"a\"\nkey = \"b\"\n";
        const AUTH: &str = "[auth]\nenabled = true\n";
        let check = |settings: &str| {
            let text = format!("listen = \"0.0.0.0:80\"\n{settings}");
            parse(&text).unwrap().check().map_err(|error| error.to_string())
        };
        for (settings, missing) in [
            ("", "neither TLS nor authentication"),
            (TLS, "no authentication"),
            (AUTH, "no TLS"),
            ("insecure_http = true", "no authentication"),
            ("insecure_anonymous = true", "no TLS"),
            ("insecure = true\ninsecure_http = false", "no TLS"),
        ] {
            let said = check(settings).unwrap_err();
            assert!(said.starts_with("0.0.0.0:80 can be reached by others, and"), "{said}");
            assert!(said.contains(missing), "{settings}: {said}");
        }
        for settings in [
            &format!("{AUTH}{TLS}"),
            "insecure = true",
            "insecure_http = true\ninsecure_anonymous = true",
            &format!("insecure_http = true\n{AUTH}"),
            &format!("insecure_anonymous = true\n{TLS}"),
        ] {
            check(settings).unwrap();
        }
        parse("listen = \"unix:/run/socket\"").unwrap().check().unwrap();
    }

    #[test]
    fn certificates_are_mapped_as_it_is_documented() {
        let text = "[auth]\nenabled = true\n[[auth.cert]]\nuri = \"spiffe://a/ns/{ns}/sa/{sa}\"\n\
            principal = \"spiffe/{ns}/{sa}\"\nroles = [\"client:{ns}\"]\n\
            [tls]\ncert = \"a\"\nkey = \"b\"\nclient_ca = \"c\"\n";
        let config = parse(text).unwrap();
        config.check().unwrap();
        assert_eq!(config.auth.cert.len(), 1);
        assert_eq!(config.tls.unwrap().client_auth, ClientAuth::Optional);
        let said = parse("[[auth.cert]]\nprincipal = \"a\"\n").unwrap_err().to_string();
        assert!(said.contains("line 1: a mapping has one of uri and dns"), "{said}");
        let said = parse("[tls]\ncert = \"a\"\n").unwrap_err().to_string();
        assert!(said.contains("missing field `key`"), "{said}");
        let unused = "[[auth.cert]]\nuri = \"a://{b}\"\nprincipal = \"{b}\"\n";
        assert!(parse(unused).unwrap().check().is_err());
    }

    #[test]
    fn grace_that_is_set_is_strict_in_a_store_that_forgets() {
        let policy = |text: &str| {
            let config = parse(text).unwrap();
            config.check().unwrap();
            config.grace.policy(&config.store)
        };
        let memory = "store = \"memory\"\n[limits]\nttl_max = \"1m\"\n[grace]\n";
        assert_eq!(policy(&format!("{memory}length = \"1m\"")), GracePolicy::StrictUnknown);
        let strict = format!("{memory}length = \"1m\"\npolicy = \"strict\"");
        assert_eq!(policy(&strict), GracePolicy::StrictUnknown);
        assert_eq!(policy("store = \"memory\""), GracePolicy::Conflicting);
        assert_eq!(policy("[grace]\npolicy = \"strict\""), GracePolicy::Strict);
        assert_eq!(policy("[grace]\nlength = \"1s\""), GracePolicy::Conflicting);
    }

    #[test]
    fn store_is_spelled_in_one_way() {
        assert_eq!(Store::parse("memory").unwrap(), Store::Memory);
        assert_eq!(Store::parse("sqlite:/var/x.db").unwrap(), Store::Sqlite("/var/x.db".into()));
        for text in ["", "sqlite", "sqlite:", "mysql://x", "Memory", "postgres://"] {
            assert!(Store::parse(text).is_err(), "{text}");
        }
    }
}
