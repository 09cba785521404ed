//! The command line of the verbs that run a command under a lock.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use leasehold_api::Metadata;
use leasehold_client::HeartbeatInterval;

use super::length;
use super::locks::{ModeArgs, metadata};
use crate::supervise::{OnLost, Plan};

/// Run a command while holding a lock
///
/// The lock is kept while the command runs and released when it has ended. When the lock is lost, because the server
/// is away or somebody broke it, the command and all it has started are stopped before another can hold the lock:
/// first with SIGTERM, then with SIGKILL. The same happens when leasehold itself is killed or stopped. What the
/// command leaves running in the background ends with it.
///
/// The command gets LEASEHOLD_LOCK, LEASEHOLD_LOCKS (a JSON list), LEASEHOLD_FENCING_TOKEN, LEASEHOLD_LEASE_ID,
/// LEASEHOLD_OWNER and LEASEHOLD_ADDR. With one lock, the `--` before the command may be left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold run job/nightly -- ./nightly.sh
      wait in the queue, then run it
  leasehold run -n job/nightly -- ./nightly.sh || echo 'runs elsewhere'
      do not wait
  leasehold run db/a db/b -w 1m -c 'pg_dump a > a.sql && pg_dump b > b.sql'
      two locks, all or none, and a line for the shell
  leasehold run --permits 3 render -- ./render.sh
      not more than three at once

Exit codes: the command's own (128+N if signal N ended it); 75 not acquired (or what -E says), 76 lease lost and
command stopped, 69 server unreachable, 77 not allowed, 78 wrong configuration, 64 wrong usage,
126 the command cannot be run, 127 command not found, 70 our own guard was killed")]
pub(crate) struct Run {
    /// The lock, or several that are taken together
    #[arg(value_name = "LOCK", required = true)]
    pub(crate) locks: Vec<String>,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    #[command(flatten)]
    pub(crate) supervision: Supervision,
    #[command(flatten)]
    pub(crate) what: CommandLine,
}

/// Run a command on one of several machines, and on another if that one fails
///
/// All candidates that name the same election compete for it. The winner runs its command; when it loses its lease, the
/// command is stopped and it waits in the queue again. It resigns when the command ends.
///
/// Without a command it leads until it is told to stop, and ends with 76 when it loses its lease: the process beside it
/// asks --serve, or is told by --on-gain and --on-loss.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold elect scheduler --advertise 10.0.0.7:9000 -- ./scheduler
      on each machine; one of them runs it
  leasehold get scheduler -o json | jq -r '.holders[0].metadata.value'
      where it runs now
  leasehold elect scheduler --advertise $HOSTNAME --serve 127.0.0.1:4040
      beside another process, which asks: curl 127.0.0.1:4040
      {\"name\":\"pod-3\",\"is_leader\":true,\"fencing_token\":41}
  leasehold elect vip --on-gain 'ip addr add 10.0.0.9/24 dev eth0' --on-loss 'ip addr del 10.0.0.9/24 dev eth0'
      moves an address to the leader

Exit codes: as those of `leasehold run`, but a lost lease does not end it while there is a command")]
pub(crate) struct Elect {
    /// The election: the name of a lock
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What others need to reach the leader, such as its address
    #[arg(long, value_name = "TEXT")]
    pub(crate) advertise: Option<String>,
    /// Answer HTTP here: who leads, as JSON; at /leader with 200 if this one does, else with 503
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) serve: Option<SocketAddr>,
    /// A line for /bin/sh, run when elected, before the command; if it fails, it resigns and ends
    #[arg(long, value_name = "LINE")]
    pub(crate) on_gain: Option<OsString>,
    /// A line for /bin/sh, run when the leadership ends, however it ended; it has as long as --grace says
    #[arg(long, value_name = "LINE")]
    pub(crate) on_loss: Option<OsString>,
    #[command(flatten)]
    pub(crate) supervision: Supervision,
    #[command(flatten)]
    pub(crate) what: OptionalCommandLine,
}

/// What `run` and `elect` have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Supervision {
    /// Do not wait if the lock is held
    #[arg(short, long = "no-wait", visible_alias = "nonblock", conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long to wait in the queue if the lock is held [default: for ever]
    #[arg(short, long, visible_alias = "timeout-wait", value_name = "DURATION", value_parser = length, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// The exit code when the lock could not be acquired
    #[arg(
        short = 'E',
        long,
        value_name = "CODE",
        allow_negative_numbers = true,
        default_value_t = 75
    )]
    pub(crate) conflict_exit_code: u8,
    /// Duration of the lease without a renewal: how soon others can acquire the lock if this machine fails
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = length, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
    /// How often to renew: ttl/3, or ttl/6 to survive longer outages
    #[arg(long, value_name = "INTERVAL", default_value = "ttl/3", value_parser = heartbeat)]
    pub(crate) heartbeat: HeartbeatInterval,
    /// What to do first when the lock is lost: term or kill
    #[arg(long, value_name = "HOW", default_value = "term", hide_possible_values = true)]
    pub(crate) on_lost: OnLost,
    /// How long the command has between SIGTERM and SIGKILL, as far as the lease allows
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = length, allow_hyphen_values = true)]
    pub(crate) grace: Duration,
    /// The owner [default: host, process and a random part]
    #[arg(long, value_name = "OWNER")]
    pub(crate) owner: Option<String>,
    /// Give the command the access token too, instead of one that may only look at the lock and give it back
    #[arg(long)]
    pub(crate) pass_token: bool,
    /// A JSON object that others see beside the owner
    #[arg(long, value_name = "JSON", value_parser = metadata)]
    pub(crate) metadata: Option<Metadata>,
}

/// What is to be run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommandLine {
    /// A command line for /bin/sh, instead of a command
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    line: Option<OsString>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "line")]
    pub(crate) command: Vec<OsString>,
}

/// What is to be run, if anything is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OptionalCommandLine {
    /// A command line for /bin/sh, instead of a command
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    line: Option<OsString>,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        last = true,
        required_unless_present_any = ["line", "serve", "on_gain", "on_loss"]
    )]
    command: Vec<OsString>,
}

fn heartbeat(text: &str) -> Result<HeartbeatInterval, &'static str> {
    match text {
        "ttl/3" => Ok(HeartbeatInterval::Third),
        "ttl/6" => Ok(HeartbeatInterval::Sixth),
        _ => Err("expected ttl/3 or ttl/6"),
    }
}

impl Supervision {
    pub(crate) fn plan(&self) -> Plan {
        Plan { on_lost: self.on_lost, grace: self.grace }
    }
}

impl CommandLine {
    pub(crate) fn words(&self) -> Vec<OsString> {
        self.line.as_ref().map_or_else(|| self.command.clone(), shell)
    }
}

impl OptionalCommandLine {
    pub(crate) fn words(&self) -> Option<Vec<OsString>> {
        let words = self.line.as_ref().map_or_else(|| self.command.clone(), shell);
        (!words.is_empty()).then_some(words)
    }
}

/// The command that interprets a line.
pub(crate) fn shell(line: &OsString) -> Vec<OsString> {
    vec!["/bin/sh".into(), "-c".into(), line.clone()]
}
