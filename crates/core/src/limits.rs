//! The limits of one table.

use std::time::Duration;

/// The limits that belong to the rules; each has its own refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub lease_ttl_min: Duration,
    pub lease_ttl_max: Duration,
    pub disconnect_ttl_max: Duration,
    pub reclaim_window_max: Duration,
    pub wait_max: Duration,
    pub set_len_max: usize,
    /// The highest limit of a semaphore.
    pub permits_max: u32,
    pub metadata_bytes_max: usize,
    pub waiters_per_scope_max: usize,
    pub waiters_max: usize,
    /// Bytes of the names and the metadata of all waiting requests.
    pub waiter_bytes_max: usize,
    /// Grants and pieces of files in all namespaces, those that are waited for too.
    pub locks_max: usize,
    /// Bytes of the names of locks and of metadata in all namespaces.
    pub bytes_max: usize,
    pub sessions_max: usize,
    pub locks_per_session_max: usize,
    pub sessions_per_adapter_max: usize,
    pub registers_per_namespace_max: usize,
    /// Fence registers in all namespaces.
    pub registers_max: usize,
    pub namespaces_max: usize,
    /// The time for which a place in the queue is kept for a caller that may come back.
    pub ticket_kept: Duration,
    /// The most places that are kept at a time. One more and the oldest is forgotten.
    pub kept_places_max: usize,
    /// The number of ended grants that are remembered, to tell why a token or a lease is no longer good.
    pub endings_max: usize,
    /// The most deadlines that one command works off, so that a million at once do not stop the service.
    pub deadlines_per_step_max: usize,
    /// The most grants, and the most waiters, that one command ends; the rest end by the commands that follow.
    pub endings_per_step_max: usize,
    /// The most that a lease with a reclaim window may hold and wait for: it expires in one step.
    pub windowed_locks_per_session_max: usize,
    /// Ranges of its own that a lease may lock over, unlock or release with one request.
    pub own_ranges_per_step_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Limits {
            lease_ttl_min: Duration::from_millis(100),
            lease_ttl_max: DAY,
            disconnect_ttl_max: DAY,
            reclaim_window_max: DAY,
            wait_max: DAY,
            set_len_max: 64,
            permits_max: 1_000_000,
            metadata_bytes_max: 4096,
            waiters_per_scope_max: 10_000,
            waiters_max: 200_000,
            waiter_bytes_max: 512 * 1024 * 1024,
            locks_max: 5_000_000,
            bytes_max: 2 * 1024 * 1024 * 1024,
            sessions_max: 50_000,
            locks_per_session_max: 100_000,
            sessions_per_adapter_max: 10_000,
            registers_per_namespace_max: 10_000,
            registers_max: 100_000,
            namespaces_max: 10_000,
            ticket_kept: Duration::from_secs(10),
            kept_places_max: 100_000,
            endings_max: 10_000,
            deadlines_per_step_max: 500,
            endings_per_step_max: 2_000,
            windowed_locks_per_session_max: 2_000,
            own_ranges_per_step_max: 2_000,
        }
    }
}
