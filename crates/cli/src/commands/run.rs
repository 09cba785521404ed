//! `leasehold run`

use std::cell::OnceCell;
use std::ffi::OsString;
use std::time::Duration;

use leasehold_api::{CheckRequest, Claim, Metadata, Mode};
use leasehold_client::{Change, Changes, Lease, LockRequest};

use super::child_token::ChildToken;
use super::{Answered, process_owner, waiting};
use crate::args::{Run, Supervision};
use crate::asking::Server;
use crate::credentials::TOKENS;
use crate::failure::{EXIT_FAULT, EXIT_LOST, EXIT_NOT_GOT, Failure};
use crate::held;
use crate::supervise::{Deadlines, Ended, FORWARDED, News, OnLost, Plan, Signals, Supervised};

/// The time for giving the lock back at the end; then it expires by itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same when the server was not heard of for a while.
const RELEASE_TIMEOUT_LOST: Duration = Duration::from_secs(1);

pub(crate) async fn run(server: &Server, signals: &Signals, args: &Run) -> Answered {
    let claim = |lock: &String| Claim {
        lock: lock.clone(),
        mode: args.mode.mode(),
        permits: args.mode.permits,
    };
    let request = match args.locks.as_slice() {
        [lock] => {
            let request = server.client.lock(lock);
            let request = if args.mode.shared { request.shared() } else { request };
            args.mode.permits.into_iter().fold(request, LockRequest::permits)
        }
        locks => server.client.claims(locks.iter().map(claim).collect()),
    };
    let work = Work::of(server, signals, &args.supervision, args.locks.clone());
    let lease = match work.acquire(request, args.supervision.metadata.clone()).await? {
        Got::Lease(lease) => lease,
        Got::Signal(signal) => return Ok(by_signal(signal)),
    };
    let done = work.supervise(&lease, &args.what.words()).await;
    work.give_back(*lease).await;
    match done? {
        Done::Exited(code) => Ok(code),
        Done::Lost(why) => Err(lost(&why)),
    }
}

fn lost(why: &str) -> Failure {
    Failure::new(EXIT_LOST, format!("the lock was lost and the command stopped: {why}"))
}

pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(EXIT_FAULT)
}

/// The signals must be taken before the client starts its thread.
pub(crate) fn take_signals() -> std::io::Result<Signals> {
    let taken: Vec<i32> = FORWARDED.into_iter().chain([libc::SIGCHLD]).collect();
    Signals::take(&taken)
}

/// While there is no command, signals mean us.
pub(crate) async fn told_to_go(signals: &Signals) -> i32 {
    loop {
        let signal = signals.next().await.signal;
        if [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal) {
            return signal;
        }
    }
}

/// One command, and the lock it needs.
pub(super) struct Work<'a> {
    server: &'a Server,
    signals: &'a Signals,
    args: &'a Supervision,
    locks: Vec<String>,
    owner: String,
    /// The narrower token that the command shows to the server.
    child: OnceCell<ChildToken>,
}

pub(super) enum Got {
    Lease(Box<Lease>),
    /// We were told to go while waiting.
    Signal(i32),
}

pub(super) enum Done {
    Exited(u8),
    Lost(String),
}

impl<'a> Work<'a> {
    pub(super) fn of(
        server: &'a Server,
        signals: &'a Signals,
        args: &'a Supervision,
        locks: Vec<String>,
    ) -> Work<'a> {
        let owner = args.owner.clone().unwrap_or_else(process_owner);
        Work { server, signals, args, locks, owner, child: OnceCell::new() }
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    pub(super) async fn acquire(
        &self,
        request: LockRequest,
        metadata: Option<Metadata>,
    ) -> Result<Got, Failure> {
        self.refuse_to_wait_for_ourselves().await?;
        let request = request.owner(&self.owner).ttl(self.args.ttl);
        let request = metadata.into_iter().fold(request, LockRequest::metadata);
        let request = match self.args.wait {
            Some(wait) => request.wait(wait),
            None if self.args.no_wait => request,
            None => request.wait_forever(),
        };
        tokio::select! {
            lease = request.acquire() => match lease {
                Ok(lease) => {
                    if !self.args.pass_token && self.child.get().is_none() {
                        let child = ChildToken::of(self.server, &self.locks).await;
                        self.child.get_or_init(|| child);
                    }
                    Ok(Got::Lease(Box::new(lease)))
                }
                Err(error) => Err(self.not_got(error.into())),
            },
            signal = told_to_go(self.signals) => Ok(Got::Signal(signal)),
            () = waiting::show(self.server, &self.locks, &self.owner) => {
                unreachable!("it shows until it is dropped")
            }
        }
    }

    /// Inside the command of a `leasehold run` that holds the same lock, it would be waited for until that run is over.
    async fn refuse_to_wait_for_ourselves(&self) -> Result<(), Failure> {
        let outer = held::locks_of_environment();
        let token = std::env::var(held::FENCING_TOKEN).ok().and_then(|token| token.parse().ok());
        let (Some(lock), Some(fencing_token)) =
            (self.locks.iter().find(|lock| outer.contains(lock)), token)
        else {
            return Ok(());
        };
        let request = CheckRequest { fencing_token, ..CheckRequest::default() };
        let checked = self.server.ask(self.server.client.api().check(lock, &request)).await?;
        match checked.holder {
            Some(holder) if checked.valid && holder.mode == Mode::Exclusive => {
                let said = format!(
                    "could not acquire {lock}: held by {}, the `leasehold run` that this command runs under",
                    holder.owner_id
                );
                Err(Failure::new(self.args.conflict_exit_code, said).next(
                    "it would wait for itself; run the command without the second `leasehold run`",
                ))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn not_got(&self, mut failure: Failure) -> Failure {
        if failure.code == EXIT_NOT_GOT {
            failure.code = self.args.conflict_exit_code;
        }
        failure.not_acquired(&self.locks, &self.owner)
    }

    /// Runs the command until it ends or the lease does. Nothing of the command is left then.
    pub(super) async fn supervise(
        &self,
        lease: &Lease,
        command: &[OsString],
    ) -> Result<Done, Failure> {
        let (changes, deadlines) = (lease.changes(), Deadlines::of(lease.window()));
        let mut supervised = self.start(lease, command, self.args.plan(), deadlines)?;
        let ended = self.watch(Some(changes), &mut supervised).await;
        self.done(ended, lease, command)
    }

    /// Runs the command for as long as the grace, whatever becomes of the lease.
    pub(super) async fn clean_up(
        &self,
        lease: &Lease,
        command: &[OsString],
    ) -> Result<Done, Failure> {
        let plan = Plan { on_lost: OnLost::Kill, grace: Duration::ZERO };
        let deadlines = Deadlines::within(self.args.grace);
        let mut supervised = self.start(lease, command, plan, deadlines)?;
        let ended = self.watch(None, &mut supervised).await;
        self.done(ended, lease, command)
    }

    /// Until the lease is about to be lost, or we are told to go.
    pub(super) async fn hold(&self, lease: &Lease) -> Done {
        let mut changes = lease.changes();
        while lease.is_valid() {
            tokio::select! {
                change = changes.next() => match change {
                    Change::Renewed(_) => {}
                    Change::Jeopardy | Change::Lost(_) => break,
                },
                signal = told_to_go(self.signals) => return Done::Exited(by_signal(signal)),
            }
        }
        Done::Lost(lease.lost_by().to_string())
    }

    fn start(
        &self,
        lease: &Lease,
        command: &[OsString],
        plan: Plan,
        deadlines: Deadlines,
    ) -> Result<Supervised, Failure> {
        let hidden = if self.args.pass_token { &[][..] } else { &TOKENS[..] };
        Supervised::start(command, &self.environment(lease), hidden, plan, deadlines)
            .map_err(|error| Failure::from(error).while_doing("the command cannot be guarded"))
    }

    fn done(&self, ended: Ended, lease: &Lease, command: &[OsString]) -> Result<Done, Failure> {
        match ended {
            Ended::Exited(code) => Ok(Done::Exited(code)),
            Ended::Stopped => Ok(Done::Lost(lease.lost_by().to_string())),
            Ended::CannotStart(errno) => Err(cannot_start(command, errno)),
            Ended::GuardLost => Err(Failure::new(
                EXIT_FAULT,
                "the guard of the command was killed, so the command was killed too",
            )),
        }
    }

    async fn watch(&self, mut changes: Option<Changes>, supervised: &mut Supervised) -> Ended {
        let mut why = match &changes {
            Some(_) => "the lock is about to be lost: stopping the command".to_string(),
            None => "it takes longer than --grace: stopping the command".to_string(),
        };
        loop {
            tokio::select! {
                news = supervised.next() => match news {
                    News::Started => {}
                    News::Stopping => self.say(&why),
                    News::Ended(ended) => return ended,
                },
                change = next(&mut changes) => match change {
                    Change::Renewed(window) => supervised.keep(Deadlines::of(window)),
                    Change::Jeopardy => supervised.stop(),
                    Change::Lost(by) => {
                        why = format!("the lock is lost: {by}; stopping the command");
                        supervised.stop();
                    }
                },
                received = self.signals.next() => {
                    if received.signal == libc::SIGCHLD {
                        supervised.look_after_guard();
                    } else if received.by_process {
                        supervised.forward(received.signal);
                    }
                }
            }
        }
    }

    fn environment(&self, lease: &Lease) -> Vec<(&'static str, OsString)> {
        let locks: Vec<&str> = match lease.locks() {
            [_] => vec![lease.lock()],
            claims => claims.iter().map(|claim| claim.lock.as_str()).collect(),
        };
        let list = serde_json::to_string(&locks).expect("a list of texts");
        let held = [
            (held::LOCK, locks.join(" ").into()),
            (held::LOCKS, list.into()),
            (held::FENCING_TOKEN, lease.fencing_token().to_string().into()),
            (held::LEASE_ID, lease.lease_id().into()),
            (held::OWNER, lease.owner().into()),
        ];
        let mut environment: Vec<(&'static str, OsString)> =
            held.into_iter().chain(self.server.environment()).collect();
        if self.args.pass_token {
            environment.extend(self.server.token_in_environment());
        } else if let Some(token) = self.child.get().and_then(ChildToken::reveal) {
            environment.push((TOKENS[0], token.into()));
        }
        environment
    }

    pub(super) async fn give_back(&self, mut lease: Lease) {
        let timeout = if lease.is_valid() { RELEASE_TIMEOUT } else { RELEASE_TIMEOUT_LOST };
        let released = tokio::time::timeout(timeout, lease.release_once()).await;
        if !matches!(released, Ok(Ok(()))) && self.server.out.verbose {
            self.say("the lock could not be released; it expires by itself");
        }
        if let Some(child) = self.child.get() {
            child.give_back(self.server).await;
        }
    }

    fn say(&self, text: &str) {
        self.server.out.say(&format!("leasehold: {text}"));
    }
}

async fn next(changes: &mut Option<Changes>) -> Change {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

fn cannot_start(command: &[OsString], errno: i32) -> Failure {
    let error = std::io::Error::from_raw_os_error(errno);
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Failure::new(code, format!("cannot run {name}: {error}"))
        .next("the lock was released; without -c no shell interprets the command")
}
