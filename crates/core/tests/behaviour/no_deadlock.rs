//! No false alarms: waits that close no circle are let in.

use expect_test::expect;

use crate::script::check;

#[test]
fn try_is_never_a_deadlock() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s a acquire job/y wait
        2s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s a queued job/y at 1
            2s b refused held: job/x by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn released_lock_leaves_no_edge_behind() {
    check(
        "
        0s a acquire job/x shared
        0s c acquire job/x shared
        0s b acquire job/y
        1s a acquire job/y wait
        2s a release job/x
        3s b acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s c granted job/x fence=2 until 10s
            0s b granted job/y fence=3 until 10s
            1s a queued job/y at 1
            2s a released job/x held 2s
            3s b queued job/x at 1
        "#]],
    );
}

#[test]
fn cancelled_wait_leaves_no_edge_behind() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s a acquire job/y wait
        2s a cancel job/y
        3s b acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s a queued job/y at 1
            2s a cancelled
            3s b queued job/x at 1
        "#]],
    );
}

#[test]
fn wait_that_ran_out_leaves_no_edge_behind() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s a acquire job/y wait=1s
        3s b acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s a queued job/y at 1
            3s a refused held: job/y by b fence=2 since 0s until 10s, waited 2s
            3s b queued job/x at 1
        "#]],
    );
}

#[test]
fn kept_place_is_no_edge() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s a acquire job/y wait=1s keep
        3s b acquire job/x wait
        4s a acquire job/y wait ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s a queued job/y at 1
            3s a refused held: job/y by b fence=2 since 0s until 10s, waited 2s, place 1 kept
            3s b queued job/x at 1
            4s a refused deadlock: a -(job/y)-> b -(job/x)-> a
        "#]],
    );
}

#[test]
fn lapsed_lease_leaves_no_edge_behind() {
    check(
        "
        0s a acquire job/x shared ttl=2s
        0s c acquire job/x shared
        0s b acquire job/y
        1s a acquire job/y wait
        3s b acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 2s
            0s c granted job/x fence=2 until 10s
            0s b granted job/y fence=3 until 10s
            1s a queued job/y at 1
            3s a expired job/x shared fence=1
            3s b queued job/x at 1
        "#]],
    );
}

#[test]
fn circle_through_a_semaphore_with_another_holder_is_no_deadlock() {
    check(
        "
        0s a acquire pool permits=2
        0s c acquire pool permits=2
        0s b acquire job/y
        1s a acquire job/y wait
        2s b acquire pool permits=2 wait
        3s c release pool
        4s b release job/y
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s c granted pool fence=2 until 10s
            0s b granted job/y fence=3 until 10s
            1s a queued job/y at 1
            2s b queued pool at 1
            3s c released pool held 3s
            3s b granted pool fence=4 until 13s waited 1s
            4s b released job/y held 4s
            4s a granted job/y fence=5 until 14s waited 3s
        "#]],
    );
}

#[test]
fn owner_of_one_permit_may_wait_for_another() {
    check(
        "
        0s a acquire pool permits=2
        0s b acquire pool permits=2
        1s a acquire pool permits=2 wait
        2s b release pool
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s b granted pool fence=2 until 10s
            1s a queued pool at 1
            2s b released pool held 2s
            2s a granted pool fence=3 until 12s waited 1s
        "#]],
    );
}

#[test]
fn permit_that_comes_free_by_itself_is_no_deadlock() {
    check(
        "
        0s a acquire pool permits=1 ttl=5s window=60s
        0s b acquire job/y ttl=60s
        6s a acquire job/y wait
        7s b acquire pool permits=1 wait
        65.001s tick
        ",
        expect![[r#"
            0s a granted pool fence=1 until 5s
            0s b granted job/y fence=2 until 60s
            6s a expired pool permits=1 fence=1, reclaim window 60s
            6s a queued job/y at 1
            7s b queued pool at 1
            65.001s b expired job/y fence=2
            65.001s a granted job/y fence=3 until 75.001s waited 59.001s
            65.001s a window_over pool permits=1 fence=1
            65.001s b granted pool fence=4 until 75.001s waited 58.001s
        "#]],
    );
}

#[test]
fn reclaim_window_is_no_edge() {
    check(
        "
        0s a acquire job/x ttl=5s window=10s
        0s b acquire job/y ttl=60s
        6s a acquire job/y wait
        7s b acquire job/x wait
        15.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 5s
            0s b granted job/y fence=2 until 60s
            6s a expired job/x fence=1, reclaim window 10s
            6s a queued job/y at 1
            7s b queued job/x at 1
            15.001s a window_over job/x fence=1
            15.001s b granted job/x fence=3 until 25.001s waited 8.001s
        "#]],
    );
}

#[test]
fn graph_is_of_one_namespace() {
    check(
        "
        0s a acquire job/x in=red
        0s b acquire job/x in=blue
        1s a acquire job/x in=blue wait
        2s b acquire job/x in=red wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 10s
            1s a queued job/x at 1
            2s b queued job/x at 1
        "#]],
    );
}

#[test]
fn owners_that_merely_wait_in_a_row_are_no_deadlock() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        2s c acquire job/x wait
        3s b acquire job/y
        4s c acquire job/z
        5s graph
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s c queued job/x at 2
            3s b granted job/y fence=2 until 13s
            4s c granted job/z fence=3 until 14s
            5s graph holds a job/x fence=1 since 0s until 10s
            5s graph b -(job/x)-> a waited 4s
            5s graph c -(job/x)-> a, b waited 3s
        "#]],
    );
}

#[test]
fn graph_shows_who_waits_for_whom() {
    check(
        "
        0s a acquire job/x shared
        0s b acquire job/x shared
        0s c acquire job/y
        1s d acquire {job/x, job/y} wait
        2s e acquire job/x shared wait
        3s graph
        3s graph len=1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 10s
            0s c granted job/y fence=3 until 10s
            1s d queued {job/x, job/y} at 1
            2s e queued job/x at 2
            3s graph holds a job/x shared fence=1 since 0s until 10s
            3s graph holds b job/x shared fence=2 since 0s until 10s
            3s graph holds c job/y fence=3 since 0s until 10s
            3s graph d -(job/x)-> a, b waited 2s
            3s graph d -(job/y)-> c waited 2s
            3s graph e -(job/x shared)-> d waited 1s
            3s graph holds a job/x shared fence=1 since 0s until 10s
            3s graph holds b job/x shared fence=2 since 0s until 10s
            3s graph d -(job/x)-> a, b waited 2s
        "#]],
    );
}
