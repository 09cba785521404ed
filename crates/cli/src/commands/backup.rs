//! `leasehold backup`

use std::error::Error;
use std::fs::{self, File, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use leasehold_client::Download;
use leasehold_server::{Config, Store, backup, check_backup};
use serde::Serialize;

use super::Answered;
use super::scratch::Scratch;
use super::serve::store;
use crate::args::{Backup, Place};
use crate::asking::Server;
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
    refuse_existing(&args.to)?;
    let copied = backup(&from, &args.to).map_err(|error| not_copied(&error))?;
    tell(out, &args.to, copied.byte_len);
    Ok(0)
}

/// The server makes the copy, and we keep it.
pub(crate) async fn remote(server: &Server, args: &Backup) -> Answered {
    if args.to == Path::new(STDOUT) {
        refuse_terminal()?;
        let download = server.client.api().backup().await?;
        take(download, &mut io::stdout()).await?;
        return Ok(0);
    }
    refuse_existing(&args.to)?;
    let download = server.client.api().backup().await?;
    let scratch = Scratch::beside(&args.to)?;
    let copy = scratch.path().join("backup.db");
    let wrong = |error: io::Error| unwritten(&error);
    let mut file = File::create_new(&copy).map_err(wrong)?;
    take(download, &mut file).await?;
    file.sync_all().map_err(wrong)?;
    let checked = check_backup(&copy).map_err(|error| not_copied(&error))?;
    fs::set_permissions(&copy, Permissions::from_mode(0o600)).map_err(wrong)?;
    refuse_existing(&args.to)?;
    fs::rename(&copy, &args.to).map_err(wrong)?;
    tell(&server.out, &args.to, checked.byte_len);
    Ok(0)
}

async fn take(mut download: Download, to: &mut impl Write) -> Result<(), Failure> {
    while let Some(piece) = download.next().await {
        to.write_all(&piece?).map_err(|error| unwritten(&error))?;
    }
    to.flush().map_err(|error| unwritten(&error))
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(EXIT_IO, format!("cannot write the backup: {error}"))
}

fn tell(out: &Output, file: &Path, bytes: u64) {
    let done = Done { file, bytes };
    out.answer(&done, |_| format!("{} ({} bytes)\n", done.file.display(), done.bytes));
}

fn refuse_existing(to: &Path) -> Result<(), Failure> {
    if to.exists() {
        let said = format!("{} is there already", to.display());
        return Err(Failure::new(EXIT_IO, said).next("name a file that is not there yet"));
    }
    Ok(())
}

fn refuse_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        let said = "a backup is nothing for a terminal";
        return Err(Failure::new(EXIT_USAGE, said).next("redirect the output, or name a file"));
    }
    Ok(())
}

/// A copy is made as always, and is whole before the first byte of it goes out.
fn to_stdout(from: &Path) -> Answered {
    refuse_terminal()?;
    let scratch = Scratch::beside(from)?;
    let copy = scratch.path().join("backup.db");
    backup(from, &copy).map_err(|error| not_copied(&error))?;
    let written = File::open(&copy).and_then(|mut copy| io::copy(&mut copy, &mut io::stdout()));
    written.map_err(|error| unwritten(&error))?;
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
