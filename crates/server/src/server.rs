//! From a configuration to a server that serves, and back.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::FencingToken;
use leasehold_engine::{Clock, EngineConfig, Recovery, Stop, SystemClock};
use leasehold_store::{Candidate, Journal, OpenError, with_cause};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::access::{Authenticator, FileError};
use crate::audit::{self, Audit, Class, Line, OpenError as AuditError};
use crate::cluster::balance::{self, Servers};
use crate::cluster::forward::Forwarder;
use crate::cluster::groups::Groups;
use crate::config::{Config, ConfigError, Store};
use crate::engine_thread::EngineThread;
use crate::grpc;
use crate::http;
use crate::listen::Listen;
use crate::net::accept::{self, Listener};
use crate::net::descriptors;
use crate::net::hosts::Hosts;
use crate::net::limits::ConnectionLimiter;
use crate::net::listener::SystemListener;
use crate::net::request::Routers;
use crate::net::tls::{Tls, TlsError};
use crate::service::app::App;
use crate::service::backup::BackupTurn;
use crate::service::quotas::ServerQuotas;
use crate::service::random;
use crate::service::streams::Streams;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::samples::{self, Samples};
use crate::telemetry::traces::Tracer;
use crate::token_seed::{self, TokenSeed};

/// The time the engine has to write what is left, and after it the connections to take their answers.
const ENGINE_STOP_MAX: Duration = Duration::from_secs(3);
const CONNECTIONS_STOP_MAX: Duration = Duration::from_secs(1);

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listen: Listen,
    engines: Vec<Stop>,
    stop: watch::Sender<bool>,
    authenticator: Arc<Authenticator>,
    audit: Audit,
    tls: Option<Arc<Tls>>,
    accepting: JoinHandle<()>,
    balancing: Option<JoinHandle<()>>,
    /// The engines end with it.
    engine_thread: Option<EngineThread>,
}

/// The environment of a server. The system's by [`Server::start`]; a simulation brings its own.
#[derive(Debug)]
pub struct Ground<L> {
    pub listener: L,
    pub address: SocketAddr,
    /// One for each group of namespaces.
    pub journals: Vec<Arc<dyn Journal>>,
    pub clock: Arc<dyn Clock>,
}

/// The reason why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: Listen, source: io::Error },
    #[error("{}", with_cause(.0))]
    Store(#[from] OpenError),
    #[error(
        "the store has {stored} groups of namespaces, this server is set to {wanted}: set cluster.groups to {stored}"
    )]
    Groups { stored: u32, wanted: u32 },
    #[error("cannot take over what is stored: {}", with_cause(.0))]
    Engine(#[from] leasehold_engine::StartError),
    #[error(transparent)]
    Access(#[from] FileError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot start a thread for the engine: {0}")]
    Thread(io::Error),
    #[error("cannot use {}: {source}", path.display())]
    TokenSeed { path: PathBuf, source: io::Error },
    #[error(
        "the clock is {} s behind the time noted in {}: fencing tokens of the memory store follow the clock and would fall",
        behind.as_secs(), path.display()
    )]
    ClockBehind { path: PathBuf, behind: Duration },
}

impl Server {
    /// Takes over what is stored, and serves it. While that lasts, the port answers already: not ready.
    pub async fn start(mut config: Config) -> Result<Server, StartError> {
        config.check()?;
        config.connections_max =
            descriptors::connections_max(config.connections_max, descriptors::raise_limit());
        // Before the store: if the port is taken, another server most likely uses the store as well.
        let failed = |source| StartError::Listen { address: config.listen.clone(), source };
        let listener = SystemListener::bind(&config.listen, config.auth.enabled).await;
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let thread = config.tls.as_ref().map(|_| EngineThread::start()).transpose();
        let thread = thread.map_err(StartError::Thread)?;
        let open = async |group| {
            let opening = open(config.store.clone(), group);
            match &thread {
                None => opening.await,
                Some(thread) => thread.run(opening).await,
            }
        };
        let first = open(0).await?;
        agree_on_groups(&*first, config.cluster.groups).await?;
        let mut journals = vec![first];
        for group in 1..config.cluster.groups {
            journals.push(open(group).await?);
        }
        let clock = Arc::new(SystemClock::new());
        Server::serve(config, Ground { listener, address, journals, clock }, thread).await
    }

    /// The same with another network, store and clock than the system's.
    pub async fn start_on(
        config: Config,
        ground: Ground<impl Listener>,
    ) -> Result<Server, StartError> {
        Server::serve(config, ground, None).await
    }

    async fn serve(
        config: Config,
        ground: Ground<impl Listener>,
        engine_thread: Option<EngineThread>,
    ) -> Result<Server, StartError> {
        let Ground { listener, address, journals, clock } = ground;
        let tls = config.tls.clone().map(|tls| Tls::new(tls, config.cluster.ca.clone()));
        let tls = tls.transpose()?.map(Arc::new);
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
        let candidate = candidate(&config, address);
        let audit = Audit::open(&config.audit, &candidate.name, metrics.audit.clone())?;
        let listen = config.listen.clone();
        let mut handles = Vec::new();
        let mut engines = Vec::new();
        let seed = match (&config.store, &config.data) {
            (Store::Memory, Some(data)) => Some(TokenSeed::open(data)?),
            _ => None,
        };
        let by_clock = || (config.store == Store::Memory).then(token_seed::by_clock);
        let fence_floor = seed.as_ref().map(TokenSeed::first).or_else(by_clock);
        let access_store = journals.first().and_then(|first| first.clone().access());
        let authenticator = Arc::new(Authenticator::new(
            &config.auth,
            config.quota,
            access_store,
            audit.clone(),
            (config.cluster.ca.is_some(), metrics.peer_rejected.clone()),
        )?);
        if authenticator.is_on() {
            authenticator.load(&*clock, config.auth.bootstrap_token_file.as_deref()).await;
        }
        let shared = journals.first().filter(|first| first.caps().shared).cloned();
        if shared.is_some() && tls.as_ref().is_some_and(|tls| !tls.knows_servers()) {
            tracing::warn!(
                "cluster.ca is not set: requests for a leader elsewhere are not forwarded, clients are told where it is"
            );
        }
        for (group, journal) in journals.into_iter().enumerate() {
            let _entered = engine_thread.as_ref().map(EngineThread::enter);
            let settings = engine_config(&config, candidate.clone(), fence_floor);
            let span = tracing::debug_span!("group", group);
            let (handle, engine) =
                span.in_scope(|| leasehold_engine::spawn(settings, clock.clone(), journal));
            handles.push(handle);
            engines.push(engine);
        }
        let watchers = ConnectionLimiter::new(config.watchers_max, config.watchers_per_peer_max);
        let (stop, stopped) = watch::channel(false);
        let tracer = Tracer::new(&config.trace, &candidate.name, stopped.clone());
        let app = Arc::new(App {
            audit: audit.clone(),
            hosts: Hosts::new(&config),
            tls: tls.clone(),
            authenticator: authenticator.clone(),
            watchers,
            groups: Groups::new(handles),
            forwarder: Forwarder::new(tls.clone()),
            servers: Servers::default(),
            name: candidate.name,
            address: candidate.address,
            clock,
            metrics,
            samples: Samples::default(),
            quotas: ServerQuotas::new(config.quota),
            config,
            tracer,
            backup_turn: BackupTurn::default(),
            streams: Streams::default(),
        });
        let routers = Routers { http: http::router(app.clone()), grpc: grpc::router(&app) };
        if audit.is_on() {
            let started = Line::new("server.start", "ok").with("address", address.to_string());
            audit.note(Class::Server, || started.with("version", env!("CARGO_PKG_VERSION")));
            for (group, engine) in app.groups.all().iter().enumerate() {
                let (audit, stopped) = (audit.clone(), stopped.clone());
                tokio::spawn(audit::follow_grants(audit, engine.clone(), group, stopped));
            }
        }
        if authenticator.is_on()
            || app.config.asks_for_certificates()
            || app.config.cluster.ca.is_some()
        {
            let (clock, metrics) = (app.clock.clone(), app.metrics.clone());
            let keeping = authenticator.clone().keep(clock, metrics, stopped.clone());
            tokio::spawn(keeping);
        }
        if let Some(tls) = tls.clone() {
            let changed = {
                let authenticator = authenticator.clone();
                move || authenticator.certificates_changed()
            };
            tokio::spawn(tls.keep(app.metrics.clone(), changed, stopped.clone()));
        }
        tokio::spawn(samples::sample(app.clone(), stopped.clone()));
        let balancing =
            shared.map(|first| tokio::spawn(balance::keep(app.clone(), first, stopped.clone())));
        if let Some(seed) = seed {
            tokio::spawn(seed.keep(stopped.clone()));
        }
        let accepting = tokio::spawn(accept::accept(listener, app, routers, stopped));
        for engine in &mut engines {
            engine.settled().await?;
        }
        Ok(Server {
            address,
            listen,
            engines,
            stop,
            authenticator,
            audit,
            tls,
            accepting,
            balancing,
            engine_thread,
        })
    }

    /// The address it listens on; nothing to go by if that is a Unix socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address it listens on, with the port that it got.
    pub fn listen(&self) -> Listen {
        match &self.listen {
            Listen::Tcp(_) => Listen::Tcp(self.address),
            Listen::Unix(path) => Listen::Unix(path.clone()),
        }
    }

    /// Whether its port speaks TLS.
    pub fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads roles, tokens and the files of TLS anew. What is wrong with them is logged, and what was there before stays in force.
    pub fn reload(&self) {
        self.audit.reopen();
        self.authenticator.reload();
        if let Some(tls) = &self.tls {
            tls.reload();
        }
    }

    /// Takes nothing in any more, tells those who wait, writes what is left, lets answers go out, and ends.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let engines: Vec<_> =
            self.engines.into_iter().map(|engine| tokio::spawn(engine.stop())).collect();
        let stopped = async {
            for engine in engines {
                let _ = engine.await;
            }
        };
        if tokio::time::timeout(ENGINE_STOP_MAX, stopped).await.is_err() {
            tracing::warn!("the engine did not end in time");
        }
        if tokio::time::timeout(CONNECTIONS_STOP_MAX, self.accepting).await.is_err() {
            tracing::warn!("some connections were cut off");
        }
        if let Some(balancing) = self.balancing {
            let _ = tokio::time::timeout(CONNECTIONS_STOP_MAX, balancing).await;
        }
        // Synced, and so is all that was written before.
        if self.audit.has(Class::Server) {
            let _ = self.audit.required(vec![Line::new("server.stop", "ok")]).await;
        }
        drop(self.engine_thread);
    }

    /// Waits until one of its engines ends by itself, because it lost its store.
    pub async fn ended(&mut self) -> Result<(), StartError> {
        let mut engines: Vec<_> =
            self.engines.iter_mut().map(|engine| Box::pin(engine.ended())).collect();
        let ended = std::future::poll_fn(|cx| {
            let polled = engines.iter_mut().map(|engine| engine.as_mut().poll(cx));
            polled.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
        });
        Ok(ended.await?)
    }
}

/// A namespace belongs to a group by the number of groups: with another one it would be looked for in the wrong place.
async fn agree_on_groups(first: &dyn Journal, wanted: usize) -> Result<(), StartError> {
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    let stored = first.groups(wanted).await.map_err(leasehold_engine::StartError::from)?;
    if stored == wanted {
        return Ok(());
    }
    Err(StartError::Groups { stored, wanted })
}

/// This server as the others see it. No two have the same name, whatever they are called: a name found in the store tells a
/// server that it is itself.
fn candidate(config: &Config, address: SocketAddr) -> Candidate {
    let name = config.cluster.name.as_deref().unwrap_or("leasehold");
    let advertised = config.cluster.advertise.clone();
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    Candidate {
        name: format!("{name}-{:08x}", random::number() >> 32),
        address: advertised.unwrap_or_else(|| format!("{scheme}://{address}")),
        lease: config.cluster.leadership_ttl,
    }
}

fn engine_config(
    config: &Config,
    candidate: Candidate,
    fence_floor: Option<FencingToken>,
) -> EngineConfig {
    let seed = random::secret();
    EngineConfig {
        candidate,
        recovery: Recovery {
            limits: config.limits.clone(),
            seed,
            grace: config.grace.policy(&config.store),
            grace_length: config.grace.length(),
            fence_floor,
        },
        snapshot_bytes: config.snapshot_bytes,
        events_len_max: config.events_max,
        history: config.history,
    }
}

async fn open(store: Store, group: usize) -> Result<Arc<dyn Journal>, StartError> {
    let group = u32::try_from(group).unwrap_or(u32::MAX);
    Ok(leasehold_store::open(&store, group).await?)
}
