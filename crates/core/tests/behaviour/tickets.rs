//! Places in the queue that are kept for a caller that means to come back.

use expect_test::expect;

use crate::script::check;

#[test]
fn place_is_kept_when_the_wait_runs_out() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        2s c acquire job/x wait
        6.001s tick
        8s b acquire job/x wait=5s keep ticket
        9s get job/x
        10s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 5.001s, place 1 kept
            8s b queued job/x at 1
            9s get job/x: held by a fence=1 since 0s until 60s; b waits since 1s until 13s; c waits since 2s
            10s a released job/x held 10s
            10s b granted job/x fence=2 until 20s waited 9s
        "#]],
    );
}

#[test]
fn wait_counts_from_the_first_arrival() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        6.001s tick
        8s b acquire job/x wait=5s keep ticket
        14s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, waited 5.001s, place 1 kept
            8s b queued job/x at 1
            14s b refused held: job/x by a fence=1 since 0s until 60s, waited 13s, place 1 kept
        "#]],
    );
}

#[test]
fn kept_place_is_in_nobodys_way() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        2s c acquire job/x wait
        7s a release job/x
        8s b acquire job/x wait=5s keep ticket
        9s c release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            7s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 6s, place 1 kept
            7s a released job/x held 7s
            7s c granted job/x fence=2 until 17s waited 5s
            8s b queued job/x at 1
            9s c released job/x held 2s
            9s b granted job/x fence=3 until 19s waited 8s
        "#]],
    );
}

#[test]
fn scope_that_is_free_when_the_caller_comes_back_is_granted_at_once() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        7s a release job/x
        8s b acquire job/x wait=5s keep ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            7s b refused held: job/x by a fence=1 since 0s until 60s, waited 6s, place 1 kept
            7s a released job/x held 7s
            8s b granted job/x fence=2 until 18s waited 7s
        "#]],
    );
}

#[test]
fn place_is_kept_for_ten_seconds() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        6.001s tick
        16.001s b acquire job/x wait=5s keep ticket
        21.002s tick
        31.003s b acquire job/x wait=5s keep ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, waited 5.001s, place 1 kept
            16.001s b queued job/x at 1
            21.002s b refused held: job/x by a fence=1 since 0s until 60s, waited 20.002s, place 1 kept
            31.003s b refused ticket_not_found
        "#]],
    );
}

#[test]
fn place_is_kept_for_the_same_owner_only() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        7s c acquire job/x wait ticket=1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            7s b refused held: job/x by a fence=1 since 0s until 60s, waited 6s, place 1 kept
            7s c refused ticket_not_found
        "#]],
    );
}

#[test]
fn place_is_kept_for_the_same_request_only() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        6.001s tick
        7s b acquire job/x shared wait ticket
        7s b acquire job/x ttl=20s wait ticket
        7s b acquire job/x wait ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, waited 5.001s, place 1 kept
            7s b refused ticket_not_found
            7s b refused ticket_not_found
            7s b queued job/x at 1
        "#]],
    );
}

#[test]
fn ticket_that_never_was_is_refused() {
    check(
        "0s a acquire job/x wait ticket=7",
        expect![[r#"
        0s a refused ticket_not_found
    "#]],
    );
}

#[test]
fn caller_may_notice_before_the_server_that_its_connection_broke() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait call=first
        2s c acquire job/x wait
        3s b acquire job/x wait ticket call=second
        4s b break-off call=first
        5s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b (first) queued job/x at 1
            2s c queued job/x at 2
            3s b (second) queued job/x at 1
            3s b (first) refused ticket_not_found
            4s b (first) cancelled nothing
            5s a released job/x held 5s
            5s b (second) granted job/x fence=2 until 15s waited 4s
        "#]],
    );
}

#[test]
fn number_of_a_place_is_not_enough_to_take_it() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait call=first
        2s b acquire job/x wait ticket=1
        3s b break-off call=first
        4s b acquire job/x wait ticket=1
        5s b acquire job/x wait ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b (first) queued job/x at 1
            2s b refused ticket_not_found
            3s b (first) cancelled
            4s b refused ticket_not_found
            5s b queued job/x at 1
        "#]],
    );
}

#[test]
fn place_is_kept_when_the_connection_breaks() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait
        2s c acquire job/x wait
        3s b break-off job/x
        4s b acquire job/x wait ticket
        5s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            3s b cancelled
            4s b queued job/x at 1
            5s a released job/x held 5s
            5s b granted job/x fence=2 until 15s waited 4s
        "#]],
    );
}

#[test]
fn request_id_leads_back_to_the_place_when_no_ticket_was_heard() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x id=r1 wait
        2s c acquire job/x wait
        3s b break-off job/x
        4s b acquire job/x id=r1 wait
        5s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            3s b cancelled
            4s b queued job/x at 1
            5s a released job/x held 5s
            5s b granted job/x fence=2 until 15s waited 4s
        "#]],
    );
}

#[test]
fn other_request_under_the_same_id_does_not_take_the_place() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x id=r1 wait
        2s c acquire job/x wait
        3s b break-off job/x
        4s b acquire job/x id=r1 ttl=20s wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            3s b cancelled
            4s b queued job/x at 2
        "#]],
    );
}

#[test]
fn those_behind_a_broken_connection_are_served_at_once() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait
        2s c acquire job/x wait
        3s b break-off job/x
        4s a release job/x
        5s b acquire job/x wait ticket
        6s c release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            3s b cancelled
            4s a released job/x held 4s
            4s c granted job/x fence=2 until 14s waited 2s
            5s b queued job/x at 1
            6s c released job/x held 2s
            6s b granted job/x fence=3 until 16s waited 5s
        "#]],
    );
}

#[test]
fn kept_place_is_no_waiter() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=1s keep
        2.001s stats
        3s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2.001s b refused held: job/x by a fence=1 since 0s until 60s, waited 1.001s, place 1 kept
            2.001s stats epoch=0 fence=1 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=0
            3s get job/x: held by a fence=1 since 0s until 60s
        "#]],
    );
}

#[test]
fn try_with_a_ticket_keeps_the_place() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        2s c acquire job/x wait
        6.001s tick
        7s b acquire job/x ticket
        8s b acquire job/x wait ticket
        9s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 5.001s, place 1 kept
            7s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 6s, place 1 kept
            8s b queued job/x at 1
            9s a released job/x held 9s
            9s b granted job/x fence=2 until 19s waited 8s
        "#]],
    );
}

#[test]
fn cancelled_request_has_no_place_any_more() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s keep
        2s c acquire job/x wait
        6.001s tick
        7s b acquire job/x wait ticket
        8s b cancel job/x
        9s b acquire job/x wait ticket
        10s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 5.001s, place 1 kept
            7s b queued job/x at 1
            8s b cancelled
            9s b refused ticket_not_found
            10s a released job/x held 10s
            10s c granted job/x fence=2 until 20s waited 8s
        "#]],
    );
}

#[test]
fn wait_without_keeping_forgets_the_place() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s
        6.001s tick
        7s b acquire job/x wait ticket=1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, waited 5.001s
            7s b refused ticket_not_found
        "#]],
    );
}

#[test]
fn place_of_a_set_is_kept_in_every_queue() {
    check(
        "
        0s a acquire job/x ttl=60s
        0s a acquire job/y ttl=60s
        1s b acquire {job/x, job/y} wait=5s keep
        2s c acquire job/x wait
        2s d acquire job/y wait
        6.001s tick
        7s b acquire {job/x, job/y} wait ticket
        8s a release job/x
        9s a release job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            0s a granted job/y fence=2 until 60s
            1s b queued {job/x, job/y} at 1
            2s c queued job/x at 2
            2s d queued job/y at 2
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 5.001s, place 1 kept
            7s b queued {job/x, job/y} at 1
            8s a released job/x held 8s
            9s a released job/y held 9s
            9s b granted {job/x, job/y} fence=3 until 19s waited 8s
        "#]],
    );
}

#[test]
fn place_is_kept_when_the_stream_of_a_kept_session_breaks() {
    check(
        "
        0s a acquire job/x ttl=60s
        0s b open s ttl=60s keep=60s
        0s attach s
        1s b acquire job/x session=s wait=5s keep
        6.001s tick
        7s disconnect s
        8s attach s
        8s b acquire job/x session=s wait ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            0s s opened until 60s
            0s s renewed until 60s
            1s b queued job/x at 1
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, waited 5.001s, place 1 kept
            7s s disconnected, kept until 67s
            8s s renewed until 68s
            8s b queued job/x at 1
        "#]],
    );
}
