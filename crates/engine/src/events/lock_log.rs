//! The log of what happens to locks: a line for each grant and each end, a hundred a second at most.
//!
//! Written when the change is durable, from the same events that watchers get.

use std::time::Duration;

use leasehold_core::{Ending, Event, News};

use crate::writer::Published;

const TARGET: &str = "leasehold::locks";
const LINES_PER_SECOND_MAX: u32 = 100;

/// Writes the lines, and counts those that are left out.
#[derive(Debug, Default)]
pub(crate) struct LockLog {
    /// The second that is counted in, by the clock of the events.
    second: u64,
    lines: u32,
    left_out: u64,
}

impl LockLog {
    pub(crate) fn tell(&mut self, events: &[Published]) {
        let is_on = tracing::enabled!(target: TARGET, tracing::Level::INFO);
        let Some(last) = events.last().filter(|_| is_on) else { return };
        self.begin(last.event.at.as_millis() / 1000);
        for (at, published) in events.iter().enumerate() {
            if self.lines >= LINES_PER_SECOND_MAX {
                self.leave_out(&events[at..]);
                return;
            }
            self.lines += u32::from(write(&published.event));
        }
    }

    /// Another second has begun, if it is another.
    fn begin(&mut self, second: u64) {
        if second == self.second {
            return;
        }
        if self.left_out > 0 {
            let left_out = self.left_out;
            tracing::info!(target: TARGET, left_out, "lock events not logged");
        }
        *self = LockLog { second, ..LockLog::default() };
    }

    fn leave_out(&mut self, rest: &[Published]) {
        let count = rest.iter().filter(|one| is_told(&one.event.news)).count() as u64;
        if self.left_out == 0 && count > 0 {
            tracing::info!(
                target: TARGET,
                lines_per_second = LINES_PER_SECOND_MAX,
                "lock events are sampled: the rest of this second is only counted"
            );
        }
        self.left_out += count;
    }
}

fn is_told(news: &News) -> bool {
    match news {
        News::Granted { .. } => true,
        News::Ended { ending, .. } => word(ending).is_some(),
        News::EpochBegan { .. }
        | News::GraceEnded
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::FenceDeleted { .. }
        | News::Queued { .. }
        | News::Left { .. }
        | News::Deadlock { .. } => false,
    }
}

/// The word for an end in the log; `None` if nobody lost anything by it.
fn word(ending: &Ending) -> Option<&'static str> {
    match ending {
        Ending::Released | Ending::Closed | Ending::Disconnected | Ending::FileRemoved => {
            Some("released")
        }
        Ending::Expired | Ending::GraceExpired => Some("expired"),
        Ending::Revoked(_) => Some("broken"),
        Ending::Reclaimed => Some("reclaimed"),
        Ending::Replaced | Ending::Withdrawn | Ending::WindowOver => None,
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Whether there was anything to write.
fn write(event: &Event) -> bool {
    let namespace = event.namespace.as_str();
    match &event.news {
        News::Granted { scope, owner, mode, fence, ttl, session, waited } => {
            tracing::info!(
                target: TARGET,
                namespace,
                lock = %scope,
                owner = owner.as_str(),
                mode = %mode,
                fencing_token = fence.get(),
                session,
                ttl_ms = ttl.get(),
                waited_ms = millis(*waited),
                "granted"
            );
            true
        }
        News::Ended { scope, owner, mode, fence, since, ending, session, .. } => {
            let Some(word) = word(ending) else { return false };
            tracing::info!(
                target: TARGET,
                namespace,
                lock = %scope,
                owner = owner.as_str(),
                mode = %mode,
                fencing_token = fence.get(),
                session,
                held_ms = millis(event.at.since(*since)),
                reason = ending.as_str(),
                "{word}"
            );
            true
        }
        News::EpochBegan { .. }
        | News::GraceEnded
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::FenceDeleted { .. }
        | News::Queued { .. }
        | News::Left { .. }
        | News::Deadlock { .. } => false,
    }
}
