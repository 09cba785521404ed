//! What operators do over the holders' heads.

use expect_test::expect;

use crate::script::check;

#[test]
fn break_ends_every_grant_that_overlaps() {
    check(
        "
        0s a acquire path:/srv/a shared
        0s b acquire path:/srv/** shared
        0s c acquire path:/etc
        1s d acquire path:/srv/a wait
        2s break path:/srv/a reason=stuck
        2s a renew path:/srv/a
        2s list
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            0s b granted path:/srv/** fence=2 until 10s
            0s c granted path:/etc fence=3 until 10s
            1s d queued path:/srv/a at 1
            2s break path:/srv/a grants=2
            2s a revoked path:/srv/a shared fence=1
            2s b revoked path:/srv/** shared fence=2
            2s d granted path:/srv/a fence=4 until 12s waited 1s
            2s a refused lease_lost (released)
            2s list path:/etc held by c fence=3 since 0s until 10s
            2s list path:/srv/a held by d fence=4 since 2s until 12s
            2s list end
        "#]],
    );
}

#[test]
fn break_of_what_is_free_finds_nothing() {
    check(
        "0s break job/x | 0s break job/x in=red",
        expect![[r#"
        0s break job/x grants=0
        0s break job/x grants=0
    "#]],
    );
}

#[test]
fn break_may_be_of_one_fence_only() {
    check(
        "
        0s a acquire job/x shared
        0s b acquire job/x shared
        1s break job/x fence=2
        1s break job/x fence=7
        1s list
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 10s
            1s break job/x grants=1
            1s b revoked job/x shared fence=2
            1s break job/x grants=0
            1s list job/x held by a shared fence=1 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn broken_session_grant_leaves_the_session() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        0s a acquire job/y session=s
        1s watch
        1s break job/x reason=stuck
        1s session s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            1s break job/x grants=1
            1s s told: lost fence=1, revoked
            1s a revoked job/x fence=1
            1s session s of a by http ttl 10s until 10s grants=1 waiters=0
        "#]],
    );
}

#[test]
fn broken_session_ends_with_all_it_holds_and_hears_of_it() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        0s a acquire job/y session=s
        0s b acquire job/x wait=60s
        1s watch
        1s break-session s reason=stuck
        1s break-session s
        1s stats
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            0s b queued job/x at 1
            1s break s grants=2
            1s s told: lost, revoked
            1s a revoked job/x fence=1
            1s a revoked job/y fence=2
            1s s of a revoked
            1s event 5: b granted job/x fence=3 ttl 10s
            1s b granted job/x fence=3 until 11s waited 1s
            1s break s refused session_not_found
            1s stats epoch=0 fence=3 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn break_of_one_scope_of_a_set_ends_the_set() {
    check(
        "
        0s a acquire {job/x, job/y, inode:1@0..10}
        1s break job/x
        1s stats
        ",
        expect![[r#"
            0s a granted {job/x, job/y, inode:1@0..10} fence=1 until 10s
            1s break job/x grants=1
            1s a revoked job/x fence=1
            1s a revoked job/y fence=1
            1s a revoked inode:1@0..10 fence=1
            1s stats epoch=0 fence=1 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn break_of_bytes_ends_just_them() {
    check(
        "
        0s a acquire inode:1@0..100
        0s b acquire inode:1@100..200
        1s break inode:1@90..110
        1s list
        ",
        expect![[r#"
            0s a granted inode:1@0..100 fence=1 until 10s
            0s b granted inode:1@100..200 fence=2 until 10s
            1s break inode:1@90..110 grants=2
            1s a revoked inode:1@90..100 fence=1
            1s b revoked inode:1@100..110 fence=2
            1s list inode:1@0..90 held by a fence=1 since 0s until 10s
            1s list inode:1@110..200 held by b fence=2 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn break_ends_reclaim_windows_too() {
    check(
        "
        0s a acquire job/x ttl=10s window=60s
        0s a acquire inode:1 ttl=10s window=60s
        11s break job/x
        11s break inode:1
        11s b acquire {job/x, inode:1}
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted inode:1 fence=2 until 10s
            11s a expired job/x fence=1, reclaim window 60s
            11s a expired inode:1 fence=2, reclaim window 60s
            11s break job/x grants=1
            11s a revoked job/x fence=1
            11s break inode:1 grants=1
            11s a revoked inode:1 fence=2
            11s b granted {job/x, inode:1} fence=3 until 21s
        "#]],
    );
}

#[test]
fn break_does_not_touch_waiters() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        1s c acquire job/x wait
        2s break job/x
        2s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            1s c queued job/x at 2
            2s break job/x grants=1
            2s a revoked job/x fence=1
            2s b granted job/x fence=2 until 12s waited 1s
            2s get job/x: held by b fence=2 since 2s until 12s; c waits since 1s
        "#]],
    );
}

#[test]
fn suspended_server_refuses_new_grants() {
    check(
        "
        0s suspend
        0s a acquire job/x
        0s a acquire job/x wait
        0s a open s
        1s resume
        1s a acquire job/x
        ",
        expect![[r#"
            0s server suspended
            0s a refused suspended
            0s a refused suspended
            0s s refused suspended
            1s server resumed
            1s a granted job/x fence=1 until 11s
        "#]],
    );
}

#[test]
fn suspended_server_renews_and_releases() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b open s ttl=10s
        0s b acquire inode:1 session=s
        1s suspend
        2s a renew job/x
        3s keepalive s
        4s a release job/x
        4s b unlock inode:1 session=s
        4s close s
        4s stats
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s s opened until 10s
            0s b granted inode:1 fence=2 until 10s
            1s server suspended
            2s a renewed job/x until 12s
            3s s renewed until 13s
            4s a released job/x held 4s
            4s b unlocked
            4s b released inode:1 fence=2
            4s s closed grants=0
            4s stats epoch=0 fence=2 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn waiters_stay_while_suspended() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        1s c acquire job/x wait=2s
        2s suspend
        3s a release job/x
        4s get job/x
        5s resume
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            1s c queued job/x at 2
            2s server suspended
            3s a released job/x held 3s
            4s c refused held: job/x without a holder, 1 waiting, waited 3s
            4s get job/x: free; b waits since 1s; last fence=1
            5s server resumed
            5s b granted job/x fence=2 until 15s waited 4s
        "#]],
    );
}

#[test]
fn wait_that_runs_out_while_suspended_is_told_so() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait=5s
        2s suspend
        3s a release job/x
        6.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s server suspended
            3s a released job/x held 3s
            6.001s b refused suspended
        "#]],
    );
}

#[test]
fn resume_serves_all_that_can_be_served_in_order() {
    check(
        "
        0s a acquire job/x
        0s a acquire inode:1
        1s b acquire job/x shared wait
        1s c acquire inode:1@0..10 wait
        1s d acquire job/x shared wait
        1s e acquire inode:1@5..15 wait
        2s suspend
        3s a release job/x
        3s a release inode:1
        4s resume
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted inode:1 fence=2 until 10s
            1s b queued job/x at 1
            1s c queued inode:1@0..10 at 1
            1s d queued job/x at 2
            1s e queued inode:1@5..15 at 1
            2s server suspended
            3s a released job/x held 3s
            3s a released inode:1 held 3s
            4s server resumed
            4s b granted job/x fence=3 until 14s waited 3s
            4s c granted inode:1@0..10 fence=4 until 14s waited 3s
            4s d granted job/x fence=5 until 14s waited 3s
        "#]],
    );
}

#[test]
fn leases_lapse_while_suspended() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s b acquire job/x wait
        2s suspend
        10.001s tick
        11s resume
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s server suspended
            10.001s a expired job/x fence=1
            11s server resumed
            11s b granted job/x fence=2 until 21s waited 10s
        "#]],
    );
}
