//! The reclaim window: for a while after a lease lapsed only its last owner may take the scope back.

use expect_test::expect;

use crate::script::check;

#[test]
fn timeline_of_a_client_that_falls_silent() {
    check(
        "
        0s a acquire job/x ttl=30s window=5s
        10s a renew job/x
        20s a renew job/x
        50s b acquire job/x
        52s b acquire job/x
        56s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            10s a renewed job/x until 40s
            20s a renewed job/x until 50s
            50s b refused held: job/x by a fence=1 since 0s until 50s
            52s a expired job/x fence=1, reclaim window 5s
            52s b refused reclaim_window: job/x by a fence=1 since 0s until 55s in its reclaim window
            56s a window_over job/x fence=1
            56s b granted job/x fence=2 until 66s
        "#]],
    );
}

#[test]
fn grant_has_no_window_by_default() {
    check(
        "0s a acquire job/x ttl=10s | 10.001s b acquire job/x",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1
            10.001s b granted job/x fence=2 until 20.001s
        "#]],
    );
}

#[test]
fn last_moment_of_the_window_belongs_to_the_last_owner() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        15s b acquire job/x
        15.001s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            15s a expired job/x fence=1, reclaim window 5s
            15s b refused reclaim_window: job/x by a fence=1 since 0s until 15s in its reclaim window
            15.001s a window_over job/x fence=1
            15.001s b granted job/x fence=2 until 25.001s
        "#]],
    );
}

#[test]
fn last_owner_takes_the_scope_back_with_a_new_fence() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s as=first
        12s a acquire job/x ttl=10s as=second
        12s a renew job/x grant=first
        12s a check job/x grant=first
        12s a renew job/x grant=second
        16s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            12s a expired job/x fence=1, reclaim window 5s
            12s a granted job/x fence=2 until 22s
            12s a reclaimed job/x fence=1
            12s a refused lease_lost (superseded)
            12s check job/x fence=1: not good (superseded)
            12s a renewed job/x until 22s
            16s get job/x: held by a fence=2 since 12s until 22s
        "#]],
    );
}

#[test]
fn last_owner_may_take_it_back_under_another_session() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s window=5s
        10.001s a open t ttl=10s
        11s a acquire job/x session=t
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1, reclaim window 5s
            10.001s s of a expired
            10.001s t opened until 20.001s
            11s a granted job/x fence=2 until 20.001s
            11s a reclaimed job/x fence=1
        "#]],
    );
}

#[test]
fn last_owner_may_say_that_it_reclaims() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        11s b acquire job/x reclaim
        12s a acquire job/x reclaim
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s b refused no_grace
            12s a granted job/x fence=2 until 22s
            12s a reclaimed job/x fence=1
        "#]],
    );
}

#[test]
fn lapsed_lease_cannot_be_renewed_in_the_window() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s as=l
        11s a renew job/x
        11s keepalive l
        11s a release job/x
        11s close l
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s a refused lease_lost (expired)
            11s l refused session_not_found (expired)
            11s a refused not_holder (expired): job/x
            11s l refused session_not_found (expired)
        "#]],
    );
}

#[test]
fn others_may_wait_for_the_window_to_end() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        11s b acquire job/x wait
        12s get job/x
        15.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s b queued job/x at 1
            12s get job/x: reclaim_window by a fence=1 since 0s until 15s in its reclaim window; b waits since 11s
            15.001s a window_over job/x fence=1
            15.001s b granted job/x fence=2 until 25.001s waited 4.001s
        "#]],
    );
}

#[test]
fn try_in_a_window_that_others_wait_for_is_told_of_the_window() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        11s b acquire job/x wait
        12s c acquire job/x
        12s c acquire {job/y, job/x}
        12s c test job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s b queued job/x at 1
            12s c refused reclaim_window: job/x by a fence=1 since 0s until 15s in its reclaim window, 1 waiting
            12s c refused reclaim_window: job/x by a fence=1 since 0s until 15s in its reclaim window, 1 waiting
            12s c test job/x: held by a job/x fence=1 since 0s until 15s in its reclaim window
        "#]],
    );
}

#[test]
fn waiter_goes_on_waiting_through_the_window() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        1s b acquire job/x wait
        10.001s tick
        15.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            10.001s a expired job/x fence=1, reclaim window 5s
            15.001s a window_over job/x fence=1
            15.001s b granted job/x fence=2 until 25.001s waited 14.001s
        "#]],
    );
}

#[test]
fn wait_that_runs_out_in_the_window_is_told_so() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        11s b acquire job/x wait=2s
        13.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s b queued job/x at 1
            13.001s b refused reclaim_window: job/x by a fence=1 since 0s until 15s in its reclaim window, waited 2.001s
        "#]],
    );
}

#[test]
fn last_owner_does_not_queue_behind_those_who_wait_for_its_window() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        11s b acquire job/x wait
        12s a acquire job/x ttl=10s
        20s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s b queued job/x at 1
            12s a granted job/x fence=2 until 22s
            12s a reclaimed job/x fence=1
            20s a released job/x held 8s
            20s b granted job/x fence=3 until 30s waited 9s
        "#]],
    );
}

#[test]
fn release_has_no_window() {
    check(
        "
        0s a acquire job/x window=5s
        1s a release job/x
        1s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            1s b granted job/x fence=2 until 11s
        "#]],
    );
}

#[test]
fn close_has_no_window() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s window=5s
        1s close s
        1s b acquire job/x
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            1s s closed grants=1
            1s a closed job/x fence=1
            1s b granted job/x fence=2 until 11s
        "#]],
    );
}

#[test]
fn disconnect_has_no_window() {
    check(
        "
        0s a open s
        0s attach s
        0s a acquire job/x session=s window=5s
        1s disconnect s
        1s b acquire job/x
        ",
        expect![[r#"
            0s s opened until 10s
            0s s renewed until 10s
            0s a granted job/x fence=1 until 10s
            1s s disconnected
            1s a disconnected job/x fence=1
            1s b granted job/x fence=2 until 11s
        "#]],
    );
}

#[test]
fn break_has_no_window() {
    check(
        "
        0s a acquire job/x window=5s
        1s break job/x
        1s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s break job/x grants=1
            1s a revoked job/x fence=1
            1s b granted job/x fence=2 until 11s
        "#]],
    );
}

#[test]
fn session_kept_after_a_disconnect_has_its_window_when_that_is_over() {
    check(
        "
        0s a open s ttl=30s keep=20s
        0s attach s
        0s a acquire job/x session=s window=5s
        1s disconnect s
        23s b acquire job/x
        26.001s b acquire job/x
        ",
        expect![[r#"
            0s s opened until 30s
            0s s renewed until 30s
            0s a granted job/x fence=1 until 30s
            1s s disconnected, kept until 21s
            23s a expired job/x fence=1, reclaim window 5s
            23s s of a expired
            23s b refused reclaim_window: job/x by a fence=1 since 0s until 26s in its reclaim window
            26.001s a window_over job/x fence=1
            26.001s b granted job/x fence=2 until 36.001s
        "#]],
    );
}

#[test]
fn window_passes_with_the_lapse_when_both_are_long_over() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        1s b acquire job/x wait
        60s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            60s a expired job/x fence=1, reclaim window 5s
            60s a window_over job/x fence=1
            60s b granted job/x fence=2 until 70s waited 59s
        "#]],
    );
}

#[test]
fn window_counts_from_the_deadline_not_from_when_it_was_noticed() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        14s tick
        15.001s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            14s a expired job/x fence=1, reclaim window 5s
            15.001s a window_over job/x fence=1
            15.001s b granted job/x fence=2 until 25.001s
        "#]],
    );
}

#[test]
fn retaken_scope_has_a_window_only_if_asked_for_again() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        11s a acquire job/x ttl=10s
        21.001s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s a granted job/x fence=2 until 21s
            11s a reclaimed job/x fence=1
            21.001s a expired job/x fence=2
            21.001s b granted job/x fence=3 until 31.001s
        "#]],
    );
}

#[test]
fn window_starts_anew_after_a_restart() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        10.001s tick
        12s epoch conflicting
        17s b acquire job/x
        17.001s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1, reclaim window 5s
            12s epoch 1 begun recovering=0
            17s b refused reclaim_window: job/x by a fence=1 since 0s until 17s in its reclaim window
            17.001s a window_over job/x fence=1
            17.001s b granted job/x fence=2 until 27.001s
        "#]],
    );
}
