//! Where the log goes: to stderr, as lines for people or as JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;
use crate::output::Output;

pub(crate) fn start(out: &Output, format: Option<LogFormat>, filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log: {error}"))?;
    let for_people = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if for_people { LogFormat::Text } else { LogFormat::Json });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Whoever read the log may be gone, with the terminal for instance. There is nowhere to say so.
    let log = log.log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(out.colors_on_stderr).with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}
