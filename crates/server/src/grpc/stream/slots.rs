//! Commands in flight on a stream, each under a small number that is used again.

use leasehold_core::{Claim, LeaseId};

use crate::telemetry::metrics::Stopwatch;
use crate::telemetry::traces::{Releasing, TraceContext};

/// One command in flight.
#[derive(Debug)]
pub(super) struct Slot {
    /// The client's own.
    pub(super) id: u64,
    pub(super) watch: Stopwatch,
    pub(super) work: Work,
    /// The trace that it is part of.
    pub(super) traced: Option<Box<Traced>>,
}

/// Facts that the spans of a command tell beyond its answer.
#[derive(Debug)]
pub(super) enum Traced {
    Acquire { parent: TraceContext, claims: Vec<Claim> },
    Release(Releasing),
}

/// The subject of a command, as far as its answer needs it.
#[derive(Debug)]
pub(super) enum Work {
    Acquire {
        kind: &'static str,
        /// The grant stands under a session, which outlives its release.
        in_session: bool,
        respelled: Option<Box<str>>,
    },
    Release(LeaseId),
    Renew(LeaseId),
    /// `told` unless the stream itself asked.
    Cancel {
        waiter: u32,
        told: bool,
    },
    Close(LeaseId),
    Unlock {
        lock: String,
    },
    Test {
        lock: String,
    },
    Check {
        lock: String,
        fencing_token: u64,
    },
    Get,
    Accept,
}

impl Slot {
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.work, Work::Cancel { told: false, .. })
    }
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn put(&mut self, slot: Slot) -> u32 {
        if let Some(number) = self.free.pop() {
            self.slots[number as usize] = Some(slot);
            return number;
        }
        self.slots.push(Some(slot));
        u32::try_from(self.slots.len() - 1).expect("a stream has far fewer commands in flight")
    }

    pub(super) fn get(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number as usize)?.as_ref()
    }

    pub(super) fn take(&mut self, number: u32) -> Option<Slot> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_used_again_once_it_is_free() {
        let slot = |id| Slot { id, watch: Stopwatch::start(), work: Work::Get, traced: None };
        let mut slots = Slots::default();
        let (a, b) = (slots.put(slot(1)), slots.put(slot(2)));
        assert_ne!(a, b);
        assert_eq!(slots.take(a).unwrap().id, 1);
        assert!(slots.take(a).is_none(), "it is answered once");
        assert_eq!(slots.put(slot(3)), a);
        assert_eq!(slots.len(), 2);
    }
}
