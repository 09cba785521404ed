//! The real machine with a pencil: every input and what came of it becomes a line.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_api::{Code, Problem};
use leasehold_client::machine::{
    Action, Answer, Ask, CallId, Ended, Failure, HeartbeatInterval, Jitter, Key, LinkId, Loss,
    Machine, Moment, News, Settings, Wait,
};

use super::lines::{
    self, Deed, Header, Heard, Input, Output, Refusal, Request, Said, Standing, Step, line,
};

/// A third, a ninth, an eighteenth and the jitter of all of them are whole milliseconds.
pub(super) const TTL: u64 = 36_000;

/// How a vector is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) name: String,
    pub(super) is_full: bool,
    pub(super) settings: Settings,
    pub(super) servers: Vec<String>,
    pub(super) at: u64,
}

impl Setup {
    pub(super) fn new(name: &str) -> Setup {
        Setup {
            name: name.into(),
            is_full: true,
            settings: Settings::default(),
            servers: vec!["http://a:1".into()],
            at: 0,
        }
    }
}

/// A request that was sent and not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    call: CallId,
    pub(super) kind: &'static str,
}

pub(super) struct Recorder {
    machine: Machine<String>,
    now: u64,
    pub(super) link: u64,
    /// The oldest first.
    pub(super) calls: Vec<Sent>,
    numbers: HashMap<CallId, u64>,
    keys: BTreeMap<String, Key>,
    standing: BTreeMap<String, Standing>,
    text: String,
    pub(super) steps: usize,
    /// What came of the last input, in words for the one who records.
    pub(super) said: Vec<String>,
}

impl Recorder {
    pub(super) fn new(setup: Setup) -> Recorder {
        let jitter = if setup.is_full { Jitter::Full } else { Jitter::Least };
        let header = Header {
            vector: setup.name,
            version: 1,
            jitter: if setup.is_full { "full" } else { "least" },
            settings: settings(&setup.settings),
            servers: setup.servers.clone(),
        };
        let start = moment(setup.at);
        let machine = Machine::with_jitter(start, setup.servers, setup.settings, jitter);
        let mut recorder = Recorder {
            machine,
            now: setup.at,
            link: 0,
            calls: Vec::new(),
            numbers: HashMap::new(),
            keys: BTreeMap::new(),
            standing: BTreeMap::new(),
            text: line(&header),
            steps: 0,
            said: Vec::new(),
        };
        recorder.note(Input::Do(Deed::Start(true)), None);
        recorder
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Lets time pass; the next input comes then.
    pub(super) fn at(&mut self, millis: u64) {
        assert!(millis >= self.now, "time does not go back");
        self.now = millis;
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.machine.next_due().map(millis)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    // What is asked.

    pub(super) fn acquire(&mut self, name: &str, wait: Option<u64>) {
        self.acquire_as(name, TTL, wait, true);
    }

    pub(super) fn acquire_as(&mut self, name: &str, ttl: u64, wait: Option<u64>, is_kept: bool) {
        let ask = Ask::Lease { ttl: Duration::from_millis(ttl), wait: wait_of(wait), is_kept };
        let input = Deed::Acquire {
            key: name.into(),
            ttl_ms: ttl,
            wait_ms: wait,
            kept: is_kept,
            session: None,
        };
        self.asked(name, ask, input);
    }

    pub(super) fn acquire_under(&mut self, name: &str, session: &str, wait: Option<u64>) {
        let ask = Ask::Under { session: self.keys[session], wait: wait_of(wait) };
        let input = Deed::Acquire {
            key: name.into(),
            ttl_ms: 0,
            wait_ms: wait,
            kept: true,
            session: Some(session.into()),
        };
        self.asked(name, ask, input);
    }

    fn asked(&mut self, name: &str, ask: Ask, input: Deed) {
        let key = self.machine.acquire(moment(self.now), name.into(), ask);
        self.keys.insert(name.into(), key);
        self.note(Input::Do(input), None);
    }

    pub(super) fn release(&mut self, name: &str) {
        let is_done = self.machine.release(moment(self.now), self.keys[name]);
        self.note(Input::Do(Deed::Release { key: name.into() }), Some(is_done));
    }

    pub(super) fn abandon(&mut self, name: &str) {
        self.machine.abandon(moment(self.now), self.keys[name]);
        self.note(Input::Do(Deed::Abandon { key: name.into() }), None);
    }

    pub(super) fn renew(&mut self, name: &str) {
        let is_done = self.machine.renew(moment(self.now), self.keys[name]);
        self.note(Input::Do(Deed::Renew { key: name.into() }), Some(is_done));
    }

    pub(super) fn start_heartbeat(&mut self, name: &str) {
        self.machine.start_heartbeat(moment(self.now), self.keys[name]);
        self.note(Input::Do(Deed::StartHeartbeat { key: name.into() }), None);
    }

    pub(super) fn suspect(&mut self) {
        self.machine.suspect(moment(self.now));
        self.note(Input::Do(Deed::Suspect(true)), None);
    }

    pub(super) fn suspect_if_idle(&mut self) {
        self.machine.suspect_if_idle(moment(self.now));
        self.note(Input::Do(Deed::SuspectIfIdle(true)), None);
    }

    // What is heard.

    /// Answers the newest request.
    pub(super) fn granted(&mut self) {
        let newest = self.calls.len() - 1;
        self.answer(newest, &Said::Granted { ttl_ms: TTL, left_ms: TTL });
    }

    pub(super) fn renewed(&mut self) {
        let newest = self.calls.len() - 1;
        self.answer(newest, &Said::Renewed { ttl_ms: TTL, left_ms: TTL });
    }

    pub(super) fn released(&mut self) {
        let newest = self.calls.len() - 1;
        self.answer(newest, &Said::Released(true));
    }

    pub(super) fn refused(&mut self, code: Code) {
        self.refused_with(&Problem::new(code, ""));
    }

    pub(super) fn refused_with(&mut self, problem: &Problem) {
        let newest = self.calls.len() - 1;
        self.answer(newest, &Said::Refused(refusal(problem)));
    }

    pub(super) fn answer(&mut self, index: usize, said: &Said) {
        let sent = self.calls.remove(index);
        let answer = match said {
            Said::Granted { ttl_ms, left_ms } => Answer::Granted {
                ttl: Duration::from_millis(*ttl_ms),
                left: Duration::from_millis(*left_ms),
            },
            Said::Renewed { ttl_ms, left_ms } => Answer::Renewed {
                ttl: Duration::from_millis(*ttl_ms),
                left: Duration::from_millis(*left_ms),
            },
            Said::Released(_) => Answer::Released,
            Said::Refused(refusal) | Said::Lost(refusal) => Answer::Refused(problem(refusal)),
        };
        self.machine.answer(moment(self.now), sent.call, answer);
        let heard = Heard { call: Some(sent.number), key: None, answer: said.clone() };
        self.note(Input::Hear(heard), None);
    }

    /// The server says, unasked, that a lease is over.
    pub(super) fn lost(&mut self, name: &str, code: Code) {
        let problem = Problem::new(code, "");
        let said = Said::Lost(refusal(&problem));
        self.machine.lost(moment(self.now), self.keys[name], Box::new(problem));
        self.note(Input::Hear(Heard { call: None, key: Some(name.into()), answer: said }), None);
    }

    /// The newest request fails.
    pub(super) fn fail(&mut self, failure: Failure) {
        let newest = self.calls.len() - 1;
        self.fail_at(newest, failure);
    }

    pub(super) fn fail_at(&mut self, index: usize, failure: Failure) {
        let sent = self.calls.remove(index);
        self.machine.failed(moment(self.now), sent.call, failure);
        let how = match failure {
            Failure::Unsent => "unsent",
            Failure::Unknown => "unknown",
        };
        self.note(Input::Fail { call: sent.number, how }, None);
    }

    pub(super) fn up(&mut self) {
        self.machine.up(moment(self.now), LinkId(self.link));
        self.note(Input::Up { link: self.link }, None);
    }

    pub(super) fn down(&mut self) {
        let link = self.link;
        self.machine.down(moment(self.now), LinkId(link));
        self.note(Input::Down { link }, None);
    }

    pub(super) fn wake(&mut self) {
        self.machine.wake(moment(self.now));
        self.note(Input::Wake(true), None);
    }

    /// Wakes it each time something is due, until it has something to say.
    pub(super) fn until_said(&mut self) {
        loop {
            let due = self.next_due().expect("something is due");
            self.at(due.max(self.now));
            self.wake();
            if !self.said.is_empty() {
                return;
            }
        }
    }

    // The pencil.

    fn note(&mut self, input: Input, returns: Option<bool>) {
        let mut out = Vec::new();
        self.said.clear();
        while let Some(action) = self.machine.next_action() {
            let output = self.output(action);
            self.said.push(line(&output));
            out.push(output);
        }
        let step = Step {
            at: self.now,
            input,
            returns,
            out,
            standing: self.changed_standing(),
            next: self.next_due(),
        };
        self.text += &line(&step);
        self.steps += 1;
    }

    fn output(&mut self, action: Action<String>) -> Output {
        match action {
            Action::Connect { link, address } => {
                self.link = link.0;
                // What was sent over the one before has failed by now.
                self.calls.clear();
                Output::Connect { link: link.0, address }
            }
            Action::Send { call, key, request } => {
                let number = self.numbers.len() as u64 + 1;
                self.numbers.insert(call, number);
                let key = self.name(key);
                let (kind, request) = written(request);
                self.calls.push(Sent { number, call, kind });
                Output::Send { call: number, key, request }
            }
            Action::Cancel { call, key } => {
                Output::Cancel { call: self.numbers[&call], key: self.name(key) }
            }
            Action::Tell { key, news } => {
                let news = match news {
                    News::Granted(_) => "granted",
                    News::Renewed(_) => "renewed",
                    News::Jeopardy => "jeopardy",
                    News::GaveUp => "gave_up",
                };
                Output::Tell { key: self.name(key), news }
            }
            Action::End { data, how, .. } => {
                self.keys.remove(&data);
                ended(data, &how)
            }
        }
    }

    fn name(&self, key: Key) -> String {
        let of = |(name, at): (&String, &Key)| (*at == key).then(|| name.clone());
        let known = self.keys.iter().find_map(of);
        // While an acquire is being noted its key is not known yet.
        known.or_else(|| self.machine.data(key).cloned()).expect("it was asked for")
    }

    fn changed_standing(&mut self) -> Option<BTreeMap<String, Standing>> {
        let stands = |(name, key): (&String, &Key)| {
            let standing = self.machine.window(*key)?;
            let standing = Standing {
                since: millis(standing.since()),
                jeopardy_at: millis(standing.jeopardy_at()),
                lapses_at: millis(standing.lapses_at()),
            };
            Some((name.clone(), standing))
        };
        let now: BTreeMap<_, _> = self.keys.iter().filter_map(stands).collect();
        if now == self.standing {
            return None;
        }
        self.standing.clone_from(&now);
        Some(now)
    }
}

fn written(request: leasehold_client::machine::Request) -> (&'static str, Request) {
    use leasehold_client::machine::Request as Real;
    match request {
        Real::Acquire { wait, ticket } => {
            let wait_ms = match wait {
                Wait::Never => Some(0),
                Wait::UpTo(wait) => Some(whole(wait.as_nanos())),
                Wait::Forever => None,
            };
            ("acquire", Request::Acquire { wait_ms, ticket })
        }
        Real::Renew => ("renew", Request::Renew),
        Real::Release => ("release", Request::Release),
    }
}

fn ended(key: String, how: &Ended) -> Output {
    let (how, by, problem) = match how {
        Ended::Refused(problem) => ("refused", None, Some(problem)),
        Ended::Unreachable => ("unreachable", None, None),
        Ended::Lost(Loss::Lapsed) | Ended::NeverAsked(Loss::Lapsed) => {
            ("lost", Some("lapse"), None)
        }
        Ended::Lost(Loss::Told(problem)) | Ended::NeverAsked(Loss::Told(problem)) => {
            ("lost", Some("server"), Some(problem))
        }
        Ended::Lost(Loss::SessionClosed) | Ended::NeverAsked(Loss::SessionClosed) => {
            ("lost", Some("session"), None)
        }
        Ended::Released => ("released", None, None),
        Ended::NotReleased(problem) => ("not_released", None, Some(problem)),
        Ended::ReleaseUnanswered => ("release_unanswered", None, None),
        Ended::Forgotten => ("forgotten", None, None),
    };
    Output::End {
        key,
        how,
        by,
        code: problem.map(|problem| problem.code.to_string()),
        outcome: problem.map(|problem| problem.outcome),
    }
}

pub(super) fn refusal(problem: &Problem) -> Refusal {
    Refusal {
        code: problem.code.to_string(),
        outcome: problem.outcome,
        reason: problem.reason,
        recommended_retry_ms: problem.recommended_retry_ms,
        ticket: problem.ticket.clone(),
        leader: problem.leader.clone(),
    }
}

fn problem(refusal: &Refusal) -> Box<Problem> {
    let code = Code::ALL.into_iter().find(|code| code.as_str() == refusal.code);
    let mut problem = Problem::new(code.expect("a code that is listed"), "");
    problem.outcome = refusal.outcome;
    problem.reason = refusal.reason;
    problem.recommended_retry_ms = refusal.recommended_retry_ms;
    problem.ticket.clone_from(&refusal.ticket);
    problem.leader.clone_from(&refusal.leader);
    Box::new(problem)
}

fn settings(settings: &Settings) -> lines::Settings {
    let ms = |length: Duration| whole(length.as_nanos());
    lines::Settings {
        patience_ms: ms(settings.patience),
        answer_timeout_ms: ms(settings.answer_timeout),
        connect_timeout_ms: ms(settings.connect_timeout),
        backoff_first_ms: ms(settings.backoff_first),
        backoff_max_ms: ms(settings.backoff_max),
        heartbeat: match settings.heartbeat {
            HeartbeatInterval::Third => "ttl/3",
            HeartbeatInterval::Sixth => "ttl/6",
        },
    }
}

fn wait_of(wait: Option<u64>) -> Wait {
    match wait {
        Some(0) => Wait::Never,
        Some(wait) => Wait::UpTo(Duration::from_millis(wait)),
        None => Wait::Forever,
    }
}

fn moment(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn millis(moment: Moment) -> u64 {
    whole(u128::from(moment.as_nanos()))
}

/// Vectors are for languages whose clocks count in milliseconds too.
fn whole(nanos: u128) -> u64 {
    assert_eq!(nanos % 1_000_000, 0, "{nanos} ns are no whole milliseconds");
    u64::try_from(nanos / 1_000_000).expect("no vector lasts so long")
}
