//! Grants and sessions on their way to their caller: they are the caller's only once the reply is out.
//!
//! ```text
//!   service ──► DeliveryGuard ──► body: its bytes are taken ──► connection: they are flushed ──► the caller's
//!                    └──────────────────┴── dropped anywhere before that ──┴──► taken back
//! ```
//!
//! Bytes that the kernel took count as delivered. A peer that resets the connection after that may well have read them,
//! and taking back a lock from a caller that believes to hold it would be worse than letting it lapse.

use std::sync::Arc;

use leasehold_engine::{Handle, Undo};
use parking_lot::{Mutex, MutexGuard};

/// The grants of one reply, or of one message of a stream. Dropped before delivery, they are taken back.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryGuard(Arc<Undelivered>);

#[derive(Debug)]
struct Undelivered {
    engine: Handle,
    undo: Mutex<Vec<Undo>>,
}

impl DeliveryGuard {
    pub(crate) fn new(engine: &Handle, undo: Vec<Undo>) -> DeliveryGuard {
        DeliveryGuard(Arc::new(Undelivered { engine: engine.clone(), undo: Mutex::new(undo) }))
    }

    /// The guard of one reply; none if there is nothing to take back, as a retry will find it.
    pub(crate) fn of(engine: &Handle, undo: Option<Undo>) -> Option<DeliveryGuard> {
        let undo = undo.filter(is_needed)?;
        Some(DeliveryGuard::new(engine, vec![undo]))
    }

    pub(crate) fn is_delivered(&self) {
        self.undo().clear();
    }

    fn undo(&self) -> MutexGuard<'_, Vec<Undo>> {
        self.0.undo.lock()
    }
}

/// The grants in the messages of a stream, until the bytes that they are in are handed out.
#[derive(Clone, Debug)]
pub(crate) struct Outbox(DeliveryGuard);

impl Outbox {
    pub(crate) fn new(engine: &Handle) -> Outbox {
        Outbox(DeliveryGuard::new(engine, Vec::new()))
    }

    /// Adds what a message gives that goes out next.
    pub(crate) fn put(&self, undo: &mut Vec<Undo>) {
        self.0.undo().append(undo);
    }

    /// All that was put in: it has a fate of its own from here on.
    pub(crate) fn take(&self) -> Option<DeliveryGuard> {
        let undo = std::mem::take(&mut *self.0.undo());
        (!undo.is_empty()).then(|| DeliveryGuard::new(&self.0.0.engine, undo))
    }
}

/// Whether no retry would find it.
pub(crate) fn is_needed(undo: &Undo) -> bool {
    match undo {
        Undo::Grant(_) | Undo::Session(_) => true,
        Undo::RetryableGrant(_) | Undo::RetryableSession(_) => false,
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        self.engine.undelivered(std::mem::take(self.undo.get_mut()));
    }
}
