//! `leasehold serve`

use std::process::ExitCode;

use leasehold_server::{AccessLog, Config, ConfigError, Server, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::backup::one_line;
use crate::args::{self, Serve};
use crate::{fail, logs};

const EXIT_LOST: u8 = 70;
const EXIT_CONFIG: u8 = 78;

pub(crate) fn run(args: &Serve) -> ExitCode {
    let config = match configured(args) {
        Ok(config) => config,
        Err(error) => return fail(EXIT_CONFIG, &one_line(&error)),
    };
    if args.check_config {
        println!("the configuration can be used");
        return ExitCode::SUCCESS;
    }
    if let Err(said) = logs::start(args.log_format, &args.log) {
        return fail(EXIT_CONFIG, &said);
    }
    match runtime(config.threads) {
        Ok(runtime) => runtime.block_on(serve(config)),
        Err(error) => fail(EXIT_CONFIG, &format!("cannot start threads: {error}")),
    }
}

/// The file, with the environment and the flags over it.
fn configured(args: &Serve) -> Result<Config, ConfigError> {
    let mut config = match &args.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    if let Some(data) = &args.data {
        config.store = Store::in_directory(data);
    }
    if let Some(store) = &args.store {
        config.store = Store::parse(store)?;
    }
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
    config.insecure |= args.insecure;
    config.check()?;
    Ok(config)
}

/// The engine is one task, and most requests are short: one thread is often faster than two.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    match threads {
        0 | 1 => Builder::new_current_thread().enable_all().build(),
        many => Builder::new_multi_thread().worker_threads(many).enable_all().build(),
    }
}

async fn serve(config: Config) -> ExitCode {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        return fail(EXIT_CONFIG, "cannot listen for signals");
    };
    let store = config.store.clone();
    let mut server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => return fail(EXIT_CONFIG, &error.to_string()),
    };
    tracing::info!(address = %server.address(), store = %store, "serving");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = server.ended() => {
            let why = ended.err().map_or_else(|| "the engine has ended".into(), |error| error.to_string());
            return fail(EXIT_LOST, &why);
        }
    }
    tracing::info!("stopping");
    server.stop().await;
    tracing::info!("stopped");
    ExitCode::SUCCESS
}
