//! The command line.

mod audit;
mod auth;
mod cluster;
mod serve;
mod global;
mod locks;
mod run;
mod setup;
mod views;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Parser, Subcommand};

pub(crate) use audit::{AuditCommand, AuditHash, AuditTail, AuditVerify};
pub(crate) use auth::{PolicyCommand, TokenCommand, TokenCreate, TokenHash, Ttl};
pub(crate) use cluster::{Cluster, ClusterCommand};
pub(crate) use global::{Color, Format, Global};
pub(crate) use locks::{
    Acquire, Break, Check, FenceCommand, Get, Release, Renew, SessionCommand, Test, Unlock,
};
pub(crate) use run::{Elect, Run, Supervision, shell};
pub(crate) use serve::{
    AccessLog, BOOTSTRAP_VARIABLE, Backup, DATA_VARIABLE, LogFormat, Migrate, Place, Restore,
    STORE_VARIABLE, Serve, TlsMode, TokensAfter,
};
pub(crate) use setup::{CaCommand, CertCommand, CertDir, CertIssue, CertRenew, Init, Login};
pub(crate) use views::{
    Bench, Completions, Doctor, Fault, Graph, List, Load, Man, Top, Transport, Watch, Webhook,
};

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
69 server unreachable, 75 not acquired, 76 lease lost, 77 not allowed, 78 wrong configuration"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Serve),
    Init(Init),
    Run(Run),
    Elect(Elect),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Unlock(Unlock),
    Get(Get),
    Test(Test),
    Check(Check),
    Break(Break),
    List(List),
    Watch(Watch),
    Graph(Graph),
    /// Sessions: one lease for many locks
    #[command(
        subcommand,
        after_help = "Example:
  id=$(leasehold session open --ttl 1m -o json | jq -r .session_id)
  leasehold acquire job/a --session $id && leasehold acquire job/b --session $id
  leasehold session keepalive $id
  leasehold session close $id

A session has two names: its id is a secret and is told to whoever opens it; its number is in lists, and an operator
breaks it by that."
    )]
    Session(SessionCommand),
    /// Fence registers: high-water marks that reject stale tokens
    #[command(
        subcommand,
        after_help = "Example:
  leasehold fence accept bucket/reports --fencing-token 42 && ./upload.sh
  leasehold fence get bucket/reports"
    )]
    Fence(FenceCommand),
    Login(Login),
    /// Log out: forget a profile and its token
    #[command(after_help = "Example:
  leasehold logout --profile prod")]
    Logout,
    /// Show who one is to the server, and what one may do
    #[command(after_help = "Example:
  leasehold whoami

Exit codes: 0 told, 77 the server wants a token")]
    Whoami,
    /// Tokens: create, list, revoke and rotate them
    #[command(
        subcommand,
        after_help = "Example:
  leasehold token create --principal billing --role client --namespace billing > billing.token
  LEASEHOLD_TOKEN_FILE=billing.token leasehold acquire job/nightly --namespace billing
  leasehold token list"
    )]
    Token(TokenCommand),
    /// Certificates of the authority that `leasehold init` made
    #[command(
        subcommand,
        after_help = "Example:
  leasehold cert issue --dir /var/lib/leasehold --principal billing --out billing-cert
  curl --cert billing-cert/client.pem --key billing-cert/client.key --cacert billing-cert/ca.pem https://locks.example:8080/v1/auth/self"
    )]
    Cert(CertCommand),
    /// Roles: what principals may do
    #[command(
        subcommand,
        after_help = "Example:
  leasehold policy put billing billing.json
  leasehold policy test billing acquire billing job/nightly"
    )]
    Policy(PolicyCommand),
    /// The audit log: read it, and check that nothing is missing
    #[command(
        subcommand,
        after_help = "Example:
  leasehold audit tail /var/log/leasehold/audit.jsonl
  leasehold audit verify /var/log/leasehold/audit.jsonl"
    )]
    Audit(AuditCommand),
    /// Print a link to the console that logs in, and open it
    #[command(after_help = "Examples:
  leasehold console
  ssh locks.example leasehold console
      prints the link alone

The link is good once and for a minute. On a terminal it is opened in a browser; without authentication it is the plain address.

Exit codes: 0 printed, 77 not allowed")]
    Console,
    Cluster(Cluster),
    Top(Top),
    Load(Load),
    Bench(Bench),
    Doctor(Doctor),
    Backup(Backup),
    Restore(Restore),
    Migrate(Migrate),
    Completions(Completions),
    Man(Man),
    /// Print the version
    #[command(after_help = "Example:
  leasehold version -o json | jq -r .version")]
    Version,
}

pub(crate) fn length(text: &str) -> Result<Duration, leasehold_api::DurationError> {
    leasehold_api::parse_duration(text)
}

/// A length that is not nothing.
pub(crate) fn some_length(text: &str) -> Result<Duration, String> {
    match length(text) {
        Ok(Duration::ZERO) => Err("it must be longer than nothing".into()),
        read => read.map_err(|error| error.to_string()),
    }
}

/// A fencing token.
pub(crate) fn token(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "not a fencing token: expected a whole number")
}

/// The command line of this process. The command of `run` and `elect` may follow the lock without `--`, as after flock(1).
pub(crate) fn parse(words: &[OsString]) -> Result<Args, clap::Error> {
    let refused = match Args::try_parse_from(words) {
        Ok(args) => return Ok(args),
        Err(refused) => refused,
    };
    let runs = words.iter().position(|word| word == "run" || word == "elect");
    if !refused.use_stderr() || words.iter().any(|word| word == "--") {
        return Err(refused);
    }
    let is_flag = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    for at in runs.map_or(words.len(), |runs| runs + 2)..words.len() {
        if is_flag(&words[at]) {
            continue;
        }
        let (before, command) = words.split_at(at);
        let separated = before.iter().cloned().chain(["--".into()]).chain(command.iter().cloned());
        match Args::try_parse_from(separated) {
            Ok(args) if matches!(args.command, Command::Run(_) | Command::Elect(_)) => {
                return Ok(args);
            }
            Ok(_) | Err(_) => {}
        }
    }
    Err(refused)
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
    fn command_of_run_needs_no_dashes_before_it() {
        let parsed = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let Command::Run(run) = parse(&words).unwrap().command else {
                unreachable!("it says run")
            };
            (run.locks, run.supervision.no_wait, run.what.command)
        };
        let command = vec![OsString::from("ls"), OsString::from("-n")];
        let expected = |no_wait| (vec!["job".to_string()], no_wait, command.clone());
        assert_eq!(parsed("leasehold run job ls -n"), expected(false));
        assert_eq!(parsed("leasehold -q run -n job ls -n"), expected(true));
        assert_eq!(parsed("leasehold run job -n ls -n"), expected(true));
        assert_eq!(parsed("leasehold run --ttl 5 job ls -n"), expected(false));
        assert!(parse(&["leasehold".into(), "run".into(), "job".into()]).is_err());
    }

    #[test]
    fn command_of_run_is_taken_as_it_is() {
        let line = ["leasehold", "run", "a", "b", "-n", "--", "ls", "-n", "--ttl"];
        let Command::Run(run) = Args::try_parse_from(line).unwrap().command else {
            unreachable!("it says run")
        };
        assert_eq!(run.locks, ["a", "b"]);
        assert!(run.supervision.no_wait);
        assert_eq!(run.what.command, ["ls", "-n", "--ttl"]);
    }
}
