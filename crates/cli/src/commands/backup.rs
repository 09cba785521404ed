//! `leasehold backup`

use std::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use leasehold_server::{Config, Store, backup};
use serde::Serialize;

use super::Answered;
use super::scratch::Scratch;
use super::serve::store;
use crate::args::{Backup, Place};
use crate::failure::{EXIT_IO, EXIT_USAGE, Failure};
use crate::output::Output;

/// In the place of a file.
const STDOUT: &str = "-";

#[derive(Debug, Serialize)]
struct Done<'a> {
    file: &'a Path,
    bytes: u64,
}

pub(crate) fn run(out: &Output, args: &Backup) -> Answered {
    let from = data_file(&args.place)?;
    if !from.exists() {
        let said = format!("{} does not exist: no server has kept its locks there", from.display());
        let next =
            "--data names the directory of the server, --store the store it was started with";
        return Err(Failure::new(EXIT_IO, said).next(next));
    }
    if args.to == Path::new(STDOUT) {
        return to_stdout(&from);
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

/// A copy is made as always, and is whole before the first byte of it goes out.
fn to_stdout(from: &Path) -> Answered {
    if io::stdout().is_terminal() {
        let said = "a backup is nothing for a terminal";
        return Err(Failure::new(EXIT_USAGE, said).next("redirect the output, or name a file"));
    }
    let scratch = Scratch::beside(from)?;
    let copy = scratch.path().join("backup.db");
    backup(from, &copy).map_err(|error| not_copied(&error))?;
    let written = File::open(&copy).and_then(|mut copy| io::copy(&mut copy, &mut io::stdout()));
    written.map_err(|error| Failure::new(EXIT_IO, format!("cannot write the backup: {error}")))?;
    Ok(0)
}

/// The file in which a server that is started like this keeps its locks.
pub(super) fn data_file(place: &Place) -> Result<PathBuf, Failure> {
    let (_, store) = store(place).map_err(|error| Failure::from_chain(EXIT_USAGE, &error))?;
    let (said, next) = match store.unwrap_or_else(|| Config::default().store) {
        Store::Sqlite(file) => return Ok(file),
        Store::Memory => {
            ("a store in memory cannot be backed up", "it is gone when the server stops")
        }
        Store::Postgres(_) => (
            "PostgreSQL is backed up by its own tools",
            "pg_dump or a base backup; docs/operate/backup.md says what to do after a restore",
        ),
        Store::Etcd(_) => (
            "etcd is backed up by its own tools",
            "etcdctl snapshot save; docs/operate/backup.md says what to do after a restore",
        ),
    };
    Err(Failure::new(EXIT_USAGE, said).next(next))
}

/// No server is at work here, so nothing is unavailable; what lies behind it says more.
pub(super) fn not_copied(error: &dyn Error) -> Failure {
    let mut failure = Failure::from_chain(EXIT_IO, error);
    if let Some(said) = failure.said.strip_prefix("the store is unavailable: ") {
        failure.said = said.into();
    }
    failure
}
