//! The command line of the verbs that run a server or handle its data.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use leasehold_server::Listen;

use super::length;

/// Start a server
///
/// Settings come from the file of --config, from the environment, and from these flags; the later wins.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold serve
      on 127.0.0.1:8080, with its data in ./leasehold-data
  leasehold serve --store memory --listen 127.0.0.1:9090
      for a test, with nothing on disk
  leasehold serve --dev
      on loopback, with nothing on disk and no tokens
  leasehold serve --tls auto --data /var/lib/leasehold
      with a certificate and a first token, which are made at the first start
  leasehold serve --config /etc/leasehold.toml --check-config
      only check the configuration

Exit codes: 0 stopped as asked, 64 wrong usage, 70 lost its store, 78 cannot start as configured")]
pub(crate) struct Serve {
    /// A TOML file with settings
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// For development: on loopback, in memory, without TLS and tokens, whatever the environment says
    #[arg(long, conflicts_with_all = ["config", "data", "store", "tls", "insecure", "insecure_http", "insecure_anonymous"])]
    pub(crate) dev: bool,
    /// `auto`: with the certificate and the tokens of the data directory, as `leasehold init` makes them; it does that if there are none
    #[arg(long, value_name = "HOW", conflicts_with_all = ["config", "store"])]
    pub(crate) tls: Option<TlsMode>,
    /// The address to serve on, or unix:PATH [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "LEASEHOLD_LISTEN", hide_env_values = true)]
    pub(crate) listen: Option<Listen>,
    /// The directory to keep locks in; with --store memory, a note of its last fencing token [env: LEASEHOLD_DATA] [default: leasehold-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where to keep locks: sqlite:PATH, postgres://…, etcd://…, or memory to forget them [env: LEASEHOLD_STORE]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// How long the simple /lock stays reserved for its last holder [default: 5s]
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_SIMPLE_GRACE", hide_env_values = true, value_parser = length, allow_hyphen_values = true)]
    pub(crate) simple_grace: Option<Duration>,
    /// How many threads serve requests [default: 1]
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        env = "LEASEHOLD_THREADS",
        hide_env_values = true
    )]
    pub(crate) threads: Option<usize>,
    /// A further name to answer to, beside addresses and the names of the certificate; may be repeated
    #[arg(
        long = "host",
        value_name = "NAME",
        env = "LEASEHOLD_HOSTS",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub(crate) hosts: Vec<String>,
    /// Allow non-loopback addresses without TLS: for a proxy in front
    #[arg(long, env = "LEASEHOLD_INSECURE_HTTP", hide_env_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure_http: bool,
    /// Allow non-loopback addresses without authentication: every client may do everything
    #[arg(long, env = "LEASEHOLD_INSECURE_ANONYMOUS", hide_env_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure_anonymous: bool,
    /// Both --insecure-http and --insecure-anonymous
    #[arg(long, env = "LEASEHOLD_INSECURE", hide_env_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure: bool,
    /// Which requests to log [default: errors]
    #[arg(long, value_name = "WHICH", env = "LEASEHOLD_ACCESS_LOG", hide_env_values = true)]
    pub(crate) access_log: Option<AccessLog>,
    /// How to write the log [default: text on a terminal, json otherwise]
    #[arg(long, value_name = "FORMAT", env = "LEASEHOLD_LOG_FORMAT", hide_env_values = true)]
    pub(crate) log_format: Option<LogFormat>,
    /// What to log: a level, and levels by target, such as info,h2=debug [default: info; warn on a terminal]
    #[arg(long, value_name = "FILTER", env = "LEASEHOLD_LOG", hide_env_values = true)]
    pub(crate) log: Option<String>,
    /// Only check the configuration
    #[arg(long)]
    pub(crate) check_config: bool,
}

/// These two are not left to clap: to it, a flag and a variable that exclude each other are an error.
pub(crate) const BOOTSTRAP_VARIABLE: &str = "LEASEHOLD_BOOTSTRAP_TOKEN_FILE";
pub(crate) const DATA_VARIABLE: &str = "LEASEHOLD_DATA";
pub(crate) const STORE_VARIABLE: &str = "LEASEHOLD_STORE";

pub(super) fn listen(text: &str) -> Result<SocketAddr, &'static str> {
    let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    match port {
        Some(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        None => text.parse().map_err(|_| "expected IP:PORT, for example 127.0.0.1:8080"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsMode {
    Auto,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AccessLog {
    All,
    Errors,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Where a server keeps its locks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// The directory of the locks [env: LEASEHOLD_DATA] [default: leasehold-data]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) data: Option<PathBuf>,
    /// The store of the locks, as `leasehold serve` takes it: sqlite:PATH [env: LEASEHOLD_STORE]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

/// Back up a server's data to a file, while the server runs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold backup --data /var/lib/leasehold backup.db
  leasehold backup --store sqlite:/var/lib/leasehold/leasehold.db backup.db
  leasehold backup --data /var/lib/leasehold - | zstd > backup.db.zst
  leasehold backup --remote --addr https://locks.example:8080 backup.db
      from a server on another machine, with a token that may administer it

PostgreSQL and etcd have tools of their own for this: see docs/operate/backup.md.
Exit codes: 0 copied, 64 wrong usage, 69 no server could be reached, 74 not copied, 77 not allowed")]
pub(crate) struct Backup {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Ask the server of --addr for it, instead of reading its file on this machine
    #[arg(long, conflicts_with_all = ["data", "store"])]
    pub(crate) remote: bool,
    /// The file to make; there must be none yet. `-` is stdout
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
}

/// Restore a backup into a new data directory
///
/// Fencing tokens go on well above all that were handed out since the backup, so that no holder of before can pass for
/// one of now.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold restore --data /var/lib/leasehold backup.db
  leasehold restore --tokens revoke --data /var/lib/leasehold backup.db
      access tokens of then are good for nothing
  leasehold restore --dry-run --data /var/lib/leasehold backup.db
      whether it could be restored

Exit codes: 0 restored, 64 wrong usage, 74 not restored")]
pub(crate) struct Restore {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Go on above this fencing token in any case; at most 9007194959773696, which leaves 2^32 of them
    #[arg(long, value_name = "TOKEN", allow_negative_numbers = true)]
    pub(crate) fence_above: Option<u64>,
    /// Whether access tokens of the backup are good again, some of which may have been revoked since: keep or revoke. To be said if there are any
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub(crate) tokens: Option<TokensAfter>,
    /// Read the backup in full, compare its checksums, tell what would come of it, and leave nothing behind
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The backup
    #[arg(value_name = "FILE")]
    pub(crate) from: PathBuf,
}

/// What becomes of the access tokens of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokensAfter {
    Keep,
    Revoke,
}

/// Copy everything from one store to another
///
/// All servers have to be stopped first. Leases keep their ids, owners and fencing tokens, and stand for their full ttl
/// when a server starts on the new store; tokens go on rising. The copy is loaded back and compared. What was copied
/// stays where it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  leasehold migrate --from sqlite:leasehold-data/leasehold.db \\
      --to 'postgres://locks@db.example/locks?password_file=/etc/leasehold/password'

Exit codes: 0 copied, 64 wrong usage, 74 not copied")]
pub(crate) struct Migrate {
    /// The store to copy from
    #[arg(long, value_name = "STORE")]
    pub(crate) from: String,
    /// The store to copy to; it must be empty
    #[arg(long, value_name = "STORE")]
    pub(crate) to: String,
    /// How many groups of namespaces there are, in both stores
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) groups: u32,
    /// Replace what the store to copy to has
    #[arg(long)]
    pub(crate) force: bool,
}
