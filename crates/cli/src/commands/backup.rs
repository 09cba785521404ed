//! `leasehold backup`

use std::process::ExitCode;

use leasehold_server::{Store, backup};

use crate::args::Backup;
use crate::fail;

const EXIT_FAILED: u8 = 74;

pub(crate) fn run(args: &Backup) -> ExitCode {
    let Store::Sqlite(from) = Store::in_directory(&args.data) else {
        unreachable!("a data directory has an SQLite file")
    };
    match backup(&from, &args.to) {
        Ok(done) => {
            println!("{} ({} bytes)", args.to.display(), done.byte_len);
            ExitCode::SUCCESS
        }
        Err(error) => fail(EXIT_FAILED, &one_line(&error)),
    }
}

/// An error with all that lies behind it, in one line.
pub(super) fn one_line(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}
