//! Every rule of time, each by itself, on a clock that only the test moves.

use std::fmt::Write as _;
use std::time::Duration;

use leasehold_api::{Code, Gone, Problem, RequestOutcome};

use super::*;

const TTL: Duration = Duration::from_secs(30);

/// A client whose network and clock are the test's hands.
struct Hands {
    machine: Machine<&'static str>,
    now: Moment,
    link: LinkId,
    /// Requests that were sent and not answered yet, the oldest first.
    calls: Vec<(CallId, Key, Request)>,
    cancelled: Vec<CallId>,
}

impl Hands {
    fn with(servers: &[&str]) -> Hands {
        let servers = servers.iter().map(|server| (*server).to_string()).collect();
        let machine = Machine::new(Moment::ZERO, servers, Settings::default(), 7);
        let mut hands = Hands {
            machine,
            now: Moment::ZERO,
            link: LinkId(0),
            calls: Vec::new(),
            cancelled: Vec::new(),
        };
        hands.done();
        hands
    }

    fn connected() -> Hands {
        let mut hands = Hands::with(&["http://a:1"]);
        hands.machine.up(hands.now, hands.link);
        hands
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

    fn hold(name: &'static str) -> (Hands, Key) {
        let mut hands = Hands::connected();
        let (key, _) = hands.acquire(name, Wait::Never);
        assert_eq!(hands.answer(granted()), format!("{name} granted"));
        (hands, key)
    }
}

fn granted() -> Answer {
    Answer::Granted { ttl: TTL, left: TTL }
}

fn renewed() -> Answer {
    Answer::Renewed { ttl: TTL, left: TTL }
}

#[test]
fn a_lease_counts_from_when_it_was_asked_for_not_from_the_answer() {
    let mut hands = Hands::connected();
    let (key, said) = hands.acquire("a", Wait::Never);
    assert_eq!(said, "a acquire Never");
    hands.at(4000);
    assert_eq!(hands.answer(granted()), "a granted");
    let window = hands.machine.window(key).unwrap();
    assert_eq!(window.lapses_at(), Moment::from_millis(30_000));
}

#[test]
fn a_heartbeat_goes_out_before_a_third_of_the_ttl_is_over() {
    let (mut hands, _) = Hands::hold("a");
    let mut moments = Vec::new();
    for _ in 0..50 {
        let from = hands.now.as_nanos() / 1_000_000;
        let (at, said) = hands.until_said();
        assert_eq!(said, "a renew");
        assert!((8000..=10_000).contains(&(at - from)), "{at} after {from}");
        moments.push(at - from);
        assert_eq!(hands.answer(renewed()), "a renewed");
    }
    moments.sort_unstable();
    moments.dedup();
    assert!(moments.len() > 40, "the heartbeats are not jittered");
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let (mut hands, key) = Hands::hold("a");
    let (sent, _) = hands.until_said();
    hands.at(sent + 900);
    hands.answer(renewed());
    let window = hands.machine.window(key).unwrap();
    assert!(window.since() <= Moment::from_millis(sent + 1), "{window:?}");
}

#[test]
fn a_renewal_that_says_a_millisecond_less_is_a_renewal_all_the_same() {
    let (mut hands, key) = Hands::hold("a");
    for round in 1..50 {
        hands.now = Moment::from_nanos(round * 100_000);
        assert!(hands.machine.renew(hands.now, key));
        assert_eq!(hands.done(), "a renew");
        // The server's clock ticks between the renewal and its answer.
        let left = TTL - Duration::from_millis(round % 2);
        assert_eq!(hands.answer(Answer::Renewed { ttl: TTL, left }), "a renewed");
    }
}

#[test]
fn unanswered_heartbeats_are_repeated_until_half_of_the_ttl_then_the_work_must_stop() {
    let (mut hands, _) = Hands::hold("a");
    let mut renewals = 0;
    loop {
        let (at, said) = hands.until_said();
        if said == "a jeopardy" {
            assert_eq!(at, 15_000);
            break;
        }
        for said in said.split(", ") {
            match said {
                "a renew" => renewals += 1,
                // A connection over which nothing comes is given up.
                "connect http://a:1" => hands.machine.up(hands.now, hands.link),
                other => panic!("{other}"),
            }
        }
        renewals += hands.done().matches("renew").count();
        assert!(at < 15_000);
    }
    assert!((3..20).contains(&renewals), "{renewals} renewals");
    let (at, said) = hands.until_said();
    assert_eq!((at, said.as_str()), (30_000, "a lost: lapsed"));
    assert!(hands.machine.is_empty());
}

#[test]
fn jeopardy_counts_from_the_last_renewal_that_was_confirmed() {
    let (mut hands, _) = Hands::hold("a");
    let (sent, _) = hands.until_said();
    hands.answer(renewed());
    // From here on nothing is confirmed.
    loop {
        let (at, said) = hands.until_said();
        if said == "a jeopardy" {
            assert!((sent + 15_000).abs_diff(at) <= 1, "sent {sent}, stop {at}");
            return;
        }
        if said.contains("connect") {
            hands.up();
        }
    }
}

#[test]
fn a_failed_heartbeat_is_sent_again_soon() {
    let (mut hands, _) = Hands::hold("a");
    let (first, _) = hands.until_said();
    assert_eq!(hands.fail(Failure::Unknown), "");
    let (second, said) = hands.until_said();
    assert_eq!(said, "a renew");
    assert!(second - first <= 1000, "{first} {second}");
    assert_eq!(hands.answer(renewed()), "a renewed");
}

#[test]
fn a_refused_renewal_ends_the_lease_at_once() {
    for code in [Code::LeaseLost, Code::NotHolder, Code::SessionNotFound, Code::InvalidRequest] {
        let (mut hands, key) = Hands::hold("a");
        hands.until_said();
        assert_eq!(hands.refuse(code), format!("a lost: {code}"));
        assert!(hands.machine.window(key).is_none());
    }
}

#[test]
fn a_server_that_cannot_renew_just_now_is_asked_again() {
    for code in [
        Code::NotLeader,
        Code::StoreUnavailable,
        Code::Draining,
        Code::Internal,
        Code::QuotaExceeded,
    ] {
        let (mut hands, _) = Hands::hold("a");
        hands.until_said();
        assert_eq!(hands.refuse(code), "");
        let (at, said) = hands.until_said();
        assert_eq!(said, "a renew", "{code}");
        assert!(at < 15_000);
        assert_eq!(hands.answer(renewed()), "a renewed");
    }
}

#[test]
fn who_is_not_let_in_tries_again_until_the_work_must_stop() {
    for code in [Code::Unauthenticated, Code::PermissionDenied] {
        let (mut hands, key) = Hands::hold("a");
        hands.until_said();
        assert_eq!(hands.refuse(code), "");
        // Another token is in time.
        let (at, said) = hands.until_said();
        assert_eq!(said, "a renew", "{code}");
        assert!(at < 15_000);
        assert_eq!(hands.answer(renewed()), "a renewed");
        let confirmed = at;
        let mut told = Vec::new();
        while hands.machine.window(key).is_some() {
            let (at, said) = hands.until_said();
            if said == "a renew" {
                hands.refuse(code);
            } else {
                told.push((at - confirmed, said));
            }
        }
        assert_eq!(told, [(15_000, "a jeopardy".into()), (30_000, format!("a lost: {code}"))]);
    }
}

#[test]
fn a_denial_is_not_the_cause_of_what_lapses_later() {
    let (mut hands, _) = Hands::hold("a");
    hands.until_said();
    hands.refuse(Code::Unauthenticated);
    hands.until_said();
    hands.answer(renewed());
    loop {
        let (_, said) = hands.until_said();
        if said.contains("lost") {
            assert_eq!(said, "a lost: lapsed");
            return;
        }
    }
}

#[test]
fn who_slept_through_the_ttl_learns_it_before_anything_else() {
    let (mut hands, key) = Hands::hold("a");
    hands.until_said();
    // The answer lay in the socket while the machine slept.
    hands.now = Moment::from_millis(60_000);
    assert_eq!(hands.answer(renewed()), "a lost: lapsed");
    assert!(!hands.machine.release(hands.now, key));
}

#[test]
fn what_comes_after_jeopardy_does_not_start_the_work_again() {
    let (mut hands, _) = Hands::hold("a");
    hands.until_said();
    while hands.until_said().1 != "a jeopardy" {
        hands.up();
    }
    hands.up();
    if !hands.calls.is_empty() {
        assert_eq!(hands.answer(renewed()), "");
    }
    let (at, said) = hands.until_said();
    assert_eq!((at, said.as_str()), (30_000, "a lost: lapsed"));
}

#[test]
fn a_refusal_ends_a_lease_in_jeopardy_too() {
    let (mut hands, _) = Hands::hold("a");
    hands.until_said();
    let call = hands.calls[0].0;
    hands.at(15_000);
    hands.machine.answer(hands.now, call, Answer::Refused(Box::new(lost())));
    let said = hands.done();
    assert!(said.ends_with("a lost: lease_lost"), "{said}");
}

fn lost() -> Problem {
    Problem::new(Code::LeaseLost, "over")
}

#[test]
fn an_answer_that_was_overtaken_does_not_shorten_the_lease() {
    let (mut hands, key) = Hands::hold("a");
    hands.until_said();
    hands.until_said();
    assert_eq!(hands.answer(renewed()), "a renewed");
    let window = hands.machine.window(key).unwrap();
    assert_eq!(hands.answer_oldest(renewed()), "");
    assert_eq!(hands.machine.window(key).unwrap(), window);
}

#[test]
fn a_grant_that_waited_long_is_confirmed_before_it_is_believed() {
    let mut hands = Hands::connected();
    let (key, said) = hands.acquire("a", Wait::Forever);
    assert_eq!(said, "a acquire Forever");
    hands.at(100_000);
    assert_eq!(hands.answer(granted()), "a renew");
    assert!(hands.machine.window(key).is_none());
    hands.at(100_200);
    assert_eq!(hands.answer(renewed()), "a granted");
    let window = hands.machine.window(key).unwrap();
    assert_eq!(window.since(), Moment::from_millis(100_000));
}

#[test]
fn a_grant_that_was_over_before_it_could_be_confirmed_is_asked_for_anew() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::Forever);
    hands.at(100_000);
    hands.answer(granted());
    assert_eq!(hands.refuse(Code::LeaseLost), "a acquire Forever");
    assert_eq!(hands.answer(granted()), "a granted");
}

#[test]
fn a_replayed_grant_counts_from_what_is_left_of_it() {
    let mut hands = Hands::connected();
    hands.at(10_000);
    let (key, _) = hands.acquire("a", Wait::Never);
    hands.fail(Failure::Unknown);
    hands.until_said();
    let sent = hands.now;
    let left = TTL - Duration::from_secs(4);
    assert_eq!(hands.answer(Answer::Granted { ttl: TTL, left }), "a granted");
    let window = hands.machine.window(key).unwrap();
    assert_eq!(window.lapses_at(), sent.plus(left));
}

#[test]
fn an_acquire_survives_a_broken_connection() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    hands.at(2000);
    assert_eq!(hands.down(), "connect http://a:1");
    hands.at(2100);
    assert_eq!(hands.up(), "a acquire wait=57.9s ticket=-");
    assert_eq!(hands.answer(granted()), "a granted");
}

#[test]
fn an_acquire_is_repeated_while_no_server_can_decide() {
    for code in [Code::GracePeriod, Code::StoreUnavailable, Code::NotLeader, Code::Draining] {
        let mut hands = Hands::connected();
        hands.acquire("a", Wait::Never);
        assert_eq!(hands.refuse(code), "");
        let (_, said) = hands.until_said();
        assert_eq!(said, "a acquire Never", "{code}");
        assert_eq!(hands.answer(granted()), "a granted");
    }
}

#[test]
fn a_retry_that_would_come_too_late_is_not_waited_for() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::Never);
    let mut problem = Problem::new(Code::GracePeriod, "a grace is on");
    problem.recommended_retry_ms = Some(60_000);
    let said = hands.answer(Answer::Refused(Box::new(problem)));
    assert_eq!(said, "a refused grace_period");
}

#[test]
fn a_place_in_the_queue_is_kept_across_answers() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::UpTo(Duration::from_secs(120)));
    hands.at(50_000);
    let mut problem = Problem::new(Code::LockHeld, "still held");
    problem.ticket = Some("t1".into());
    let said = hands.answer(Answer::Refused(Box::new(problem)));
    assert_eq!(said, "a acquire wait=70s ticket=t1");
    assert_eq!(hands.refuse(Code::TicketNotFound), "a acquire wait=70s ticket=-");
    hands.at(120_000);
    assert_eq!(hands.refuse(Code::LockHeld), "a refused lock_held");
}

#[test]
fn whoever_stands_in_line_comes_back_to_its_place_after_a_broken_connection() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    assert_eq!(hands.queued("t1"), "");
    hands.at(2000);
    hands.down();
    hands.at(2100);
    assert_eq!(hands.up(), "a acquire wait=57.9s ticket=t1");
    // The server tells the same ticket again. Even if that is not heard, it is shown again.
    hands.at(3000);
    hands.down();
    hands.at(3100);
    assert_eq!(hands.up(), "a acquire wait=56.9s ticket=t1");
    assert_eq!(hands.answer(granted()), "a granted");
}

#[test]
fn another_leader_does_not_know_the_place_and_is_asked_anew() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    hands.queued("t1");
    hands.at(2000);
    hands.down();
    hands.at(2100);
    assert_eq!(hands.up(), "a acquire wait=57.9s ticket=t1");
    assert_eq!(hands.refuse(Code::TicketNotFound), "a acquire wait=57.9s ticket=-");
}

#[test]
fn ticket_of_a_request_that_was_answered_meanwhile_is_of_no_use() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    let (call, ..) = hands.calls[0];
    assert_eq!(hands.answer(granted()), "a granted");
    hands.machine.queued(hands.now, call, "t1".into());
    assert_eq!(hands.done(), "");
}

#[test]
fn a_refusal_is_final() {
    for code in [Code::LockHeld, Code::Deadlock, Code::InvalidRequest, Code::TooManyWaiters] {
        let mut hands = Hands::connected();
        hands.acquire("a", Wait::UpTo(Duration::from_secs(60)));
        assert_eq!(hands.refuse(code), format!("a refused {code}"));
        assert!(hands.machine.is_empty());
    }
}

/// The first try may have been granted, and its lease be over by the time the second one is refused.
#[test]
fn a_refusal_after_a_try_without_an_answer_does_not_say_that_nothing_happened() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::Never);
    hands.down();
    hands.up();
    hands.until_said();
    assert_eq!(hands.refuse(Code::LockHeld), "a refused lock_held in doubt");
}

#[test]
fn unreachable_is_told_when_patience_is_over_and_says_that_nothing_happened() {
    let mut hands = Hands::with(&["http://a:1"]);
    hands.acquire("a", Wait::Never);
    loop {
        let (at, said) = hands.until_said();
        if said.contains("a unreachable") {
            assert_eq!(at, 10_000);
            return;
        }
        assert_eq!(said, "connect http://a:1");
        hands.down();
    }
}

#[test]
fn what_may_have_been_granted_is_found_out_and_given_back() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::Never);
    // Sent, never answered; sent again, never answered.
    let (at, said) = hands.until_said();
    assert_eq!((at, said.as_str()), (5000, "cancel, a acquire Never"));
    let (at, said) = hands.until_said();
    assert_eq!((at, said.as_str()), (10_000, "a gave up, cancel"));
    assert_eq!(hands.answer(granted()), "a release");
    assert_eq!(hands.answer(Answer::Released), "a forgotten");
    assert!(hands.machine.is_empty());
}

#[test]
fn an_abandoned_acquire_leaves_nothing_behind_over_a_broken_connection() {
    let mut hands = Hands::connected();
    let (key, _) = hands.acquire("a", Wait::Forever);
    hands.down();
    hands.machine.abandon(hands.now, key);
    assert_eq!(hands.done(), "");
    assert_eq!(hands.up(), "a acquire Never");
    assert_eq!(hands.refuse(Code::LockHeld), "a forgotten");
}

#[test]
fn an_abandoned_acquire_that_was_never_sent_is_simply_forgotten() {
    let mut hands = Hands::with(&["http://a:1"]);
    let (key, _) = hands.acquire("a", Wait::Forever);
    hands.machine.abandon(hands.now, key);
    assert_eq!(hands.done(), "a forgotten");
    assert_eq!(hands.up(), "");
}

#[test]
fn a_grant_that_comes_for_a_caller_who_left_is_given_back() {
    let mut hands = Hands::connected();
    let (key, _) = hands.acquire("a", Wait::Forever);
    hands.machine.abandon(hands.now, key);
    assert_eq!(hands.done(), "cancel");
    assert_eq!(hands.answer(granted()), "a release");
    assert_eq!(hands.answer(Answer::Released), "a forgotten");
}

#[test]
fn a_release_is_repeated_while_the_lease_could_stand() {
    let (mut hands, key) = Hands::hold("a");
    assert!(hands.machine.release(hands.now, key));
    assert_eq!(hands.done(), "a release");
    assert_eq!(hands.down(), "connect http://a:1");
    hands.at(1000);
    assert_eq!(hands.up(), "a release");
    // The first one was carried out, only its answer was lost.
    assert_eq!(hands.refuse(Code::NotHolder), "a released");
}

#[test]
fn a_release_that_came_too_late_is_not_taken_for_done() {
    let (mut hands, key) = Hands::hold("a");
    hands.machine.release(hands.now, key);
    hands.done();
    hands.down();
    hands.at(1000);
    assert_eq!(hands.up(), "a release");
    let expired = Problem { reason: Some(Gone::Expired), ..Problem::new(Code::NotHolder, "late") };
    let said = hands.answer(Answer::Refused(Box::new(expired)));
    assert_eq!(said, "a not released: not_holder");
}

#[test]
fn a_release_that_is_sent_again_leaves_none_behind_at_a_server_that_is_silent() {
    let (mut hands, key) = Hands::hold("a");
    hands.machine.release(hands.now, key);
    assert_eq!(hands.done(), "a release");
    assert_eq!(hands.until_said(), (5000, "cancel, a release".into()));
    // The first one may have been carried out.
    assert_eq!(hands.refuse(Code::NotHolder), "a released");
}

#[test]
fn finding_out_what_was_granted_leaves_nothing_behind_at_a_server_that_is_silent() {
    let mut hands = Hands::connected();
    let (key, _) = hands.acquire("a", Wait::Forever);
    hands.down();
    hands.machine.abandon(hands.now, key);
    assert_eq!(hands.up(), "a acquire Never");
    let mut sent = 1;
    while !hands.machine.is_empty() {
        let (_, said) = hands.until_said();
        sent += usize::from(said == "cancel, a acquire Never");
    }
    assert!(sent > 1, "{sent}");
    assert_eq!(hands.cancelled.len(), sent);
}

#[test]
fn a_release_of_what_was_lost_says_so() {
    let (mut hands, key) = Hands::hold("a");
    hands.machine.release(hands.now, key);
    hands.done();
    assert_eq!(hands.refuse(Code::NotHolder), "a not released: not_holder");
}

#[test]
fn a_release_without_an_answer_ends_with_the_lease() {
    let (mut hands, key) = Hands::hold("a");
    hands.down();
    hands.machine.release(hands.now, key);
    loop {
        let (at, said) = hands.until_said();
        if said == "a release unanswered" {
            assert_eq!(at, 30_000);
            return;
        }
        hands.down();
    }
}

#[test]
fn one_heartbeat_keeps_a_session_and_all_under_it() {
    let (mut hands, session) = Hands::hold("session");
    let under = |hands: &mut Hands, name| {
        let key = hands.machine.acquire(hands.now, name, Ask::Under { session, wait: Wait::Never });
        assert_eq!(hands.done(), format!("{name} acquire Never"));
        assert_eq!(hands.answer(granted()), format!("{name} granted"));
        key
    };
    let (one, two) = (under(&mut hands, "one"), under(&mut hands, "two"));
    let (_, said) = hands.until_said();
    assert_eq!(said, "session renew");
    hands.answer(renewed());
    assert_eq!(hands.machine.window(one), hands.machine.window(session));
    hands.machine.release(hands.now, two);
    assert_eq!(hands.done(), "two release");
    assert_eq!(hands.answer(Answer::Released), "two released");
    hands.until_said();
    assert_eq!(
        hands.refuse(Code::SessionNotFound),
        "one lost: session_not_found, session lost: session_not_found"
    );
}

#[test]
fn work_under_a_session_is_told_to_stop_with_it() {
    let (mut hands, session) = Hands::hold("session");
    hands.machine.acquire(hands.now, "one", Ask::Under { session, wait: Wait::Never });
    hands.done();
    hands.answer(granted());
    loop {
        let (at, said) = hands.until_said();
        if said.contains("jeopardy") {
            assert_eq!((at, said.as_str()), (15_000, "session jeopardy, one jeopardy"));
            break;
        }
        hands.up();
    }
    assert_eq!(hands.at(30_000), "one lost: lapsed, session lost: lapsed");
}

#[test]
fn who_closes_a_session_believes_in_nothing_under_it_any_more() {
    let (mut hands, session) = Hands::hold("session");
    hands.machine.acquire(hands.now, "one", Ask::Under { session, wait: Wait::Never });
    hands.done();
    hands.answer(granted());
    hands.machine.release(hands.now, session);
    assert_eq!(hands.done(), "one lost: session closed, session release");
    assert_eq!(hands.answer(Answer::Released), "session released");
}

#[test]
fn request_that_was_never_sent_is_told_from_one_that_was() {
    let (mut hands, session) = Hands::hold("session");
    hands.machine.acquire(hands.now, "sent", Ask::Under { session, wait: Wait::Never });
    assert_eq!(hands.done(), "sent acquire Never");
    hands.machine.release(hands.now, session);
    assert_eq!(hands.done(), "sent lost: session closed, session release");
    assert_eq!(hands.answer(Answer::Released), "session released");
    hands.machine.acquire(hands.now, "later", Ask::Under { session, wait: Wait::Never });
    assert_eq!(hands.done(), "later never asked");
    let (mut hands, session) = Hands::hold("session");
    hands.down();
    hands.machine.acquire(hands.now, "unsent", Ask::Under { session, wait: Wait::Never });
    hands.machine.release(hands.now, session);
    assert_eq!(hands.done(), "unsent never asked");
}

#[test]
fn one_lock_of_a_session_can_be_lost_alone() {
    let (mut hands, session) = Hands::hold("session");
    let one = hands.machine.acquire(hands.now, "one", Ask::Under { session, wait: Wait::Never });
    hands.done();
    hands.answer(granted());
    hands.machine.lost(hands.now, one, Box::new(lost()));
    assert_eq!(hands.done(), "one lost: lease_lost");
    assert!(hands.machine.window(session).is_some());
}

#[test]
fn a_lease_without_heartbeats_is_kept_from_when_they_are_wanted() {
    let mut hands = Hands::connected();
    let ask = Ask::Lease { ttl: TTL, wait: Wait::Never, is_kept: false };
    let key = hands.machine.acquire(hands.now, "a", ask);
    hands.done();
    hands.answer(granted());
    assert_eq!(hands.at(12_000), "", "no heartbeat was wanted");
    hands.machine.start_heartbeat(hands.now, key);
    assert_eq!(hands.at(12_000), "a renew");
    assert_eq!(hands.answer(renewed()), "a renewed");
    let (at, said) = hands.until_said();
    assert_eq!(said, "a renew");
    assert!((20_000..=22_000).contains(&at), "{at}");
}

#[test]
fn the_next_server_is_tried_when_one_cannot_be_reached() {
    let mut hands = Hands::with(&["http://a:1", "http://b:1", "http://c:1"]);
    hands.acquire("a", Wait::Never);
    assert_eq!(hands.down(), "connect http://b:1");
    assert_eq!(hands.down(), "connect http://c:1");
    // All were tried at once; the next round is not.
    assert_eq!(hands.down(), "");
    let (at, said) = hands.until_said();
    assert_eq!(said, "connect http://a:1");
    assert!((10..=20).contains(&at), "{at}");
    assert_eq!(hands.up(), "a acquire Never");
}

#[test]
fn whatever_drives_the_machine_next_has_a_connection_of_its_own_at_once() {
    let mut hands = Hands::with(&["http://a:1", "http://b:1"]);
    hands.acquire("a", Wait::Never);
    hands.up();
    hands.answer(granted());
    hands.acquire("b", Wait::Forever);
    // A heartbeat is overdue, and goes out over the new connection; so does what waits for an answer.
    hands.now = Moment::from_millis(11_000);
    hands.machine.relink(hands.now);
    assert_eq!(hands.done(), "connect http://a:1");
    assert_eq!(hands.up(), "a renew");
    assert_eq!(hands.answer(renewed()), "a renewed");
    let (at, said) = hands.until_said();
    assert!((11_010..=11_020).contains(&at), "{at}");
    assert_eq!(said, "b acquire Forever");
}

#[test]
fn whatever_drives_the_machine_may_be_late_by_a_part_of_the_shortest_lease() {
    let mut hands = Hands::connected();
    let most = hands.machine.slack();
    hands.acquire("a", Wait::Never);
    hands.answer(granted());
    assert!(hands.machine.slack() < TTL / 30 && hands.machine.slack() <= most);
    hands.acquire("b", Wait::Never);
    let ttl = Duration::from_millis(320);
    hands.answer(Answer::Granted { ttl, left: ttl });
    assert_eq!(hands.machine.slack(), Duration::from_millis(10));
    // Twice that after a heartbeat was due, the work need not stop yet.
    assert!(ttl / 3 + hands.machine.slack() * 2 < ttl / 2 - ttl / 16);
    for key in hands.machine.keys() {
        hands.machine.release(hands.now, key);
        hands.done();
        hands.answer(Answer::Released);
    }
    assert_eq!(hands.machine.slack(), most);
}

#[test]
fn the_leader_is_followed() {
    let mut hands = Hands::with(&["http://a:1", "http://b:1"]);
    hands.acquire("a", Wait::Never);
    hands.up();
    let mut problem = Problem::new(Code::NotLeader, "another leads");
    problem.leader = Some("http://c:1".into());
    assert_eq!(hands.answer(Answer::Refused(Box::new(problem))), "connect http://c:1");
    hands.up();
    let (_, said) = hands.until_said();
    assert_eq!(said, "a acquire Never");
}

#[test]
fn a_server_that_fell_silent_is_left_before_the_work_must_stop() {
    let mut hands = Hands::with(&["http://a:1", "http://b:1"]);
    hands.acquire("a", Wait::Never);
    hands.up();
    hands.answer(granted());
    loop {
        let (at, said) = hands.until_said();
        if said.contains("connect http://b:1") {
            assert!(at < 14_500, "{at}");
            break;
        }
        assert_eq!(said, "a renew");
    }
    assert_eq!(hands.up(), "a renew");
    assert_eq!(hands.answer(renewed()), "a renewed");
}

#[test]
fn a_server_that_answers_nobody_is_left_by_who_asks_for_a_lock() {
    let mut hands = Hands::with(&["http://a:1", "http://b:1"]);
    hands.acquire("a", Wait::Never);
    assert_eq!(hands.up(), "a acquire Never");
    assert_eq!(hands.until_said(), (5000, "cancel, connect http://b:1".into()));
    assert_eq!(hands.up(), "a acquire Never");
    assert_eq!(hands.answer(granted()), "a granted");
}

#[test]
fn a_server_that_answers_others_is_only_slow() {
    let mut hands = Hands::with(&["http://a:1", "http://b:1"]);
    hands.acquire("slow", Wait::Never);
    hands.up();
    hands.at(2000);
    hands.acquire("quick", Wait::Never);
    hands.refuse(Code::LockHeld);
    assert_eq!(hands.until_said(), (5000, "cancel, slow acquire Never".into()));
}

#[test]
fn a_connection_that_a_lease_stands_on_is_left_by_its_heartbeats_alone() {
    let mut hands = Hands::with(&["http://a:1", "http://b:1"]);
    hands.acquire("held", Wait::Never);
    hands.up();
    hands.answer(granted());
    hands.acquire("new", Wait::Never);
    assert_eq!(hands.until_said(), (5000, "cancel, new acquire Never".into()));
}

#[test]
fn heartbeats_go_out_before_acquires_when_a_connection_comes_back() {
    let (mut hands, _) = Hands::hold("held");
    hands.down();
    hands.acquire("new", Wait::Never);
    // While nothing can be sent the heartbeat becomes due.
    while hands.now < Moment::from_millis(9900) {
        hands.until_said();
        hands.down();
    }
    while hands.until_said().1 != "connect http://a:1" {}
    let said = hands.up();
    assert!(said.starts_with("held renew"), "{said}");
}

#[test]
fn the_same_seed_does_the_same() {
    let run = || {
        let (mut hands, _) = Hands::hold("a");
        let mut log = Vec::new();
        for _ in 0..20 {
            log.push(hands.until_said());
            if !hands.calls.is_empty() {
                hands.answer(renewed());
            }
        }
        log
    };
    assert_eq!(run(), run());
}

#[test]
fn a_refusal_of_a_request_that_was_sent_again_says_nothing() {
    let mut hands = Hands::connected();
    hands.acquire("a", Wait::Never);
    let (_, said) = hands.until_said();
    assert_eq!(said, "cancel, a acquire Never");
    let cancelled = Problem::new(Code::LockHeld, "it left the queue");
    assert_eq!(hands.answer_oldest(Answer::Refused(Box::new(cancelled))), "");
    assert_eq!(hands.answer(granted()), "a granted");
}
