//! Sessions: a lease opened first, under which any number of grants are taken.

use expect_test::expect;

use crate::script::{check, check_with};

#[test]
fn one_heartbeat_renews_everything_under_the_session() {
    check(
        "
        0s a open s ttl=10s
        1s a acquire job/x session=s
        2s a acquire job/y session=s
        8s keepalive s
        18s get job/x
        18s get job/y
        18.001s tick
        ",
        expect![[r#"
            0s s opened until 10s
            1s a granted job/x fence=1 until 10s
            2s a granted job/y fence=2 until 10s
            8s s renewed until 18s
            18s get job/x: held by a fence=1 since 1s until 18s
            18s get job/y: held by a fence=2 since 2s until 18s
            18.001s a expired job/x fence=1
            18.001s a expired job/y fence=2
            18.001s s of a expired
        "#]],
    );
}

#[test]
fn grant_under_a_session_ends_with_the_session_whenever_it_was_made() {
    check(
        "
        0s a open s ttl=10s
        9s a acquire job/x session=s
        10.001s get job/x
        ",
        expect![[r#"
            0s s opened until 10s
            9s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1
            10.001s s of a expired
            10.001s get job/x: free; last fence=1
        "#]],
    );
}

#[test]
fn renewing_one_grant_renews_its_session() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s a acquire job/y session=s
        7s a renew job/x
        17s get job/y
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            7s a renewed job/x until 17s
            17s get job/y: held by a fence=2 since 0s until 17s
        "#]],
    );
}

#[test]
fn one_close_releases_everything_under_the_session() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s a acquire path:/srv/** session=s
        0s a acquire inode:1@0..10 session=s
        0s b acquire job/x wait
        5s close s
        5s stats
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted path:/srv/** fence=2 until 10s
            0s a granted inode:1@0..10 fence=3 until 10s
            0s b queued job/x at 1
            5s s closed grants=3
            5s a closed job/x fence=1
            5s a closed path:/srv/** fence=2
            5s a closed inode:1@0..10 fence=3
            5s b granted job/x fence=4 until 15s waited 5s
            5s stats epoch=0 fence=4 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn closed_session_is_no_more() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        1s close s
        1s close s
        1s keepalive s
        1s attach s
        1s disconnect s
        1s a acquire job/y session=s
        1s a renew job/x
        1s a release job/x
        1s a unlock inode:1@0..1 session=s
        1s session s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            1s s closed grants=1
            1s a closed job/x fence=1
            1s s closed grants=1, as before
            1s s refused session_not_found (released)
            1s s refused session_not_found (released)
            1s s refused session_not_found (released)
            1s a refused session_not_found (released)
            1s a refused lease_lost (released)
            1s a refused not_holder (released): job/x
            1s a refused session_not_found (released)
            1s no session
        "#]],
    );
}

#[test]
fn session_outlives_the_grants_under_it() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        1s a release job/x
        1s session s
        2s a acquire job/x session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            1s session s of a by http ttl 10s until 10s grants=0 waiters=0
            2s a granted job/x fence=2 until 10s
        "#]],
    );
}

#[test]
fn empty_session_ends_by_its_ttl() {
    check(
        "0s a open s ttl=10s | 10s session s | 10.001s session s",
        expect![[r#"
            0s s opened until 10s
            10s session s of a by http ttl 10s until 10s grants=0 waiters=0
            10.001s s of a expired
            10.001s no session
        "#]],
    );
}

#[test]
fn session_that_was_never_opened_is_refused() {
    check(
        "
        0s a acquire job/x session=unknown
        0s keepalive unknown
        0s close unknown
        ",
        expect![[r#"
            0s a refused session_not_found (unknown)
            0s lease refused session_not_found (unknown)
            0s lease refused session_not_found (unknown)
        "#]],
    );
}

#[test]
fn plain_lease_takes_more_grants_of_its_owner_but_no_stream() {
    check(
        "
        0s a acquire job/x as=l
        0s a acquire job/y session=l
        0s b acquire job/z session=l
        0s b acquire job/z
        1s a acquire job/z session=l wait
        2s a release job/x
        3s attach l
        3s disconnect l
        3s a release job/y
        4s keepalive l
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            0s b refused session_not_found (unknown)
            0s b granted job/z fence=3 until 10s
            1s a queued job/z at 1
            2s a released job/x held 2s
            3s l refused session_not_found (unknown)
            3s l refused session_not_found (unknown)
            3s a released job/y held 3s
            3s a refused lease_lost
            4s l refused session_not_found (released)
        "#]],
    );
}

#[test]
fn heartbeat_renews_a_plain_lease_too() {
    check(
        "
        0s a acquire {job/x, job/y} as=l ttl=10s
        7s keepalive l
        17s get job/y
        17s close l
        ",
        expect![[r#"
            0s a granted {job/x, job/y} fence=1 until 10s
            7s l renewed until 17s
            17s get job/y: held by a fence=1 since 0s until 17s
            17s l closed grants=2
            17s a closed job/x fence=1
            17s a closed job/y fence=1
        "#]],
    );
}

#[test]
fn heartbeat_may_change_the_ttl() {
    check(
        "
        0s a open s ttl=10s
        1s keepalive s ttl=30s
        31s session s
        31.001s tick
        ",
        expect![[r#"
            0s s opened until 10s
            1s s renewed until 31s
            1s a has ttl 30s
            31s session s of a by http ttl 30s until 31s grants=0 waiters=0
            31.001s s of a expired
        "#]],
    );
}

#[test]
fn waiters_of_a_lapsed_session_are_told_so() {
    check(
        "
        0s b acquire job/x ttl=60s
        0s a open s ttl=10s
        1s a acquire job/x session=s wait
        10.001s tick
        20s b release job/x
        ",
        expect![[r#"
            0s b granted job/x fence=1 until 60s
            0s s opened until 10s
            1s a queued job/x at 1
            10.001s a refused lease_lost
            10.001s s of a expired
            20s b released job/x held 20s
        "#]],
    );
}

#[test]
fn waiters_of_a_closed_session_are_told_so() {
    check(
        "
        0s b acquire job/x ttl=60s
        0s a open s
        1s a acquire job/x session=s wait
        2s close s
        2s get job/x
        ",
        expect![[r#"
            0s b granted job/x fence=1 until 60s
            0s s opened until 10s
            1s a queued job/x at 1
            2s s closed grants=0
            2s a refused lease_lost
            2s get job/x: held by b fence=1 since 0s until 60s
        "#]],
    );
}

#[test]
fn one_session_more_than_the_adapter_may_have_is_refused() {
    check_with(
        |limits| limits.sessions_per_adapter_max = 2,
        "
        0s a open s1 adapter=nlm
        0s a open s2 adapter=nlm
        0s a open s3 adapter=nlm
        0s a open s4 adapter=smb
        1s close s1
        1s a open s5 adapter=nlm
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s s2 opened until 10s
            0s s3 refused session_limit: adapter nlm has 2 sessions already
            0s s4 opened until 10s
            1s s1 closed grants=0
            1s s5 opened until 11s
        "#]],
    );
}

#[test]
fn lapsed_session_makes_room_for_another() {
    check_with(
        |limits| limits.sessions_per_adapter_max = 1,
        "
        0s a open s1 ttl=10s
        0s a acquire job/x session=s1 window=60s
        0s b open s2
        10.001s b open s3
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s a granted job/x fence=1 until 10s
            0s s2 refused session_limit: adapter http has 1 sessions already
            10.001s a expired job/x fence=1, reclaim window 60s
            10.001s s1 of a expired
            10.001s s3 opened until 20.001s
        "#]],
    );
}

#[test]
fn grants_under_one_session_may_have_owners_of_their_own() {
    check(
        "
        0s host open s
        0s pid-1 acquire inode:1@0..10 session=s
        0s pid-2 acquire inode:1@5..15 session=s
        0s pid-2 acquire job/x session=s
        0s pid-1 release job/x of=pid-2
        0s pid-2 release job/x
        ",
        expect![[r#"
            0s s opened until 10s
            0s pid-1 granted inode:1@0..10 fence=1 until 10s
            0s pid-2 refused held: inode:1@5..15 by pid-1 inode:1@0..10 fence=1 since 0s until 10s
            0s pid-2 granted job/x fence=2 until 10s
            0s pid-1 refused not_holder (unknown): job/x
            0s pid-2 released job/x held 0s
        "#]],
    );
}

#[test]
fn sessions_of_different_adapters_see_each_others_locks() {
    check(
        "
        0s a open s1 adapter=fuse
        0s b open s2 adapter=nlm
        0s a acquire inode:42@0..10 session=s1
        0s b acquire inode:42@5..15 session=s2
        0s b test inode:42@0..1
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s s2 opened until 10s
            0s a granted inode:42@0..10 fence=1 until 10s
            0s b refused held: inode:42@5..15 by a inode:42@0..10 fence=1 since 0s until 10s
            0s b test inode:42@0..1: held by a inode:42@0..10 fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn lapsed_session_takes_its_waits_along() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s b acquire job/y ttl=60s
        1s a acquire job/y session=s wait
        2s c acquire {job/x, job/y} wait
        10.001s tick
        11s b release job/y
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 60s
            1s a queued job/y at 1
            2s c queued {job/x, job/y} at 2
            10.001s a refused lease_lost
            10.001s a expired job/x fence=1
            10.001s s of a expired
            11s b released job/y held 11s
            11s c granted {job/x, job/y} fence=3 until 21s waited 9s
        "#]],
    );
}
