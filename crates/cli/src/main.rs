//! The `leasehold` command.
//!
//! Exit codes are those of sysexits.h: 64 for a command line that cannot be, 78 for a configuration that cannot be used.
#![forbid(unsafe_code)]

mod args;
mod logs;
mod commands;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
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
    match args.command {
        Command::Serve(serve) => commands::serve::run(serve),
        Command::Backup(backup) => commands::backup::run(&backup),
        Command::Restore(restore) => commands::restore::run(&restore),
        Command::Migrate(migrate) => commands::migrate::run(&migrate),
        Command::Version => commands::version::run(),
    }
}

/// One line on stderr, and the code that goes with it.
pub(crate) fn fail(code: u8, said: &str) -> ExitCode {
    eprintln!("leasehold: {said}");
    ExitCode::from(code)
}
