//! Who leads, and what the others say, with a clock that is moved by hand.

mod common;

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{acquire, owner, release, renew, scope};
use leasehold_core::{
    Answer, CallId, Command, GracePolicy, Grant, Limits, LockState, Millis, Namespace, RequestId,
    Timestamp, Wait,
};
use leasehold_engine::{
    Answering, Asking, Call, CallError, Lane, Member, Output, Phase, Plan, Query, Recovery, Reply,
    Request, Response, View,
};
use leasehold_store::{Candidate, Error, Journal, Loaded, MemoryJournal, Position};

/// Servers around one store. Each has a clock of its own, so that one can be stopped.
struct Group {
    journal: MemoryJournal,
    servers: Vec<Server>,
    next_call: u64,
}

struct Server {
    member: Member,
    now: Timestamp,
    /// Nothing it asks of the store gets there.
    cut_off: bool,
    stopped: bool,
    under_way: [Option<(u64, Answering)>; 3],
    answers: Vec<(CallId, Result<Reply, CallError>)>,
    /// How often it has asked who leads.
    looks: usize,
}

const LEASE: Duration = Duration::from_secs(3);

impl Group {
    fn new(len: usize) -> Group {
        let journal = MemoryJournal::shared();
        let servers = (0..len).map(|number| Server::new(&journal, number)).collect();
        Group { journal, servers, next_call: 1 }
    }

    /// Time passes for everybody who is not stopped.
    fn pass(&mut self, millis: u32) {
        for _ in 0..millis {
            for server in &mut self.servers {
                if !server.stopped {
                    server.now = server.now.plus(Millis::new(1));
                    server.go_on(&self.journal);
                }
            }
        }
    }

    /// The one that leads, for certain.
    fn leader(&self) -> Option<usize> {
        let mut leads = self.servers.iter().enumerate().filter(|(_, server)| {
            server.member.leads(server.now) && server.member.engine().is_some()
        });
        let leader = leads.next().map(|(number, _)| number);
        assert!(leads.next().is_none(), "two servers lead at once");
        leader
    }

    fn command(&mut self, server: usize, command: Command) -> Result<Answer, CallError> {
        match self.call(server, Call::Command(command))? {
            Reply::Answer(answer) => Ok(answer),
            Reply::View(view) => panic!("not an answer: {view:?}"),
        }
    }

    fn acquire(&mut self, server: usize, who: &str, what: &str) -> Result<Grant, CallError> {
        let answer = self.command(server, Command::Acquire(acquire(who, what, Wait::Never)))?;
        let Answer::Granted(grant) = answer else { panic!("not a grant: {answer:?}") };
        Ok(*grant)
    }

    fn state(&mut self, server: usize, what: &str) -> Result<LockState, CallError> {
        let query = Query::Get { namespace: Namespace::default(), scope: scope(what) };
        let reply = self.call(server, Call::Query(query))?;
        let Reply::View(View::Lock(lock)) = reply else { panic!("not a lock: {reply:?}") };
        Ok(lock.state)
    }

    fn call(&mut self, server: usize, call: Call) -> Result<Reply, CallError> {
        let id = self.submit(server, call);
        let server = &mut self.servers[server];
        server.go_on(&self.journal);
        let at = server.answers.iter().position(|(answered, _)| *answered == id);
        server.answers.remove(at.expect("it is answered at once")).1
    }

    /// How many pieces the snapshot in the store has.
    fn snapshot_len(&self) -> usize {
        let epoch = self.servers[0].member.engine().expect("it leads").table().epoch();
        let mut loading = self.journal.load(epoch, Position::Start);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(page)) = loading.as_mut().poll(&mut context) else {
            panic!("the memory has it at hand")
        };
        page.items.iter().filter(|item| matches!(item, Loaded::Chunk(_))).count()
    }

    fn submit(&mut self, server: usize, mut call: Call) -> CallId {
        let id = CallId(self.next_call);
        self.next_call += 1;
        if let Call::Command(Command::Acquire(acquire)) = &mut call {
            acquire.call = id;
        }
        let server = &mut self.servers[server];
        server.member.submit(server.now, id, call);
        id
    }
}

impl Server {
    fn new(journal: &MemoryJournal, number: usize) -> Server {
        let now = Timestamp::from_millis(1_000_000 * number as u64);
        let plan = Plan {
            candidate: Candidate {
                name: format!("server-{number}"),
                address: format!("http://server-{number}"),
                lease: LEASE,
            },
            recovery: Recovery {
                limits: Limits::default(),
                seed: number as u64,
                grace: GracePolicy::Conflicting,
                grace_length: Duration::from_secs(30),
                fence_floor: None,
            },
            snapshot_bytes: 2000,
        };
        Server {
            member: Member::new(plan, journal.caps(), now),
            now,
            cut_off: false,
            stopped: false,
            under_way: [const { None }; 3],
            answers: Vec::new(),
            looks: 0,
        }
    }

    /// Everything that can happen at this moment happens.
    fn go_on(&mut self, journal: &MemoryJournal) {
        if self.member.wake_at(self.now).is_some_and(|at| at <= self.now) {
            self.member.tick(self.now);
        }
        loop {
            let asked = self.member.take_requests(self.now);
            let quiet = asked.is_empty();
            for Asking { id, request } in asked {
                let lane = request.lane() as usize;
                self.looks += usize::from(matches!(request, Request::Leader));
                let answering: Answering = match self.cut_off {
                    true => Box::pin(std::future::ready(unreachable(&request))),
                    false => request.put_to(journal),
                };
                self.under_way[lane] = Some((id, answering));
            }
            for lane in Lane::ALL {
                let Some((id, mut answering)) = self.under_way[lane as usize].take() else {
                    continue;
                };
                let mut context = Context::from_waker(Waker::noop());
                match answering.as_mut().poll(&mut context) {
                    Poll::Ready(response) => self.member.answered(self.now, id, response),
                    Poll::Pending => self.under_way[lane as usize] = Some((id, answering)),
                }
            }
            let mut outputs = Vec::new();
            self.member.take_outputs(&mut outputs);
            for output in outputs {
                if let Output::Reply { call, reply, .. } = output {
                    self.answers.push((call, reply));
                }
            }
            if quiet {
                return;
            }
        }
    }
}

fn unreachable(request: &Request) -> Response {
    let unavailable = || Error::Unavailable { what: "no route".into(), cause: None };
    let unknown = || Error::OutcomeUnknown { what: "no route".into(), cause: None };
    match request {
        Request::Leader => Response::Leader(Err(unavailable())),
        Request::Campaign { .. } => Response::Campaigned(Err(unavailable())),
        Request::Confirm(_) => Response::Confirmed(Err(unknown())),
        Request::Resign(_) => Response::Resigned(Err(unavailable())),
        Request::Load { .. } => Response::Loaded(Err(unavailable())),
        Request::Append { .. } => Response::Appended(Err(unknown())),
        Request::ReadBack { .. } => Response::ReadBack(Err(unavailable())),
        Request::PutChunk(_) => Response::ChunkPut(Err(unavailable())),
        Request::CommitSnapshot { .. } => Response::SnapshotCommitted(Err(unavailable())),
        Request::Prune(_) => Response::Pruned(Err(unavailable())),
    }
}

fn is_not_leader<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::NotLeader { .. }))
}

#[test]
fn one_server_leads_from_the_start() {
    let mut group = Group::new(3);
    group.pass(1);
    let leader = group.leader().expect("nobody else did");
    assert!(group.acquire(leader, "a", "job/x").is_ok());
}

#[test]
fn followers_say_where_the_leader_is() {
    let mut group = Group::new(2);
    group.pass(500);
    assert_eq!(group.leader(), Some(0));
    let refused = group.acquire(1, "a", "job/x");
    let Err(CallError::NotLeader { leader, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(leader.as_deref(), Some("http://server-0"));
    assert_eq!(group.servers[1].member.status(group.servers[1].now).phase, Phase::Following);
}

#[test]
fn a_leader_that_confirms_stays() {
    let mut group = Group::new(3);
    group.pass(1);
    let epoch = group.servers[0].member.status(group.servers[0].now).epoch;
    group.pass(60_000);
    assert_eq!(group.leader(), Some(0));
    assert_eq!(group.servers[0].member.status(group.servers[0].now).epoch, epoch);
}

#[test]
fn when_the_leader_dies_another_takes_over_within_a_second_of_its_lease() {
    let mut group = Group::new(3);
    group.pass(2000);
    let held = group.acquire(0, "a", "job/x").unwrap();
    group.servers[0].stopped = true;
    group.pass(4000);
    let leader = group.servers[1..].iter().position(|server| server.member.leads(server.now));
    let leader = leader.expect("one of the others") + 1;
    assert_eq!(group.state(leader, "job/x"), Ok(LockState::Recovering));
    assert!(matches!(group.command(leader, renew("job/x", &held)), Ok(Answer::Renewed(_))));
    let next = group.acquire(leader, "b", "job/y").unwrap();
    assert!(next.fence > held.fence);
}

#[test]
fn a_leader_that_slept_past_its_leadership_renews_nothing() {
    let mut group = Group::new(2);
    group.pass(2000);
    let held = group.acquire(0, "a", "job/x").unwrap();
    group.servers[0].stopped = true;
    group.pass(4000);
    assert!(group.servers[1].member.leads(group.servers[1].now));
    // It wakes up: its clock has gone on, and the request is the first thing it sees.
    group.servers[0].now = group.servers[0].now.plus(Millis::new(4000));
    assert!(is_not_leader(&group.command(0, renew("job/x", &held))));
    assert!(is_not_leader(&group.acquire(0, "b", "job/y")));
    group.servers[0].stopped = false;
    group.pass(1000);
    assert_eq!(group.leader(), Some(1));
}

#[test]
fn a_leader_that_slept_after_it_wrote_tells_nobody_that_a_lease_goes_on() {
    let mut group = Group::new(2);
    group.pass(2000);
    let held = group.acquire(0, "a", "job/x").unwrap();
    let mut longer = renew("job/x", &held);
    if let Command::Renew(renew) = &mut longer {
        renew.ttl = Some(held.ttl.as_duration() * 2);
    }
    let id = group.submit(0, Call::Command(longer));
    let Group { journal, servers, .. } = &mut group;
    let server = &mut servers[0];
    let mut answers = Vec::new();
    for Asking { id, request } in server.member.take_requests(server.now) {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(response) = request.put_to(journal).as_mut().poll(&mut context) else {
            panic!("the memory writes at once")
        };
        answers.push((id, response));
    }
    assert_eq!(answers.len(), 1, "a raised ttl is written first");
    // It hears of that only when its leadership is over.
    server.now = server.now.plus(Millis::new(4000));
    for (id, response) in answers {
        server.member.answered(server.now, id, response);
    }
    let mut outputs = Vec::new();
    server.member.take_outputs(&mut outputs);
    let reply = outputs.into_iter().find_map(|output| {
        let Output::Reply { call, reply, .. } = output else { return None };
        (call == id).then_some(reply)
    });
    let unknown =
        |error| matches!(error, CallError::StoreUnavailable { outcome_unknown: true, .. });
    let reply = reply.expect("it is answered");
    assert!(reply.clone().is_err_and(unknown), "{reply:?}");
}

#[test]
fn a_leader_whose_clock_stood_still_commits_nothing() {
    let mut group = Group::new(2);
    group.pass(2000);
    group.acquire(0, "a", "job/x").unwrap();
    group.servers[0].stopped = true;
    group.pass(4000);
    assert!(group.servers[1].member.leads(group.servers[1].now));
    // The worst case: it does not know that time has passed at all. The store does.
    let granted = group.acquire(0, "b", "job/y");
    assert!(is_not_leader(&granted), "{granted:?}");
    assert_eq!(group.state(1, "job/y"), Ok(LockState::Free));
}

#[test]
fn a_leader_that_cannot_reach_the_store_stops_before_another_begins() {
    let mut group = Group::new(2);
    group.pass(2000);
    let held = group.acquire(0, "a", "job/x").unwrap();
    group.servers[0].cut_off = true;
    for _ in 0..8000 {
        group.pass(1);
        // Asserts that there are never two.
        group.leader();
    }
    assert_eq!(group.leader(), Some(1));
    assert!(is_not_leader(&group.command(0, renew("job/x", &held))));
    group.servers[0].cut_off = false;
    group.pass(1000);
    assert_eq!(group.servers[0].member.status(group.servers[0].now).phase, Phase::Following);
}

#[test]
fn a_leader_alone_goes_on_when_the_store_is_back() {
    let mut group = Group::new(1);
    group.pass(10);
    let held = group.acquire(0, "a", "job/x").unwrap();
    group.servers[0].cut_off = true;
    group.pass(5000);
    assert_eq!(group.leader(), None);
    assert_eq!(group.servers[0].member.status(group.servers[0].now).phase, Phase::Doubtful);
    group.servers[0].cut_off = false;
    group.pass(500);
    assert_eq!(group.leader(), Some(0));
    assert!(matches!(group.command(0, renew("job/x", &held)), Ok(Answer::Renewed(_))));
}

#[test]
fn a_planned_stop_hands_over_within_half_a_second() {
    let mut group = Group::new(3);
    group.pass(2000);
    let held = group.acquire(0, "a", "job/x").unwrap();
    group.command(0, release("job/x", &held)).unwrap();
    let now = group.servers[0].now;
    group.servers[0].member.stop(now);
    group.pass(500);
    assert!(group.servers[0].member.is_stopped());
    let leader = group.leader().expect("another one");
    assert_eq!(group.state(leader, "job/x"), Ok(LockState::Free), "the release was written");
}

#[test]
fn a_planned_stop_is_immediate_whether_or_not_a_release_is_unwritten() {
    for is_released in [false, true] {
        let mut group = Group::new(2);
        group.pass(2000);
        let held = group.acquire(0, "a", "job/x").unwrap();
        if is_released {
            group.command(0, release("job/x", &held)).unwrap();
        }
        let server = &mut group.servers[0];
        server.member.stop(server.now);
        server.go_on(&group.journal);
        assert!(server.member.is_stopped(), "released: {is_released}");
    }
}

#[test]
fn a_release_is_written_within_two_milliseconds_even_if_nothing_follows_it() {
    let mut group = Group::new(1);
    group.pass(2000);
    let held = group.acquire(0, "a", "job/x").unwrap();
    let unwritten = |group: &Group| group.servers[0].member.engine().unwrap().unwritten_len();
    group.command(0, release("job/x", &held)).unwrap();
    assert_eq!(unwritten(&group), 1);
    let (member, now) = (&group.servers[0].member, group.servers[0].now);
    assert_eq!(member.wake_at(now), Some(now.plus(Millis::new(2))));
    group.pass(2);
    assert_eq!(unwritten(&group), 0);
}

#[test]
fn who_hears_that_the_leader_does_not_serve_takes_over_at_once() {
    // Whenever it has looked last.
    for phase in 0..200 {
        let mut group = Group::new(2);
        group.pass(2000 + phase);
        let now = group.servers[0].now;
        group.servers[0].member.stop(now);
        for _ in 0..25 {
            let now = group.servers[1].now;
            group.servers[1].member.poll_leader(now);
            group.pass(1);
        }
        assert_eq!(group.leader(), Some(1), "{phase}");
    }
}

#[test]
fn a_leader_that_serves_after_all_is_looked_at_now_and_then() {
    let mut group = Group::new(2);
    group.pass(2000);
    group.servers[1].looks = 0;
    for _ in 0..1000 {
        let now = group.servers[1].now;
        group.servers[1].member.poll_leader(now);
        group.pass(1);
    }
    let looks = group.servers[1].looks;
    assert!((45..=50).contains(&looks), "{looks} times in a second");
    assert_eq!(group.leader(), Some(0));
}

#[test]
fn a_leader_that_hands_over_goes_on_as_a_follower() {
    let mut group = Group::new(2);
    group.pass(2000);
    let now = group.servers[0].now;
    group.servers[0].member.step_down(now);
    group.pass(1000);
    assert_eq!(group.leader(), Some(1));
    assert_eq!(group.servers[0].member.status(group.servers[0].now).phase, Phase::Following);
    assert!(is_not_leader(&group.acquire(0, "a", "job/x")));
}

#[test]
fn those_who_wait_are_told_when_the_leadership_is_lost() {
    let mut group = Group::new(2);
    group.pass(2000);
    group.acquire(0, "a", "job/x").unwrap();
    let waiting = Call::Command(Command::Acquire(acquire("b", "job/x", Wait::Forever)));
    let id = group.submit(0, waiting);
    group.pass(10);
    group.servers[0].cut_off = true;
    group.pass(5000);
    group.servers[0].cut_off = false;
    group.pass(1000);
    let answers = &group.servers[0].answers;
    let answer = answers.iter().find(|(call, _)| *call == id).map(|(_, answer)| answer);
    assert!(matches!(answer, Some(Err(CallError::NotLeader { .. }))), "{answer:?}");
}

#[test]
fn a_retry_at_the_next_leader_finds_its_grant() {
    let mut group = Group::new(2);
    group.pass(2000);
    let mut asked = acquire("a", "job/x", Wait::Never);
    asked.request_id = RequestId::new("once").ok();
    asked.owner = owner("a");
    let first = group.command(0, Command::Acquire(asked.clone())).unwrap();
    group.servers[0].stopped = true;
    group.pass(4000);
    let again = group.command(1, Command::Acquire(asked)).unwrap();
    let (Answer::Granted(first), Answer::Granted(again)) = (first, again) else {
        panic!("both are grants")
    };
    assert!(again.replayed);
    assert_eq!(again.fence, first.fence);
}

/// Each leads too short a time to write much, but the journal does not grow for ever.
#[test]
fn leaders_that_follow_each_other_quickly_get_to_a_snapshot() {
    let mut group = Group::new(1);
    group.pass(1);
    for round in 0..40 {
        group.acquire(0, &format!("a{round}"), &format!("job/{round}")).expect("nobody holds it");
        group.pass(5);
        group.servers[0] = Server::new(&group.journal, 0);
        group.servers[0].now = Timestamp::from_millis(1_000_000 * (round + 1));
        group.pass(20);
    }
    assert!(group.snapshot_len() > 0);
}

/// Whoever reads the store with other means finds there what has changed, however little it was.
#[test]
fn change_is_in_a_snapshot_after_a_minute_of_silence() {
    let mut group = Group::new(1);
    group.pass(1);
    group.acquire(0, "a", "job/x").expect("nobody holds it");
    group.pass(59_000);
    assert_eq!(group.snapshot_len(), 0);
    group.pass(2_000);
    assert_eq!(group.snapshot_len(), 1);
    let asked = group.servers[0].member.wake_at(group.servers[0].now);
    assert!(asked.is_some_and(|at| at > group.servers[0].now), "nothing is due any more");
}
