//! Failures of a command: the reason, what to do next, and the exit code.

use std::process::ExitCode;

use leasehold_api::{Code, Holder, Problem, RequestOutcome, WaitEdge};
use leasehold_client::Error;

use crate::output::{Output, shown, spelled, talk};

pub(crate) const EXIT_NO: u8 = 1;
pub(crate) const EXIT_USAGE: u8 = 64;
pub(crate) const EXIT_UNREACHABLE: u8 = 69;
pub(crate) const EXIT_FAULT: u8 = 70;
pub(crate) const EXIT_IO: u8 = 74;
pub(crate) const EXIT_NOT_GOT: u8 = 75;
pub(crate) const EXIT_LOST: u8 = 76;
pub(crate) const EXIT_NOT_ALLOWED: u8 = 77;
pub(crate) const EXIT_CONFIG: u8 = 78;

/// Something to say on stderr, and how to end.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) said: String,
    /// The next thing to try, if it is known.
    pub(crate) next: Option<String>,
    /// The server's answer, for `-o json`.
    pub(crate) problem: Option<Box<Problem>>,
}

/// The first of those in the way, as it was when the server refused.
fn in_the_way(problem: &Problem) -> Option<&Holder> {
    matches!(problem.code, Code::LockHeld).then_some(())?;
    problem.holders.as_ref()?.first()
}

impl Failure {
    pub(crate) fn new(code: u8, said: impl Into<String>) -> Failure {
        Failure { code, said: said.into(), next: None, problem: None }
    }

    /// An error with all that lies behind it, in one line.
    pub(crate) fn from_chain(code: u8, error: &dyn std::error::Error) -> Failure {
        let chain = std::iter::successors(Some(error), |error| error.source());
        let said = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        Failure::new(code, said)
    }

    pub(crate) fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }

    /// The same with what was being done in front.
    pub(crate) fn while_doing(mut self, what: &str) -> Failure {
        self.said = format!("{what}: {}", self.said);
        self
    }

    /// The same for a lock that could not be acquired.
    pub(crate) fn not_acquired(mut self, locks: &[String], owner: &str) -> Failure {
        if let Some(holder) = self.problem.as_deref().and_then(in_the_way) {
            let lease =
                format!("lease expires in {} unless renewed", spelled(holder.expires_in_ms));
            let is_one = matches!(locks, [lock] if *lock == holder.lock);
            let what = if is_one { String::new() } else { format!("{} is ", holder.lock) };
            self.said = if holder.hidden {
                format!("held by somebody else ({lease})")
            } else if holder.owner_id == owner {
                let token = holder.fencing_token;
                format!("{what}held by {owner}: you hold it already, token {token} ({lease})")
            } else {
                format!("{what}held by {} ({lease})", holder.owner_id)
            };
        }
        self.while_doing(&format!("could not acquire {}", locks.join(" ")))
    }

    /// Prints the failure: the server's answer to stdout if JSON was asked for, and a text for people to stderr. With -q
    /// there is no text for a lock that could not be acquired: the exit code says it.
    pub(crate) fn tell(&self, out: &Output) -> ExitCode {
        if let (true, Some(problem)) = (out.is_json(), &self.problem) {
            out.json(problem);
        }
        let is_not_got =
            self.problem.as_ref().is_some_and(|problem| exit_code(problem.code) == EXIT_NOT_GOT);
        if out.quiet && is_not_got {
            return ExitCode::from(self.code);
        }
        self.say()
    }

    /// On stderr alone.
    pub(crate) fn say(&self) -> ExitCode {
        talk(&format!("leasehold: {}", shown(&self.said)));
        if let Some(next) = &self.next {
            talk(&format!("  {}", shown(next)));
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Refused(problem) => refused(problem),
            Error::Unreachable { outcome, detail } => unreachable(outcome, &detail),
            Error::LeaseLost { by, .. } => Failure::new(EXIT_LOST, format!("lease lost: {by}")),
            Error::Address(said) => Failure::new(EXIT_CONFIG, said)
                .next("set --addr or LEASEHOLD_ADDR to something like http://127.0.0.1:8080"),
            Error::Settings(said) => Failure::new(EXIT_CONFIG, said)
                .next("look at --token-file, LEASEHOLD_TOKEN and --cacert"),
            Error::Closed => Failure::new(EXIT_FAULT, "the connection was closed on our side"),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(EXIT_FAULT, error.to_string())
    }
}

fn unreachable(outcome: RequestOutcome, detail: &str) -> Failure {
    let next = match outcome {
        RequestOutcome::NotApplied if detail.contains("signed by an unknown authority") => {
            "nothing was changed; `leasehold login` with the join string of `leasehold init` makes its authority known, and --cacert names \
             a file with its certificate"
        }
        RequestOutcome::NotApplied if detail.contains("its certificate has expired") => {
            "nothing was changed; whoever runs the server renews it with `leasehold cert renew`"
        }
        RequestOutcome::NotApplied if detail.contains("its certificate is not for the name") => {
            "nothing was changed; --addr must be a name that the certificate is for, and `leasehold init --hosts` says for which"
        }
        RequestOutcome::NotApplied if detail.contains("its certificate") => {
            "nothing was changed; --cacert names the authority that signs the server's certificate, and --addr must \
             be the name that the certificate is for"
        }
        RequestOutcome::Unknown if detail.contains("not from a Leasehold server") => {
            "is --addr right? It is where `leasehold serve` listens"
        }
        RequestOutcome::NotApplied => {
            "nothing was changed; is the server up, and is --addr right? `leasehold doctor` looks into it"
        }
        RequestOutcome::Applied | RequestOutcome::Unknown => {
            "the outcome is unknown: look with `leasehold get` before retrying"
        }
    };
    Failure::new(EXIT_UNREACHABLE, format!("no server could be reached: {detail}")).next(next)
}

fn refused(problem: Box<Problem>) -> Failure {
    let said = match (problem.code, problem.cycle.as_deref()) {
        (Code::Deadlock, Some([step])) => {
            format!("{} holds {} already, and would wait for itself", step.waiter, step.lock)
        }
        (Code::Deadlock, Some(cycle)) => format!("{}: {}", problem.detail, steps_of(cycle)),
        _ => problem.detail.clone(),
    };
    let next = what_next(&problem);
    Failure { code: exit_code(problem.code), said, next, problem: Some(problem) }
}

fn steps_of(cycle: &[WaitEdge]) -> String {
    let step = |step: &WaitEdge| match step.hidden {
        true => "a step that you may not see".into(),
        false => format!("{} waits for {} of {}", step.waiter, step.lock, step.blocker),
    };
    let steps = cycle.iter().map(step);
    steps.collect::<Vec<_>>().join(", ")
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "advice where we have some; a new code needs none"
)]
fn what_next(problem: &Problem) -> Option<String> {
    let later = problem.recommended_retry_ms.map(|ms| format!("try again in {}", spelled(ms)));
    match problem.code {
        Code::LockHeld | Code::ReclaimWindow => {
            let has_waited = problem.waited_ms.is_some_and(|waited| waited > 0);
            let wait = if has_waited { "wait longer with -w" } else { "wait in the queue with -w" };
            Some(later.map_or_else(|| wait.into(), |later| format!("{later}, or {wait}")))
        }
        Code::Deadlock if problem.cycle.as_ref().is_some_and(|cycle| cycle.len() == 1) => {
            Some("give each process that acquires locks a name of its own with --owner".into())
        }
        Code::Deadlock => Some(
            "release something of the cycle first, or take the locks together as one set".into(),
        ),
        Code::Unauthenticated => Some(
            "`leasehold login` with a token that is good, or give one by --token-file; whoever runs the server makes one with `leasehold token create`".into(),
        ),
        Code::PermissionDenied => Some(
            "`leasehold whoami` shows your roles; whoever runs the server gives you one that allows it, and sees why not with `leasehold policy test`; --token-file shows another token".into(),
        ),
        Code::LeaseLost => Some("stop what the lock guards; take it again before going on".into()),
        Code::NotHolder => Some(
            "if the owner, the lease id and the fencing token are those of the acquire, it is over: stop what the lock guards".into(),
        ),
        Code::SessionNotFound => {
            Some("it is over, and all that stood under it: stop what that guards".into())
        }
        Code::LimitMismatch => {
            Some("all who use the lock must name the same number of permits".into())
        }
        _ => later,
    }
}

/// The exit code of a refusal, for scripts.
pub(crate) const fn exit_code(code: Code) -> u8 {
    match code {
        Code::StaleFence | Code::NotFound => EXIT_NO,
        Code::InvalidRequest
        | Code::InvalidLockName
        | Code::MethodNotAllowed
        | Code::TooLarge
        | Code::UriTooLong
        | Code::HeaderTooLarge
        | Code::UnsupportedMediaType
        | Code::RequestIdReused
        | Code::RevisionCompacted
        | Code::LimitMismatch => EXIT_USAGE,
        Code::Unauthenticated | Code::PermissionDenied => EXIT_NOT_ALLOWED,
        Code::MisdirectedRequest => EXIT_CONFIG,
        Code::LockHeld
        | Code::ReclaimWindow
        | Code::GracePeriod
        | Code::Deadlock
        | Code::FileRemoved
        | Code::TicketNotFound
        | Code::TooManyWaiters
        | Code::SessionLimit
        | Code::QuotaExceeded
        | Code::RateLimited
        | Code::NoGrace => EXIT_NOT_GOT,
        Code::LeaseLost | Code::NotHolder | Code::SessionNotFound => EXIT_LOST,
        Code::RequestTimeout
        | Code::StoreUnavailable
        | Code::NotLeader
        | Code::Draining
        | Code::Overloaded
        | Code::AuditUnavailable
        | Code::Interrupted => EXIT_UNREACHABLE,
        Code::Internal => EXIT_FAULT,
    }
}
