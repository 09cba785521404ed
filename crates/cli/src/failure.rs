//! Why a command could not be done: what, why, what to do next, and the exit code that goes with it.

use std::process::ExitCode;

use leasehold_api::{Code, Happened, Problem, format_duration};
use leasehold_client::Error;

use crate::output::{Output, shown};

pub(crate) const EXIT_NO: u8 = 1;
pub(crate) const EXIT_USAGE: u8 = 64;
pub(crate) const EXIT_UNREACHABLE: u8 = 69;
pub(crate) const EXIT_FAULT: u8 = 70;
pub(crate) const EXIT_NOT_GOT: u8 = 75;
pub(crate) const EXIT_LOST: u8 = 76;
pub(crate) const EXIT_NOT_ALLOWED: u8 = 77;
pub(crate) const EXIT_CONFIG: u8 = 78;

/// Something to say on stderr, and how to end.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) said: String,
    /// What to do next, if we know.
    pub(crate) next: Option<String>,
    /// What the server said, for `-o json`.
    pub(crate) problem: Option<Box<Problem>>,
}

impl Failure {
    pub(crate) fn new(code: u8, said: impl Into<String>) -> Failure {
        Failure { code, said: said.into(), next: None, problem: None }
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

    /// What the server said goes to stdout if JSON was asked for; people are told on stderr in any case.
    pub(crate) fn tell(&self, out: &Output) -> ExitCode {
        if let (true, Some(problem)) = (out.is_json(), &self.problem) {
            out.json(problem);
        }
        eprintln!("leasehold: {}", shown(&self.said));
        if let Some(next) = &self.next {
            eprintln!("  {next}");
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Refused(problem) => refused(problem),
            Error::Unreachable { outcome, detail } => unreachable(outcome, &detail),
            Error::LeaseLost(by) => Failure::new(EXIT_LOST, format!("the lease is over: {by}")),
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

fn unreachable(outcome: Happened, detail: &str) -> Failure {
    let next = match outcome {
        Happened::NotApplied if detail.contains("its certificate") => {
            "nothing was changed; --cacert names the authority that signs the server's certificate, and --addr must \
             be the name that the certificate is for"
        }
        Happened::NotApplied => {
            "nothing was changed; is the server up, and is --addr right? `leasehold doctor` looks into it"
        }
        Happened::Applied | Happened::Unknown => {
            "whether it was done is not known: look with `leasehold get` before trying again"
        }
    };
    Failure::new(EXIT_UNREACHABLE, format!("no server could be reached: {detail}")).next(next)
}

fn refused(problem: Box<Problem>) -> Failure {
    let said = if problem.code == Code::Deadlock {
        format!("{}: {}", problem.detail, circle(&problem))
    } else {
        problem.detail.clone()
    };
    let next = what_next(&problem);
    Failure { code: exit_code(problem.code), said, next, problem: Some(problem) }
}

fn circle(problem: &Problem) -> String {
    let steps = problem.cycle.iter().flatten();
    let steps =
        steps.map(|step| format!("{} waits for {} of {}", step.waiter, step.lock, step.blocker));
    steps.collect::<Vec<_>>().join(", ")
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "advice where we have some; a new code needs none"
)]
fn what_next(problem: &Problem) -> Option<String> {
    let later = problem.recommended_retry_ms.map(|ms| {
        format!("try again in {}", format_duration(std::time::Duration::from_millis(ms)))
    });
    match problem.code {
        Code::LockHeld | Code::ReclaimWindow => Some(
            later.unwrap_or_default()
                + if problem.recommended_retry_ms.is_some() {
                    ", or wait in line with -w"
                } else {
                    "wait in line with -w"
                },
        ),
        Code::Deadlock => Some(
            "release something of the circle first, or take the locks together as one set".into(),
        ),
        Code::Unauthenticated | Code::PermissionDenied => {
            Some("show a token that may do this with --token-file or LEASEHOLD_TOKEN".into())
        }
        Code::LeaseLost | Code::NotHolder => {
            Some("stop what the lock guards; take it again before going on".into())
        }
        Code::LimitMismatch => {
            Some("all who use the lock must name the same number of permits".into())
        }
        _ => later,
    }
}

/// What a refusal means to a script.
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
        | Code::Interrupted => EXIT_UNREACHABLE,
        Code::Internal => EXIT_FAULT,
    }
}
