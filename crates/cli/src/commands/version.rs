//! `leasehold version`

use std::process::ExitCode;

pub(crate) fn run() -> ExitCode {
    println!("leasehold {}", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}
