//! The command line of the verbs about one lock, a session or a fence register.

use std::time::Duration;

use clap::Subcommand;
use leasehold_api::{Metadata, Mode, OnDisconnect};

use super::{length, token};

/// How a lock is to be held.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ModeArgs {
    /// Shared: together with any number of shared holders
    #[arg(short, long)]
    pub(crate) shared: bool,
    /// Exclusive: no other holder (the default)
    #[arg(short = 'x', short_alias = 'e', long, conflicts_with_all = ["shared", "permits"])]
    pub(crate) exclusive: bool,
    /// At most this many hold the lock at once; every request must give the same number
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "shared")]
    pub(crate) permits: Option<u32>,
}

impl ModeArgs {
    pub(crate) fn mode(&self) -> Option<Mode> {
        match (self.shared, self.permits) {
            (true, _) => Some(Mode::Shared),
            (false, Some(_)) => Some(Mode::Permits),
            (false, None) => None,
        }
    }
}

/// What shows that a lock is held.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Held {
    /// Who holds it
    #[arg(long, value_name = "OWNER", env = "LEASEHOLD_OWNER", hide_env_values = true)]
    pub(crate) owner: Option<String>,
    /// The fencing token that came with the lock
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, env = "LEASEHOLD_FENCING_TOKEN", hide_env_values = true, value_parser = token)]
    pub(crate) fencing_token: u64,
}

/// Acquire a lock, and print its lease id and fencing token
///
/// The lease is not renewed for you: renew it before its ttl is over, or use `leasehold run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold acquire job/nightly --ttl 5m
      take it for five minutes
  LEASEHOLD_LEASE_ID=$(leasehold acquire job/nightly -w 30s -o json | jq -r .lease_id)
      wait in the queue for up to half a minute
  leasehold acquire 'path:/srv/a/**' 'path:/srv/b/**'
      several locks are one set: all or none, under one lease

Exit codes: 0 acquired, 75 not acquired")]
pub(crate) struct Acquire {
    /// The lock, or several that are taken together
    #[arg(value_name = "LOCK", required = true)]
    pub(crate) locks: Vec<String>,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    /// Duration of the lease without a renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = length, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
    /// How long to wait in the queue if the lock is held
    #[arg(short, long, value_name = "DURATION", value_parser = length, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// The owner [default: your name and host]
    #[arg(long, value_name = "OWNER", env = "LEASEHOLD_OWNER", hide_env_values = true)]
    pub(crate) owner: Option<String>,
    /// The session, or the lease of the same owner, that the grant stands under
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// A JSON object that others see beside your name
    #[arg(long, value_name = "JSON", value_parser = metadata)]
    pub(crate) metadata: Option<Metadata>,
}

/// Renew a lease for its full ttl
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  LEASEHOLD_LEASE_ID=05ef3f… leasehold renew job/nightly --owner me --fencing-token 42
  leasehold acquire job/nightly -o json > grant
  jq -r .lease_id grant | leasehold renew job/nightly --fencing-token $(jq .fencing_token grant)

The lease id is a secret: it comes from LEASEHOLD_LEASE_ID or from stdin, never from the command line.
Inside `leasehold run` everything is taken from the environment.
Exit codes: 0 renewed, 76 the lease is over")]
pub(crate) struct Renew {
    /// The lock [default: what LEASEHOLD_LOCKS names]
    #[arg(value_name = "LOCK")]
    pub(crate) lock: Option<String>,
    #[command(flatten)]
    pub(crate) held: Held,
    /// Another ttl from now on
    #[arg(long, value_name = "DURATION", value_parser = length, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
}

/// Release a lock
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  LEASEHOLD_LEASE_ID=05ef3f… leasehold release job/nightly --owner me --fencing-token 42

The lease id comes from LEASEHOLD_LEASE_ID or from stdin, never from the command line.
A release whose answer was lost can be repeated: it is answered as before.
Exit codes: 0 released, 76 the lease had ended")]
pub(crate) struct Release {
    /// The lock [default: what LEASEHOLD_LOCKS names]
    #[arg(value_name = "LOCK")]
    pub(crate) lock: Option<String>,
    #[command(flatten)]
    pub(crate) held: Held,
}

/// Unlock bytes of a file, whatever grants they came by
///
/// Bytes that are not held do not matter, so it can be repeated.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  leasehold unlock inode:42@0..100 --owner me --session $id

Exit codes: 0 nothing of it is held any more, 76 the session or lease is over")]
pub(crate) struct Unlock {
    /// The bytes: inode:N, or a range of it
    #[arg(value_name = "LOCK")]
    pub(crate) lock: String,
    /// Who holds them [default: your name and host]
    #[arg(long, value_name = "OWNER", env = "LEASEHOLD_OWNER", hide_env_values = true)]
    pub(crate) owner: Option<String>,
    /// The session or lease that they are held under [default: LEASEHOLD_LEASE_ID, or a line of stdin]
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
}

/// Show one lock: its holders, and who waits; or the grant of a fencing token
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold get job/nightly
  leasehold get --fencing-token 42
      who had that token, for which lock, and how it ended

Exit codes: 0 shown, 1 nothing is known of the token")]
pub(crate) struct Get {
    /// The lock
    #[arg(value_name = "LOCK", required_unless_present = "fencing_token")]
    pub(crate) lock: Option<String>,
    /// Look for the grant that carries this token, held or ended
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = token, conflicts_with = "lock")]
    pub(crate) fencing_token: Option<u64>,
}

/// Tell whether a lock could be acquired now
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  leasehold test -s inode:42@0..100 && echo free

Exit codes: 0 free, 1 not free")]
pub(crate) struct Test {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: String,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    /// The owner that would hold it [default: your name and host]
    #[arg(long, value_name = "OWNER", env = "LEASEHOLD_OWNER", hide_env_values = true)]
    pub(crate) owner: Option<String>,
}

/// Tell whether a fencing token is still valid
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold check job/nightly --fencing-token 42 && ./write.sh
  leasehold check && ./write.sh
      inside `leasehold run`: whether all of its locks are still held

Exit codes: 0 valid, 1 not valid")]
pub(crate) struct Check {
    /// The lock [default: all that LEASEHOLD_LOCKS names]
    #[arg(value_name = "LOCK")]
    pub(crate) lock: Option<String>,
    /// The fencing token
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, env = "LEASEHOLD_FENCING_TOKEN", hide_env_values = true, value_parser = token)]
    pub(crate) fencing_token: u64,
}

/// Force-release a lock that another owner holds
///
/// The next waiter is granted the lock at once. The holder learns of it with its next renewal; until then it may still believe
/// that it holds the lock, and only a check of its fencing token keeps its writes out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  leasehold break job/nightly --reason 'worker-3 hangs, ticket 812'

Exit codes: 0 released, 1 not held")]
pub(crate) struct Break {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: String,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Only the holder with this fencing token
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = token)]
    pub(crate) fencing_token: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Open a session, and print its id
    #[command(after_help = "Example:
  id=$(leasehold session open --ttl 1m -o json | jq -r .session_id)
  leasehold acquire job/a --session $id")]
    Open(SessionOpen),
    /// Renew a session, and every lock under it, for its full ttl
    #[command(
        name = "keepalive",
        after_help = "Example:
  leasehold session keepalive $id

Exit codes: 0 kept, 76 it is over"
    )]
    KeepAlive(SessionKeepAlive),
    /// List the sessions that are open
    #[command(after_help = "Example:
  leasehold session list -o jsonl | jq -r .owner_id")]
    List,
    /// Close a session; everything under it is released
    #[command(after_help = "Example:
  leasehold session close $id

Exit codes: 0 closed, 76 it was over")]
    Close(SessionId),
    /// Force-close another owner's session, and release its locks
    #[command(after_help = "Example:
  leasehold session break 17 --reason 'worker-3 hangs, ticket 812'

Exit codes: 0 closed, 76 not found")]
    Break(SessionBreak),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionBreak {
    /// The session's number, as `leasehold session list` shows it
    #[arg(value_name = "NUMBER")]
    pub(crate) number: u64,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionOpen {
    /// Duration of the session without a keepalive
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = length, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
    /// The owner [default: your name and host]
    #[arg(long, value_name = "OWNER", env = "LEASEHOLD_OWNER", hide_env_values = true)]
    pub(crate) owner: Option<String>,
    /// The adapter whose limit it counts for
    #[arg(long, value_name = "NAME")]
    pub(crate) adapter: Option<String>,
    /// Keep everything for so long when a stream that is bound to it breaks; without this it is released at once
    #[arg(long, value_name = "DURATION", value_parser = length, allow_hyphen_values = true)]
    pub(crate) disconnect_ttl: Option<Duration>,
    /// A JSON object that others see beside your name
    #[arg(long, value_name = "JSON", value_parser = metadata)]
    pub(crate) metadata: Option<Metadata>,
}

impl SessionOpen {
    pub(crate) fn on_disconnect(&self) -> OnDisconnect {
        if self.disconnect_ttl.is_some() { OnDisconnect::Keep } else { OnDisconnect::Release }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionKeepAlive {
    /// The session's id, or the id of a lease [default: LEASEHOLD_LEASE_ID, or a line of stdin]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Another ttl from now on
    #[arg(long, value_name = "DURATION", value_parser = length, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionId {
    /// The session's id, or the id of a lease [default: LEASEHOLD_LEASE_ID, or a line of stdin]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// Show a register a token: it takes it unless it has seen a higher one
    #[command(after_help = "Example:
  leasehold fence accept bucket/reports --fencing-token 42 && ./upload.sh

Exit codes: 0 accepted, 1 the token is stale, 64 it was never issued")]
    Accept(FenceAccept),
    /// Show the highest token that a register has seen
    #[command(after_help = "Example:
  leasehold fence get bucket/reports

Exit codes: 0 it has seen one, 1 it has seen none")]
    Get(FenceGet),
    /// List the registers of a namespace
    #[command(after_help = "Example:
  leasehold fence list -o jsonl")]
    List,
    /// Remove a register: what it has seen is forgotten
    ///
    /// The next token that it is shown makes it anew, even one that is lower than those it had seen: make sure that no stale writer is about.
    #[command(after_help = "Example:
  leasehold fence delete bucket/reports --reason 'bucket removed, ticket 812'

Exit codes: 0 removed, 1 there is none of that name")]
    Delete(FenceDelete),
}

#[derive(Debug, clap::Args)]
pub(crate) struct FenceAccept {
    /// The register
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The fencing token
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, env = "LEASEHOLD_FENCING_TOKEN", hide_env_values = true, value_parser = token)]
    pub(crate) fencing_token: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FenceGet {
    /// The register
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FenceDelete {
    /// The register
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Why; it goes into the record
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

pub(super) fn metadata(text: &str) -> Result<Metadata, String> {
    let not_an_object = |_| r#"expected a JSON object, for example {"team":"storage"}"#.to_string();
    serde_json::from_str(text).map_err(not_an_object)
}
