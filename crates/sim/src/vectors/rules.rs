//! The rules of the machine, one vector each. What each must say is checked while it is written.

use std::time::Duration;

use leasehold_api::{Code, Gone, Problem};
use leasehold_client::machine::{Failure, HeartbeatInterval, is_denied, says_nothing_of_the_lease};

use super::lines::Said;
use super::recorder::{Recorder, Setup, TTL};
use super::tables::codes_for_workers;

type Rule = (&'static str, fn(&str) -> Recorder);

const NEVER: Option<u64> = Some(0);
const FOREVER: Option<u64> = None;

/// File name and text.
pub(super) fn all() -> Vec<(String, String)> {
    let rules = RULES.iter().chain(SESSIONS).chain(SERVERS);
    rules
        .map(|(name, rule)| (name.replace(',', "").replace(' ', "-"), rule(name).finish()))
        .collect()
}

const RULES: &[Rule] = &[
    ("a lease counts from before it was asked for", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.at(4000);
        hands.granted();
        beats(&mut hands, 3);
        hands
    }),
    ("a renewal counts from when it was sent", |name| {
        let mut hands = holding(name);
        hands.until_said();
        let later = hands.now() + 900;
        hands.at(later);
        hands.renewed();
        hands.until_said();
        hands
    }),
    ("a renewal that says a millisecond less is a renewal all the same", |name| {
        let mut hands = connected(name);
        hands.at(1000);
        hands.acquire("a", NEVER);
        hands.granted();
        for left in [TTL, TTL - 1, TTL, TTL - 1] {
            hands.renew("a");
            hands.answer(0, &Said::Renewed { ttl_ms: TTL, left_ms: left });
        }
        hands
    }),
    ("a heartbeat that is jittered most goes out at four fifths of a third", |name| {
        let mut hands = Recorder::new(Setup { is_full: false, ..Setup::new(name) });
        hands.up();
        hands.acquire("a", NEVER);
        hands.granted();
        beats(&mut hands, 2);
        for _ in 0..4 {
            hands.until_said();
        }
        hands
    }),
    ("a heartbeat goes out every sixth of the ttl if that is set", |name| {
        let mut hands = often(name);
        hands.acquire("a", NEVER);
        hands.granted();
        beats(&mut hands, 3);
        until_end(&mut hands, true);
        hands
    }),
    (
        "a grant that waited for a sixth of the ttl is confirmed if heartbeats are that often",
        |name| {
            let mut hands = often(name);
            hands.acquire("a", FOREVER);
            hands.at(TTL / 6);
            hands.granted();
            hands.renewed();
            hands.until_said();
            hands
        },
    ),
    ("unanswered heartbeats are repeated until half of the ttl, then the work must stop", |name| {
        let mut hands = holding(name);
        until_end(&mut hands, true);
        hands
    }),
    ("a lease that cannot be renewed without a connection is lost all the same", |name| {
        let mut hands = holding(name);
        hands.down();
        until_end(&mut hands, false);
        hands
    }),
    ("jeopardy counts from the last renewal that was confirmed", |name| {
        let mut hands = holding(name);
        beats(&mut hands, 1);
        until_end(&mut hands, true);
        hands
    }),
    ("a failed heartbeat is sent again soon", |name| {
        let mut hands = holding(name);
        hands.until_said();
        for failure in [Failure::Unknown, Failure::Unsent, Failure::Unknown] {
            hands.fail(failure);
            hands.until_said();
        }
        hands.renewed();
        hands.until_said();
        hands
    }),
    ("a refused renewal ends the lease at once", |name| {
        let mut hands = connected(name);
        let codes = Code::ALL.into_iter().filter(|code| {
            let problem = Problem::new(*code, "");
            !says_nothing_of_the_lease(&problem) && !is_denied(&problem)
        });
        for code in codes {
            hands.acquire(code.as_str(), NEVER);
            hands.granted();
            hands.renew(code.as_str());
            hands.refused(code);
        }
        hands
    }),
    ("who is not let in tries again until the work must stop", |name| {
        let mut hands = connected(name);
        for code in [Code::Unauthenticated, Code::PermissionDenied] {
            hands.acquire(code.as_str(), NEVER);
            hands.granted();
            hands.until_said();
            hands.refused(code);
            hands.until_said();
            hands.renewed();
            hands.until_said();
            while !hands.names().is_empty() {
                if hands.said.iter().any(|said| said.contains("send")) {
                    hands.refused(code);
                }
                hands.until_said();
            }
        }
        hands
    }),
    ("a server that cannot renew just now is asked again", |name| {
        let mut hands = holding(name);
        for code in [Code::NotLeader, Code::StoreUnavailable, Code::Internal, Code::QuotaExceeded] {
            hands.until_said();
            hands.refused(code);
            hands.until_said();
            hands.renewed();
        }
        hands.until_said();
        hands.refused_with(&advised(Code::RateLimited, 700));
        hands.until_said();
        hands.refused_with(&advised(Code::RateLimited, 60_000));
        hands.until_said();
        hands
    }),
    ("who slept through the ttl learns it before anything else", |name| {
        let mut hands = holding(name);
        hands.until_said();
        hands.at(60_000);
        hands.renewed();
        hands
    }),
    ("who slept past half of the ttl learns it before anything else", |name| {
        let mut hands = holding(name);
        hands.until_said();
        hands.at(20_000);
        hands.renewed();
        hands.until_said();
        hands
    }),
    ("what comes after jeopardy does not start the work again", |name| {
        let mut hands = holding(name);
        hands.until_said();
        while !hands.said.iter().any(|said| said.contains("jeopardy")) {
            if hands.said.iter().any(|said| said.contains("connect")) {
                hands.up();
            }
            hands.until_said();
        }
        hands.renewed();
        hands.until_said();
        hands
    }),
    ("a refusal ends a lease in jeopardy too", |name| {
        let mut hands = holding(name);
        hands.until_said();
        hands.at(TTL / 2);
        hands.wake();
        hands.refused(Code::LeaseLost);
        hands
    }),
    ("an answer that was overtaken does not shorten the lease", |name| {
        let mut hands = holding(name);
        hands.until_said();
        hands.until_said();
        hands.renewed();
        let late = hands.now() + 10;
        hands.at(late);
        hands.renewed();
        hands
    }),
    ("a grant that waited long is confirmed before it is believed", |name| {
        let mut hands = connected(name);
        hands.acquire("a", FOREVER);
        hands.at(100_000);
        hands.granted();
        hands.at(100_200);
        hands.renewed();
        hands.until_said();
        hands
    }),
    ("a grant that was over before it could be confirmed is asked for anew", |name| {
        let mut hands = connected(name);
        hands.acquire("a", FOREVER);
        hands.at(100_000);
        hands.granted();
        hands.refused(Code::LeaseLost);
        hands.granted();
        hands
    }),
    ("a grant that nobody confirms is asked for anew", |name| {
        let mut hands = connected(name);
        hands.acquire("a", Some(120_000));
        hands.at(100_000);
        hands.granted();
        while !hands.said.iter().any(|said| said.contains("acquire")) {
            hands.until_said();
            if hands.said.iter().any(|said| said.contains("connect")) {
                hands.up();
            }
        }
        hands.granted();
        hands
    }),
    ("a replayed grant counts from what is left of it", |name| {
        let mut hands = connected(name);
        hands.at(10_000);
        hands.acquire("a", NEVER);
        hands.fail(Failure::Unknown);
        hands.until_said();
        hands.answer(0, &Said::Granted { ttl_ms: TTL, left_ms: TTL - 4000 });
        hands.until_said();
        hands
    }),
    ("a server that promises more than the ttl is not believed", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.answer(0, &Said::Granted { ttl_ms: TTL, left_ms: 2 * TTL });
        hands
    }),
    ("a server that grants a shorter ttl is believed", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.answer(0, &Said::Granted { ttl_ms: TTL / 2, left_ms: TTL / 2 });
        until_end(&mut hands, true);
        hands
    }),
    ("an acquire survives a broken connection", |name| {
        let mut hands = connected(name);
        hands.acquire("a", Some(60_000));
        hands.at(2000);
        hands.down();
        hands.at(2100);
        hands.up();
        hands.granted();
        hands
    }),
    ("an acquire is repeated while no server can decide", |name| {
        let mut hands = connected(name);
        let codes = codes_for_workers()
            .into_iter()
            .filter(|code| leasehold_client::machine::is_undecided(&Problem::new(*code, "")));
        for code in codes {
            hands.acquire(code.as_str(), NEVER);
            hands.refused(code);
            hands.until_said();
            hands.granted();
            hands.release(code.as_str());
            hands.released();
        }
        hands
    }),
    ("a retry waits as long as the server says", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.refused_with(&advised(Code::Overloaded, 1234));
        hands.until_said();
        hands.refused_with(&advised(Code::NotLeader, 5000));
        hands.until_said();
        hands.granted();
        hands
    }),
    ("a retry that would come too late is not waited for", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.refused_with(&advised(Code::GracePeriod, 60_000));
        hands
    }),
    ("a place in the queue is kept across answers", |name| {
        let mut hands = connected(name);
        hands.acquire("a", Some(120_000));
        hands.at(50_000);
        hands.refused_with(&with_ticket("t1"));
        hands.refused(Code::TicketNotFound);
        hands.at(100_000);
        hands.refused_with(&with_ticket("t2"));
        hands.at(120_000);
        hands.refused_with(&with_ticket("t3"));
        hands
    }),
    ("a wait for ever goes on with its ticket", |name| {
        let mut hands = connected(name);
        hands.acquire("a", FOREVER);
        for round in 1..=4 {
            hands.at(round * 50_000);
            hands.refused_with(&with_ticket(&format!("t{round}")));
        }
        hands.granted();
        hands
    }),
    ("a refusal is final", |name| {
        let mut hands = connected(name);
        let codes = Code::ALL
            .into_iter()
            .filter(|code| !leasehold_client::machine::is_undecided(&Problem::new(*code, "")));
        for code in codes {
            hands.acquire(code.as_str(), Some(60_000));
            hands.refused(code);
        }
        hands
    }),
    ("a refusal after a try without an answer does not say that nothing happened", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.down();
        hands.up();
        hands.until_said();
        hands.refused(Code::LockHeld);
        hands
    }),
    ("unreachable is told when patience is over and says that nothing happened", |name| {
        let mut hands = Recorder::new(Setup::new(name));
        hands.acquire("a", NEVER);
        while !hands.said.iter().any(|said| said.contains("unreachable")) {
            hands.down();
            hands.until_said();
        }
        hands
    }),
    ("what may have been granted is found out and given back", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.until_said();
        hands.until_said();
        hands.granted();
        hands.released();
        hands
    }),
    ("an abandoned acquire leaves nothing behind over a broken connection", |name| {
        let mut hands = connected(name);
        hands.acquire("a", FOREVER);
        hands.down();
        hands.abandon("a");
        hands.up();
        hands.refused(Code::LockHeld);
        hands
    }),
    ("an abandoned acquire that was never sent is simply forgotten", |name| {
        let mut hands = Recorder::new(Setup::new(name));
        hands.acquire("a", FOREVER);
        hands.abandon("a");
        hands.up();
        hands
    }),
    ("a grant that comes for a caller who left is given back", |name| {
        let mut hands = connected(name);
        hands.acquire("a", FOREVER);
        hands.abandon("a");
        hands.granted();
        hands.released();
        hands
    }),
    ("finding out what was granted ends with the longest lease it can be", |name| {
        let mut hands = connected(name);
        hands.acquire("a", FOREVER);
        hands.down();
        hands.abandon("a");
        hands.up();
        while !hands.said.iter().any(|said| said.contains("forgotten")) {
            hands.until_said();
        }
        hands
    }),
    ("a release is repeated while the lease could stand", |name| {
        let mut hands = holding(name);
        hands.release("a");
        hands.down();
        hands.at(1000);
        hands.up();
        hands.refused(Code::NotHolder);
        hands
    }),
    ("a release that came too late is not taken for done", |name| {
        let mut hands = holding(name);
        hands.release("a");
        hands.down();
        hands.at(1000);
        hands.up();
        let expired = Problem { reason: Some(Gone::Expired), ..Problem::new(Code::NotHolder, "") };
        hands.refused_with(&expired);
        hands
    }),
    ("a release that is overdue is sent again", |name| {
        let mut hands = holding(name);
        hands.release("a");
        hands.until_said();
        hands.refused(Code::NotHolder);
        hands
    }),
    ("a release that cannot be decided is sent again", |name| {
        let mut hands = holding(name);
        hands.release("a");
        for code in [Code::StoreUnavailable, Code::Interrupted] {
            hands.refused(code);
            hands.until_said();
        }
        hands.refused(Code::LeaseLost);
        hands
    }),
    ("a release of what was lost says so", |name| {
        let mut hands = holding(name);
        hands.release("a");
        hands.refused(Code::NotHolder);
        hands
    }),
    ("a release without an answer ends with the lease", |name| {
        let mut hands = holding(name);
        hands.down();
        hands.release("a");
        while !hands.said.iter().any(|said| said.contains("release_unanswered")) {
            hands.down();
            hands.until_said();
        }
        hands
    }),
    ("what is over cannot be released or renewed", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.release("a");
        hands.renew("a");
        hands.granted();
        hands.release("a");
        hands.release("a");
        hands.renew("a");
        hands
    }),
    ("a lease without heartbeats is kept from when they are wanted", |name| {
        let mut hands = connected(name);
        hands.acquire_as("a", TTL, NEVER, false);
        hands.granted();
        hands.at(13_000);
        hands.wake();
        hands.start_heartbeat("a");
        hands.wake();
        hands.renewed();
        hands.until_said();
        hands
    }),
    ("a lease that is renewed by hand gets no heartbeats from that", |name| {
        let mut hands = connected(name);
        hands.acquire_as("a", TTL, NEVER, false);
        hands.granted();
        hands.at(5000);
        hands.renew("a");
        hands.renewed();
        hands.until_said();
        hands
    }),
    ("a refusal of a request that was sent again says nothing", |name| {
        let mut hands = connected(name);
        hands.acquire("a", NEVER);
        hands.until_said();
        hands
            .answer(0, &Said::Refused(super::recorder::refusal(&Problem::new(Code::LockHeld, ""))));
        hands.granted();
        hands
    }),
];

const SESSIONS: &[Rule] = &[
    ("one heartbeat keeps a session and all under it", |name| {
        let mut hands = with_session(name, &["one", "two"]);
        hands.until_said();
        hands.renewed();
        hands.release("two");
        hands.released();
        hands.until_said();
        hands.refused(Code::SessionNotFound);
        hands
    }),
    ("work under a session is told to stop with it", |name| {
        let mut hands = with_session(name, &["one"]);
        until_end(&mut hands, true);
        hands
    }),
    ("who closes a session believes in nothing under it any more", |name| {
        let mut hands = with_session(name, &["one", "two"]);
        hands.release("session");
        hands.released();
        hands
    }),
    ("one lock of a session can be lost alone", |name| {
        let mut hands = with_session(name, &["one", "two"]);
        hands.lost("one", Code::LeaseLost);
        hands
    }),
    ("a grant under a session that is on its way out is lost with it", |name| {
        let mut hands = with_session(name, &[]);
        hands.acquire_under("one", "session", FOREVER);
        hands.release("session");
        hands
    }),
    ("a release under a session is tried as long as the session stands", |name| {
        let mut hands = with_session(name, &["one"]);
        hands.release("one");
        for _ in 0..4 {
            hands.until_said();
        }
        hands.refused(Code::NotHolder);
        hands
    }),
    ("what was abandoned under a session is looked for no longer than its ttl", |name| {
        let mut hands = with_session(name, &[]);
        hands.acquire_under("one", "session", FOREVER);
        hands.down();
        hands.abandon("one");
        hands.up();
        hands.granted();
        hands.released();
        hands
    }),
];

const SERVERS: &[Rule] = &[
    ("the next server is tried when one cannot be reached", |name| {
        let mut hands = Recorder::new(several(name, 3));
        hands.acquire("a", NEVER);
        hands.down();
        hands.down();
        hands.down();
        hands.until_said();
        hands.up();
        hands.granted();
        hands
    }),
    ("a connection that takes too long is given up", |name| {
        let mut hands = Recorder::new(several(name, 2));
        hands.acquire("a", NEVER);
        for _ in 0..5 {
            hands.until_said();
        }
        hands
    }),
    ("the leader is followed", |name| {
        let mut hands = Recorder::new(several(name, 2));
        hands.acquire("a", NEVER);
        hands.up();
        let mut problem = Problem::new(Code::NotLeader, "");
        problem.leader = Some("http://c:1".into());
        hands.refused_with(&problem);
        hands.up();
        hands.until_said();
        let mut problem = Problem::new(Code::NotLeader, "");
        problem.leader = Some("a:1/".into());
        hands.refused_with(&problem);
        hands.up();
        hands.until_said();
        hands.refused(Code::NotLeader);
        hands.up();
        hands.until_said();
        hands.granted();
        hands
    }),
    ("a server that fell silent is left before the work must stop", |name| {
        let mut hands = Recorder::new(several(name, 2));
        hands.acquire("a", NEVER);
        hands.up();
        hands.granted();
        while !hands.said.iter().any(|said| said.contains("http://b:1")) {
            hands.until_said();
        }
        hands.up();
        hands.renewed();
        hands
    }),
    ("a server that answers nobody is left by who asks for a lock", |name| {
        let mut hands = Recorder::new(several(name, 2));
        hands.acquire("a", NEVER);
        hands.up();
        hands.until_said();
        hands.up();
        hands.granted();
        hands
    }),
    ("a server that answers others is only slow", |name| {
        let mut hands = Recorder::new(several(name, 2));
        hands.acquire("slow", NEVER);
        hands.up();
        hands.at(2000);
        hands.acquire("quick", NEVER);
        hands.refused(Code::LockHeld);
        hands.until_said();
        hands
    }),
    ("a connection that a lease stands on is left by its heartbeats alone", |name| {
        let mut hands = Recorder::new(several(name, 2));
        hands.acquire("held", NEVER);
        hands.up();
        hands.granted();
        hands.acquire("new", NEVER);
        hands.until_said();
        hands.suspect_if_idle();
        hands
    }),
    ("a server that failed somebody else is left", |name| {
        let mut hands = Recorder::new(several(name, 2));
        hands.up();
        hands.suspect();
        hands.up();
        hands.suspect_if_idle();
        hands
    }),
    ("heartbeats go out before acquires when a connection comes back", |name| {
        let mut hands = holding(name);
        hands.down();
        hands.acquire("new", NEVER);
        while hands.now() < TTL / 3 {
            hands.until_said();
            if hands.now() < TTL / 3 {
                hands.down();
            }
        }
        hands.up();
        hands
    }),
];

// What happens again and again.

fn connected(name: &str) -> Recorder {
    let mut hands = Recorder::new(Setup::new(name));
    hands.up();
    hands
}

/// With a heartbeat every sixth of the ttl.
fn often(name: &str) -> Recorder {
    let mut setup = Setup::new(name);
    setup.settings.heartbeat = HeartbeatInterval::Sixth;
    let mut hands = Recorder::new(setup);
    hands.up();
    hands
}

fn holding(name: &str) -> Recorder {
    let mut hands = connected(name);
    hands.acquire("a", NEVER);
    hands.granted();
    hands
}

fn with_session(name: &str, under: &[&str]) -> Recorder {
    let mut hands = connected(name);
    hands.acquire("session", NEVER);
    hands.granted();
    for lock in under {
        hands.acquire_under(lock, "session", NEVER);
        hands.granted();
    }
    hands
}

fn several(name: &str, count: usize) -> Setup {
    let servers = ["http://a:1", "http://b:1", "http://c:1"];
    let servers = servers[..count].iter().map(|server| (*server).into()).collect();
    let mut setup = Setup { servers, ..Setup::new(name) };
    setup.settings.patience = Duration::from_secs(20);
    setup
}

fn beats(hands: &mut Recorder, count: usize) {
    for _ in 0..count {
        hands.until_said();
        hands.renewed();
    }
}

/// Nothing is answered any more.
fn until_end(hands: &mut Recorder, is_reachable: bool) {
    while !hands.names().is_empty() {
        hands.until_said();
        if is_reachable && hands.said.iter().any(|said| said.contains("connect")) {
            hands.up();
        }
    }
}

fn advised(code: Code, millis: u64) -> Problem {
    let mut problem = Problem::new(code, "");
    problem.recommended_retry_ms = Some(millis);
    problem
}

fn with_ticket(ticket: &str) -> Problem {
    let mut problem = Problem::new(Code::LockHeld, "");
    problem.ticket = Some(ticket.into());
    problem
}
