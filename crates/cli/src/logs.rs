//! The log: to stderr, as lines for people or as JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::args::LogFormat;

pub(crate) fn start(format: Option<LogFormat>, filter: Option<&str>) -> Result<(), String> {
    let for_people = std::io::stderr().is_terminal();
    let default = if for_people && format.is_none() { "warn" } else { "info" };
    let filter = filter.unwrap_or(default);
    // Levels by target say nothing about the others: those stay at `info`, unless a level for all is given.
    let has_level =
        filter.split(',').any(|part| !part.contains('=') && part.parse::<LevelFilter>().is_ok());
    let filter = if has_level { filter.into() } else { format!("info,{filter}") };
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log: {error}"))?;
    let format = format.unwrap_or(if for_people { LogFormat::Text } else { LogFormat::Json });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Whoever read the log may be gone, with the terminal for instance. There is nowhere to say so.
    let log = log.log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(false).with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}
