//! The verb about the servers of a cluster.

use clap::Subcommand;

/// Show the leaders, the servers and the store
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold cluster
  leasehold cluster -o json | jq -r '.groups[0].leader.address'
  leasehold cluster rotate-key")]
pub(crate) struct Cluster {
    #[command(subcommand)]
    pub(crate) command: Option<ClusterCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Give the servers a new key to sign with, among themselves and for sessions of the console
    #[command(after_help = "Example:
  leasehold cluster rotate-key

The key before stays good for an hour. Sessions of the console that are older than that have to log in again.

Exit codes: 0 there is a new key, 77 not allowed")]
    RotateKey,
}
