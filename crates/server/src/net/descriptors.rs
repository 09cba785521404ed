//! File descriptors: how many the process may have open, how many it has, and one kept in reserve.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::net::accept::Listener;

/// Descriptors that are not for connections of clients: the store, the log, connections to other servers.
const RESERVED: u64 = 512;
/// More are never asked for, where the hard limit is that there is none.
const LIMIT_MAX: u64 = 1 << 20;
/// The limit that is tried where the hard limit cannot be set.
const LIMIT_MODEST: u64 = 10_240;
/// A connection that waits to be accepted is there at once.
const ACCEPT_MAX: Duration = Duration::from_millis(10);

/// Raises the soft limit of open files to the hard one. Returns what holds then.
pub(crate) fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    for wanted in [hard.min(LIMIT_MAX), LIMIT_MODEST] {
        if wanted > soft && wanted <= hard {
            let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
            match setrlimit(Resource::Nofile, raised) {
                Ok(()) => return wanted,
                Err(error) => {
                    tracing::warn!(soft, wanted, %error, "the limit of open files cannot be raised");
                }
            }
        }
    }
    soft
}

/// The soft limit of open files.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The most connections there can be, if so many are configured and so many files can be open.
pub(crate) fn connections_max(configured: usize, limit: u64) -> usize {
    // Of a very low limit a quarter is for connections: a server without any would be of no use.
    let possible = limit.saturating_sub(RESERVED).max(limit / 4);
    let max = configured.min(usize::try_from(possible).unwrap_or(usize::MAX));
    // Nearly as many as configured is nothing to wake an operator for.
    if max < configured / 2 {
        tracing::warn!(
            configured,
            connections_max = max,
            open_files_max = limit,
            "fewer connections than configured: raise the limit of open files (LimitNOFILE, ulimit -n)"
        );
    } else {
        tracing::info!(connections_max = max, open_files_max = limit, "limits");
    }
    max
}

/// The number of open descriptors; `None` where the system does not tell. It looks at each: not for the engine's thread.
pub(crate) fn open_count() -> Option<u64> {
    let directory = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let entries = std::fs::read_dir(directory).ok()?;
    // One of them is for the look itself.
    u64::try_from(entries.count()).ok().map(|count| count.saturating_sub(1))
}

/// Whether there was no descriptor left for a connection.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

/// A descriptor that is given up when there is no other: with it a connection can be accepted and closed, so that its
/// peer knows, instead of waiting for an answer that never comes.
#[derive(Debug)]
pub(crate) struct Spare(Option<File>);

impl Spare {
    pub(crate) fn new() -> Spare {
        Spare(File::open("/dev/null").ok())
    }

    /// Accepts one connection and closes it. Whether that was possible.
    pub(crate) async fn turn_one_away(&mut self, listener: &impl Listener) -> bool {
        if self.0.take().is_none() {
            *self = Spare::new();
            return false;
        }
        let accepted = tokio::time::timeout(ACCEPT_MAX, listener.accept()).await;
        let is_away = matches!(accepted, Ok(Ok(_)));
        drop(accepted);
        *self = Spare::new();
        is_away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        assert_eq!(connections_max(20_000, 1 << 20), 20_000);
        assert_eq!(connections_max(20_000, 4096), 3584);
        assert_eq!(connections_max(100, 4096), 100);
        assert_eq!(connections_max(20_000, 256), 64);
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = open_count().expect("the system tells");
        let files: Vec<File> = (0..50).filter_map(|_| File::open("/dev/null").ok()).collect();
        // Other tests open and close theirs meanwhile.
        let more = open_count().expect("the system tells");
        assert!(more >= before + 25 && limit() >= more, "{before} {more}");
        drop(files);
    }
}
