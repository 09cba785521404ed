//! `leasehold backup`

use std::error::Error;
use std::path::{Path, PathBuf};

use leasehold_server::{Store, backup};
use serde::Serialize;

use super::Answered;
use crate::args::Backup;
use crate::failure::{EXIT_IO, Failure};
use crate::output::Output;

#[derive(Debug, Serialize)]
struct Done<'a> {
    file: &'a Path,
    bytes: u64,
}

pub(crate) fn run(out: &Output, args: &Backup) -> Answered {
    let from = data_file(&args.data);
    if !from.exists() {
        let said = format!("no server has kept its locks in {}", args.data.display());
        return Err(Failure::new(EXIT_IO, said).next("--data names the directory of the server"));
    }
    if args.to.exists() {
        let said = format!("{} is there already", args.to.display());
        return Err(Failure::new(EXIT_IO, said).next("name a file that is not there yet"));
    }
    let copied = backup(&from, &args.to).map_err(|error| not_copied(&error))?;
    let done = Done { file: &args.to, bytes: copied.byte_len };
    out.answer(&done, |_| format!("{} ({} bytes)\n", done.file.display(), done.bytes));
    Ok(0)
}

/// Where a server with this data directory keeps its locks.
pub(super) fn data_file(data: &Path) -> PathBuf {
    match Store::in_directory(data) {
        Store::Sqlite(file) => file,
        Store::Memory | Store::Postgres(_) | Store::Etcd(_) => {
            unreachable!("a data directory has an SQLite file")
        }
    }
}

/// No server is at work here, so nothing is unavailable; what lies behind it says more.
pub(super) fn not_copied(error: &dyn Error) -> Failure {
    let mut failure = Failure::from_chain(EXIT_IO, error);
    if let Some(said) = failure.said.strip_prefix("the store is unavailable: ") {
        failure.said = said.into();
    }
    failure
}
