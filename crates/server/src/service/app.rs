//! The state that every request needs: the engine, the clock, the metrics, the configuration.

use std::sync::Arc;

use leasehold_core::{Namespace, Stats, Timestamp};
use leasehold_engine::{Clock, Handle, Query, View};

use super::backup::BackupTurn;
use super::caller::Caller;
use super::quotas::ServerQuotas;
use super::streams::Streams;
use crate::access::Authenticator;
use crate::audit::Audit;
use crate::cluster::balance::Servers;
use crate::cluster::forward::Forwarder;
use crate::cluster::groups::Groups;
use crate::config::Config;
use crate::net::hosts::Hosts;
use crate::net::limits::ConnectionLimiter;
use crate::net::tls::Tls;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::samples::Samples;
use crate::telemetry::traces::Tracer;

/// Shared by all connections.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) groups: Groups,
    pub(crate) forwarder: Forwarder,
    pub(crate) servers: Servers,
    /// As other servers see this one.
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) config: Config,
    pub(crate) samples: Samples,
    pub(crate) audit: Audit,
    /// The names it answers to.
    pub(crate) hosts: Hosts,
    /// The TLS of the port, if it has any.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) tracer: Tracer,
    pub(crate) backup_turn: BackupTurn,
    /// The access rules.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Those who watch, here or through here.
    pub(crate) watchers: Arc<ConnectionLimiter>,
    /// Watches and requests of each principal.
    pub(crate) quotas: ServerQuotas,
    /// The stream of each session that is bound to one.
    pub(crate) streams: Streams,
}

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The engine of a namespace's group.
    pub(crate) fn engine(&self, namespace: &Namespace) -> &Handle {
        self.groups.engine(namespace)
    }

    /// The same for what a caller asks.
    pub(crate) fn engine_for(&self, caller: &Caller, namespace: &Namespace) -> Handle {
        self.engine(namespace).on_behalf_of(&caller.account)
    }

    pub(crate) fn epoch(&self, namespace: &Namespace) -> u64 {
        self.engine(namespace).status().epoch.0
    }

    /// The numbers of a group, if this server leads it.
    pub(crate) async fn stats(&self, engine: &Handle) -> Option<Stats> {
        match engine.query(Query::Stats).await {
            Ok(View::Stats(stats)) => Some(*stats),
            Ok(_) | Err(_) => None,
        }
    }
}
