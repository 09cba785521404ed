//! The `leasehold` command.
//!
//! Exit codes are those of sysexits.h where it has one: see `failure.rs`.
#![deny(unsafe_code)]

mod args;
mod logs;
mod notify;
mod failure;
mod output;
mod credentials;
mod held;
mod setup;
mod asking;
mod supervise;
mod commands;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use leasehold_client::Transport;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use args::{Command, Global, Supervision};
use asking::Server;
use commands::Answered;
use failure::{EXIT_USAGE, Failure};
use output::Output;
use supervise::Signals;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == supervise::GUARD) {
        return supervise::guard_main(words);
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let args = match args::parse(&words) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            let asked = matches!(
                error.kind(),
                clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion
            );
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) };
        }
    };
    let out = Output::of(&args.global);
    let answered = match &args.command {
        Command::Serve(serve) => commands::serve::run(&out, &args.global, serve),
        Command::Init(init) => commands::init::run(&out, &args.global, init),
        Command::Logout => commands::login::logout(&out, &args.global),
        Command::Cert(cert) => match commands::cert::offline(&out, cert) {
            Some(answered) => answered,
            None => ask(&args.global, &args.command),
        },
        Command::Backup(backup) if !backup.remote => commands::backup::run(&out, backup),
        Command::Restore(restore) => commands::restore::run(&out, restore),
        Command::Completions(completions) => commands::completions::run(&out, completions),
        Command::Man(man) => commands::man::run(&out, man),
        Command::Migrate(migrate) => commands::migrate::run(&out, migrate),
        Command::Version => commands::version::run(&out),
        Command::Audit(audit) => commands::audit::run(&out, audit),
        Command::Token(token) => match commands::auth::offline(&out, token) {
            Some(answered) => answered,
            None => ask(&args.global, &args.command),
        },
        Command::Login(_)
        | Command::Whoami
        | Command::Policy(_)
        | Command::Backup(_)
        | Command::Run(_)
        | Command::Elect(_)
        | Command::Acquire(_)
        | Command::Renew(_)
        | Command::Release(_)
        | Command::Unlock(_)
        | Command::Get(_)
        | Command::Test(_)
        | Command::Check(_)
        | Command::Break(_)
        | Command::List(_)
        | Command::Watch(_)
        | Command::Graph(_)
        | Command::Session(_)
        | Command::Fence(_)
        | Command::Console
        | Command::Cluster(_)
        | Command::Top(_)
        | Command::Load(_)
        | Command::Bench(_)
        | Command::Doctor(_) => ask(&args.global, &args.command),
    };
    match answered {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.tell(&out),
    }
}

/// The verbs that ask a server.
fn ask(global: &Global, command: &Command) -> Answered {
    let mut global = global.clone();
    if !matches!(command, Command::Login(_)) {
        setup::profile::settle(&mut global)?;
    }
    let global = &global;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(answer(global, command))
}

async fn answer(global: &Global, command: &Command) -> Answered {
    match command {
        Command::Run(args) => match ready_to_supervise(global, &args.supervision).await? {
            ControlFlow::Continue((server, signals)) => {
                commands::run::run(&server, &signals, args).await
            }
            ControlFlow::Break(code) => Ok(code),
        },
        Command::Elect(args) => match ready_to_supervise(global, &args.supervision).await? {
            ControlFlow::Continue((server, signals)) => {
                commands::elect::run(&server, &signals, args).await
            }
            ControlFlow::Break(code) => Ok(code),
        },
        Command::Doctor(args) => commands::doctor::run(global, args).await,
        Command::Load(args) => commands::load::run(global, args).await,
        Command::Bench(args) => commands::bench::run(global, args).await,
        Command::Acquire(args) => commands::acquire::run(&connect(global).await?, args).await,
        Command::Renew(args) => commands::renew::run(global, args).await,
        Command::Release(args) => commands::release::run(global, args).await,
        Command::Unlock(args) => commands::unlock::run(&connect(global).await?, args).await,
        Command::Get(args) => commands::get::run(&connect(global).await?, args).await,
        Command::Test(args) => commands::test::run(&connect(global).await?, args).await,
        Command::Check(args) => commands::check::run(global, args).await,
        Command::Break(args) => commands::breaking::run(&connect(global).await?, args).await,
        Command::List(args) => commands::list::run(&connect(global).await?, args).await,
        Command::Watch(args) => commands::watch::run(&connect(global).await?, args).await,
        Command::Graph(args) => commands::graph::run(&connect(global).await?, args).await,
        Command::Session(args) => commands::session::run(&connect(global).await?, args).await,
        Command::Fence(args) => commands::fence::run(&connect(global).await?, args).await,
        Command::Login(args) => commands::login::run(global, args).await,
        Command::Whoami => commands::auth::whoami(&connect(global).await?).await,
        Command::Cert(args) => commands::cert::run(&connect(global).await?, args).await,
        Command::Token(args) => commands::auth::token(&connect(global).await?, args).await,
        Command::Policy(args) => commands::auth::policy(&connect(global).await?, args).await,
        Command::Backup(args) => commands::backup::remote(&connect(global).await?, args).await,
        Command::Console => commands::console::run(&connect(global).await?).await,
        Command::Cluster(args) => commands::cluster::run(&connect(global).await?, args).await,
        Command::Top(args) => commands::top::run(global, args).await,
        Command::Serve(_)
        | Command::Init(_)
        | Command::Logout
        | Command::Audit(_)
        | Command::Restore(_)
        | Command::Migrate(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Version => unreachable!("these ask no server"),
    }
}

/// For the verbs that run a command under a lock. The signals are taken before the client starts its thread; one that
/// comes too early ends us.
async fn ready_to_supervise(
    global: &Global,
    args: &Supervision,
) -> Result<ControlFlow<u8, (Server, Signals)>, Failure> {
    // Whoever runs as the same user reads no token out of our memory, and no core file holds it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(std::io::Error::from)?;
    let signals = commands::run::take_signals()?;
    let builder = asking::builder(global)?.transport(Transport::Stream).heartbeat(args.heartbeat);
    tokio::select! {
        server = Server::connect_by(global, builder) => {
            Ok(ControlFlow::Continue((server?, signals)))
        }
        signal = commands::run::told_to_go(&signals) => {
            Ok(ControlFlow::Break(commands::run::by_signal(signal)))
        }
    }
}

async fn connect(global: &Global) -> Result<Server, Failure> {
    Server::connect(global, Transport::Http).await
}
