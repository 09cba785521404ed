//! Sessions bound to a stream: what becomes of them when it breaks.

use expect_test::expect;

use crate::script::check;

#[test]
fn session_names_its_adapter_and_disconnect_policy() {
    check(
        "
        0s a open s1 adapter=http
        0s b open s2 adapter=fuse keep=60s meta=laptop
        0s sessions
        0s sessions after=s1
        0s sessions len=1
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s s2 opened until 10s
            0s session s1 of a by http ttl 10s until 10s grants=0 waiters=0
            0s session s2 of b by fuse ttl 10s until 10s grants=0 waiters=0 keep=60s meta=laptop
            0s session s2 of b by fuse ttl 10s until 10s grants=0 waiters=0 keep=60s meta=laptop
            0s session s1 of a by http ttl 10s until 10s grants=0 waiters=0
        "#]],
    );
}

#[test]
fn disconnect_releases_at_once_by_default() {
    check(
        "
        0s a open s ttl=30s adapter=nlm
        0s attach s
        1s a acquire job/x session=s
        2s b acquire job/x wait
        3s disconnect s
        ",
        expect![[r#"
            0s s opened until 30s
            0s s renewed until 30s
            1s a granted job/x fence=1 until 30s
            2s b queued job/x at 1
            3s s disconnected
            3s a disconnected job/x fence=1
            3s b granted job/x fence=2 until 13s waited 1s
        "#]],
    );
}

#[test]
fn disconnect_may_keep_everything_for_a_while() {
    check(
        "
        0s a open s ttl=30s adapter=smb keep=60s
        0s attach s
        1s a acquire job/x session=s
        3s disconnect s
        3s session s
        63s b acquire job/x
        63.001s b acquire job/x
        ",
        expect![[r#"
            0s s opened until 30s
            0s s renewed until 30s
            1s a granted job/x fence=1 until 30s
            3s s disconnected, kept until 63s
            3s session s of a by smb ttl 30s until 63s grants=1 waiters=0 keep=60s
            63s b refused held: job/x by a fence=1 since 1s until 63s
            63.001s a expired job/x fence=1
            63.001s s of a expired
            63.001s b granted job/x fence=2 until 73.001s
        "#]],
    );
}

#[test]
fn keeping_may_be_shorter_than_the_ttl() {
    check(
        "
        0s a open s ttl=30s keep=5s
        0s attach s
        0s a acquire job/x session=s
        1s disconnect s
        6.001s tick
        ",
        expect![[r#"
            0s s opened until 30s
            0s s renewed until 30s
            0s a granted job/x fence=1 until 30s
            1s s disconnected, kept until 6s
            6.001s a expired job/x fence=1
            6.001s s of a expired
        "#]],
    );
}

#[test]
fn session_that_comes_back_in_time_keeps_its_grants_and_fences() {
    check(
        "
        0s a open s ttl=30s keep=60s
        0s attach s
        0s a acquire job/x session=s
        5s disconnect s
        50s attach s
        50s session s
        50s a renew job/x
        ",
        expect![[r#"
            0s s opened until 30s
            0s s renewed until 30s
            0s a granted job/x fence=1 until 30s
            5s s disconnected, kept until 65s
            50s s renewed until 80s
            50s session s of a by http ttl 30s until 80s grants=1 waiters=0 keep=60s attached
            50s a renewed job/x until 80s
        "#]],
    );
}

#[test]
fn session_that_comes_back_too_late_is_not_found() {
    check(
        "
        0s a open s ttl=30s keep=60s
        0s attach s
        0s a acquire job/x session=s
        5s disconnect s
        65.001s attach s
        ",
        expect![[r#"
            0s s opened until 30s
            0s s renewed until 30s
            0s a granted job/x fence=1 until 30s
            5s s disconnected, kept until 65s
            65.001s a expired job/x fence=1
            65.001s s of a expired
            65.001s s refused session_not_found (expired)
        "#]],
    );
}

#[test]
fn waiters_of_a_disconnected_session_leave() {
    check(
        "
        0s b acquire job/x
        0s a open s ttl=30s keep=60s
        0s attach s
        1s a acquire job/x session=s wait
        1s c acquire job/x wait
        2s disconnect s
        3s b release job/x
        ",
        expect![[r#"
            0s b granted job/x fence=1 until 10s
            0s s opened until 30s
            0s s renewed until 30s
            1s a queued job/x at 1
            1s c queued job/x at 2
            2s s disconnected, kept until 62s
            2s a refused lease_lost
            3s b released job/x held 3s
            3s c granted job/x fence=2 until 13s waited 2s
        "#]],
    );
}

#[test]
fn plain_session_is_only_ever_ended_by_its_ttl_or_its_client() {
    check(
        "
        0s a open s ttl=10s
        0s session s
        9s keepalive s
        19s keepalive s
        29.001s tick
        ",
        expect![[r#"
            0s s opened until 10s
            0s session s of a by http ttl 10s until 10s grants=0 waiters=0
            9s s renewed until 19s
            19s s renewed until 29s
            29.001s s of a expired
        "#]],
    );
}

#[test]
fn holders_hear_who_wants_what_they_hold() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        0s watch
        1s b acquire job/x wait
        2s c acquire job/x wait
        3s d acquire job/x
        4s e acquire {path:/srv/a, inode:1@0..10}
        5s f acquire path:/srv/** wait
        6s g acquire inode:1@5..20 wait
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            1s s told: b waits for job/x behind fence=1
            1s event 2: b queued job/x
            2s c queued job/x at 2
            2s s told: c waits for job/x behind fence=1
            2s event 2: c queued job/x
            3s d refused held: job/x by a fence=1 since 0s until 10s, 2 waiting
            4s e granted {path:/srv/a, inode:1@0..10} fence=2 until 14s gained inode:1@0..10
            4s event 3: e granted path:/srv/a fence=2 ttl 10s
            4s event 3: e granted inode:1@0..10 fence=2 ttl 10s
            5s f queued path:/srv/** at 1
            5s lease told: f waits for path:/srv/** behind fence=2
            5s event 3: f queued path:/srv/**
            6s g queued inode:1@5..20 at 1
            6s lease told: g waits for inode:1@5..20 behind fence=2
            6s event 3: g queued inode:1@5..20
        "#]],
    );
}
