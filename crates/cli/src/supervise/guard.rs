//! The guard: a process that has nothing to do but to end the command in time.
//!
//! It is our own binary, started by the wrapper. It talks to no server and waits for nothing but its alarm, the wrapper
//! and its children. Only if the wrapper is gone does it give the lock back, when nothing is left of the command.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_child_subreaper};
use rustix::process::{set_parent_process_death_signal, setpriority_process, setsid};

use super::alarm::Alarm;
use super::channel::{Order, Reader, Report, Writer, split};
use super::clock::now;
use super::deadlines::{Deadlines, Nanos, OnLost, Plan};
use super::signals::{FORWARDED, Signals, Taken};
use super::tree::{self, Left};
use crate::failure::{EXIT_USAGE, Failure};

/// The word on the command line that makes us a guard. Not for people.
pub(crate) const GUARD: &str = "run-guard";

/// The time for giving the lock back when the wrapper is gone; then it expires by itself.
const RELEASE_TIMEOUT: &str = "5s";

/// More of the processor than the command has, if we may: a busy command must not delay its own end.
const PRIORITY: i32 = -10;

/// `leasehold run-guard CHANNEL ON_LOST GRACE_MS COMMAND…`
pub(super) fn arguments(channel: RawFd, plan: Plan) -> [OsString; 4] {
    let on_lost = match plan.on_lost {
        OnLost::Term => "term",
        OnLost::Kill => "kill",
    };
    let grace = plan.grace.as_millis().to_string();
    [GUARD.into(), channel.to_string().into(), on_lost.into(), grace.into()]
}

/// The arguments of `run-guard`.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some((channel, plan, command)) = parse(args) else {
        let said = "the guard is started by `leasehold run` alone";
        return Failure::new(EXIT_USAGE, said).say();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let guarded = runtime.and_then(|runtime| runtime.block_on(guard(channel, plan, &command)));
    match guarded {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::from(error).while_doing("cannot guard the command").say(),
    }
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Option<(RawFd, Plan, Vec<OsString>)> {
    let channel = args.next()?.to_str()?.parse().ok().filter(|&channel: &RawFd| channel > 2)?;
    let on_lost = match args.next()?.to_str()? {
        "term" => OnLost::Term,
        "kill" => OnLost::Kill,
        _ => return None,
    };
    let grace = Duration::from_millis(args.next()?.to_str()?.parse().ok()?);
    let command: Vec<OsString> = args.collect();
    (!command.is_empty()).then_some((channel, Plan { on_lost, grace }, command))
}

async fn guard(channel: RawFd, plan: Plan, command: &[OsString]) -> io::Result<()> {
    let channel = adopt(channel)?;
    set_child_subreaper(Some(getpid()))?;
    // Only SIGKILL ends a guard, and then the wrapper does its work.
    let signals = Signals::take(&taken())?;
    let (orders, reports) = split(channel)?;
    let alarm = Alarm::new()?;
    let mut guard =
        Guard { plan, orders: Some(orders), reports, signals, alarm, state: State::Idle };
    guard.start(command).await?;
    guard.watch().await;
    if guard.is_alone() {
        return Err(release());
    }
    Ok(())
}

/// Becomes a `leasehold release`: what is to be released is in our environment, as it was in the command's.
fn release() -> io::Error {
    let mut release = Command::new("/proc/self/exe");
    release.args(["release", "--quiet", "--timeout", RELEASE_TIMEOUT]);
    // Nobody waits for us any more, and a lease that is over already needs no words.
    release.stderr(Stdio::null()).exec()
}

fn taken() -> Vec<i32> {
    let ignored = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGPIPE];
    [libc::SIGCHLD].into_iter().chain(FORWARDED).chain(ignored).collect()
}

#[allow(unsafe_code, reason = "a descriptor that was handed over is known by its number alone")]
fn adopt(channel: RawFd) -> io::Result<UnixStream> {
    // SAFETY: the wrapper has left this descriptor to us, and nothing else in this process knows of it.
    let channel = unsafe { OwnedFd::from_raw_fd(channel) };
    fcntl_setfd(&channel, FdFlags::CLOEXEC)?;
    Ok(channel.into())
}

struct Guard {
    plan: Plan,
    /// `None` when the wrapper is gone.
    orders: Option<Reader>,
    reports: Writer,
    signals: Signals,
    alarm: Alarm,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Running {
        command: Pid,
        deadlines: Deadlines,
    },
    /// `command` is `None` once the command itself has ended, and only what it left behind is being stopped.
    Stopping {
        command: Option<Pid>,
        kill_at: Nanos,
    },
    Gone,
}

impl Guard {
    /// The first order says until when the command may run.
    async fn start(&mut self, command: &[OsString]) -> io::Result<()> {
        let Some(Order::Keep(deadlines)) = next(&mut self.orders).await else { return Ok(()) };
        match spawn(command) {
            Ok(pid) => {
                self.reports.send(Report::Started { pid: pid.as_raw_pid() });
                self.state = State::Running { command: pid, deadlines };
                self.alarm.set(deadlines.stop_at)?;
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.reports.send(Report::CannotStart { errno });
            }
        }
        // From here on nothing that is done to the command's group or terminal concerns us.
        let _ = setsid();
        let _ = setpriority_process(None, PRIORITY);
        let nowhere = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(nowhere.as_fd())?;
        rustix::stdio::dup2_stdout(nowhere.as_fd())?;
        Ok(())
    }

    /// The wrapper is gone and nothing of the command is left: nobody else gives the lock back.
    fn is_alone(&self) -> bool {
        self.orders.is_none() && matches!(self.state, State::Gone)
    }

    async fn watch(&mut self) {
        while !matches!(self.state, State::Idle | State::Gone) {
            tokio::select! {
                order = next(&mut self.orders) => self.ordered(order),
                received = self.signals.next() => {
                    if received.signal == libc::SIGCHLD {
                        self.children_ended();
                    }
                }
                () = self.alarm.rings() => self.time_is_up().await,
            }
        }
        if matches!(self.state, State::Gone) {
            self.reports.send(Report::Gone);
        }
    }

    fn ordered(&mut self, order: Option<Order>) {
        match (order, self.state) {
            (Some(Order::Keep(deadlines)), State::Running { command, .. }) => {
                self.state = State::Running { command, deadlines };
                self.set(deadlines.stop_at);
            }
            (Some(Order::Signal(number)), state) => forward(state.command(), number),
            (Some(Order::Stop), _) => self.stop(),
            (None, _) => {
                self.orders = None;
                self.stop();
            }
            // Who was told to stop does not go on.
            (Some(Order::Keep(_)), State::Idle | State::Stopping { .. } | State::Gone) => {}
        }
    }

    async fn time_is_up(&mut self) {
        match self.state {
            State::Running { deadlines, .. } if now() >= deadlines.stop_at => self.stop(),
            State::Running { deadlines, .. } => self.set(deadlines.stop_at),
            State::Stopping { kill_at, .. } if now() >= kill_at => self.kill().await,
            State::Stopping { kill_at, .. } => self.set(kill_at),
            State::Idle | State::Gone => {}
        }
    }

    /// The lease is lost, or nobody keeps it any more.
    fn stop(&mut self) {
        if let State::Running { command, deadlines } = self.state {
            self.reports.send(Report::Stopping);
            self.begin_stop(Some(command), deadlines);
        }
    }

    fn begin_stop(&mut self, command: Option<Pid>, deadlines: Deadlines) {
        let kill_at = deadlines.kill_after(now(), self.plan);
        self.state = State::Stopping { command, kill_at };
        if self.plan.on_lost == OnLost::Term {
            tree::signal(Signal::TERM, None);
            // Who is stopped hears nothing else.
            tree::signal(Signal::CONT, None);
        }
        self.set(kill_at);
    }

    async fn kill(&mut self) {
        let command = self.state.command();
        let reports = &self.reports;
        tree::kill_all(None, |pid, status| {
            if command == Some(pid) {
                reports.send(Report::Exited { status });
            }
        })
        .await;
        self.state = State::Gone;
    }

    fn children_ended(&mut self) {
        let command = self.state.command();
        let mut ended = None;
        let left = tree::reap(&mut |pid, status| {
            if command == Some(pid) {
                ended = Some(status);
            }
        });
        if let Some(status) = ended {
            self.reports.send(Report::Exited { status });
        }
        match (self.state, left) {
            (State::Idle | State::Gone, _) => {}
            (State::Running { .. } | State::Stopping { .. }, Left::Nothing) => {
                self.state = State::Gone
            }
            // What it left behind must not outlive the lease either, which is about to be given back.
            (State::Running { deadlines, .. }, Left::Something) if ended.is_some() => {
                self.begin_stop(None, deadlines);
            }
            (State::Stopping { kill_at, .. }, Left::Something) if ended.is_some() => {
                self.state = State::Stopping { command: None, kill_at };
            }
            (State::Running { .. } | State::Stopping { .. }, Left::Something) => {}
        }
    }

    fn set(&mut self, at: Nanos) {
        if let Err(error) = self.alarm.set(at) {
            // Without an alarm there is no guarding: end it while it can still be ended in time.
            eprintln!("leasehold: the guard has no timer: {error}");
            tree::signal(Signal::KILL, None);
        }
    }
}

impl State {
    fn command(self) -> Option<Pid> {
        match self {
            State::Running { command, .. } => Some(command),
            State::Stopping { command, .. } => command,
            State::Idle | State::Gone => None,
        }
    }
}

async fn next(orders: &mut Option<Reader>) -> Option<Order> {
    match orders {
        Some(orders) => orders.next().await,
        // The end was read before.
        None => std::future::pending().await,
    }
}

fn forward(command: Option<Pid>, number: i32) {
    let signal = FORWARDED.contains(&number).then(|| Signal::from_named_raw(number)).flatten();
    if let (Some(command), Some(signal)) = (command, signal) {
        let _ = kill_process(command, signal);
    }
}

/// Starts the command in the session, the group and with the streams that we got from the wrapper.
#[allow(unsafe_code, reason = "a child's own settings can be made in no other way")]
fn spawn(command: &[OsString]) -> io::Result<Pid> {
    let guard = getpid();
    let taken = Taken::of(&taken());
    let mut spawned = Command::new(&command[0]);
    spawned.args(&command[1..]);
    // SAFETY: between fork and exec only a few system calls are made; nothing is allocated and no lock is taken.
    unsafe {
        spawned.pre_exec(move || {
            taken.give_back()?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            match getppid() {
                Some(parent) if parent == guard => Ok(()),
                // The guard died before it could be noticed.
                Some(_) | None => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
    let child = spawned.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("a process has a number"))
}

/// The exit code that a shell would give.
pub(super) fn exit_code(status: i32) -> u8 {
    let status = std::process::ExitStatus::from_raw(status);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
