//! Recovery grace: after a restart those who held something may come back, and nobody else may conflict.

use expect_test::expect;

use crate::script::check;

#[test]
fn grant_that_is_not_reclaimed_lapses_as_grace_expired() {
    check(
        "
        0s a acquire job/x ttl=10s
        5s epoch conflicting grace=30s
        15s get job/x
        15.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s epoch 1 begun recovering=1
            15s get job/x: recovering by a fence=1 since 0s until 15s recovering
            15.001s a grace_expired job/x fence=1
            15.001s grace over
        "#]],
    );
}

#[test]
fn no_grace_cuts_a_lease_short() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch conflicting grace=5s
        6.001s tick
        7s b acquire job/x
        31s a renew job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            6.001s grace over
            7s b refused held: job/x by a fence=1 since 0s until 31s
            31s a renewed job/x until 61s
        "#]],
    );
}

#[test]
fn grant_recovering_after_the_grace_lapses_as_grace_expired() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch conflicting grace=5s
        6.001s get job/x
        31.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            6.001s grace over
            6.001s get job/x: held by a fence=1 since 0s until 31s
            31.001s a grace_expired job/x fence=1
        "#]],
    );
}

#[test]
fn grace_is_over_when_everybody_has_come_back() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b open s ttl=10s
        1s epoch conflicting grace=30s
        2s grace
        2s a renew job/x
        2s grace
        3s keepalive s
        3s grace
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s s opened until 10s
            1s epoch 1 begun recovering=2
            2s grace conflicting until 31s expected=2
            2s a renewed job/x until 12s
            2s grace conflicting until 31s expected=1
            3s s renewed until 13s
            3s grace over
            3s no grace
        "#]],
    );
}

#[test]
fn grace_is_over_when_the_last_one_expected_has_lapsed() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b acquire job/y ttl=20s
        1s epoch conflicting grace=60s
        2s a renew job/x
        21.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 20s
            1s epoch 1 begun recovering=2
            2s a renewed job/x until 12s
            21.001s a expired job/x fence=1
            21.001s b grace_expired job/y fence=2
            21.001s grace over
        "#]],
    );
}

#[test]
fn grace_is_over_when_the_last_one_expected_gives_up_its_grant() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b open s ttl=20s
        0s c acquire job/z ttl=20s
        1s epoch conflicting grace=60s
        2s a release job/x
        2s close s
        2s break job/z
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s s opened until 20s
            0s c granted job/z fence=2 until 20s
            1s epoch 1 begun recovering=3
            2s a released job/x held 2s
            2s s closed grants=0
            2s break job/z grants=1
            2s c revoked job/z fence=2
            2s grace over
        "#]],
    );
}

#[test]
fn grace_is_over_at_the_latest_when_its_timer_ends() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=30s
        31s grace
        31.001s grace
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            31s grace conflicting until 31s expected=1
            31.001s grace over
            31.001s no grace
        "#]],
    );
}

#[test]
fn grant_still_recovering_after_the_grace_is_simply_a_grant() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=30s
        30s b acquire job/x
        32s b acquire job/x
        33s a renew job/x
        33s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            30s b refused held: job/x by a fence=1 since 0s until 61s recovering
            32s grace over
            32s b refused held: job/x by a fence=1 since 0s until 61s
            33s a renewed job/x until 93s
            33s a released job/x held 33s
        "#]],
    );
}

#[test]
fn without_anything_stored_there_is_no_conflicting_grace() {
    check(
        "0s epoch conflicting grace=30s | 0s grace | 0s a acquire job/x",
        expect![[r#"
            0s epoch 1 begun recovering=0
            0s no grace
            0s a granted job/x fence=1 until 10s
        "#]],
    );
}

#[test]
fn conflicting_grace_refuses_only_what_conflicts_with_a_recovering_grant() {
    check(
        "
        0s a acquire job/x ttl=30s
        0s a acquire inode:1@0..10 ttl=30s
        0s c acquire job/s shared ttl=30s
        1s epoch conflicting grace=20s
        2s b acquire job/x
        2s b acquire inode:1@5..6 shared
        2s b acquire inode:1@10..20
        2s b acquire job/s shared
        2s b acquire job/y
        3s b acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            0s a granted inode:1@0..10 fence=2 until 30s
            0s c granted job/s fence=3 until 30s
            1s epoch 1 begun recovering=3
            2s b refused held: job/x by a fence=1 since 0s until 31s recovering
            2s b refused held: inode:1@5..6 by a inode:1@0..10 fence=2 since 0s until 31s recovering
            2s b granted inode:1@10..20 fence=4 until 12s
            2s b granted job/s fence=5 until 12s
            2s b granted job/y fence=6 until 12s
            3s b refused held: job/y by b fence=6 since 2s until 12s
        "#]],
    );
}

#[test]
fn owner_of_a_recovering_grant_is_refused_like_anybody_unless_it_reclaims() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch conflicting grace=20s
        2s a acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s a refused held: job/x by a fence=1 since 0s until 31s recovering
        "#]],
    );
}

#[test]
fn waiting_for_a_recovering_grant_is_possible() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s epoch conflicting grace=60s
        2s b acquire job/x wait
        11.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s epoch 1 begun recovering=1
            2s b queued job/x at 1
            11.001s a grace_expired job/x fence=1
            11.001s b granted job/x fence=2 until 21.001s waited 9.001s
            11.001s grace over
        "#]],
    );
}

#[test]
fn wait_that_runs_out_in_the_grace_is_told_who_holds_it() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=30s
        2s b acquire job/x wait=5s
        7.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            2s b queued job/x at 1
            7.001s b refused held: job/x by a fence=1 since 0s until 61s recovering, waited 5.001s
        "#]],
    );
}

#[test]
fn those_who_waited_are_forgotten() {
    check(
        "
        0s a acquire job/x ttl=30s
        0s b acquire job/x wait
        1s epoch conflicting
        1s get job/x
        2s b cancel job/x
        2s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            0s b queued job/x at 1
            1s epoch 1 begun recovering=1
            1s get job/x: recovering by a fence=1 since 0s until 31s recovering
            2s b cancelled nothing
            2s a released job/x held 2s
            2s grace over
        "#]],
    );
}

#[test]
fn get_and_test_work_in_a_conflicting_grace() {
    check(
        "
        0s a acquire inode:1@0..10 ttl=30s
        1s epoch conflicting
        2s b test inode:1@5..6
        2s b test inode:1@10..20
        2s get inode:1
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s b test inode:1@5..6: held by a inode:1@0..10 fence=1 since 0s until 31s recovering
            2s b test inode:1@10..20: free
            2s get inode:1: recovering by a inode:1@0..10 fence=1 since 0s until 31s recovering
        "#]],
    );
}

#[test]
fn grace_that_is_over_serves_nobody_who_still_conflicts() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=5s
        2s b acquire job/x wait
        6.001s tick
        7s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            2s b queued job/x at 1
            6.001s grace over
            7s a released job/x held 7s
            7s b granted job/x fence=2 until 17s waited 5s
        "#]],
    );
}

#[test]
fn set_is_refused_for_what_is_recovering_as_for_what_is_held() {
    check(
        "
        0s a acquire job/x ttl=60s
        0s c acquire job/y ttl=60s
        1s epoch conflicting grace=30s
        2s a renew job/x
        3s b acquire {job/x, job/y}
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            0s c granted job/y fence=2 until 60s
            1s epoch 1 begun recovering=2
            2s a renewed job/x until 62s
            3s b refused held: job/x by a fence=1 since 0s until 62s
        "#]],
    );
}
