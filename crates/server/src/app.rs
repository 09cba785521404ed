//! What every request needs: the engine, the clock, the metrics, the configuration.

use std::sync::Arc;

use leasehold_core::{Answer, Command, Timestamp};
use leasehold_engine::{CallError, Clock, Handle, Query, SystemClock, View};

use crate::config::Config;
use crate::convert;
use crate::metrics::Metrics;
use crate::problem::Failure;
use crate::samples::Samples;

/// Shared by all connections.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Handle,
    pub(crate) clock: SystemClock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) config: Config,
    pub(crate) samples: Samples,
}

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.engine.status().epoch.0
    }

    /// Whether others than this machine can reach the server, which the operator has allowed.
    pub(crate) fn is_open_to_others(&self) -> bool {
        !self.config.listen.ip().is_loopback()
    }

    pub(crate) async fn command(&self, command: Command) -> Result<Answer, Failure> {
        self.engine.command(command).await.map_err(|error| self.failure(&error))
    }

    pub(crate) async fn query(&self, query: Query) -> Result<View, Failure> {
        self.engine.query(query).await.map_err(|error| self.failure(&error))
    }

    pub(crate) fn failure(&self, error: &CallError) -> Failure {
        convert::problem(self.now(), error).into()
    }
}
