//! The wrapper's side: starts the guard, tells it the deadlines, and does its work if it cannot.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

use super::alarm::Alarm;
use super::channel::{Order, Reader, Report, Writer, split};
use super::clock::now;
use super::deadlines::{Deadlines, Nanos, Plan};
use super::guard::{arguments, exit_code};
use super::tree;

/// A command that runs under a guard.
#[derive(Debug)]
pub(crate) struct Supervised {
    guard: Child,
    reports: Reader,
    orders: Writer,
    alarm: Alarm,
    plan: Plan,
    deadlines: Deadlines,
    stopping: Option<Nanos>,
    exited: Option<u8>,
    /// The guard did not do it, so we do; and this is how it will have ended.
    killing: Option<Ended>,
}

/// An event in the life of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Started,
    /// It is being stopped because no renewal came in time.
    Stopping,
    Ended(Ended),
}

/// Nothing of the command is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, or by a signal from outside.
    Exited(u8),
    /// It was stopped by us.
    Stopped,
    /// With the number of the error.
    CannotStart(i32),
    /// The guard was gone before the command; the command was killed.
    GuardLost,
}

impl Supervised {
    /// Needs the runtime. `environment` is added to our own, `hidden` is left out of it.
    pub(crate) fn start(
        command: &[OsString],
        environment: &[(&str, OsString)],
        hidden: &[&str],
        plan: Plan,
        deadlines: Deadlines,
    ) -> io::Result<Supervised> {
        set_child_subreaper(Some(getpid()))?;
        let (ours, theirs) = UnixStream::pair()?;
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let mut guard = Command::new("/proc/self/exe");
        guard
            .args(arguments(theirs.as_raw_fd(), plan))
            .args(command.iter().map(OsString::as_os_str));
        for name in hidden {
            guard.env_remove(name);
        }
        let environment = environment.iter().map(|(name, value)| (OsStr::new(name), value));
        let guard = guard.envs(environment).spawn()?;
        drop(theirs);
        let (reports, orders) = split(ours)?;
        orders.send(Order::Keep(deadlines));
        let mut alarm = Alarm::new()?;
        alarm.set(backstop(deadlines.kill_at))?;
        let (stopping, exited, killing) = (None, None, None);
        Ok(Supervised { guard, reports, orders, alarm, plan, deadlines, stopping, exited, killing })
    }

    /// A renewal was confirmed.
    pub(crate) fn keep(&mut self, deadlines: Deadlines) {
        if self.stopping.is_none() {
            self.deadlines = deadlines;
            self.orders.send(Order::Keep(deadlines));
            let _ = self.alarm.set(backstop(deadlines.kill_at));
        }
    }

    /// The lease is lost.
    pub(crate) fn stop(&mut self) {
        if self.stopping.is_none() {
            let kill_at = self.deadlines.kill_after(now(), self.plan);
            self.stopping = Some(kill_at);
            self.orders.send(Order::Stop);
            let _ = self.alarm.set(backstop(kill_at));
        }
    }

    pub(crate) fn forward(&self, signal: i32) {
        self.orders.send(Order::Signal(signal));
    }

    /// A child of ours has changed: if the guard was stopped, it goes on.
    pub(crate) fn look_after_guard(&self) {
        let Some(pid) = self.guard_pid() else { return };
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED | WaitOptions::NOHANG);
        if matches!(stopped, Ok(Some((_, status))) if status.stopped()) {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// The next event. After `Ended` there is none. It may be given up and asked again at any time.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            if let Some(ended) = self.killing {
                self.kill().await;
                return News::Ended(ended);
            }
            tokio::select! {
                report = self.reports.next::<Report>() => match report {
                    Some(Report::Started { .. }) => return News::Started,
                    Some(Report::CannotStart { errno }) => return News::Ended(Ended::CannotStart(errno)),
                    Some(Report::Exited { status }) => self.exited = Some(exit_code(status)),
                    Some(Report::Stopping) => {
                        self.stopping.get_or_insert_with(now);
                        return News::Stopping;
                    }
                    Some(Report::Gone) => return News::Ended(self.ended()),
                    None if self.stopping.is_some() => self.killing = Some(Ended::Stopped),
                    None => self.killing = Some(Ended::GuardLost),
                },
                // The guard should have done it by now.
                () = self.alarm.rings() => self.killing = Some(Ended::Stopped),
            }
        }
    }

    fn ended(&self) -> Ended {
        match (self.stopping, self.exited) {
            (None, Some(code)) => Ended::Exited(code),
            (Some(_), _) | (None, None) => Ended::Stopped,
        }
    }

    /// The command first, so that nothing of it is left when the guard goes too.
    async fn kill(&mut self) {
        tree::kill_all(self.guard_pid(), |_, _| {}).await;
        tree::kill_all(None, |_, _| {}).await;
    }

    fn guard_pid(&self) -> Option<Pid> {
        i32::try_from(self.guard.id()).ok().and_then(Pid::from_raw)
    }
}

/// A little after the guard's own time: when both are well, it is the guard that kills.
fn backstop(kill_at: Nanos) -> Nanos {
    kill_at.saturating_add(50_000_000)
}
