//! Sessions: one heartbeat for all that stands under it.

use super::*;

#[test]
fn one_heartbeat_keeps_a_session_and_all_under_it() {
    let (mut harness, session) = Harness::hold("session");
    let under = |harness: &mut Harness, name| {
        let key =
            harness.machine.acquire(harness.now, name, Ask::Under { session, wait: Wait::Never });
        assert_eq!(harness.done(), format!("{name} acquire Never"));
        assert_eq!(harness.answer(granted()), format!("{name} granted"));
        key
    };
    let (one, two) = (under(&mut harness, "one"), under(&mut harness, "two"));
    let (_, said) = harness.until_said();
    assert_eq!(said, "session renew");
    harness.answer(renewed());
    assert_eq!(harness.machine.window(one), harness.machine.window(session));
    harness.machine.release(harness.now, two);
    assert_eq!(harness.done(), "two release");
    assert_eq!(harness.answer(Answer::Released), "two released");
    harness.until_said();
    assert_eq!(
        harness.refuse(Code::SessionNotFound),
        "one lost: session_not_found, session lost: session_not_found"
    );
}

#[test]
fn work_under_a_session_is_told_to_stop_with_it() {
    let (mut harness, session) = Harness::hold("session");
    harness.machine.acquire(harness.now, "one", Ask::Under { session, wait: Wait::Never });
    harness.done();
    harness.answer(granted());
    loop {
        let (at, said) = harness.until_said();
        if said.contains("jeopardy") {
            assert_eq!((at, said.as_str()), (15_000, "session jeopardy, one jeopardy"));
            break;
        }
        harness.up();
    }
    assert_eq!(harness.at(30_000), "one lost: lapsed, session lost: lapsed");
}

#[test]
fn who_closes_a_session_believes_in_nothing_under_it_any_more() {
    let (mut harness, session) = Harness::hold("session");
    harness.machine.acquire(harness.now, "one", Ask::Under { session, wait: Wait::Never });
    harness.done();
    harness.answer(granted());
    harness.machine.release(harness.now, session);
    assert_eq!(harness.done(), "one lost: session closed, session release");
    assert_eq!(harness.answer(Answer::Released), "session released");
}

#[test]
fn request_that_was_never_sent_is_told_from_one_that_was() {
    let (mut harness, session) = Harness::hold("session");
    harness.machine.acquire(harness.now, "sent", Ask::Under { session, wait: Wait::Never });
    assert_eq!(harness.done(), "sent acquire Never");
    harness.machine.release(harness.now, session);
    assert_eq!(harness.done(), "sent lost: session closed, session release");
    assert_eq!(harness.answer(Answer::Released), "session released");
    harness.machine.acquire(harness.now, "later", Ask::Under { session, wait: Wait::Never });
    assert_eq!(harness.done(), "later never asked");
    let (mut harness, session) = Harness::hold("session");
    harness.down();
    harness.machine.acquire(harness.now, "unsent", Ask::Under { session, wait: Wait::Never });
    harness.machine.release(harness.now, session);
    assert_eq!(harness.done(), "unsent never asked");
}

#[test]
fn one_lock_of_a_session_can_be_lost_alone() {
    let (mut harness, session) = Harness::hold("session");
    let one =
        harness.machine.acquire(harness.now, "one", Ask::Under { session, wait: Wait::Never });
    harness.done();
    harness.answer(granted());
    harness.machine.lost(harness.now, one, Box::new(lost()));
    assert_eq!(harness.done(), "one lost: lease_lost");
    assert!(harness.machine.window(session).is_some());
}

#[test]
fn a_lease_without_heartbeats_is_kept_from_when_they_are_wanted() {
    let mut harness = Harness::connected();
    let ask = Ask::Lease { ttl: TTL, wait: Wait::Never, is_kept: false };
    let key = harness.machine.acquire(harness.now, "a", ask);
    harness.done();
    harness.answer(granted());
    assert_eq!(harness.at(12_000), "", "no heartbeat was wanted");
    harness.machine.start_heartbeat(harness.now, key);
    assert_eq!(harness.at(12_000), "a renew");
    assert_eq!(harness.answer(renewed()), "a renewed");
    let (at, said) = harness.until_said();
    assert_eq!(said, "a renew");
    assert!((20_000..=22_000).contains(&at), "{at}");
}
