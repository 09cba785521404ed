//! Modes: exclusive, shared, and up to so many holders at once.

use expect_test::expect;

use crate::script::check;

#[test]
fn mode_is_exclusive_by_default() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/x shared
        0s c acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused held: job/x by a fence=1 since 0s until 10s
            0s c refused held: job/x by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn shared_locks_go_together() {
    check(
        "
        0s a acquire job/x shared
        0s b acquire job/x shared
        0s c acquire job/x
        0s a release job/x
        0s c acquire job/x
        0s b release job/x
        0s c acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 10s
            0s c refused held: job/x by a shared fence=1 since 0s until 10s and b shared fence=2 since 0s until 10s
            0s a released job/x held 0s
            0s c refused held: job/x by b shared fence=2 since 0s until 10s
            0s b released job/x held 0s
            0s c granted job/x fence=3 until 10s
        "#]],
    );
}

#[test]
fn owner_conflicts_with_itself_on_a_name() {
    check(
        "
        0s a acquire job/x
        0s a acquire job/x
        0s a acquire job/y shared
        0s a acquire job/y shared
        0s a acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a refused held: job/x by a fence=1 since 0s until 10s
            0s a granted job/y fence=2 until 10s
            0s a granted job/y fence=3 until 10s
            0s a refused held: job/y by a shared fence=2 since 0s until 10s and a shared fence=3 since 0s until 10s
        "#]],
    );
}

#[test]
fn semaphore_has_as_many_holders_as_its_limit() {
    check(
        "
        0s a acquire pool permits=2
        0s b acquire pool permits=2
        0s c acquire pool permits=2
        0s a release pool
        0s c acquire pool permits=2
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s b granted pool fence=2 until 10s
            0s c refused held: pool by a permits=2 fence=1 since 0s until 10s and b permits=2 fence=2 since 0s until 10s
            0s a released pool held 0s
            0s c granted pool fence=3 until 10s
        "#]],
    );
}

#[test]
fn one_owner_may_have_several_permits() {
    check(
        "
        0s a acquire pool permits=2 as=one
        0s a acquire pool permits=2 as=two
        0s a acquire pool permits=2
        0s a release pool grant=one
        0s b acquire pool permits=2
        0s a release pool grant=two
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s a granted pool fence=2 until 10s
            0s a refused held: pool by a permits=2 fence=1 since 0s until 10s and a permits=2 fence=2 since 0s until 10s
            0s a released pool held 0s
            0s b granted pool fence=3 until 10s
            0s a released pool held 0s
        "#]],
    );
}

#[test]
fn contenders_of_a_semaphore_ask_with_the_same_limit() {
    check(
        "
        0s a acquire pool permits=2
        0s b acquire pool permits=3
        0s b acquire pool
        0s b acquire pool shared
        0s a release pool
        0s b acquire pool permits=3
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s b refused limit_mismatch: pool is permits(2), not permits(3)
            0s b refused limit_mismatch: pool is permits(2), not exclusive
            0s b refused limit_mismatch: pool is permits(2), not shared
            0s a released pool held 0s
            0s b granted pool fence=2 until 10s
        "#]],
    );
}

#[test]
fn plain_lock_is_no_semaphore() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/x permits=1
        0s a release job/x
        0s a acquire job/x shared
        0s b acquire job/x permits=1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused limit_mismatch: job/x is exclusive, not permits(1)
            0s a released job/x held 0s
            0s a granted job/x fence=2 until 10s
            0s b refused limit_mismatch: job/x is shared, not permits(1)
        "#]],
    );
}

#[test]
fn limit_counts_for_those_who_wait_too() {
    check(
        "
        0s z acquire path:/a/**
        0s a acquire path:/a/pool permits=2 wait
        0s b acquire path:/a/pool permits=3 wait
        0s c acquire path:/a/pool
        ",
        expect![[r#"
            0s z granted path:/a/** fence=1 until 10s
            0s a queued path:/a/pool at 1
            0s b refused limit_mismatch: path:/a/pool is permits(2), not permits(3)
            0s c refused limit_mismatch: path:/a/pool is permits(2), not exclusive
        "#]],
    );
}

#[test]
fn permits_on_a_path_keep_the_subtree_above_out() {
    check(
        "
        0s a acquire path:/srv/pool permits=2
        0s b acquire path:/srv/** shared
        0s c acquire path:/srv/pool permits=2
        0s d acquire path:/srv/pool/** permits=2
        ",
        expect![[r#"
            0s a granted path:/srv/pool fence=1 until 10s
            0s b refused held: path:/srv/** by a path:/srv/pool permits=2 fence=1 since 0s until 10s
            0s c granted path:/srv/pool fence=2 until 10s
            0s d refused held: path:/srv/pool/** by a path:/srv/pool permits=2 fence=1 since 0s until 10s and c path:/srv/pool permits=2 fence=2 since 0s until 10s
        "#]],
    );
}

#[test]
fn waiting_subtree_stops_further_permits() {
    check(
        "
        0s a acquire path:/p permits=2
        0s b acquire path:/p permits=2
        1s c acquire path:/** wait
        2s d acquire path:/p permits=2 wait
        3s a release path:/p
        4s b release path:/p
        5s c release path:/**
        ",
        expect![[r#"
            0s a granted path:/p fence=1 until 10s
            0s b granted path:/p fence=2 until 10s
            1s c queued path:/** at 1
            2s d queued path:/p at 1
            3s a released path:/p held 3s
            4s b released path:/p held 4s
            4s c granted path:/** fence=3 until 14s waited 3s
            5s c released path:/** held 1s
            5s d granted path:/p fence=4 until 15s waited 3s
        "#]],
    );
}
