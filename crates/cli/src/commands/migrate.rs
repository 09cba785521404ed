//! `leasehold migrate`

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use leasehold_server::{Migrated, Progress, Store, copy_access, migrate, open};
use serde::Serialize;
use tokio::runtime::Builder;

use super::Answered;
use crate::args::{Format, Migrate};
use crate::failure::{EXIT_IO, EXIT_USAGE, Failure};
use crate::output::{Output, talk};

/// The report on one group.
#[derive(Debug, Serialize)]
struct Copied {
    group: u32,
    from: String,
    to: String,
    leases: usize,
    fence_registers: usize,
    chunks: u32,
    bytes: u64,
    /// Tokens and epochs go on above these.
    fencing_token: u64,
    epoch: u64,
}

pub(crate) fn run(out: &Output, args: &Migrate) -> Answered {
    let (from, to) = (store("--from", &args.from)?, store("--to", &args.to)?);
    check(&from, &to).map_err(|said| Failure::new(EXIT_USAGE, said))?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for (which, store) in [("from", &from), ("to", &to)] {
        runtime.block_on(agree_on_groups(which, store, args.groups))?;
    }
    // First: a server on the new store must not be open to everybody because its tokens are still to come.
    let documents = runtime.block_on(copy_documents(&from, &to, args.force))?;
    if documents > 0 {
        out.say(&format!("{documents} roles, tokens and keys copied"));
    }
    let mut all = Vec::new();
    for group in 0..args.groups {
        let done = runtime.block_on(copy(out, &from, &to, group, args.force))?;
        let copied = copied(&from, &to, group, &done);
        match out.format {
            Format::Table => out.line(&told(&copied)),
            Format::Jsonl => out.json_line(&copied),
            Format::Json => all.push(copied),
        }
    }
    if out.format == Format::Json {
        out.json(&all);
    }
    Ok(0)
}

fn store(flag: &str, text: &str) -> Result<Store, Failure> {
    Store::parse(text).map_err(|error| Failure::from_chain(EXIT_USAGE, &error).while_doing(flag))
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
        Store::Sqlite(path) if !path.exists() => Err("the file to copy from was not found"),
        Store::Sqlite(_) | Store::Memory | Store::Postgres(_) | Store::Etcd(_) => Ok(()),
    }
}

/// In which group a namespace is looked for follows from how many there are, and what was stored stays where it is.
async fn agree_on_groups(which: &str, store: &Store, groups: u32) -> Result<(), Failure> {
    let found = match store {
        Store::Sqlite(_) | Store::Memory => 1,
        Store::Postgres(_) | Store::Etcd(_) => {
            let first = open(store, 0).await.map_err(|error| failed(&error))?;
            first.groups(groups).await.map_err(|error| failed(&error))?
        }
    };
    if found == groups {
        return Ok(());
    }
    let said = format!(
        "the store to copy {which} has {found} groups of namespaces, not {groups}: a copy cannot change their number"
    );
    Err(Failure::new(EXIT_IO, said).next(format!("say --groups {found} if that is what they have")))
}

/// Roles, tokens and keys stand beside the groups, once for a store.
async fn copy_documents(from: &Store, to: &Store, force: bool) -> Result<usize, Failure> {
    let source = open(from, 0).await.map_err(|error| failed(&error))?.access();
    let target = open(to, 0).await.map_err(|error| failed(&error))?.access();
    let (Some(source), Some(target)) = (source, target) else { return Ok(0) };
    copy_access(&*source, &*target, force).await.map_err(|error| failed(&error))
}

async fn copy(
    out: &Output,
    from: &Store,
    to: &Store,
    group: u32,
    force: bool,
) -> Result<Migrated, Failure> {
    let source = open(from, group).await.map_err(|error| failed(&error))?;
    let target = open(to, group).await.map_err(|error| failed(&error))?;
    let mut shown = Shown::default();
    let show = |progress| {
        if !out.quiet {
            shown.show(progress);
        }
    };
    let done = migrate(&*source, &*target, force, show).await;
    shown.end();
    done.map_err(|error| failed(&error))
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::from_chain(EXIT_IO, error)
}

fn copied(from: &Store, to: &Store, group: u32, done: &Migrated) -> Copied {
    Copied {
        group,
        from: from.to_string(),
        to: to.to_string(),
        leases: done.leases,
        fence_registers: done.registers,
        chunks: done.chunks,
        bytes: done.bytes,
        fencing_token: done.fence.get(),
        epoch: done.epoch.0,
    }
}

fn told(copied: &Copied) -> String {
    let Copied { group, from, to, leases, fence_registers, chunks, bytes, fencing_token, epoch } =
        copied;
    format!(
        "group {group}: {leases} leases and {fence_registers} fence registers copied from {from} to {to} ({chunks} \
         chunks, {bytes} bytes), loaded back and compared; fencing tokens go on above {fencing_token}, epochs above \
         {epoch}"
    )
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
                talk(&line);
            }
        } else if is_new || self.at.is_none_or(|at| at.elapsed() >= SHOW_EVERY) {
            let mut stderr = std::io::stderr();
            let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
            self.at = Some(Instant::now());
        }
        self.part = part;
    }

    fn end(&self) {
        if self.at.is_some() {
            talk("");
        }
    }
}
