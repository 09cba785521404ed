//! Servers: the next one, the leader, one that fell silent, and the order in which requests go out.

use super::*;

#[test]
fn the_next_server_is_tried_when_one_cannot_be_reached() {
    let mut harness = Harness::with(&["http://a:1", "http://b:1", "http://c:1"]);
    harness.acquire("a", Wait::Never);
    assert_eq!(harness.down(), "connect http://b:1");
    assert_eq!(harness.down(), "connect http://c:1");
    // All were tried at once; the next round is not.
    assert_eq!(harness.down(), "");
    let (at, said) = harness.until_said();
    assert_eq!(said, "connect http://a:1");
    assert!((10..=20).contains(&at), "{at}");
    assert_eq!(harness.up(), "a acquire Never");
}

#[test]
fn whatever_drives_the_machine_next_has_a_connection_of_its_own_at_once() {
    let mut harness = Harness::with(&["http://a:1", "http://b:1"]);
    harness.acquire("a", Wait::Never);
    harness.up();
    harness.answer(granted());
    harness.acquire("b", Wait::Forever);
    // A heartbeat is overdue, and goes out over the new connection; so does what waits for an answer.
    harness.now = Moment::from_millis(11_000);
    harness.machine.relink(harness.now);
    assert_eq!(harness.done(), "connect http://a:1");
    assert_eq!(harness.up(), "a renew");
    assert_eq!(harness.answer(renewed()), "a renewed");
    let (at, said) = harness.until_said();
    assert!((11_010..=11_020).contains(&at), "{at}");
    assert_eq!(said, "b acquire Forever");
}

#[test]
fn whatever_drives_the_machine_may_be_late_by_a_part_of_the_shortest_lease() {
    let mut harness = Harness::connected();
    let most = harness.machine.slack();
    harness.acquire("a", Wait::Never);
    harness.answer(granted());
    assert!(harness.machine.slack() < TTL / 30 && harness.machine.slack() <= most);
    harness.acquire("b", Wait::Never);
    let ttl = Duration::from_millis(320);
    harness.answer(Answer::Granted { ttl, left: ttl });
    assert_eq!(harness.machine.slack(), Duration::from_millis(10));
    // Twice that after a heartbeat was due, the work need not stop yet.
    assert!(ttl / 3 + harness.machine.slack() * 2 < ttl / 2 - ttl / 16);
    for key in harness.machine.keys() {
        harness.machine.release(harness.now, key);
        harness.done();
        harness.answer(Answer::Released);
    }
    assert_eq!(harness.machine.slack(), most);
}

#[test]
fn the_leader_is_followed() {
    let mut harness = Harness::with(&["http://a:1", "http://b:1"]);
    harness.acquire("a", Wait::Never);
    harness.up();
    let mut problem = Problem::new(Code::NotLeader, "another leads");
    problem.leader = Some("http://c:1".into());
    assert_eq!(harness.answer(Answer::Refused(Box::new(problem))), "connect http://c:1");
    harness.up();
    let (_, said) = harness.until_said();
    assert_eq!(said, "a acquire Never");
}

#[test]
fn a_server_that_fell_silent_is_left_before_the_work_must_stop() {
    let mut harness = Harness::with(&["http://a:1", "http://b:1"]);
    harness.acquire("a", Wait::Never);
    harness.up();
    harness.answer(granted());
    loop {
        let (at, said) = harness.until_said();
        if said.contains("connect http://b:1") {
            assert!(at < 14_500, "{at}");
            break;
        }
        assert_eq!(said, "a renew");
    }
    assert_eq!(harness.up(), "a renew");
    assert_eq!(harness.answer(renewed()), "a renewed");
}

#[test]
fn a_server_that_answers_nobody_is_left_by_who_asks_for_a_lock() {
    let mut harness = Harness::with(&["http://a:1", "http://b:1"]);
    harness.acquire("a", Wait::Never);
    assert_eq!(harness.up(), "a acquire Never");
    assert_eq!(harness.until_said(), (5000, "cancel, connect http://b:1".into()));
    assert_eq!(harness.up(), "a acquire Never");
    assert_eq!(harness.answer(granted()), "a granted");
}

#[test]
fn a_server_that_answers_others_is_only_slow() {
    let mut harness = Harness::with(&["http://a:1", "http://b:1"]);
    harness.acquire("slow", Wait::Never);
    harness.up();
    harness.at(2000);
    harness.acquire("quick", Wait::Never);
    harness.refuse(Code::LockHeld);
    assert_eq!(harness.until_said(), (5000, "cancel, slow acquire Never".into()));
}

#[test]
fn a_connection_that_a_lease_stands_on_is_left_by_its_heartbeats_alone() {
    let mut harness = Harness::with(&["http://a:1", "http://b:1"]);
    harness.acquire("held", Wait::Never);
    harness.up();
    harness.answer(granted());
    harness.acquire("new", Wait::Never);
    assert_eq!(harness.until_said(), (5000, "cancel, new acquire Never".into()));
}

#[test]
fn heartbeats_go_out_before_acquires_when_a_connection_comes_back() {
    let (mut harness, _) = Harness::hold("held");
    harness.down();
    harness.acquire("new", Wait::Never);
    // While nothing can be sent the heartbeat becomes due.
    while harness.now < Moment::from_millis(9900) {
        harness.until_said();
        harness.down();
    }
    while harness.until_said().1 != "connect http://a:1" {}
    let said = harness.up();
    assert!(said.starts_with("held renew"), "{said}");
}

#[test]
fn the_same_seed_does_the_same() {
    let run = || {
        let (mut harness, _) = Harness::hold("a");
        let mut log = Vec::new();
        for _ in 0..20 {
            log.push(harness.until_said());
            if !harness.calls.is_empty() {
                harness.answer(renewed());
            }
        }
        log
    };
    assert_eq!(run(), run());
}

#[test]
fn a_refusal_of_a_request_that_was_sent_again_says_nothing() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::Never);
    let (_, said) = harness.until_said();
    assert_eq!(said, "cancel, a acquire Never");
    let cancelled = Problem::new(Code::LockHeld, "it left the queue");
    assert_eq!(harness.answer_oldest(Answer::Refused(Box::new(cancelled))), "");
    assert_eq!(harness.answer(granted()), "a granted");
}
