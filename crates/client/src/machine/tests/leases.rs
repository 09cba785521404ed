//! Leases: heartbeats, jeopardy, and answers that come late or say no.

use super::*;

#[test]
fn a_lease_counts_from_when_it_was_asked_for_not_from_the_answer() {
    let mut harness = Harness::connected();
    let (key, said) = harness.acquire("a", Wait::Never);
    assert_eq!(said, "a acquire Never");
    harness.at(4000);
    assert_eq!(harness.answer(granted()), "a granted");
    let window = harness.machine.window(key).unwrap();
    assert_eq!(window.lapses_at(), Moment::from_millis(30_000));
}

#[test]
fn a_heartbeat_goes_out_before_a_third_of_the_ttl_is_over() {
    let (mut harness, _) = Harness::hold("a");
    let mut moments = Vec::new();
    for _ in 0..50 {
        let from = harness.now.as_nanos() / 1_000_000;
        let (at, said) = harness.until_said();
        assert_eq!(said, "a renew");
        assert!((8000..=10_000).contains(&(at - from)), "{at} after {from}");
        moments.push(at - from);
        assert_eq!(harness.answer(renewed()), "a renewed");
    }
    moments.sort_unstable();
    moments.dedup();
    assert!(moments.len() > 40, "the heartbeats are not jittered");
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let (mut harness, key) = Harness::hold("a");
    let (sent, _) = harness.until_said();
    harness.at(sent + 900);
    harness.answer(renewed());
    let window = harness.machine.window(key).unwrap();
    assert!(window.since() <= Moment::from_millis(sent + 1), "{window:?}");
}

#[test]
fn a_renewal_that_says_a_millisecond_less_is_a_renewal_all_the_same() {
    let (mut harness, key) = Harness::hold("a");
    for round in 1..50 {
        harness.now = Moment::from_nanos(round * 100_000);
        assert!(harness.machine.renew(harness.now, key));
        assert_eq!(harness.done(), "a renew");
        // The server's clock ticks between the renewal and its answer.
        let left = TTL - Duration::from_millis(round % 2);
        assert_eq!(harness.answer(Answer::Renewed { ttl: TTL, left }), "a renewed");
    }
}

#[test]
fn unanswered_heartbeats_are_repeated_until_half_of_the_ttl_then_the_work_must_stop() {
    let (mut harness, _) = Harness::hold("a");
    let mut renewals = 0;
    loop {
        let (at, said) = harness.until_said();
        if said == "a jeopardy" {
            assert_eq!(at, 15_000);
            break;
        }
        for said in said.split(", ") {
            match said {
                "a renew" => renewals += 1,
                // A connection over which nothing comes is given up.
                "connect http://a:1" => harness.machine.up(harness.now, harness.link),
                other => panic!("{other}"),
            }
        }
        renewals += harness.done().matches("renew").count();
        assert!(at < 15_000);
    }
    assert!((3..20).contains(&renewals), "{renewals} renewals");
    let (at, said) = harness.until_said();
    assert_eq!((at, said.as_str()), (30_000, "a lost: lapsed"));
    assert!(harness.machine.is_empty());
}

#[test]
fn jeopardy_counts_from_the_last_renewal_that_was_confirmed() {
    let (mut harness, _) = Harness::hold("a");
    let (sent, _) = harness.until_said();
    harness.answer(renewed());
    // From here on nothing is confirmed.
    loop {
        let (at, said) = harness.until_said();
        if said == "a jeopardy" {
            assert!((sent + 15_000).abs_diff(at) <= 1, "sent {sent}, stop {at}");
            return;
        }
        if said.contains("connect") {
            harness.up();
        }
    }
}

#[test]
fn a_failed_heartbeat_is_sent_again_soon() {
    let (mut harness, _) = Harness::hold("a");
    let (first, _) = harness.until_said();
    assert_eq!(harness.fail(Failure::Unknown), "");
    let (second, said) = harness.until_said();
    assert_eq!(said, "a renew");
    assert!(second - first <= 1000, "{first} {second}");
    assert_eq!(harness.answer(renewed()), "a renewed");
}

#[test]
fn a_refused_renewal_ends_the_lease_at_once() {
    for code in [Code::LeaseLost, Code::NotHolder, Code::SessionNotFound, Code::InvalidRequest] {
        let (mut harness, key) = Harness::hold("a");
        harness.until_said();
        assert_eq!(harness.refuse(code), format!("a lost: {code}"));
        assert!(harness.machine.window(key).is_none());
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
        let (mut harness, _) = Harness::hold("a");
        harness.until_said();
        assert_eq!(harness.refuse(code), "");
        let (at, said) = harness.until_said();
        assert_eq!(said, "a renew", "{code}");
        assert!(at < 15_000);
        assert_eq!(harness.answer(renewed()), "a renewed");
    }
}

#[test]
fn who_is_not_let_in_tries_again_until_the_work_must_stop() {
    for code in [Code::Unauthenticated, Code::PermissionDenied] {
        let (mut harness, key) = Harness::hold("a");
        harness.until_said();
        assert_eq!(harness.refuse(code), "");
        // Another token is in time.
        let (at, said) = harness.until_said();
        assert_eq!(said, "a renew", "{code}");
        assert!(at < 15_000);
        assert_eq!(harness.answer(renewed()), "a renewed");
        let confirmed = at;
        let mut told = Vec::new();
        while harness.machine.window(key).is_some() {
            let (at, said) = harness.until_said();
            if said == "a renew" {
                harness.refuse(code);
            } else {
                told.push((at - confirmed, said));
            }
        }
        assert_eq!(told, [(15_000, "a jeopardy".into()), (30_000, format!("a lost: {code}"))]);
    }
}

#[test]
fn a_denial_is_not_the_cause_of_what_lapses_later() {
    let (mut harness, _) = Harness::hold("a");
    harness.until_said();
    harness.refuse(Code::Unauthenticated);
    harness.until_said();
    harness.answer(renewed());
    loop {
        let (_, said) = harness.until_said();
        if said.contains("lost") {
            assert_eq!(said, "a lost: lapsed");
            return;
        }
    }
}

#[test]
fn who_slept_through_the_ttl_learns_it_before_anything_else() {
    let (mut harness, key) = Harness::hold("a");
    harness.until_said();
    // The answer lay in the socket while the machine slept.
    harness.now = Moment::from_millis(60_000);
    assert_eq!(harness.answer(renewed()), "a lost: lapsed");
    assert!(!harness.machine.release(harness.now, key));
}

#[test]
fn what_comes_after_jeopardy_does_not_start_the_work_again() {
    let (mut harness, _) = Harness::hold("a");
    harness.until_said();
    while harness.until_said().1 != "a jeopardy" {
        harness.up();
    }
    harness.up();
    if !harness.calls.is_empty() {
        assert_eq!(harness.answer(renewed()), "");
    }
    let (at, said) = harness.until_said();
    assert_eq!((at, said.as_str()), (30_000, "a lost: lapsed"));
}

#[test]
fn a_refusal_ends_a_lease_in_jeopardy_too() {
    let (mut harness, _) = Harness::hold("a");
    harness.until_said();
    let call = harness.calls[0].0;
    harness.at(15_000);
    harness.machine.answer(harness.now, call, Answer::Refused(Box::new(lost())));
    let said = harness.done();
    assert!(said.ends_with("a lost: lease_lost"), "{said}");
}

#[test]
fn an_answer_that_was_overtaken_does_not_shorten_the_lease() {
    let (mut harness, key) = Harness::hold("a");
    harness.until_said();
    harness.until_said();
    assert_eq!(harness.answer(renewed()), "a renewed");
    let window = harness.machine.window(key).unwrap();
    assert_eq!(harness.answer_oldest(renewed()), "");
    assert_eq!(harness.machine.window(key).unwrap(), window);
}

#[test]
fn a_grant_that_waited_long_is_confirmed_before_it_is_believed() {
    let mut harness = Harness::connected();
    let (key, said) = harness.acquire("a", Wait::Forever);
    assert_eq!(said, "a acquire Forever");
    harness.at(100_000);
    assert_eq!(harness.answer(granted()), "a renew");
    assert!(harness.machine.window(key).is_none());
    harness.at(100_200);
    assert_eq!(harness.answer(renewed()), "a granted");
    let window = harness.machine.window(key).unwrap();
    assert_eq!(window.since(), Moment::from_millis(100_000));
}

#[test]
fn a_grant_that_was_over_before_it_could_be_confirmed_is_asked_for_anew() {
    let mut harness = Harness::connected();
    harness.acquire("a", Wait::Forever);
    harness.at(100_000);
    harness.answer(granted());
    assert_eq!(harness.refuse(Code::LeaseLost), "a acquire Forever");
    assert_eq!(harness.answer(granted()), "a granted");
}

#[test]
fn a_replayed_grant_counts_from_what_is_left_of_it() {
    let mut harness = Harness::connected();
    harness.at(10_000);
    let (key, _) = harness.acquire("a", Wait::Never);
    harness.fail(Failure::Unknown);
    harness.until_said();
    let sent = harness.now;
    let left = TTL - Duration::from_secs(4);
    assert_eq!(harness.answer(Answer::Granted { ttl: TTL, left }), "a granted");
    let window = harness.machine.window(key).unwrap();
    assert_eq!(window.lapses_at(), sent.plus(left));
}
