//! From a configuration to a server that serves, and back.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::Fence;
use leasehold_engine::{Recovery, Runner, Stop, SystemClock};
use leasehold_store::sqlite::{Options, SqliteJournal};
use leasehold_store::{Candidate, Journal, MemoryJournal, OpenError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::accept;
use crate::app::App;
use crate::config::{Config, ConfigError, Store};
use crate::http;
use crate::metrics::Metrics;
use crate::random;

/// How long the engine has to write what is left, and after it the connections to take their answers.
const ENGINE_STOP_MAX: Duration = Duration::from_secs(3);
const CONNECTIONS_STOP_MAX: Duration = Duration::from_secs(1);

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    engine: Stop,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot make the directory {path}: {source}")]
    Directory { path: String, source: io::Error },
    #[error("{}", with_cause(.0))]
    Store(#[from] OpenError),
    #[error("cannot take over what is stored: {}", with_cause(.0))]
    Engine(#[from] leasehold_engine::StartError),
}

/// The whole chain in one line.
fn with_cause(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

impl Server {
    /// Takes over what is stored, and serves it. While that lasts, the port answers already: not ready.
    pub async fn start(config: Config) -> Result<Server, StartError> {
        config.check()?;
        // Before the store: if the port is taken, another server most likely uses the store as well.
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let address = listener
            .local_addr()
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
        let journal = open(&config.store).await?;
        let clock = SystemClock::new();
        let (handle, mut engine) =
            leasehold_engine::start(runner(&config, address), Arc::new(clock), journal);
        let app = Arc::new(App { engine: handle, clock, metrics, config });
        let (stop, stopped) = watch::channel(false);
        let router = http::router(app.clone());
        let accepting = tokio::spawn(accept::accept(listener, app, router, stopped));
        engine.settled().await?;
        Ok(Server { address, engine, stop, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes nothing in any more, tells those who wait, writes what is left, lets answers go out, and ends.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        if tokio::time::timeout(ENGINE_STOP_MAX, self.engine.stop()).await.is_err() {
            tracing::warn!("the engine did not end in time");
        }
        if tokio::time::timeout(CONNECTIONS_STOP_MAX, self.accepting).await.is_err() {
            tracing::warn!("some connections were cut off");
        }
    }

    /// Waits until the engine ends by itself, because it lost its store.
    pub async fn ended(&mut self) -> Result<(), StartError> {
        Ok(self.engine.ended().await?)
    }
}

fn runner(config: &Config, address: SocketAddr) -> Runner {
    let seed = random::secret();
    Runner {
        candidate: Candidate {
            name: format!("leasehold-{}", std::process::id()),
            address: format!("http://{address}"),
            lease: Duration::from_secs(3),
        },
        recovery: Recovery {
            limits: config.limits.clone(),
            seed,
            grace: config.grace.policy,
            grace_length: config.grace.length,
            fence_floor: (config.store == Store::Memory).then(fence_floor),
        },
        snapshot_bytes: config.snapshot_bytes,
        events_len_max: config.events_max,
        watcher_backlog_max: config.watcher_backlog_max,
    }
}

/// A store that forgets does not know which fences were handed out. Microseconds since 1970 are above all of them, as long
/// as fewer than a million were handed out a second.
fn fence_floor() -> Fence {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(0);
    Fence::new(micros).unwrap_or(Fence::ZERO)
}

async fn open(store: &Store) -> Result<Arc<dyn Journal>, StartError> {
    let path = match store {
        Store::Memory => return Ok(Arc::new(MemoryJournal::new())),
        Store::Sqlite(path) => path.clone(),
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        make_directory(directory)?;
    }
    let opening =
        tokio::task::spawn_blocking(move || SqliteJournal::open(&path, Options::default()));
    let journal = opening.await.expect("opening a store does not panic")?;
    Ok(Arc::new(journal))
}

fn make_directory(path: &Path) -> Result<(), StartError> {
    std::fs::create_dir_all(path)
        .map_err(|source| StartError::Directory { path: path.display().to_string(), source })
}
