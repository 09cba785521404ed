//! One alarm for the next thing that is due.

use crate::clock::{Clock, Sleep};
use crate::machine::Moment;

/// It may ring too early, never too late: most leases are given back long
/// before their heartbeat is due, and setting an alarm costs more than waking up once for nothing.
#[derive(Default)]
pub(super) struct Alarm {
    set: Option<(Moment, Sleep)>,
}

impl Alarm {
    pub(super) fn set(&mut self, clock: &dyn Clock, at: Option<Moment>) {
        let Some(at) = at else { return };
        if self.set.as_ref().is_none_or(|(set, _)| at < *set) {
            self.set = Some((at, clock.sleep_until(at)));
        }
    }

    pub(super) fn clear(&mut self) {
        self.set = None;
    }

    pub(super) async fn rings(&mut self) {
        match &mut self.set {
            Some((_, alarm)) => alarm.await,
            None => std::future::pending().await,
        }
    }
}
