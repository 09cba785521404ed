//! What every request needs: the engine, the clock, the metrics, the configuration.

use std::sync::Arc;

use leasehold_core::{AcceptFence, Answer, Command, Namespace, OpenSession, Stats, Timestamp};
use leasehold_engine::{CallError, Clock, Handle, Query, View};

use crate::cluster::balance::Servers;
use crate::cluster::forward::Forwarder;
use crate::cluster::groups::Groups;
use crate::config::Config;
use crate::convert;
use crate::grpc::stream::session::Streams;
use crate::net::limits::ConnectionLimiter;
use crate::service::problems::Failure;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::samples::Samples;

/// How often a command that ends so much at a time is given again before its answer is truncated.
const TURNS_MAX: usize = 1000;

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
    /// Those who watch, here or through here.
    pub(crate) watchers: Arc<ConnectionLimiter>,
    /// Which stream is bound to which session.
    pub(crate) streams: Streams,
}

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Who decides about a namespace.
    pub(crate) fn engine(&self, namespace: &Namespace) -> &Handle {
        self.groups.engine(namespace)
    }

    pub(crate) fn epoch(&self, namespace: &Namespace) -> u64 {
        self.engine(namespace).status().epoch.0
    }

    /// Whether others than this machine can reach the server, which the operator has allowed.
    pub(crate) fn is_open_to_others(&self) -> bool {
        !self.config.listen.ip().is_loopback()
    }

    pub(crate) async fn command(&self, command: Command) -> Result<Answer, Failure> {
        if let Command::OpenSession(OpenSession { namespace, .. })
        | Command::AcceptFence(AcceptFence { namespace, .. }) = &command
        {
            convert::not_reserved(namespace)?;
        }
        let engine = self.engine(command.namespace().unwrap_or(&Namespace::default()));
        engine.command(command).await.map_err(|error| self.failure(&error))
    }

    /// A command that ends so much at a time, again and again until all of it has ended. An answer that is truncated still
    /// tells of what has ended by then.
    pub(crate) async fn command_in_turns(&self, command: Command) -> Result<Answer, Failure> {
        let mut all = self.command(command.clone()).await?;
        for _ in 0..TURNS_MAX {
            if !all.is_truncated() {
                break;
            }
            match self.command(command.clone()).await {
                Ok(more) => all = all.and(more),
                Err(_) => break,
            }
        }
        Ok(all)
    }

    pub(crate) async fn query(&self, query: Query) -> Result<View, Failure> {
        let engine = self.engine(query.namespace().unwrap_or(&Namespace::default()));
        engine.query(query).await.map_err(|error| self.failure(&error))
    }

    /// The numbers of a group, if this server leads it.
    pub(crate) async fn stats(&self, engine: &Handle) -> Option<Stats> {
        match engine.query(Query::Stats).await {
            Ok(View::Stats(stats)) => Some(*stats),
            Ok(_) | Err(_) => None,
        }
    }

    pub(crate) fn failure(&self, error: &CallError) -> Failure {
        convert::problem(self.now(), error).into()
    }
}
