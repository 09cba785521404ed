//! The strict recovery grace, for a store that forgets: every new grant is refused until it is over.

use expect_test::expect;

use crate::script::check;

#[test]
fn strict_grace_refuses_every_new_grant() {
    check(
        "
        0s epoch strict grace=30s
        0s a acquire job/x
        1s a acquire inode:1@0..10 shared
        30s a acquire job/x
        30.001s a acquire job/x
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            0s a refused grace_period: 30s more
            1s a refused grace_period: 29s more
            30s a refused grace_period: 0s more
            30.001s grace over
            30.001s a granted job/x fence=1 until 40.001s
        "#]],
    );
}

#[test]
fn strict_grace_is_on_though_nothing_is_known() {
    check(
        "0s epoch strict grace=30s | 0s grace | 31s grace",
        expect![[r#"
            0s epoch 1 begun recovering=0
            0s grace strict until 30s expected=0
            31s grace over
            31s no grace
        "#]],
    );
}

#[test]
fn reclaim_that_conflicts_with_nothing_is_accepted() {
    check(
        "
        0s epoch strict grace=30s
        1s a acquire job/x reclaim
        1s b acquire job/x reclaim
        1s b acquire job/x reclaim wait
        1s b acquire {job/x, job/y} reclaim
        2s b acquire job/y reclaim
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s a granted job/x fence=1 until 11s
            1s b refused held: job/x by a fence=1 since 1s until 11s
            1s b refused held: job/x by a fence=1 since 1s until 11s
            1s b refused held: job/x by a fence=1 since 1s until 11s
            2s b granted job/y fence=2 until 12s
        "#]],
    );
}

#[test]
fn reclaim_under_a_session_is_accepted() {
    check(
        "
        0s epoch strict grace=30s
        1s a open s
        1s a acquire job/x reclaim session=s
        1s a acquire inode:1@0..10 reclaim session=s
        2s a acquire inode:1@10..20 session=s
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s s opened until 11s
            1s a granted job/x fence=1 until 11s
            1s a granted inode:1@0..10 fence=2 until 11s
            2s a refused grace_period: 28s more
        "#]],
    );
}

#[test]
fn waiters_are_served_when_the_strict_grace_is_over() {
    check(
        "
        0s epoch strict grace=30s
        1s a acquire job/x wait
        2s b acquire job/x wait
        3s c acquire job/y wait=5s
        4s d acquire inode:1@0..10 wait
        8.001s tick
        30s tick
        30.001s tick
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s a queued job/x at 1
            2s b queued job/x at 2
            3s c queued job/y at 1
            4s d queued inode:1@0..10 at 1
            8.001s c refused grace_period: 21.999s more
            30.001s grace over
            30.001s a granted job/x fence=1 until 40.001s waited 29.001s
            30.001s d granted inode:1@0..10 fence=2 until 40.001s waited 26.001s
        "#]],
    );
}

#[test]
fn renew_and_release_work_in_a_strict_grace() {
    check(
        "
        0s a acquire job/x ttl=30s
        0s b acquire job/y ttl=30s
        1s epoch strict grace=60s
        2s a renew job/x
        3s a release job/x
        4s b release job/y
        4s get job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            0s b granted job/y fence=2 until 30s
            1s epoch 1 begun recovering=2
            2s a renewed job/x until 32s
            3s a released job/x held 3s
            4s b released job/y held 4s
            4s get job/y: free
        "#]],
    );
}

#[test]
fn what_is_released_in_a_strict_grace_is_not_granted_before_its_end() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch strict grace=20s
        2s b acquire job/x wait
        3s a release job/x
        21.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s b queued job/x at 1
            3s a released job/x held 3s
            21.001s grace over
            21.001s b granted job/x fence=2 until 31.001s waited 19.001s
        "#]],
    );
}

#[test]
fn strict_grace_does_not_end_early() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch strict grace=20s
        2s a renew job/x
        2s grace
        2s b acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s a renewed job/x until 32s
            2s grace strict until 21s expected=0
            2s b refused grace_period: 19s more
        "#]],
    );
}

#[test]
fn testing_is_refused_in_a_strict_grace() {
    check(
        "
        0s epoch strict grace=30s
        1s a test inode:1@0..10
        31s a test inode:1@0..10
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s a test inode:1@0..10: refused grace_period: 29s more
            31s grace over
            31s a test inode:1@0..10: free
        "#]],
    );
}

#[test]
fn known_grants_are_reclaimed_in_a_strict_grace_too() {
    check(
        "
        0s a open s ttl=30s
        0s a acquire job/x session=s
        1s epoch strict grace=20s
        2s a acquire job/x reclaim session=s
        2s get job/x
        ",
        expect![[r#"
            0s s opened until 30s
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s a granted job/x fence=1 until 32s again, as at 0s
            2s get job/x: held by a fence=1 since 0s until 32s
        "#]],
    );
}

#[test]
fn reclaim_after_a_strict_grace_is_refused() {
    check(
        "0s epoch strict grace=30s | 30.001s a acquire job/x reclaim",
        expect![[r#"
            0s epoch 1 begun recovering=0
            30.001s grace over
            30.001s a refused no_grace
        "#]],
    );
}

#[test]
fn registers_and_sessions_are_no_grants() {
    check(
        "0s epoch strict | 1s accept disk 5 | 1s a open s",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s register disk accepted, mark 5
            1s s opened until 11s
        "#]],
    );
}

#[test]
fn try_behind_a_waiter_is_refused_for_the_grace() {
    check(
        "
        0s epoch strict grace=30s
        1s a acquire path:/srv/a wait=5s
        2s b acquire path:/srv/** shared
        3s b acquire path:/srv/** wait=1s
        4.001s tick
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s a queued path:/srv/a at 1
            2s b refused grace_period: 28s more
            3s b queued path:/srv/** at 1
            4.001s b refused grace_period: 25.999s more
        "#]],
    );
}
