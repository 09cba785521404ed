//! The verbs about the audit log.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Print the last lines of an audit log
    #[command(after_help = "Example:
  leasehold audit tail /var/log/leasehold/audit.jsonl --follow | jq -r '[.at, .event, .principal] | @tsv'")]
    Tail(AuditTail),
    /// Check that no line was changed or cut out
    #[command(after_help = "Example:
  leasehold audit verify audit.jsonl.2 audit.jsonl.1 audit.jsonl
      rotated files are one chain, the oldest first

Each line has the number after, and the hash of, the line before it. That the newest lines were cut off cannot be seen: keep
the hash of the last line elsewhere if that matters.

Exit codes: 0 nothing is missing, 1 a line was changed or is missing, 74 a file cannot be read")]
    Verify(AuditVerify),
    /// Read a secret from stdin, and print how the audit log names it
    #[command(after_help = "Example:
  leasehold audit hash --key /var/log/leasehold/audit.key < suspicious-token | xargs -I% grep % audit.jsonl")]
    Hash(AuditHash),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditTail {
    /// The log
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How many lines
    #[arg(short = 'l', long, value_name = "NUMBER", default_value_t = 10)]
    pub(crate) lines: usize,
    /// Go on with what is written, over rotations too
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditVerify {
    /// The files of one log, the oldest first
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditHash {
    /// The key of the log: `audit.key` beside its file, unless the configuration says otherwise
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
}
