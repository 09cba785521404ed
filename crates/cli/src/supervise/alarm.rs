//! An alarm on the clock that goes on while the machine sleeps. The timers of the runtime stand still meanwhile.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::clock::now;
use super::deadlines::Nanos;
use super::readiness::watched;

#[derive(Debug)]
pub(super) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    at: Option<Nanos>,
}

impl Alarm {
    /// Needs the runtime.
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Alarm { timer: watched(timer)?, at: None })
    }

    pub(super) fn set(&mut self, at: Nanos) -> io::Result<()> {
        let at = at.max(1);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0),
            },
        };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
        self.at = Some(at);
        Ok(())
    }

    /// Waits until it is that late, for ever if nothing was set. Goes off once for each `set`.
    pub(super) async fn rings(&mut self) {
        loop {
            match self.at {
                Some(at) if now() >= at => {
                    self.at = None;
                    return;
                }
                Some(_) | None => {}
            }
            if let Ok(mut ready) = self.timer.readable().await {
                let mut expirations = [0_u8; 8];
                let _ = ready.try_io(|timer| {
                    rustix::io::read(timer.get_ref(), &mut expirations[..]).map_err(Into::into)
                });
            }
        }
    }
}
