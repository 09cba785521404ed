//! `leasehold migrate`

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold_server::{Migrated, Progress, Store, migrate, open};
use tokio::runtime::Builder;

use super::backup::one_line;
use crate::args::Migrate;
use crate::fail;

const EXIT_USAGE: u8 = 64;
const EXIT_FAILED: u8 = 74;

pub(crate) fn run(args: &Migrate) -> ExitCode {
    let (from, to) = match (Store::parse(&args.from), Store::parse(&args.to)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(error), _) => return fail(EXIT_USAGE, &format!("--from: {}", one_line(&error))),
        (_, Err(error)) => return fail(EXIT_USAGE, &format!("--to: {}", one_line(&error))),
    };
    if let Err(said) = check(&from, &to) {
        return fail(EXIT_USAGE, said);
    }
    let runtime = match Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(EXIT_FAILED, &format!("cannot start threads: {error}")),
    };
    for (which, store) in [("from", &from), ("to", &to)] {
        if let Err(said) = runtime.block_on(agree_on_groups(which, store, args.groups)) {
            return fail(EXIT_FAILED, &said);
        }
    }
    for group in 0..args.groups {
        match runtime.block_on(copy(&from, &to, group, args.force)) {
            Ok(done) => tell(&from, &to, group, &done),
            Err(said) => return fail(EXIT_FAILED, &said),
        }
    }
    ExitCode::SUCCESS
}

fn check(from: &Store, to: &Store) -> Result<(), &'static str> {
    if from == to {
        return Err("--from and --to are the same store");
    }
    for store in [from, to] {
        if *store == Store::Memory {
            return Err("a store in memory has nothing to copy, and keeps nothing");
        }
    }
    match from {
        Store::Sqlite(path) if !path.exists() => Err("there is no such file to copy from"),
        Store::Sqlite(_) | Store::Memory | Store::Postgres(_) | Store::Etcd(_) => Ok(()),
    }
}

/// In which group a namespace is looked for follows from how many there are, and what was stored stays where it is.
async fn agree_on_groups(which: &str, store: &Store, groups: u32) -> Result<(), String> {
    let found = match store {
        Store::Sqlite(_) | Store::Memory => 1,
        Store::Postgres(_) | Store::Etcd(_) => {
            let first = open(store, 0).await.map_err(|error| one_line(&error))?;
            first.groups(groups).await.map_err(|error| one_line(&error))?
        }
    };
    if found == groups {
        return Ok(());
    }
    Err(format!(
        "the store to copy {which} has {found} groups of namespaces, not {groups}: a copy cannot change their number"
    ))
}

async fn copy(from: &Store, to: &Store, group: u32, force: bool) -> Result<Migrated, String> {
    let source = open(from, group).await.map_err(|error| one_line(&error))?;
    let target = open(to, group).await.map_err(|error| one_line(&error))?;
    let mut shown = Shown::default();
    let done = migrate(&*source, &*target, force, |progress| shown.show(progress)).await;
    shown.end();
    done.map_err(|error| one_line(&error))
}

fn tell(from: &Store, to: &Store, group: u32, done: &Migrated) {
    println!(
        "group {group}: {} leases and {} fence registers copied from {from} to {to} ({} chunks, {} bytes), loaded \
         back and compared; fencing tokens go on above {}, epochs above {}",
        done.leases, done.registers, done.chunks, done.bytes, done.fence, done.epoch.0
    );
}

/// One line that changes, on a terminal; otherwise a line for each part of the work.
#[derive(Debug, Default)]
struct Shown {
    part: &'static str,
    at: Option<Instant>,
}

const SHOW_EVERY: Duration = Duration::from_millis(100);

impl Shown {
    fn show(&mut self, progress: Progress) {
        let (part, line) = match progress {
            Progress::Waiting { at_most } => {
                let line = format!("waiting {at_most:?} for the last leader to be gone");
                ("waiting", line)
            }
            Progress::Loading { items } => ("loading", format!("loading: {items} records")),
            Progress::Writing { leases, of } => {
                ("writing", format!("writing: {leases} of {of} leases"))
            }
            Progress::Verifying { items } => {
                ("verifying", format!("loading back: {items} records"))
            }
        };
        let is_new = part != self.part;
        if !std::io::stderr().is_terminal() {
            if is_new {
                eprintln!("{line}");
            }
        } else if is_new || self.at.is_none_or(|at| at.elapsed() >= SHOW_EVERY) {
            eprint!("\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
            self.at = Some(Instant::now());
        }
        self.part = part;
    }

    fn end(&self) {
        if self.at.is_some() {
            eprintln!();
        }
    }
}
