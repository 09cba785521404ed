//! The command line.

mod serve;
mod global;
mod locks;
mod run;
mod views;

use std::time::Duration;

use clap::{Parser, Subcommand};

pub(crate) use global::{Color, Format, Global};
pub(crate) use locks::{
    Acquire, Break, Check, FenceCommand, Get, Release, Renew, SessionCommand, Test,
};
pub(crate) use run::{Elect, Run, Supervision};
pub(crate) use serve::{AccessLog, Backup, LogFormat, Migrate, Restore, Serve};
pub(crate) use views::{Completions, Fault, Graph, List, Load, Man, Top, Transport, Watch};

/// A lock service: leases, fencing tokens, fair queues
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Examples:
  leasehold serve
      a lock server on 127.0.0.1:8080, with its data in ./leasehold-data
  leasehold run job/nightly -- ./nightly.sh
      run a command while holding a lock; it is stopped if the lock is lost
  leasehold list
      who holds what

`leasehold VERB --help` says more about each. Exit codes: 0 done, 1 the answer is no, 64 wrong usage,
69 server unreachable, 75 not got, 76 lease lost, 77 not allowed, 78 wrong configuration"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a server
    Serve(Serve),
    /// Run a command while holding a lock
    Run(Run),
    /// Run a command on one of several machines, and on another if that one fails
    Elect(Elect),
    /// Take a lock, and print its lease and fencing token
    Acquire(Acquire),
    /// Keep a lock for its full length again
    Renew(Renew),
    /// Give a lock back
    Release(Release),
    /// Show one lock: its holders, and who waits
    Get(Get),
    /// Say whether a lock could be had now
    Test(Test),
    /// Say whether a fencing token is a current holder's
    Check(Check),
    /// End somebody else's hold on a lock
    Break(Break),
    /// List the locks that are held
    List(List),
    /// Follow what happens, line by line
    Watch(Watch),
    /// Draw who waits for whom
    Graph(Graph),
    /// Sessions: one lease for many locks
    #[command(subcommand)]
    Session(SessionCommand),
    /// Fence registers: high-water marks that turn stale tokens away
    #[command(subcommand)]
    Fence(FenceCommand),
    /// Say who leads, and what the store is
    Cluster,
    /// A live screen of locks, holders and waiters
    Top(Top),
    /// Put a server under load, and check what it promises meanwhile
    Load(Load),
    /// Find out what is wrong, and say what to do
    Doctor,
    /// Copy a server's data to a file, while the server runs
    Backup(Backup),
    /// Make new data from a backup
    Restore(Restore),
    /// Copy everything from one store to another
    Migrate(Migrate),
    /// Print the completions for a shell
    Completions(Completions),
    /// Print the manual page, or write all of them
    Man(Man),
    /// Say which version this is
    Version,
}

pub(crate) fn length(text: &str) -> Result<Duration, leasehold_api::DurationError> {
    leasehold_api::parse_duration(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn lengths_are_read_as_everywhere() {
        let args = Args::try_parse_from(["leasehold", "serve", "--simple-grace", "1m30s"]).unwrap();
        let Command::Serve(serve) = args.command else { unreachable!("it says serve") };
        assert_eq!(serve.simple_grace, Some(Duration::from_secs(90)));
        assert!(Args::try_parse_from(["leasehold", "serve", "--simple-grace", "soon"]).is_err());
    }

    #[test]
    fn command_of_run_is_taken_as_it_is() {
        let line = ["leasehold", "run", "a", "b", "-n", "--", "ls", "-n", "--ttl"];
        let Command::Run(run) = Args::try_parse_from(line).unwrap().command else {
            unreachable!("it says run")
        };
        assert_eq!(run.locks, ["a", "b"]);
        assert!(run.supervision.no_wait);
        assert_eq!(run.supervision.command, ["ls", "-n", "--ttl"]);
    }
}
