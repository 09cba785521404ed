//! What every verb that asks a server understands.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::some_length;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server and output")]
pub(crate) struct Global {
    /// The profile of `leasehold login` that says what else is not said [default: default]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "LEASEHOLD_PROFILE",
        hide_env_values = true
    )]
    pub(crate) profile: Option<String>,
    /// Server URL, or several separated by commas [default: the profile's, or http://127.0.0.1:8080]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_ADDR",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(crate) addr: Vec<String>,
    /// The namespace of the locks [default: the profile's, or default]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "LEASEHOLD_NAMESPACE",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub(crate) namespace: String,
    /// A file with the token to show to the server; without one, LEASEHOLD_TOKEN may hold the token itself
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_TOKEN_FILE",
        hide_env_values = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// Certificates of the authorities to trust for https:// servers, instead of the system's
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_CACERT",
        hide_env_values = true
    )]
    pub(crate) cacert: Option<PathBuf>,
    /// The hash of the authority to trust, as a profile says it.
    #[arg(skip)]
    pub(crate) authority: Option<String>,
    /// The token of the profile.
    #[arg(skip)]
    pub(crate) login_token: Option<PathBuf>,
    /// How long to try before the server counts as unreachable
    #[arg(long, global = true, value_name = "DURATION", default_value = "10s", value_parser = some_length, allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    /// Output format: table, json (the answer of the server), or jsonl (one item a line)
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "table",
        hide_possible_values = true
    )]
    pub(crate) output: Format,
    /// When to use colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub(crate) color: Color,
    /// Print only what was asked for
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print progress and details
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Jsonl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}
