//! The machine's resources used by the process and the files of its store, read when the metrics are scraped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::config::Store;
use crate::net::descriptors;

/// One reading; what the system does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu: Option<Duration>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) open_fds: Option<u64>,
    pub(crate) max_fds: Option<u64>,
    /// Of a SQLite store: the database file, and the log beside it that is not yet part of it.
    pub(crate) database_bytes: Option<u64>,
    pub(crate) log_bytes: Option<u64>,
}

impl Usage {
    /// Reads files and folders of the system, hence not for the engine's thread.
    pub(crate) fn now(store: &Store) -> Usage {
        let [virtual_bytes, resident_bytes] = memory();
        let [database_bytes, log_bytes] = match store {
            Store::Sqlite(file) => [size(file), Some(size(&log_of(file)).unwrap_or(0))],
            Store::Memory | Store::Postgres(_) | Store::Etcd(_) => [None, None],
        };
        Usage {
            cpu: cpu(),
            resident_bytes,
            virtual_bytes,
            open_fds: descriptors::open_count(),
            max_fds: Some(descriptors::limit()),
            database_bytes,
            log_bytes,
        }
    }
}

/// Processor time of all threads, user and system.
fn cpu() -> Option<Duration> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// The address space and what of it is in memory, in bytes.
fn memory() -> [Option<u64>; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ["VmSize:", "VmRSS:"].map(|field| kilobytes(&status, field))
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let number = line.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_os_string();
    name.push("-wal");
    name.into()
}

fn size(file: &Path) -> Option<u64> {
    fs::metadata(file).ok().map(|entry| entry.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_measured() {
        let usage = Usage::now(&Store::Memory);
        assert!(usage.resident_bytes > Some(1 << 20) && usage.virtual_bytes > usage.resident_bytes);
        assert!(usage.cpu > Some(Duration::ZERO) && usage.max_fds > usage.open_fds);
        assert_eq!((usage.database_bytes, usage.log_bytes), (None, None));
    }

    #[test]
    fn files_of_the_store_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leasehold.db");
        fs::write(&file, [0; 300]).unwrap();
        let sizes = |usage: Usage| (usage.database_bytes, usage.log_bytes);
        let store = Store::Sqlite(file);
        assert_eq!(sizes(Usage::now(&store)), (Some(300), Some(0)));
        fs::write(folder.path().join("leasehold.db-wal"), [0; 70]).unwrap();
        assert_eq!(sizes(Usage::now(&store)), (Some(300), Some(70)));
    }

    #[test]
    fn line_of_the_status_is_read_or_left_out() {
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1024));
        assert_eq!(kilobytes("VmRSS:\t12 pages\n", "VmRSS:"), None);
        assert_eq!(kilobytes("", "VmRSS:"), None);
    }
}
