//! Acquires: over broken connections, in the queue, given up and abandoned.

use super::*;

#[test]
fn an_acquire_survives_a_broken_connection() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    harness.at(2000);
    assert_eq!(harness.down(), "connect http://a:1");
    harness.at(2100);
    assert_eq!(harness.up(), "a acquire wait=57.9s ticket=-");
    assert_eq!(harness.answer(granted()), "a granted");
}

#[test]
fn an_acquire_is_repeated_while_no_server_can_decide() {
    for code in [Code::GracePeriod, Code::StoreUnavailable, Code::NotLeader, Code::Draining] {
        let mut harness = Harness::connected();
        harness.acquire("a", Wait::Never);
        assert_eq!(harness.refuse(code), "");
        let (_, said) = harness.until_said();
        assert_eq!(said, "a acquire Never", "{code}");
        assert_eq!(harness.answer(granted()), "a granted");
    }
}

#[test]
fn a_retry_that_would_come_too_late_is_not_waited_for() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::Never);
    let mut problem = Problem::new(Code::GracePeriod, "a grace is on");
    problem.recommended_retry_ms = Some(60_000);
    let said = harness.answer(Answer::Refused(Box::new(problem)));
    assert_eq!(said, "a refused grace_period");
}

#[test]
fn a_place_in_the_queue_is_kept_across_answers() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::UpTo(Duration::from_secs(120)));
    harness.at(50_000);
    let mut problem = Problem::new(Code::LockHeld, "still held");
    problem.ticket = Some("t1".into());
    let said = harness.answer(Answer::Refused(Box::new(problem)));
    assert_eq!(said, "a acquire wait=70s ticket=t1");
    assert_eq!(harness.refuse(Code::TicketNotFound), "a acquire wait=70s ticket=-");
    harness.at(120_000);
    assert_eq!(harness.refuse(Code::LockHeld), "a refused lock_held");
}

#[test]
fn whoever_stands_in_line_comes_back_to_its_place_after_a_broken_connection() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    assert_eq!(harness.queued("t1"), "");
    harness.at(2000);
    harness.down();
    harness.at(2100);
    assert_eq!(harness.up(), "a acquire wait=57.9s ticket=t1");
    // The server tells the same ticket again. Even if that is not heard, it is shown again.
    harness.at(3000);
    harness.down();
    harness.at(3100);
    assert_eq!(harness.up(), "a acquire wait=56.9s ticket=t1");
    assert_eq!(harness.answer(granted()), "a granted");
}

#[test]
fn another_leader_does_not_know_the_place_and_is_asked_anew() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    harness.queued("t1");
    harness.at(2000);
    harness.down();
    harness.at(2100);
    assert_eq!(harness.up(), "a acquire wait=57.9s ticket=t1");
    assert_eq!(harness.refuse(Code::TicketNotFound), "a acquire wait=57.9s ticket=-");
}

#[test]
fn ticket_of_a_request_that_was_answered_meanwhile_is_of_no_use() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::UpTo(Duration::from_secs(60)));
    let (call, ..) = harness.calls[0];
    assert_eq!(harness.answer(granted()), "a granted");
    harness.machine.queued(harness.now, call, "t1".into());
    assert_eq!(harness.done(), "");
}

#[test]
fn a_refusal_is_final() {
    for code in [Code::LockHeld, Code::Deadlock, Code::InvalidRequest, Code::TooManyWaiters] {
        let mut harness = Harness::connected();
        harness.acquire("a", Wait::UpTo(Duration::from_secs(60)));
        assert_eq!(harness.refuse(code), format!("a refused {code}"));
        assert!(harness.machine.is_empty());
    }
}

/// The first try may have been granted, and its lease be over by the time the second one is refused.
#[test]
fn a_refusal_after_a_try_without_an_answer_does_not_say_that_nothing_happened() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::Never);
    harness.down();
    harness.up();
    harness.until_said();
    assert_eq!(harness.refuse(Code::LockHeld), "a refused lock_held in doubt");
}

#[test]
fn unreachable_is_told_when_patience_is_over_and_says_that_nothing_happened() {
    let mut harness = Harness::with(&["http://a:1"]);
    harness.acquire("a", Wait::Never);
    loop {
        let (at, said) = harness.until_said();
        if said.contains("a unreachable") {
            assert_eq!(at, 10_000);
            return;
        }
        assert_eq!(said, "connect http://a:1");
        harness.down();
    }
}

#[test]
fn what_may_have_been_granted_is_found_out_and_given_back() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::Never);
    // Sent, never answered; sent again, never answered.
    let (at, said) = harness.until_said();
    assert_eq!((at, said.as_str()), (5000, "cancel, a acquire Never"));
    let (at, said) = harness.until_said();
    assert_eq!((at, said.as_str()), (10_000, "a gave up, cancel"));
    assert_eq!(harness.answer(granted()), "a release");
    assert_eq!(harness.answer(Answer::Released), "a forgotten");
    assert!(harness.machine.is_empty());
}

#[test]
fn an_abandoned_acquire_leaves_nothing_behind_over_a_broken_connection() {
    let mut harness = Harness::connected();
    let (key, _) = harness.acquire("a", Wait::Forever);
    harness.down();
    harness.machine.abandon(harness.now, key);
    assert_eq!(harness.done(), "");
    assert_eq!(harness.up(), "a acquire Never");
    assert_eq!(harness.refuse(Code::LockHeld), "a forgotten");
}

#[test]
fn an_abandoned_acquire_that_was_never_sent_is_simply_forgotten() {
    let mut harness = Harness::with(&["http://a:1"]);
    let (key, _) = harness.acquire("a", Wait::Forever);
    harness.machine.abandon(harness.now, key);
    assert_eq!(harness.done(), "a forgotten");
    assert_eq!(harness.up(), "");
}

#[test]
fn a_grant_that_comes_for_a_caller_who_left_is_given_back() {
    let mut harness = Harness::connected();
    let (key, _) = harness.acquire("a", Wait::Forever);
    harness.machine.abandon(harness.now, key);
    assert_eq!(harness.done(), "cancel");
    assert_eq!(harness.answer(granted()), "a release");
    assert_eq!(harness.answer(Answer::Released), "a forgotten");
}
