//! The verbs about credentials and rights.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::serve::Place;
use super::some_length;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print it once
    ///
    /// Without --principal it is a narrower token of one's own: it may do no more than the one that is shown, and ends with it.
    #[command(after_help = "Examples:
  leasehold token create --principal billing --role client --namespace billing > billing.token
  leasehold token create --role client:billing --ttl 1h
      a narrower token of one's own

Exit codes: 0 created, 64 wrong usage, 77 not allowed")]
    Create(TokenCreate),
    /// List the tokens, without their secrets
    #[command(after_help = "Example:
  leasehold token list -o json | jq -r '.tokens[].id'")]
    List,
    /// Show a token, without its secret
    #[command(after_help = "Example:
  leasehold token show 7k2m9q4wx3ta")]
    Show(TokenId),
    /// Revoke a token, and all that were made of it
    ///
    /// Every server refuses it within a second. Locks that were acquired with it stand until their leases are over.
    #[command(after_help = "Example:
  leasehold token revoke 7k2m9q4wx3ta

Exit codes: 0 revoked, 1 there is none of that id, 77 not allowed")]
    Revoke(TokenRevoke),
    /// Replace a token by another: both are good for a while
    #[command(after_help = "Example:
  leasehold token rotate 7k2m9q4wx3ta --overlap 24h > billing.token")]
    Rotate(TokenRotate),
    /// Make a token without a server, for LEASEHOLD_BOOTSTRAP_TOKEN_FILE or access.toml
    #[command(after_help = "Example:
  leasehold token new --offline > first.token
  leasehold token hash --principal root --role admin < first.token >> access.toml")]
    New(TokenNew),
    /// Read a token from stdin, and print what access.toml keeps of it
    #[command(after_help = "Example:
  leasehold token hash --principal root --role admin < first.token >> access.toml")]
    Hash(TokenHash),
    /// Write a new administrator's token straight into a store, when locked out
    ///
    /// Needs access to the store. A server that keeps its locks in a file has to be stopped for that.
    #[command(after_help = "Example:
  leasehold token bootstrap --data /var/lib/leasehold > root.token")]
    Bootstrap(Place),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenCreate {
    /// Who it stands for
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: Option<String>,
    /// A role: `reader`, or one with its namespaces, `client:billing`; `client` alone is for --namespace
    #[arg(long = "role", value_name = "ROLE")]
    pub(crate) roles: Vec<String>,
    /// How long it is good, or `never` [default: 90 days]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub(crate) ttl: Option<Ttl>,
    /// A network that it is good from
    #[arg(long = "cidr", value_name = "NETWORK")]
    pub(crate) cidrs: Vec<String>,
    /// What is left of its rights: `verbs=read+watch,namespace=billing,names=jobs/`; may be given several times
    #[arg(long, value_name = "RULE", value_parser = narrow)]
    pub(crate) narrow: Vec<serde_json::Value>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// A rule as in a role, on one line. Without names, paths, inodes and fences it is about all locks of its namespace.
fn narrow(text: &str) -> Result<serde_json::Value, String> {
    let mut rule = serde_json::Map::new();
    for part in text.split(',') {
        let (name, value) =
            part.split_once('=').ok_or("expected NAME=VALUE, with commas between")?;
        let value = match (name, value) {
            ("namespace", one) | ("sessions" | "inodes", one @ "*") => one.into(),
            (_, values) => values.split('+').collect::<Vec<_>>().into(),
        };
        rule.insert(name.into(), value);
    }
    if !["names", "paths", "inodes", "fences", "sessions"]
        .iter()
        .any(|kind| rule.contains_key(*kind))
    {
        rule.insert("names".into(), vec!["*"].into());
        rule.insert("paths".into(), vec!["/**"].into());
        rule.insert("inodes".into(), "*".into());
    }
    Ok(rule.into())
}

/// How long a token is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ttl {
    Never,
    For(Duration),
}

fn ttl(text: &str) -> Result<Ttl, String> {
    if text == "never" {
        return Ok(Ttl::Never);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    match days.filter(|&days| days > 0) {
        Some(days) => Ok(Ttl::For(Duration::from_secs(u64::from(days) * 24 * 60 * 60))),
        None => some_length(text).map(Ttl::For),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenId {
    /// The id: what stands after `lk_` up to the next `_`
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenRevoke {
    /// The id: what stands after `lk_` up to the next `_`
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Also if nobody could administer the server any more
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenRotate {
    /// The id: what stands after `lk_` up to the next `_`
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// How long the old one stays good
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = super::length)]
    pub(crate) overlap: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenNew {
    /// No server is asked, and none knows it until it is told its hash
    #[arg(long, required = true)]
    pub(crate) offline: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenHash {
    /// Who it stands for
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: String,
    /// A role: `reader`, or one with its namespaces, `client:billing`
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the roles
    #[command(after_help = "Example:
  leasehold policy list")]
    List,
    /// Show what a role allows
    #[command(after_help = "Example:
  leasehold policy show billing > billing.json")]
    Show(RoleName),
    /// Make a role of a file, or replace it
    ///
    /// The file holds JSON with `rules`, as `policy show` prints it.
    #[command(after_help = "Example:
  leasehold policy put billing billing.json

Exit codes: 0 done, 64 the file is wrong, 77 not allowed")]
    Put(PolicyPut),
    /// Delete a role: who had it loses what it allowed
    #[command(after_help = "Example:
  leasehold policy delete billing")]
    Delete(PolicyDelete),
    /// Tell whether a principal may do something, and which rule allows it
    #[command(after_help = "Examples:
  leasehold policy test billing acquire billing job/nightly
  leasehold policy test prometheus metrics

Exit codes: 0 it may, 77 it may not, or one may not ask")]
    Test(PolicyTest),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RoleName {
    /// The role
    #[arg(value_name = "ROLE")]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PolicyPut {
    /// The role
    #[arg(value_name = "ROLE")]
    pub(crate) name: String,
    /// JSON with its rules
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Also if nobody could administer the server any more
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PolicyDelete {
    /// The role
    #[arg(value_name = "ROLE")]
    pub(crate) name: String,
    /// Also if nobody could administer the server any more
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PolicyTest {
    /// Who
    #[arg(value_name = "PRINCIPAL")]
    pub(crate) principal: String,
    /// What: acquire, read, watch, fence, break, remove, sessions, metrics, cluster, console, token.self or admin
    #[arg(value_name = "VERB")]
    pub(crate) verb: String,
    /// Where; left out for verbs about the server
    #[arg(value_name = "NAMESPACE")]
    pub(crate) in_namespace: Option<String>,
    /// A lock; anything in the namespace if left out
    #[arg(value_name = "LOCK")]
    pub(crate) lock: Option<String>,
}
