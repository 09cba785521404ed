//! One alarm for the next thing that is due.

use std::task::{Context, Poll};

use crate::clock::{Clock, Sleep};
use crate::machine::Moment;

/// It may ring too early, never too late: most leases are given back long
/// before their heartbeat is due, and setting an alarm costs more than waking up once for nothing.
#[derive(Default)]
pub(super) struct Alarm {
    set: Option<(Moment, Sleep)>,
}

impl Alarm {
    /// True if it was set anew, so that it has to be polled.
    pub(super) fn set(&mut self, clock: &dyn Clock, at: Option<Moment>) -> bool {
        let Some(at) = at else { return false };
        if self.set.as_ref().is_some_and(|(set, _)| *set <= at) {
            return false;
        }
        self.set = Some((at, clock.sleep_until(at)));
        true
    }

    pub(super) fn clear(&mut self) {
        self.set = None;
    }

    /// True if it rings; then it is no longer set.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let Some((_, sleep)) = &mut self.set else { return false };
        let Poll::Ready(()) = sleep.as_mut().poll(context) else { return false };
        self.set = None;
        true
    }
}
