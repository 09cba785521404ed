//! `leasehold completions`

use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Args, Completions};

pub(crate) fn run(args: &Completions) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "leasehold", &mut text);
    print!("{}", String::from_utf8_lossy(&text));
    ExitCode::SUCCESS
}
