//! Waiting: who is next, and who is told.

use expect_test::expect;

use crate::script::{check, transcript_of_many};

#[test]
fn wait_for_a_time_is_granted_when_it_comes_free() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait=5s
        3s a release job/x
        9s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            3s a released job/x held 3s
            3s b granted job/x fence=2 until 13s waited 2s
            9s get job/x: held by b fence=2 since 3s until 13s
        "#]],
    );
}

#[test]
fn wait_of_no_length_ends_with_its_moment() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait=0s
        1.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            1.001s b refused held: job/x by a fence=1 since 0s until 10s, waited 0.001s
        "#]],
    );
}

#[test]
fn waiting_until_the_caller_goes_has_no_end() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s b acquire job/x wait
        10s keepalive s ttl=24h
        23h tick
        23h close s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s b queued job/x at 1
            10s s renewed until 86410s
            10s a has ttl 86400s
            82800s s closed grants=1
            82800s a closed job/x fence=1
            82800s b granted job/x fence=2 until 82810s waited 82800s
        "#]],
    );
}

#[test]
fn grant_on_the_last_moment_of_the_wait_is_made() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s
        6s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            6s a released job/x held 6s
            6s b granted job/x fence=2 until 16s waited 5s
        "#]],
    );
}

#[test]
fn wait_that_is_over_is_not_granted_what_comes_free_in_the_same_step() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s
        1s c acquire job/x wait
        7s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            1s c queued job/x at 2
            7s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 6s
            7s a released job/x held 7s
            7s c granted job/x fence=2 until 17s waited 6s
        "#]],
    );
}

#[test]
fn lease_that_lapses_after_the_wait_does_not_serve_it() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s b acquire job/x wait=5s
        20s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            20s b refused held: job/x by a fence=1 since 0s until 10s, waited 19s
            20s a expired job/x fence=1
        "#]],
    );
}

#[test]
fn first_come_first_served() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        2s c acquire job/x wait
        3s d acquire job/x wait
        4s a release job/x
        5s b release job/x
        6s c release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s c queued job/x at 2
            3s d queued job/x at 3
            4s a released job/x held 4s
            4s b granted job/x fence=2 until 14s waited 3s
            5s b released job/x held 1s
            5s c granted job/x fence=3 until 15s waited 3s
            6s c released job/x held 1s
            6s d granted job/x fence=4 until 16s waited 3s
        "#]],
    );
}

#[test]
fn shared_request_behind_an_exclusive_waiter_waits_too() {
    check(
        "
        0s a acquire job/x shared
        1s b acquire job/x wait
        2s c acquire job/x shared
        2s c acquire job/x shared wait
        3s a release job/x
        4s b release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s c refused held: job/x without a holder, 1 waiting
            2s c queued job/x at 2
            3s a released job/x held 3s
            3s b granted job/x fence=2 until 13s waited 2s
            4s b released job/x held 1s
            4s c granted job/x fence=3 until 14s waited 2s
        "#]],
    );
}

#[test]
fn readers_that_come_all_the_time_do_not_starve_a_writer() {
    check(
        "
        0s r1 acquire job/x shared
        1s w acquire job/x wait
        2s r2 acquire job/x shared wait
        3s r3 acquire job/x shared wait
        4s r1 release job/x
        5s w release job/x
        ",
        expect![[r#"
            0s r1 granted job/x fence=1 until 10s
            1s w queued job/x at 1
            2s r2 queued job/x at 2
            3s r3 queued job/x at 3
            4s r1 released job/x held 4s
            4s w granted job/x fence=2 until 14s waited 3s
            5s w released job/x held 1s
            5s r2 granted job/x fence=3 until 15s waited 3s
            5s r3 granted job/x fence=4 until 15s waited 2s
        "#]],
    );
}

#[test]
fn waiter_in_nobodys_way_is_granted_whatever_else_is_queued() {
    check(
        "
        0s a acquire path:/srv/a
        0s b acquire path:/srv/a wait
        0s c acquire path:/srv/b wait
        0s d acquire path:/srv/** wait
        0s e acquire path:/srv/c
        0s f acquire path:/etc/**
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            0s b queued path:/srv/a at 1
            0s c granted path:/srv/b fence=2 until 10s
            0s d queued path:/srv/** at 1
            0s e refused held: path:/srv/c without a holder
            0s f granted path:/etc/** fence=3 until 10s
        "#]],
    );
}

#[test]
fn subtree_waiter_keeps_later_paths_below_it_out() {
    check(
        "
        0s a acquire path:/srv/a
        1s b acquire path:/srv/** wait
        2s c acquire path:/srv/c wait
        3s a release path:/srv/a
        4s b release path:/srv/**
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            1s b queued path:/srv/** at 1
            2s c queued path:/srv/c at 1
            3s a released path:/srv/a held 3s
            3s b granted path:/srv/** fence=2 until 13s waited 2s
            4s b released path:/srv/** held 1s
            4s c granted path:/srv/c fence=3 until 14s waited 2s
        "#]],
    );
}

#[test]
fn release_wakes_exactly_those_that_can_be_granted() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x shared wait
        1s c acquire job/x shared wait
        1s d acquire job/x wait
        1s e acquire job/x shared wait
        2s a release job/x
        3s b release job/x
        4s c release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            1s c queued job/x at 2
            1s d queued job/x at 3
            1s e queued job/x at 4
            2s a released job/x held 2s
            2s b granted job/x fence=2 until 12s waited 1s
            2s c granted job/x fence=3 until 12s waited 1s
            3s b released job/x held 1s
            4s c released job/x held 2s
            4s d granted job/x fence=4 until 14s waited 3s
        "#]],
    );
}

#[test]
fn release_of_a_subtree_wakes_waiters_on_the_paths_below_it() {
    check(
        "
        0s a acquire path:/srv/**
        1s b acquire path:/srv/x wait
        1s c acquire path:/srv/y/** wait
        1s d acquire path:/srv wait
        2s a release path:/srv/**
        ",
        expect![[r#"
            0s a granted path:/srv/** fence=1 until 10s
            1s b queued path:/srv/x at 1
            1s c queued path:/srv/y/** at 1
            1s d queued path:/srv at 1
            2s a released path:/srv/** held 2s
            2s b granted path:/srv/x fence=2 until 12s waited 1s
            2s c granted path:/srv/y/** fence=3 until 12s waited 1s
            2s d granted path:/srv fence=4 until 12s waited 1s
        "#]],
    );
}

#[test]
fn one_of_ten_thousand_waiters_is_woken() {
    let waiters: String =
        (0..10_000).map(|number| format!("1s w{number} acquire job/x wait\n")).collect();
    let transcript =
        transcript_of_many(&format!("0s a acquire job/x\n{waiters} 2s a release job/x"));
    let after_release: Vec<&str> = transcript.lines().skip(10_001).collect();
    assert_eq!(
        after_release,
        ["2s a released job/x held 2s", "2s w0 granted job/x fence=2 until 12s waited 1s"]
    );
}

#[test]
fn permit_that_comes_free_wakes_one_waiter() {
    check(
        "
        0s a acquire pool permits=2
        0s b acquire pool permits=2
        1s c acquire pool permits=2 wait
        1s d acquire pool permits=2 wait
        2s a release pool
        3s b release pool
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s b granted pool fence=2 until 10s
            1s c queued pool at 1
            1s d queued pool at 2
            2s a released pool held 2s
            2s c granted pool fence=3 until 12s waited 1s
            3s b released pool held 3s
            3s d granted pool fence=4 until 13s waited 2s
        "#]],
    );
}

#[test]
fn semaphore_request_does_not_overtake_those_who_wait_for_permits() {
    check(
        "
        0s a acquire pool permits=1
        1s b acquire pool permits=1 wait
        2s c acquire pool permits=1
        2s a release pool
        2s c acquire pool permits=1
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            1s b queued pool at 1
            2s c refused held: pool by a permits=1 fence=1 since 0s until 10s, 1 waiting
            2s a released pool held 2s
            2s b granted pool fence=2 until 12s waited 1s
            2s c refused held: pool by b permits=1 fence=2 since 2s until 12s
        "#]],
    );
}

#[test]
fn granted_waiter_has_its_full_ttl_from_the_grant() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait ttl=10s
        30s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            30s a released job/x held 30s
            30s b granted job/x fence=2 until 40s waited 29s
        "#]],
    );
}

#[test]
fn waiter_under_a_session_is_granted_under_it() {
    check(
        "
        0s a acquire job/x
        0s b open s ttl=20s
        1s b acquire job/x session=s wait
        2s a release job/x
        2s session s
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s s opened until 20s
            1s b queued job/x at 1
            2s a released job/x held 2s
            2s b granted job/x fence=2 until 20s waited 1s
            2s session s of b by http ttl 20s until 20s grants=1 waiters=0
        "#]],
    );
}

#[test]
fn namespaces_wait_apart() {
    check(
        "
        0s a acquire job/x in=red
        0s b acquire job/x in=red wait
        0s c acquire job/x in=blue
        0s get job/x in=blue
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b queued job/x at 1
            0s c granted job/x fence=2 until 10s
            0s get job/x: held by c fence=2 since 0s until 10s
        "#]],
    );
}

#[test]
fn waits_that_run_out_together_do_so_by_place() {
    check(
        "
        0s a acquire job/x in=red ttl=60s
        0s a acquire job/x in=blue ttl=60s
        1s b acquire job/x in=red wait=5s
        1s c acquire job/x in=blue wait=5s
        1s d acquire job/x in=red wait=5s
        1s e acquire job/x in=blue wait=4s
        9s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            0s a granted job/x fence=2 until 60s
            1s b queued job/x at 1
            1s c queued job/x at 1
            1s d queued job/x at 2
            1s e queued job/x at 2
            9s e refused held: job/x by a fence=2 since 0s until 60s, 1 waiting, waited 8s
            9s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 8s
            9s c refused held: job/x by a fence=2 since 0s until 60s, waited 8s
            9s d refused held: job/x by a fence=1 since 0s until 60s, waited 8s
        "#]],
    );
}
