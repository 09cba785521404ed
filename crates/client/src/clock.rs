//! The clock that leases are counted on.
//!
//! It must go on while the machine sleeps: a laptop that wakes up has to know at once that its lease is over. On Linux
//! that is `CLOCK_BOOTTIME`, and the alarm is set on the same clock, so that it rings as soon as the machine is awake.
//! On macOS the monotonic clock goes on too, and on Windows the performance counter that [`std::time::Instant`] reads.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};

use crate::machine::Moment;

/// Ends when it is time.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A clock that runs while the machine sleeps. Programs use [`SystemClock`]; tests bring one that they can move.
pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Moment;

    /// Ends at that moment or soon after it; at once if it is past.
    fn sleep_until(&self, at: Moment) -> Sleep;
}

/// The clock of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// On macOS this one goes on during sleep too.
#[cfg(all(unix, not(target_os = "linux")))]
const CLOCK: ClockId = ClockId::Monotonic;

#[cfg(unix)]
fn now() -> Moment {
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Counted from the first look of this process.
#[cfg(not(unix))]
fn now() -> Moment {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let passed = FIRST.get_or_init(std::time::Instant::now).elapsed();
    Moment::from_nanos(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        now()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        #[cfg(target_os = "linux")]
        if let Ok(alarm) = alarm(at) {
            return Box::pin(async move {
                // An alarm that fails is a short sleep: the driver looks at the clock again.
                if alarm.readable().await.is_err() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            });
        }
        Box::pin(sleep_in_parts(*self, at))
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The timers of the runtime stand still while the machine sleeps, so none of them is trusted for long.
async fn sleep_in_parts(clock: SystemClock, at: Moment) {
    while clock.now() < at {
        tokio::time::sleep(at.since(clock.now()).min(LOOK_AGAIN)).await;
    }
}

#[cfg(target_os = "linux")]
fn alarm(at: Moment) -> std::io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
    // Zero would turn it off.
    let nanos = at.as_nanos().max(1);
    let moment = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
    };
    let once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let when = Itimerspec { it_interval: once, it_value: moment };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &when)?;
    let interest = tokio::io::Interest::READABLE;
    // SAFETY: the descriptor is owned by the value that moves in, which is never given another and closes it last.
    #[allow(unsafe_code, reason = "the runtime takes a descriptor on the caller's word")]
    let alarm = unsafe { tokio::io::unix::AsyncFd::register_with_interest(timer, interest) };
    Ok(alarm?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_alarm_rings_when_it_is_time_and_not_before() {
        let start = SystemClock.now();
        for millis in [0, 5, 40] {
            let at = start.plus(Duration::from_millis(millis));
            SystemClock.sleep_until(at).await;
            assert!(SystemClock.now() >= at);
        }
    }
}
