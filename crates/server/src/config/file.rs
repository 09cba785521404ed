//! The configuration file: its tables and keys, laid over the defaults.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_access::{CertificateMapping, MappingError};
use leasehold_api::parse_duration;
use leasehold_core::Limits;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{AccessLog, AuditConfig, AuditTo, Config, ConfigError, Policy, Store};
use crate::listen::Listen;
use crate::net::tls::{ClientAuth, MinVersion, TlsConfig};
use crate::quota::QuotaFile;

/// The file, as it is written. A key it does not know is a mistake.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
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
    trace: TraceFile,
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
    ca: Option<PathBuf>,
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
struct TraceFile {
    endpoint: Option<String>,
    names: Option<bool>,
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

/// A duration: `"30s"`, or a whole number of seconds.
#[derive(Clone, Copy, Debug)]
struct Length(Duration);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a duration such as \"30s\", or a whole number of seconds")]
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
    pub(super) fn lay_over(self, config: &mut Config) -> Result<(), ConfigError> {
        set(&mut config.listen, self.listen);
        set(&mut config.store, self.data.as_deref().map(Store::in_directory));
        set(&mut config.store, self.store.as_deref().map(Store::parse).transpose()?);
        set(&mut config.data, self.data.map(Some));
        set(&mut config.cluster.name, self.cluster.name.map(Some));
        set(&mut config.cluster.advertise, self.cluster.advertise.map(Some));
        set(&mut config.cluster.ca, self.cluster.ca.map(Some));
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
        set(&mut config.trace.endpoint, self.trace.endpoint.map(Some));
        set(&mut config.trace.names, self.trace.names);
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
