//! The command line of the verbs that look at the whole service.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use leasehold_api::Cursor;

use super::{length, some_length};

/// List the locks that are held
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold list
  leasehold list job/ --state held
  leasehold list -o jsonl | jq -r .lock")]
pub(crate) struct List {
    /// Only those whose text begins with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// Only those in this state: held, recovering or reclaim_window
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Only those of this owner
    #[arg(long, value_name = "OWNER")]
    pub(crate) owner: Option<String>,
    /// Stop after so many
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

/// Follow events, one a line
///
/// Goes on for ever, over restarts of the server and changes of the leader. Where events were missed meanwhile, a line
/// (type `resync` in JSON) says so.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold watch job/
  leasehold watch --after 3-812 -o jsonl
      go on after the last `cursor` that was seen
  leasehold watch job/ --post https://hooks.example.org/locks --secret-file hook.key --cursor-file hook.cursor
      to a receiver, signed, and tried again until it has them")]
pub(crate) struct Watch {
    /// Only locks whose text begins with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// Begin after this cursor (EPOCH-REVISION) or revision [default: with what happens from now on]
    #[arg(long, value_name = "CURSOR", allow_hyphen_values = true)]
    pub(crate) after: Option<Cursor>,
    #[command(flatten)]
    pub(crate) webhook: Webhook,
}

/// Where events are posted instead of being printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Webhook {
    /// Post events to this receiver, up to 100 in a request, and try again until it answers 2xx
    #[arg(long, value_name = "URL")]
    pub(crate) post: Option<String>,
    /// Sign each request with the secret in this file
    #[arg(long, value_name = "FILE", requires = "post")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Keep the cursor of the last delivered event in this file, and go on after it
    #[arg(long, value_name = "FILE", requires = "post")]
    pub(crate) cursor_file: Option<PathBuf>,
    /// End with exit code 69 when the receiver has not taken a request for so long [default: try for ever]
    #[arg(long, value_name = "DURATION", requires = "post", value_parser = some_length, allow_hyphen_values = true)]
    pub(crate) give_up: Option<Duration>,
    /// Certificates of the authorities to trust for an https:// receiver, instead of the system's
    #[arg(long, value_name = "FILE", requires = "post")]
    pub(crate) receiver_cacert: Option<PathBuf>,
}

/// Diagnose problems, and suggest what to do
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold doctor
  leasehold doctor --addr http://10.0.0.1:8080,http://10.0.0.2:8080
      looks at each of them
  leasehold doctor --config /etc/leasehold/leasehold.toml
      on the machine of a server: its store and its certificates too

Exit codes: 0 all is well, 1 something is bad, 69 no server could be reached")]
pub(crate) struct Doctor {
    /// The settings of a server: its store and its certificates are looked at too
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A store to look at, as `leasehold serve` takes it: its version, and how quickly it answers
    #[arg(long, value_name = "STORE", conflicts_with = "config")]
    pub(crate) store: Option<String>,
    /// A file with certificates: until when they are valid. It may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Vec<PathBuf>,
}

/// Show the wait-for graph
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold graph
  leasehold graph --dot | dot -Tsvg > graph.svg")]
pub(crate) struct Graph {
    /// In the language of Graphviz
    #[arg(long)]
    pub(crate) dot: bool,
}

/// A live screen of locks, holders and waiters
///
/// Keys: q leaves, up and down move, / filters by what a lock begins with, g goes back to all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold top --every 500ms job/
  leasehold top --once -o json | jq .cluster.waiters")]
pub(crate) struct Top {
    /// Only locks whose text begins with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = length, allow_hyphen_values = true)]
    pub(crate) every: Duration,
    /// Draw it once, as text or with -o json as what it is drawn from, and leave
    #[arg(long)]
    pub(crate) once: bool,
}

/// Put a server under load, and verify its guarantees
///
/// Clients take locks, write to a fenced register for each, and give the locks back. While they do, it is checked that
/// no register accepts a write with a stale token, that no two clients believe at once that they hold the same lock, and
/// that the tokens of a lock only rise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold load --clients 80 --duration 20s
  leasehold load --hot 1 --ttl 2s --crash-rate 5
      one lock for all, and one in twenty holders goes without a word

Exit codes: 0 all promises held, 1 one was broken, 69 server unreachable")]
pub(crate) struct Load {
    /// How many clients
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// For how long
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = some_length, allow_hyphen_values = true)]
    pub(crate) duration: Duration,
    /// How many locks they compete for; each client its own if there are as many as clients
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) hot: u32,
    /// How long a lease stands
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = length, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
    /// How long a lock is held
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = length, allow_hyphen_values = true)]
    pub(crate) hold: Duration,
    /// How long to wait for a lock; 0 tries again instead
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = length, allow_hyphen_values = true)]
    pub(crate) wait: Duration,
    /// Percentage of holders that vanish without releasing
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) crash_rate: u8,
    /// How clients talk to the server
    #[arg(long, value_name = "HOW", default_value = "stream")]
    pub(crate) transport: Transport,
    /// What the locks' names begin with
    #[arg(long, value_name = "TEXT", default_value = "load/")]
    pub(crate) prefix: String,
    /// Break a promise on purpose, to see that it is noticed: stale-write, two-believers or token-repeated
    #[arg(long, value_name = "WHICH", hide_possible_values = true)]
    pub(crate) plant: Option<Fault>,
    /// Whether there is a fenced register for each lock.
    #[arg(skip = true)]
    pub(crate) has_registers: bool,
}

/// Measure how fast a server is
///
/// Three rounds: each client takes and gives back a lock of its own, all of them wait for one lock, each renews a lease. A
/// grant counts when it is as durable as the server makes it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold bench
  leasehold bench --clients 1 --transport http
      how long one client alone waits

Exit codes: 0 measured, 1 a promise was broken meanwhile, 69 server unreachable")]
pub(crate) struct Bench {
    /// How many clients
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// How long each round takes
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = some_length, allow_hyphen_values = true)]
    pub(crate) duration: Duration,
    /// How clients talk to the server
    #[arg(long, value_name = "HOW", default_value = "stream")]
    pub(crate) transport: Transport,
    /// What the locks' names begin with
    #[arg(long, value_name = "TEXT", default_value = "bench/")]
    pub(crate) prefix: String,
}

impl Bench {
    /// A round of load with so many locks.
    pub(crate) fn load(&self, locks: u32) -> Load {
        Load {
            clients: self.clients,
            duration: self.duration,
            hot: locks,
            ttl: Duration::from_secs(30),
            hold: Duration::ZERO,
            wait: Duration::from_secs(30),
            crash_rate: 0,
            transport: self.transport,
            prefix: self.prefix.clone(),
            plant: None,
            has_registers: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Http,
    Stream,
}

impl Transport {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Stream => "stream",
        }
    }
}

/// A fault of the load generator's own, to show that its checks can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    StaleWrite,
    TwoBelievers,
    TokenRepeated,
}

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  leasehold completions bash > /etc/bash_completion.d/leasehold")]
pub(crate) struct Completions {
    /// bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold man | man -l -
  leasehold man --dir /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Write one page for each verb into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
