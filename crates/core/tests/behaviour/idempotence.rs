//! Request ids: a retry is not a second request.

use expect_test::expect;

use crate::script::{check, check_with};

#[test]
fn same_request_returns_the_same_grant() {
    check(
        "
        0s a acquire job/x id=r1 ttl=10s
        3s a acquire job/x id=r1 ttl=10s
        4s a renew job/x
        4s stats
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            3s a granted job/x fence=1 until 10s again, as at 0s
            4s a renewed job/x until 14s
            4s stats epoch=0 fence=1 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn same_request_under_a_session_returns_the_same_grant() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire {job/x, inode:1@0..10} id=r1 session=s
        5s keepalive s
        6s a acquire {job/x, inode:1@0..10} id=r1 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted {job/x, inode:1@0..10} fence=1 until 10s
            5s s renewed until 15s
            6s a granted {job/x, inode:1@0..10} fence=1 until 15s again, as at 0s
        "#]],
    );
}

#[test]
fn how_long_the_caller_waits_does_not_make_another_request() {
    check(
        "
        0s a acquire job/x id=r1
        1s a acquire job/x id=r1 wait
        2s a acquire job/x id=r1 wait=5s keep
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a granted job/x fence=1 until 10s again, as at 0s
            2s a granted job/x fence=1 until 10s again, as at 0s
        "#]],
    );
}

#[test]
fn request_ids_are_each_owners_own() {
    check(
        "0s a acquire job/x id=r1 | 1s b acquire job/x id=r1 | 1s b acquire job/y id=r1",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b refused held: job/x by a fence=1 since 0s until 10s
            1s b granted job/y fence=2 until 11s
        "#]],
    );
}

#[test]
fn request_ids_are_each_namespaces_own() {
    check(
        "0s a acquire job/x id=r1 in=red | 1s a acquire job/y id=r1 in=blue",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a granted job/y fence=2 until 11s
        "#]],
    );
}

#[test]
fn same_id_with_another_request_is_refused() {
    check(
        "
        0s a acquire job/x id=r1 ttl=10s
        1s a acquire job/y id=r1 ttl=10s
        1s a acquire job/x shared id=r1 ttl=10s
        1s a acquire job/x id=r1 ttl=20s
        1s a acquire job/x id=r1 ttl=10s window=5s
        1s a acquire job/x id=r1 ttl=10s meta=other
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a refused request_id_reused
            1s a refused request_id_reused
            1s a refused request_id_reused
            1s a refused request_id_reused
            1s a refused request_id_reused
        "#]],
    );
}

#[test]
fn retry_joins_the_request_that_still_waits() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x id=r1 wait call=first
        2s c acquire job/x wait
        3s b acquire job/x id=r1 wait call=second
        3s get job/x
        4s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b (first) queued job/x at 1
            2s c queued job/x at 2
            3s b (second) queued job/x at 1
            3s get job/x: held by a fence=1 since 0s until 10s; b waits since 1s; c waits since 2s
            4s a released job/x held 4s
            4s b (first) granted job/x fence=2 until 14s waited 3s
            4s b (second) granted job/x fence=2 until 14s waited 3s
        "#]],
    );
}

#[test]
fn waiter_stays_while_one_of_its_callers_does() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x id=r1 wait call=first
        2s b acquire job/x id=r1 wait call=second
        3s b cancel call=first
        4s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b (first) queued job/x at 1
            2s b (second) queued job/x at 1
            3s b (first) cancelled
            4s a released job/x held 4s
            4s b (second) granted job/x fence=2 until 14s waited 3s
        "#]],
    );
}

#[test]
fn waiter_goes_with_the_last_of_its_callers() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x id=r1 wait call=first
        2s b acquire job/x id=r1 wait call=second
        3s b cancel call=first
        3s b cancel call=second
        4s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b (first) queued job/x at 1
            2s b (second) queued job/x at 1
            3s b (first) cancelled
            3s b (second) cancelled
            4s a released job/x held 4s
        "#]],
    );
}

#[test]
fn other_request_with_the_id_of_one_that_waits_is_refused() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x id=r1 wait
        2s b acquire job/y id=r1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s b refused request_id_reused
        "#]],
    );
}

#[test]
fn refused_request_may_be_tried_again_with_its_id() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x id=r1
        2s a release job/x
        3s b acquire job/x id=r1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b refused held: job/x by a fence=1 since 0s until 10s
            2s a released job/x held 2s
            3s b granted job/x fence=2 until 13s
        "#]],
    );
}

#[test]
fn undelivered_grant_waits_for_the_retry() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x id=r1 wait ttl=10s
        2s a release job/x
        12s b acquire job/x id=r1 wait ttl=10s
        12.001s c acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s a released job/x held 2s
            2s b granted job/x fence=2 until 12s waited 1s
            12s b granted job/x fence=2 until 12s again, as at 2s
            12.001s b expired job/x fence=2
            12.001s c granted job/x fence=3 until 22.001s
        "#]],
    );
}

#[test]
fn id_is_free_again_after_the_release() {
    check(
        "
        0s a acquire job/x id=r1
        1s a release job/x
        2s a acquire job/x id=r1
        3s a acquire job/y id=r1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            2s a granted job/x fence=2 until 12s
            3s a refused request_id_reused
        "#]],
    );
}

#[test]
fn id_is_free_again_after_expiry() {
    check(
        "
        0s a acquire job/x id=r1 ttl=10s
        10.001s a acquire job/x id=r1 ttl=10s
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1
            10.001s a granted job/x fence=2 until 20.001s
        "#]],
    );
}

#[test]
fn retry_in_the_reclaim_window_takes_the_scope_back() {
    check(
        "
        0s a acquire job/x id=r1 ttl=10s window=5s
        11s a acquire job/x id=r1 ttl=10s window=5s
        12s a acquire job/x id=r1 ttl=10s window=5s
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s a granted job/x fence=2 until 21s
            11s a reclaimed job/x fence=1
            12s a granted job/x fence=2 until 21s again, as at 11s
        "#]],
    );
}

#[test]
fn request_id_survives_a_restart() {
    check(
        "
        0s a acquire job/x id=r1 ttl=10s
        0s a acquire inode:1@0..10 id=r2 ttl=10s
        1s restart
        1s epoch conflicting
        2s a acquire job/x id=r1 ttl=10s
        2s a acquire inode:1@0..10 id=r2 ttl=10s
        2s a acquire job/y id=r1 ttl=10s
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            1s server restarted
            1s epoch 1 begun recovering=2
            2s a granted job/x fence=1 until 11s again, as at 0s
            2s a granted inode:1@0..10 fence=2 until 11s again, as at 0s
            2s a refused request_id_reused
        "#]],
    );
}

#[test]
fn retry_is_answered_while_no_grants_are_made() {
    check(
        "
        0s a acquire job/x id=r1
        1s suspend
        2s a acquire job/x id=r1
        2s a acquire job/y id=r2
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s server suspended
            2s a granted job/x fence=1 until 10s again, as at 0s
            2s a refused suspended
        "#]],
    );
}

#[test]
fn request_of_a_range_is_known_as_long_as_a_part_of_it_is_held() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..100 id=r1 session=s
        1s a unlock inode:1@0..10 session=s
        2s a acquire inode:1@0..100 id=r1 session=s
        3s a release inode:1@10..50
        3s restart
        3s epoch conflicting grace=5s
        4s a acquire inode:1@0..100 id=r1 session=s
        5s a unlock inode:1 session=s
        6s a acquire inode:1@0..100 id=r1 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            1s a unlocked
            1s a released inode:1@0..10 fence=1
            2s a granted inode:1@0..100 fence=1 until 10s again, as at 0s
            3s a released inode:1@10..50 held 3s
            3s server restarted
            3s epoch 1 begun recovering=1
            4s a granted inode:1@0..100 fence=1 until 13s again, as at 0s
            5s a unlocked
            5s a released inode:1@50..100 fence=1
            6s a granted inode:1@0..100 fence=2 until 13s
            6s grace over
        "#]],
    );
}

#[test]
fn request_of_a_range_is_known_when_it_has_merged() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 id=r1 session=s
        1s a acquire inode:1@10..20 id=r2 session=s
        2s a acquire inode:1@10..20 id=r2 session=s
        3s a acquire inode:1@0..10 id=r1 session=s
        4s a unlock inode:1@0..10 session=s
        5s a acquire inode:1@0..10 id=r1 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@10..20 fence=2 until 10s
            2s a granted inode:1@10..20 fence=2 until 10s again, as at 1s
            3s a granted inode:1@0..10 fence=1 until 10s again, as at 0s
            4s a unlocked
            4s a released inode:1@0..10 fence=2
            5s a granted inode:1@0..10 fence=3 until 10s
        "#]],
    );
}

#[test]
fn retry_stands_at_the_place_that_was_kept_for_it() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x id=r1 wait=5s keep
        2s c acquire job/x wait
        6.001s tick
        7s b acquire job/x id=r1 wait=5s keep
        8s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 5.001s, place 1 kept
            7s b queued job/x at 1
            8s a released job/x held 8s
            8s b granted job/x fence=2 until 18s waited 7s
        "#]],
    );
}

#[test]
fn try_with_the_id_of_a_request_that_waits_does_not_wait() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x id=r1 wait call=first
        2s b acquire job/x id=r1 call=second
        3s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b (first) queued job/x at 1
            2s b (second) refused held: job/x by a fence=1 since 0s until 10s, 1 waiting
            3s a released job/x held 3s
            3s b (first) granted job/x fence=2 until 13s waited 2s
        "#]],
    );
}

#[test]
fn same_opening_returns_the_same_session() {
    check(
        "
        0s a open s id=r1 ttl=10s
        3s a open t id=r1 ttl=10s
        4s keepalive s
        5s a open u id=r1 ttl=10s
        5s stats
        ",
        expect![[r#"
            0s s opened until 10s
            3s t opened until 10s again, as s
            4s s renewed until 14s
            5s u opened until 14s again, as s
            5s stats epoch=0 fence=0 namespaces=1 grants=0 leases=1 sessions=1 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn session_is_the_same_though_its_length_was_changed_since() {
    check(
        "0s a open s id=r1 ttl=10s | 1s keepalive s ttl=20s | 2s a open t id=r1 ttl=10s | 3s a open t id=r1 ttl=20s",
        expect![[r#"
            0s s opened until 10s
            1s s renewed until 21s
            1s a has ttl 20s
            2s t opened until 21s again, as s
            3s t refused request_id_reused
        "#]],
    );
}

#[test]
fn opening_is_known_as_long_as_its_session() {
    check(
        "
        0s a open s id=r1 ttl=10s
        1s close s
        2s a open t id=r1 ttl=10s
        13s a open u id=r1 ttl=10s
        ",
        expect![[r#"
            0s s opened until 10s
            1s s closed grants=0
            2s t opened until 12s
            13s t of a expired
            13s u opened until 23s
        "#]],
    );
}

#[test]
fn request_id_is_good_for_one_thing_only() {
    check(
        "
        0s a open s id=r1 ttl=10s
        1s a open t id=r1 ttl=10s adapter=fuse
        1s a open t id=r1 ttl=10s keep=5s
        1s a acquire job/x id=r1
        1s a acquire job/x id=r2
        2s a open t id=r2 ttl=10s
        2s b acquire job/x id=r3 wait
        2s b open t id=r3 ttl=10s
        3s b open t id=r1 ttl=10s
        ",
        expect![[r#"
            0s s opened until 10s
            1s t refused request_id_reused
            1s t refused request_id_reused
            1s a refused request_id_reused
            1s a granted job/x fence=1 until 11s
            2s t refused request_id_reused
            2s b queued job/x at 1
            2s t refused request_id_reused
            3s t opened until 13s
        "#]],
    );
}

#[test]
fn opening_is_known_after_a_restart() {
    check(
        "0s a open s id=r1 ttl=10s | 2s restart | 2s epoch conflicting grace=30s | 3s a open t id=r1 ttl=10s",
        expect![[r#"
            0s s opened until 10s
            2s server restarted
            2s epoch 1 begun recovering=1
            3s t opened until 12s again, as s
        "#]],
    );
}

#[test]
fn opening_again_needs_no_room_for_another_session() {
    check_with(
        |limits| limits.sessions_per_adapter_max = 1,
        "0s a open s id=r1 | 1s a open t id=r2 | 1s a open t id=r1",
        expect![[r#"
            0s s opened until 10s
            1s t refused session_limit: adapter http has 1 sessions already
            1s t opened until 10s again, as s
        "#]],
    );
}

#[test]
fn plain_request_repeated_after_a_part_was_released_ends_nothing() {
    check(
        "
        0s a acquire inode:1@0..100 id=r1
        1s a release inode:1@0..10
        2s a acquire inode:1@0..100 id=r1
        3s a renew inode:1@10..100
        ",
        expect![[r#"
            0s a granted inode:1@0..100 fence=1 until 10s
            1s a released inode:1@0..10 held 1s
            2s a granted inode:1@0..100 fence=1 until 10s again, as at 0s
            3s a renewed inode:1@10..100 until 13s
        "#]],
    );
}

#[test]
fn withdrawn_request_is_not_known_though_bytes_held_before_bear_its_fence() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        1s a acquire inode:1@5..20 id=r1 session=s as=lost
        1s a withdraw inode:1@5..20
        2s a acquire inode:1@5..20 id=r1 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@5..20 fence=2 until 10s
            1s grant fence=2 withdrawn
            1s a withdrawn inode:1@10..20 fence=2
            2s a granted inode:1@5..20 fence=3 until 10s
        "#]],
    );
}
