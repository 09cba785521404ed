//! The strict recovery grace: every new grant is refused until it is over. In a store that forgets it is unknown who held
//! what, so there it lasts its whole length; otherwise it is over when everybody has come back.

use expect_test::expect;

use crate::script::check;

#[test]
fn strict_grace_refuses_every_new_grant() {
    check(
        "
        0s epoch strict-unknown grace=30s
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
        "0s epoch strict-unknown grace=30s | 0s grace | 31s grace",
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
        0s epoch strict-unknown grace=30s
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
        0s epoch strict-unknown grace=30s
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
        0s epoch strict-unknown grace=30s
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
        1s epoch strict-unknown grace=60s
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
            4s get job/y: free; last fence=2
        "#]],
    );
}

#[test]
fn what_is_released_in_a_strict_grace_is_not_granted_before_its_end() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch strict-unknown grace=20s
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
fn strict_grace_ends_early_when_all_are_known_and_back() {
    check(
        "
        0s a acquire job/x ttl=30s
        0s b open s ttl=10s
        1s epoch strict grace=60s
        2s c acquire job/y
        2s d acquire job/z wait
        3s a renew job/x
        3s grace
        11s c acquire job/y
        11.001s c acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            0s s opened until 10s
            1s epoch 1 begun recovering=2
            2s c refused grace_period: 59s more
            2s d queued job/z at 1
            3s a renewed job/x until 33s
            3s grace strict until 61s expected=1
            11s c refused grace_period: 50s more
            11.001s s of b grace_expired
            11.001s grace over
            11.001s d granted job/z fence=2 until 21.001s waited 9.001s
            11.001s c granted job/y fence=3 until 21.001s
        "#]],
    );
}

#[test]
fn there_is_no_strict_grace_where_nothing_was_held() {
    check(
        "0s epoch strict grace=30s | 0s grace | 0s a acquire job/x",
        expect![[r#"
            0s epoch 1 begun recovering=0
            0s no grace
            0s a granted job/x fence=1 until 10s
        "#]],
    );
}

#[test]
fn strict_grace_is_over_with_its_timer_at_the_latest() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch strict grace=20s
        21s b acquire job/y
        21.001s b acquire job/y
        22s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            21s b refused grace_period: 0s more
            21.001s grace over
            21.001s b granted job/y fence=2 until 31.001s
            22s b refused held: job/x by a fence=1 since 0s until 61s
        "#]],
    );
}

#[test]
fn reclaim_of_what_was_never_held_is_refused_where_holders_are_known() {
    check(
        "
        0s a open s ttl=30s
        0s a acquire job/x session=s
        0s b acquire job/y ttl=30s
        1s epoch strict grace=20s
        2s a acquire job/z reclaim session=s
        2s a acquire job/y reclaim session=s
        2s a acquire job/x shared reclaim session=s
        2s a acquire job/x reclaim
        2s c acquire job/z reclaim
        2s c open t
        2s c acquire job/z reclaim session=t
        2s a acquire job/x reclaim session=s
        ",
        expect![[r#"
            0s s opened until 30s
            0s a granted job/x fence=1 until 30s
            0s b granted job/y fence=2 until 30s
            1s epoch 1 begun recovering=2
            2s a refused not_holder: nothing to reclaim on job/z
            2s a refused not_holder: nothing to reclaim on job/y
            2s a refused not_holder: nothing to reclaim on job/x
            2s a refused not_holder: nothing to reclaim on job/x
            2s c refused not_holder: nothing to reclaim on job/z
            2s t opened until 12s
            2s c refused not_holder: nothing to reclaim on job/z
            2s a granted job/x fence=1 until 32s again, as at 0s
        "#]],
    );
}

#[test]
fn window_is_taken_back_in_a_strict_grace() {
    check(
        "
        0s a acquire job/x ttl=1s window=60s
        0s b acquire job/y ttl=60s
        1.001s tick
        2s epoch strict grace=30s
        3s c acquire job/x
        3s a acquire job/x
        3s a acquire job/x reclaim
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 1s
            0s b granted job/y fence=2 until 60s
            1.001s a expired job/x fence=1, reclaim window 60s
            2s epoch 1 begun recovering=1
            3s c refused grace_period: 29s more
            3s a refused grace_period: 29s more
            3s a granted job/x fence=3 until 13s
            3s a reclaimed job/x fence=1
        "#]],
    );
}

#[test]
fn reclaim_that_meets_a_recovering_grant_is_refused_as_for_any_held_lock() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch strict-unknown grace=60s
        2s b acquire job/x reclaim
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s b refused held: job/x by a fence=1 since 0s until 31s recovering
        "#]],
    );
}

#[test]
fn place_is_kept_in_a_strict_grace() {
    check(
        "
        0s epoch strict-unknown grace=30s
        1s a acquire job/x wait=2s keep
        3.001s tick
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s a queued job/x at 1
            3.001s a refused grace_period: 26.999s more, job/x without a holder, waited 2.001s, place 1 kept
        "#]],
    );
}

#[test]
fn strict_grace_does_not_end_early_where_holders_are_unknown() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch strict-unknown grace=20s
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
        0s epoch strict-unknown grace=30s
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
        1s epoch strict-unknown grace=20s
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
        "0s epoch strict-unknown grace=30s | 30.001s a acquire job/x reclaim",
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
        "0s jump epoch=1 fence=9 | 0s epoch strict-unknown | 1s accept disk 5 | 1s a open s",
        expect![[r#"
            0s server jumped to epoch 1 fence 9
            0s epoch 2 begun recovering=0
            1s register disk accepted, mark 5
            1s s opened until 11s
        "#]],
    );
}

#[test]
fn try_behind_a_waiter_is_refused_for_the_grace() {
    check(
        "
        0s epoch strict-unknown grace=30s
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
