//! When a command is asked to stop, and when it is made to.

use std::time::Duration;

use leasehold_client::LeaseWindow;

use super::clock::now;

/// A moment on `CLOCK_BOOTTIME`, in nanoseconds.
pub(crate) type Nanos = u64;

/// The part of the ttl at its end that is kept free for the killing itself: a busy machine may be late.
const KILL_MARGIN_PART: u32 = 4;
const KILL_MARGIN_MAX: Duration = Duration::from_secs(5);

/// The first signal when the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// Ask the command to stop (SIGTERM); kill it when the grace is over
    Term,
    /// Kill it at once
    Kill,
}

/// The settings that the user gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) on_lost: OnLost,
    /// The time between SIGTERM and SIGKILL, if the lease allows it.
    pub(crate) grace: Duration,
}

/// The deadlines that the last confirmed renewal allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// Without a later renewal, the command must begin to stop.
    pub(crate) stop_at: Nanos,
    /// Killing must begin: what is left of the lease is needed for it.
    pub(crate) kill_at: Nanos,
}

impl Deadlines {
    /// Of a lease in this window.
    pub(crate) fn of(window: LeaseWindow) -> Deadlines {
        let margin = (window.ttl() / KILL_MARGIN_PART).min(KILL_MARGIN_MAX);
        Deadlines {
            stop_at: window.jeopardy_at().as_nanos(),
            kill_at: window.lapses_at().minus(margin).as_nanos(),
        }
    }

    /// Of what has so long from now on.
    pub(crate) fn within(length: Duration) -> Deadlines {
        let at = now().saturating_add(nanos(length));
        Deadlines { stop_at: at, kill_at: at }
    }

    /// When to kill what was asked to stop at `now`.
    pub(crate) fn kill_after(&self, now: Nanos, plan: Plan) -> Nanos {
        match plan.on_lost {
            OnLost::Kill => now,
            OnLost::Term => now.saturating_add(nanos(plan.grace)).min(self.kill_at),
        }
    }
}

pub(super) fn nanos(length: Duration) -> Nanos {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use leasehold_client::machine::Moment;

    use super::*;

    const MS: u64 = 1_000_000;

    fn deadlines(since: u64, ttl: Duration) -> Deadlines {
        Deadlines::of(LeaseWindow::counted(Moment::from_nanos(since), ttl, ttl))
    }

    fn millis(of: Deadlines) -> (u64, u64) {
        (of.stop_at / MS, of.kill_at / MS)
    }

    #[test]
    fn command_is_told_at_half_of_the_ttl_and_killed_well_before_its_end() {
        assert_eq!(millis(deadlines(0, Duration::from_secs(2))), (1000, 1500));
        assert_eq!(millis(deadlines(1000 * MS, Duration::from_secs(30))), (16_000, 26_000));
        assert_eq!(millis(deadlines(0, Duration::from_mins(10))), (300_000, 595_000));
    }

    #[test]
    fn grace_is_given_as_far_as_the_lease_allows() {
        let deadlines = deadlines(0, Duration::from_secs(30));
        let plan = Plan { on_lost: OnLost::Term, grace: Duration::from_secs(5) };
        assert_eq!(deadlines.kill_after(15_000 * MS, plan), 20_000 * MS);
        assert_eq!(deadlines.kill_after(24_000 * MS, plan), 25_000 * MS);
        let at_once = Plan { on_lost: OnLost::Kill, ..plan };
        assert_eq!(deadlines.kill_after(15_000 * MS, at_once), 15_000 * MS);
    }
}
