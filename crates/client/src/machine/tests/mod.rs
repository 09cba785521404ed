//! Every rule of time, each by itself, on a clock that only the test moves.

mod leases;
mod acquiring;
mod releasing;
mod sessions;
mod servers;

use std::fmt::Write as _;
use std::time::Duration;

use leasehold_api::{Code, Gone, Problem, RequestOutcome};

use super::*;

const TTL: Duration = Duration::from_secs(30);

/// A client whose network and clock the test moves by hand.
struct Harness {
    machine: Machine<&'static str>,
    now: Moment,
    link: LinkId,
    /// Requests that were sent and not answered yet, the oldest first.
    calls: Vec<(CallId, Key, Request)>,
    cancelled: Vec<CallId>,
}

impl Harness {
    fn with(servers: &[&str]) -> Harness {
        let servers = servers.iter().map(|server| (*server).to_string()).collect();
        let machine = Machine::new(Moment::ZERO, servers, Settings::default(), 7);
        let mut harness = Harness {
            machine,
            now: Moment::ZERO,
            link: LinkId(0),
            calls: Vec::new(),
            cancelled: Vec::new(),
        };
        harness.done();
        harness
    }

    fn connected() -> Harness {
        let mut harness = Harness::with(&["http://a:1"]);
        harness.machine.up(harness.now, harness.link);
        harness
    }

    /// Does what is to be done, and says what was.
    fn done(&mut self) -> String {
        let mut said = String::new();
        while let Some(action) = self.machine.next_action() {
            if !said.is_empty() {
                said.push_str(", ");
            }
            match action {
                Action::Connect { link, address } => {
                    self.link = link;
                    self.calls.clear();
                    write!(said, "connect {address}").unwrap();
                }
                Action::Send { call, key, request } => {
                    let name = self.machine.data(key).unwrap();
                    match &request {
                        Request::Acquire { wait: Wait::UpTo(wait), ticket } => {
                            let ticket = ticket.as_deref().unwrap_or("-");
                            write!(said, "{name} acquire wait={wait:?} ticket={ticket}").unwrap();
                        }
                        Request::Acquire { wait, .. } => {
                            write!(said, "{name} acquire {wait:?}").unwrap();
                        }
                        Request::Renew => write!(said, "{name} renew").unwrap(),
                        Request::Release => write!(said, "{name} release").unwrap(),
                    }
                    self.calls.push((call, key, request));
                }
                Action::Cancel { call, .. } => {
                    self.cancelled.push(call);
                    said.push_str("cancel");
                }
                Action::Tell { key, news } => {
                    let name = self.machine.data(key).unwrap();
                    let news = match news {
                        News::Granted(_) => "granted",
                        News::Renewed(_) => "renewed",
                        News::Jeopardy => "jeopardy",
                        News::GaveUp => "gave up",
                    };
                    write!(said, "{name} {news}").unwrap();
                }
                Action::End { data, how, .. } => {
                    let how = match how {
                        Ended::Refused(problem) if problem.outcome == RequestOutcome::Unknown => {
                            format!("refused {} in doubt", problem.code)
                        }
                        Ended::Refused(problem) => format!("refused {}", problem.code),
                        Ended::Unreachable => "unreachable".into(),
                        Ended::Lost(Loss::Lapsed) => "lost: lapsed".into(),
                        Ended::Lost(Loss::Told(problem)) => format!("lost: {}", problem.code),
                        Ended::Lost(Loss::SessionClosed) => "lost: session closed".into(),
                        Ended::NeverAsked(_) => "never asked".into(),
                        Ended::Released => "released".into(),
                        Ended::NotReleased(problem) => format!("not released: {}", problem.code),
                        Ended::ReleaseUnanswered => "release unanswered".into(),
                        Ended::Forgotten => "forgotten".into(),
                    };
                    write!(said, "{data} {how}").unwrap();
                }
            }
        }
        said
    }

    fn at(&mut self, millis: u64) -> String {
        self.now = Moment::from_millis(millis);
        self.machine.wake(self.now);
        self.done()
    }

    /// Lets time pass, waking the machine when it asks for it, until it has something to say.
    fn until_said(&mut self) -> (u64, String) {
        for _ in 0..1000 {
            self.now = self.now.max(self.machine.next_wake().expect("something is due"));
            self.machine.wake(self.now);
            let said = self.done();
            if !said.is_empty() {
                return (self.now.as_nanos() / 1_000_000, said);
            }
        }
        panic!("nothing happens");
    }

    /// The request that was sent last stands in the queue.
    fn queued(&mut self, ticket: &str) -> String {
        let &(call, ..) = self.calls.last().expect("something was sent");
        self.machine.queued(self.now, call, ticket.into());
        self.done()
    }

    fn acquire(&mut self, name: &'static str, wait: Wait) -> (Key, String) {
        let ask = Ask::Lease { ttl: TTL, wait, is_kept: true };
        let key = self.machine.acquire(self.now, name, ask);
        (key, self.done())
    }

    /// Answers the newest request.
    fn answer(&mut self, answer: Answer) -> String {
        let (call, ..) = self.calls.pop().expect("a request is on its way");
        self.machine.answer(self.now, call, answer);
        self.done()
    }

    fn answer_oldest(&mut self, answer: Answer) -> String {
        let (call, ..) = self.calls.remove(0);
        self.machine.answer(self.now, call, answer);
        self.done()
    }

    fn refuse(&mut self, code: Code) -> String {
        self.answer(Answer::Refused(Box::new(Problem::new(code, "no"))))
    }

    fn fail(&mut self, failure: Failure) -> String {
        let (call, ..) = self.calls.pop().expect("a request is on its way");
        self.machine.failed(self.now, call, failure);
        self.done()
    }

    fn down(&mut self) -> String {
        self.machine.down(self.now, self.link);
        self.done()
    }

    fn up(&mut self) -> String {
        self.machine.up(self.now, self.link);
        self.done()
    }

    fn hold(name: &'static str) -> (Harness, Key) {
        let mut harness = Harness::connected();
        let (key, _) = harness.acquire(name, Wait::Never);
        assert_eq!(harness.answer(granted()), format!("{name} granted"));
        (harness, key)
    }
}

fn granted() -> Answer {
    Answer::Granted { ttl: TTL, left: TTL }
}

fn renewed() -> Answer {
    Answer::Renewed { ttl: TTL, left: TTL }
}

fn lost() -> Problem {
    Problem::new(Code::LeaseLost, "over")
}
