//! The audit log: requests, their callers and their times, in lines of JSON that each name the one before.
//!
//! ```text
//!  service, access, cluster ──► Audit ──► queue ──► one thread ──► a file, or stderr
//! ```
//!
//! Lines about the commands of administrators and operators are *required*: one is written and synced before the command is
//! sent, and one with its result after it; where that fails nothing is done. All other lines go through the queue and are synced
//! once a second; those that find it full are counted. Without a configuration nothing of this exists, and commands of operators
//! go to the ordinary log.

mod grants;
mod key;
mod limit;
mod line;
mod log;
mod verify;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use leasehold_access::TokenId;
use leasehold_api::Code;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) use grants::follow as follow_grants;
pub use key::{KeyError, SecretKey};
pub(crate) use limit::Limiter;
pub(crate) use line::Line;
pub use log::OpenError;
pub use verify::{Verified, verify};

use crate::config::{AuditConfig, AuditTo};
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use log::{Entry, Log};

/// So many entries wait for the thread at most.
const QUEUE_LEN_MAX: usize = 65_536;
/// A required line that cannot be written for so long refuses its act.
const PATIENCE: Duration = Duration::from_secs(2);
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// A credential that was not used for so long is used anew.
const USED_ANEW_AFTER: Duration = Duration::from_secs(600);
/// So many credentials are remembered as used.
const USED_LEN_MAX: usize = 20_000;

/// The class of an event: decides whether it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Auth,
    Grant,
    Server,
}

/// The counters of the log itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditCounters {
    /// Lines that were not written.
    pub(crate) lost: Counter,
    /// Acts that were refused because they could not be written down.
    pub(crate) refused: Counter,
}

/// The way to the audit log; none if it is not configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    queue: SyncSender<Entry>,
    auth: bool,
    grant: bool,
    server: bool,
    /// As the lines name this server.
    name: String,
    key: Option<SecretKey>,
    limiter: Arc<Limiter>,
    used: Mutex<HashMap<TokenId, Instant>>,
    counters: AuditCounters,
}

impl Audit {
    /// Opens the log as it is configured, and starts its thread.
    pub(crate) fn open(
        config: &AuditConfig,
        name: &str,
        counters: AuditCounters,
    ) -> Result<Audit, OpenError> {
        let Some(to) = &config.to else { return Ok(Audit(None)) };
        let key = match (&config.key, to) {
            (Some(path), _) => Some(SecretKey::open(path)?),
            (None, AuditTo::File(path)) => {
                Some(SecretKey::open(&path.with_file_name("audit.key"))?)
            }
            (None, AuditTo::Stderr) => None,
        };
        let log = match to {
            AuditTo::Stderr => Log::stderr(),
            AuditTo::File(path) => Log::open(path, config.file_bytes_max, config.files_max)?,
        };
        let (queue, entries) = sync_channel(QUEUE_LEN_MAX);
        let limiter = Arc::new(Limiter::default());
        let worker = log::Worker::new(log, name, limiter.clone(), counters.lost.clone());
        let started = std::thread::Builder::new().name("audit".into());
        started.spawn(move || worker.run(&entries)).map_err(OpenError::Thread)?;
        let used = Mutex::default();
        let AuditConfig { auth, grant, server, .. } = *config;
        let name = name.into();
        Ok(Audit(Some(Arc::new(Inner {
            queue,
            auth,
            grant,
            server,
            name,
            key,
            limiter,
            used,
            counters,
        }))))
    }

    /// Whether there is such a log.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn has(&self, class: Class) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.has(class))
    }

    /// A secret as lines name it: `None` without a key.
    pub(crate) fn hashed(&self, secret: &str) -> Option<String> {
        Some(self.0.as_ref()?.key.as_ref()?.hash(secret))
    }

    /// Writes a line soon. If too many wait, it is counted as lost.
    pub(crate) fn note(&self, class: Class, line: impl FnOnce() -> Line) {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.has(class)) else { return };
        inner.put(&line());
    }

    /// The same for what administrators do outside of any request.
    pub(crate) fn tell(&self, line: impl FnOnce() -> Line) {
        if let Some(inner) = &self.0 {
            inner.put(&line());
        }
    }

    /// The same for what anybody can cause at will: of one address only a few lines a second, and then their number.
    pub(crate) fn note_of(&self, peer: SocketAddr, line: impl FnOnce() -> Line) {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.auth) else { return };
        if inner.limiter.takes(peer.ip()) {
            inner.put(&line());
        }
    }

    /// A credential was good: told once in ten minutes.
    pub(crate) fn used(&self, caller: &Caller, id: TokenId) {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.auth) else { return };
        let now = Instant::now();
        let mut used = inner.used.lock();
        if used.get(&id).is_some_and(|before| now.duration_since(*before) < USED_ANEW_AFTER) {
            return;
        }
        if used.len() >= USED_LEN_MAX {
            used.retain(|_, before| now.duration_since(*before) < USED_ANEW_AFTER);
            if used.len() >= USED_LEN_MAX {
                used.clear();
            }
        }
        used.insert(id, now);
        drop(used);
        inner.put(&Line::new("auth.use", "ok").by(caller));
    }

    /// Writes lines and waits until they are on the disk. If that cannot be had for two seconds, nothing may be done.
    pub(crate) async fn required(&self, lines: Vec<Line>) -> Result<(), Failure> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let bodies: Arc<[String]> = lines.iter().map(|line| line.body(&inner.name)).collect();
        let end = Instant::now() + PATIENCE;
        loop {
            let (done, written) = oneshot::channel();
            let entry = Entry::Required { bodies: bodies.clone(), done };
            if inner.queue.try_send(entry).is_ok()
                && let Ok(Ok(true)) = tokio::time::timeout_at(end, written).await
            {
                return Ok(());
            }
            if Instant::now() + TRY_AGAIN >= end {
                break;
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
        inner.counters.refused.inc();
        tracing::error!("the audit log cannot be written: what it requires is refused");
        let said =
            "this is not done unless it can be written to the audit log, which fails for now";
        Err(Failure::new(Code::AuditUnavailable, said).retried_soon())
    }

    /// Opens the file anew if another one is at its place: somebody has rotated it.
    pub(crate) fn reopen(&self) {
        if let Some(inner) = &self.0 {
            let _ = inner.queue.try_send(Entry::Reopen);
        }
    }
}

impl Inner {
    fn has(&self, class: Class) -> bool {
        match class {
            Class::Auth => self.auth,
            Class::Grant => self.grant,
            Class::Server => self.server,
        }
    }

    fn put(&self, line: &Line) {
        let body = line.body(&self.name);
        if self.queue.try_send(Entry::Line(body)).is_err() {
            self.counters.lost.inc();
        }
    }
}
