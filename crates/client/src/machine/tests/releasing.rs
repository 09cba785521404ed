//! Releases: repeated, too late, and without an answer.

use super::*;

#[test]
fn a_release_is_repeated_while_the_lease_could_stand() {
    let (mut harness, key) = Harness::hold("a");
    assert!(harness.machine.release(harness.now, key));
    assert_eq!(harness.done(), "a release");
    assert_eq!(harness.down(), "connect http://a:1");
    harness.at(1000);
    assert_eq!(harness.up(), "a release");
    // The first one was carried out, only its answer was lost.
    assert_eq!(harness.refuse(Code::NotHolder), "a released");
}

#[test]
fn a_release_that_came_too_late_is_not_taken_for_done() {
    let (mut harness, key) = Harness::hold("a");
    harness.machine.release(harness.now, key);
    harness.done();
    harness.down();
    harness.at(1000);
    assert_eq!(harness.up(), "a release");
    let expired = Problem { reason: Some(Gone::Expired), ..Problem::new(Code::NotHolder, "late") };
    let said = harness.answer(Answer::Refused(Box::new(expired)));
    assert_eq!(said, "a not released: not_holder");
}

#[test]
fn a_release_that_is_sent_again_leaves_none_behind_at_a_server_that_is_silent() {
    let (mut harness, key) = Harness::hold("a");
    harness.machine.release(harness.now, key);
    assert_eq!(harness.done(), "a release");
    assert_eq!(harness.until_said(), (5000, "cancel, a release".into()));
    // The first one may have been carried out.
    assert_eq!(harness.refuse(Code::NotHolder), "a released");
}

#[test]
fn finding_out_what_was_granted_leaves_nothing_behind_at_a_server_that_is_silent() {
    let mut harness = Harness::connected();
    let (key, _) = harness.acquire("a", Wait::Forever);
    harness.down();
    harness.machine.abandon(harness.now, key);
    assert_eq!(harness.up(), "a acquire Never");
    let mut sent = 1;
    while !harness.machine.is_empty() {
        let (_, said) = harness.until_said();
        sent += usize::from(said == "cancel, a acquire Never");
    }
    assert!(sent > 1, "{sent}");
    assert_eq!(harness.cancelled.len(), sent);
}

#[test]
fn a_release_of_what_was_lost_says_so() {
    let (mut harness, key) = Harness::hold("a");
    harness.machine.release(harness.now, key);
    harness.done();
    assert_eq!(harness.refuse(Code::NotHolder), "a not released: not_holder");
}

#[test]
fn a_release_without_an_answer_ends_with_the_lease() {
    let (mut harness, key) = Harness::hold("a");
    harness.down();
    harness.machine.release(harness.now, key);
    loop {
        let (at, said) = harness.until_said();
        if said == "a release unanswered" {
            assert_eq!(at, 30_000);
            return;
        }
        harness.down();
    }
}
