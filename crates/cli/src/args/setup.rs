//! The command line of the verbs that set up a server, or this user's way to one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::serve::listen;
use super::some_length;

/// Set up a server: a certificate authority, a certificate, a configuration and the first token
///
/// Does nothing to what is there already. The token is kept for this user, as by `leasehold login`; it may do everything. Then start the server
/// with `leasehold serve --config DIR/leasehold.toml`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold init --dir /var/lib/leasehold --name locks.example
  leasehold init --hosts locks.example,10.0.0.5
      all names and addresses that clients use

Exit codes: 0 done, or done before, 64 wrong usage, 74 a file could not be written, 78 the directory is not safe")]
pub(crate) struct Init {
    /// The directory of the server: certificates, configuration, locks
    #[arg(long, value_name = "DIR", default_value = "leasehold-data")]
    pub(crate) dir: PathBuf,
    /// The name under which clients reach the server [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// More names and addresses of it, separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// The address to serve on
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080", value_parser = listen)]
    pub(crate) listen: SocketAddr,
}

/// Log in to a server: check a token, and keep it with the address in a profile
///
/// With a join string, which `leasehold init` prints, the server's authority is compared with the one in it before the token is sent. Without an
/// argument, a join string is read from stdin; if no token came with it, that is read too, on a terminal without showing it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold login https://locks.example:8080 < billing.token
  leasehold login lkj1.mS5…@https://locks.example:8080
      a join string; asks for the token if there is none in it
  leasehold login --profile prod < join.txt

Exit codes: 0 logged in, 64 wrong usage, 69 no server, or not the one of the join string, 77 the token is not good")]
pub(crate) struct Login {
    /// Where the server is, or a join string
    #[arg(value_name = "URL")]
    pub(crate) to: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Issue a certificate for a client, in place of a token
    #[command(after_help = "Example:
  leasehold cert issue --dir /var/lib/leasehold --principal billing --out billing-cert
      makes billing-cert/client.pem, client.key and ca.pem

Exit codes: 0 issued, 64 wrong usage, 74 a file could not be read or written")]
    Issue(CertIssue),
    /// Renew a certificate that init or issue made, with a new key
    ///
    /// A server notices by itself. `leasehold serve` does it for its own certificate after two thirds of its life, if the key of the authority is there.
    #[command(after_help = "Examples:
  leasehold cert renew --dir /var/lib/leasehold
      the server's
  leasehold cert renew --dir /var/lib/leasehold billing-cert/client.pem")]
    Renew(CertRenew),
    /// Revoke a certificate of a client
    ///
    /// Every server refuses it within a second, on open connections too. Locks that were acquired with it stand until their leases are over.
    #[command(after_help = "Example:
  leasehold cert revoke $(jq -r .serial billing-cert/client.json)

Exit codes: 0 revoked, 64 not a serial number, 77 not allowed")]
    Revoke(CertRevoke),
    /// The authority
    #[command(
        subcommand,
        after_help = "Example:
  leasehold cert ca show --dir /var/lib/leasehold > ca.pem"
    )]
    Ca(CaCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Print the certificate of the authority, for `curl --cacert`
    #[command(after_help = "Example:
  leasehold cert ca show --dir /var/lib/leasehold > ca.pem")]
    Show(CertDir),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CertDir {
    /// The directory that `leasehold init` made
    #[arg(long, value_name = "DIR", default_value = "leasehold-data")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CertIssue {
    #[command(flatten)]
    pub(crate) of: CertDir,
    /// Who the certificate stands for
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: String,
    /// The directory to put it in
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How long it is good: whole days
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = days)]
    pub(crate) ttl: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CertRevoke {
    /// Its serial number, as `cert issue` told it
    #[arg(value_name = "SERIAL")]
    pub(crate) serial: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CertRenew {
    #[command(flatten)]
    pub(crate) of: CertDir,
    /// The certificate [default: the server's]
    #[arg(value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn days(text: &str) -> Result<u32, String> {
    let days = match text.strip_suffix('d') {
        Some(days) => days.parse().map_err(|_| "not a number of days".to_owned())?,
        None => {
            u32::try_from(some_length(text)?.as_secs().div_ceil(DAY.as_secs())).unwrap_or(u32::MAX)
        }
    };
    if (1..=3650).contains(&days) { Ok(days) } else { Err("between 1d and 3650d".into()) }
}
