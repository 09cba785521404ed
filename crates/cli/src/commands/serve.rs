//! `leasehold serve`

use std::io::{ErrorKind, IsTerminal};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use leasehold_server::{AccessLog, Config, ConfigError, Listen, Server, StartError, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::init::{self, Layout};
use super::{Answered, host};
use crate::args::{self, Global, Place, Serve, TlsMode};
use crate::failure::{EXIT_CONFIG, EXIT_FAULT, Failure};
use crate::logs;
use crate::notify::Notifier;
use crate::output::Output;

/// The interval at which the server looks whether its certificate is to be renewed.
const RENEW_EVERY: Duration = Duration::from_secs(60 * 60);

pub(crate) fn run(out: &Output, global: &Global, args: &Serve) -> Answered {
    let automatic = automatic(global, args)?;
    let path = automatic.as_ref().map(Layout::config);
    let path = path.as_ref().or(args.config.as_ref());
    let config = configured(args, path.map(PathBuf::as_path))
        .map_err(|error| Failure::from_chain(EXIT_CONFIG, &error))?;
    if args.check_config {
        out.line("configuration OK");
        return Ok(0);
    }
    logs::start(args.log_format, args.log.as_deref())
        .map_err(|said| Failure::new(EXIT_CONFIG, said))?;
    match runtime(config.threads) {
        Ok(runtime) => runtime.block_on(serve(out, config, path.and_then(|path| layout(path)))),
        Err(error) => Err(Failure::new(EXIT_CONFIG, format!("cannot start threads: {error}"))),
    }
}

/// The files that `leasehold init` made, or makes now, for `--tls auto`.
fn automatic(global: &Global, args: &Serve) -> Result<Option<Layout>, Failure> {
    let Some(TlsMode::Auto) = args.tls else { return Ok(None) };
    let place = Place { data: args.data.clone(), store: None };
    let (data, _) = store(&place).map_err(|error| Failure::from_chain(EXIT_CONFIG, &error))?;
    let layout = Layout::of(&data.unwrap_or_else(|| "leasehold-data".into()));
    if !layout.config().exists() {
        let listen = match args.listen {
            Some(Listen::Tcp(listen)) => listen,
            Some(Listen::Unix(_)) => {
                return Err(Failure::new(
                    EXIT_CONFIG,
                    "--tls auto is for an address, not for a Unix socket",
                ));
            }
            None => (Ipv4Addr::UNSPECIFIED, 8080).into(),
        };
        init::set_up(&layout, global, &host(), &[], listen)?;
    }
    Ok(Some(layout))
}

/// The directory whose certificate is renewed by us, if there is one beside the configuration.
fn layout(config: &Path) -> Option<Layout> {
    let layout = Layout::of(config.parent()?);
    layout.certificate().record.exists().then_some(layout)
}

/// Nothing but what is needed to try something out.
fn development(args: &Serve) -> Result<Config, ConfigError> {
    let mut config = Config { store: Store::Memory, ..Config::default() };
    if let Some(listen) = args.listen.clone() {
        config.listen = listen;
    }
    if config.listen.is_open_to_others() {
        return Err(ConfigError::Value {
            field: "--listen",
            value: config.listen.to_string(),
            message: "--dev serves this machine alone",
        });
    }
    config.check()?;
    Ok(config)
}

/// The file, with the environment and the flags over it.
fn configured(args: &Serve, path: Option<&Path>) -> Result<Config, ConfigError> {
    if args.dev {
        return development(args);
    }
    let mut config = match path {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if let Some(listen) = args.listen.clone() {
        config.listen = listen;
    }
    let place = Place { data: args.data.clone(), store: args.store.clone() };
    let (data, store) = if args.tls.is_some() { (None, None) } else { store(&place)? };
    if let Some(store) = store {
        config.store = store;
    }
    config.data = data.or(config.data);
    if let Some(grace) = args.simple_grace {
        config.simple_grace = grace;
    }
    if let Some(threads) = args.threads {
        config.threads = threads;
    }
    if let Some(access_log) = args.access_log {
        config.access_log = match access_log {
            args::AccessLog::All => AccessLog::All,
            args::AccessLog::Errors => AccessLog::Errors,
            args::AccessLog::Off => AccessLog::Off,
        };
    }
    config.auth.bootstrap_token_file =
        std::env::var_os(args::BOOTSTRAP_VARIABLE).filter(|path| !path.is_empty()).map(Into::into);
    config.hosts.extend(args.hosts.iter().cloned());
    config.insecure_http |= args.insecure_http || args.insecure;
    config.insecure_anonymous |= args.insecure_anonymous || args.insecure;
    config.check()?;
    Ok(config)
}

/// The flags, or else the environment: a flag wins over a variable of the other name too.
pub(super) fn store(place: &Place) -> Result<(Option<PathBuf>, Option<Store>), ConfigError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (data, store) = match (&place.data, &place.store) {
        (None, None) => {
            let store = variable(args::STORE_VARIABLE);
            let store = store.map(|store| store.to_string_lossy().into_owned());
            (variable(args::DATA_VARIABLE).map(Into::into), store)
        }
        (data, store) => (data.clone(), store.clone()),
    };
    match (data, store) {
        (None, None) => Ok((None, None)),
        (Some(data), None) => {
            let store = Store::in_directory(&data);
            Ok((Some(data), Some(store)))
        }
        (data, Some(text)) => match (data, Store::parse(&text)?) {
            // There it notes how far its fencing tokens have come.
            (data, Store::Memory) => Ok((data, Some(Store::Memory))),
            (None, store) => Ok((None, Some(store))),
            // A store tells of itself without its password.
            (Some(_), store) => Err(ConfigError::Value {
                field: "store",
                value: store.to_string(),
                message: "a data directory is given too, which only the memory store uses beside it",
            }),
        },
    }
}

/// The engine is one task, and most requests are short: one thread is often faster than two.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    match threads {
        0 | 1 => Builder::new_current_thread().enable_all().build(),
        many => Builder::new_multi_thread().worker_threads(many).enable_all().build(),
    }
}

async fn serve(out: &Output, config: Config, layout: Option<Layout>) -> Answered {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // Whoever started it by hand sees it end with the terminal; a service goes on.
    let has_terminal = std::io::stderr().is_terminal();
    let store = config.store.clone();
    let notifier = Notifier::of_environment();
    let mut server = Server::start(config).await.map_err(|error| not_started(&error))?;
    notifier.ready(&format!("serving on {}, {store}", server.listen()));
    tracing::info!(address = %server.listen(), store = %store, "serving");
    if has_terminal {
        out.say(&match (server.listen(), server.speaks_tls()) {
            (Listen::Tcp(address), true) => {
                format!("Leasehold is ready. Console: https://{address}")
            }
            (Listen::Tcp(address), false) => {
                format!("Leasehold is ready. Console: http://{address}")
            }
            (listen @ Listen::Unix(_), _) => format!("Leasehold is ready on {listen}"),
        });
        out.say(&format!("Data: {}", kept_in(&store)));
        out.say("Press Ctrl-C to stop.");
    }
    let mut signs_of_life = notifier.signs_of_life();
    let mut certificate = tokio::time::interval(RENEW_EVERY);
    loop {
        tokio::select! {
            () = signs_of_life.next() => notifier.alive(),
            _ = certificate.tick(), if layout.is_some() => renew(layout.as_ref()),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                if has_terminal {
                    break;
                }
                tracing::info!("SIGHUP: roles, tokens and certificates are read anew, the audit log is opened anew; other settings need a restart");
                server.reload();
            }
            ended = server.ended() => {
                let why = ended.err().map_or_else(|| "the engine has ended".into(), |error| error.to_string());
                return Err(Failure::new(EXIT_FAULT, why));
            }
        }
    }
    notifier.stopping();
    tracing::info!("stopping");
    server.stop().await;
    tracing::info!("stopped");
    Ok(0)
}

/// A server that looks for a new certificate each second takes it.
fn renew(layout: Option<&Layout>) {
    let Some(layout) = layout else { return };
    match init::renew_if_due(layout, SystemTime::now()) {
        Ok(true) => tracing::info!("the server's certificate was renewed"),
        Ok(false) => {}
        Err(failure) => {
            tracing::error!(error = failure.said, "the server's certificate could not be renewed")
        }
    }
}

fn kept_in(store: &Store) -> String {
    match store {
        Store::Memory => "in memory only; it is gone when the server stops".into(),
        Store::Sqlite(file) => file.display().to_string(),
        Store::Postgres(_) | Store::Etcd(_) => store.to_string(),
    }
}

fn not_started(error: &StartError) -> Failure {
    let failure = Failure::new(EXIT_CONFIG, error.to_string());
    match error {
        StartError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            failure.next("another server may run there already: choose an address with --listen")
        }
        StartError::Listen { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            failure.next("ports below 1024 need a privilege: choose a higher one with --listen")
        }
        StartError::Listen { .. } => {
            failure.next("choose an address of this machine with --listen")
        }
        StartError::Store(_) => {
            failure.next("choose where the locks are kept with --data or --store")
        }
        StartError::ClockBehind { .. } => failure.next(
            "set the clock, or wait until it is past that time; delete the file only if nothing remembers a token of this server",
        ),
        StartError::TokenSeed { .. } => failure.next("choose a directory that can be written to with --data"),
        StartError::Audit(_) => failure.next("what is required to be written is refused without it: see `audit` in the configuration"),
        StartError::Tls(_) => failure.next("the files of [tls] have to be right before the server starts"),
        StartError::Access(_) => failure.next("the file of auth.access_file has to be right before the server starts"),
        StartError::Config(_) | StartError::Thread(_) | StartError::Groups { .. } | StartError::Engine(_) => failure,
    }
}
