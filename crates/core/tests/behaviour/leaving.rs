//! Leaving: a waiter that goes is forgotten, and a grant that nobody learned of is taken back.

use expect_test::expect;

use crate::script::check;

#[test]
fn wait_for_a_time_runs_out() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=5s
        6s tick
        6.001s tick
        7s a release job/x
        7s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            6.001s b refused held: job/x by a fence=1 since 0s until 60s, waited 5.001s
            7s a released job/x held 7s
            7s get job/x: free; last fence=1
        "#]],
    );
}

#[test]
fn waiter_that_leaves_is_forgotten_at_once() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        2s b cancel job/x
        2s get job/x
        3s a release job/x
        3s get job/x
        3s b cancel job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s b cancelled
            2s get job/x: held by a fence=1 since 0s until 10s
            3s a released job/x held 3s
            3s get job/x: free; last fence=1
            3s b cancelled nothing
        "#]],
    );
}

#[test]
fn waiter_that_leaves_does_not_block_those_behind_it() {
    check(
        "
        0s a acquire job/x shared
        1s b acquire job/x wait
        2s c acquire job/x shared wait
        2s d acquire job/x shared wait
        3s b cancel job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s c queued job/x at 2
            2s d queued job/x at 3
            3s b cancelled
            3s c granted job/x fence=2 until 13s waited 1s
            3s d granted job/x fence=3 until 13s waited 1s
        "#]],
    );
}

#[test]
fn waiter_whose_time_runs_out_does_not_block_those_behind_it() {
    check(
        "
        0s a acquire job/x shared ttl=60s
        1s b acquire job/x wait=5s
        2s c acquire job/x shared wait
        6.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            2s c queued job/x at 2
            6.001s b refused held: job/x by a shared fence=1 since 0s until 60s, 1 waiting, waited 5.001s
            6.001s c granted job/x fence=2 until 16.001s waited 4.001s
        "#]],
    );
}

#[test]
fn cancel_of_a_blocking_subtree_waiter_lets_those_below_it_go() {
    check(
        "
        0s a acquire path:/srv/a
        1s b acquire path:/srv/** wait
        1s c acquire path:/srv/b wait
        1s d acquire path:/srv/c/d/** wait
        2s b cancel path:/srv/**
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            1s b queued path:/srv/** at 1
            1s c queued path:/srv/b at 1
            1s d queued path:/srv/c/d/** at 1
            2s b cancelled
            2s c granted path:/srv/b fence=2 until 12s waited 1s
            2s d granted path:/srv/c/d/** fence=3 until 12s waited 1s
        "#]],
    );
}

#[test]
fn cancel_after_the_grant_finds_nothing() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        2s a release job/x
        2s b cancel job/x
        2s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s a released job/x held 2s
            2s b granted job/x fence=2 until 12s waited 1s
            2s b cancelled nothing
            2s get job/x: held by b fence=2 since 2s until 12s
        "#]],
    );
}

#[test]
fn undelivered_grant_is_released_at_once() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        1s c acquire job/x wait
        2s a release job/x
        2s b withdraw job/x
        2s b renew job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            1s c queued job/x at 2
            2s a released job/x held 2s
            2s b granted job/x fence=2 until 12s waited 1s
            2s grant fence=2 withdrawn
            2s b withdrawn job/x fence=2
            2s c granted job/x fence=3 until 12s waited 1s
            2s b refused lease_lost (released)
        "#]],
    );
}

#[test]
fn withdrawing_takes_the_whole_set_back() {
    check(
        "
        0s a acquire {job/x, path:/srv/**, inode:1@0..10}
        0s a withdraw job/x
        0s a withdraw job/x
        0s stats
        ",
        expect![[r#"
            0s a granted {job/x, path:/srv/**, inode:1@0..10} fence=1 until 10s
            0s grant fence=1 withdrawn
            0s a withdrawn inode:1@0..10 fence=1
            0s a withdrawn job/x fence=1
            0s a withdrawn path:/srv/** fence=1
            0s grant fence=1 withdrawn, was not there
            0s stats epoch=0 fence=1 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn withdrawing_under_a_session_leaves_the_session() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        0s a acquire job/y session=s
        1s a withdraw job/y
        1s session s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            1s grant fence=2 withdrawn
            1s a withdrawn job/y fence=2
            1s session s of a by http ttl 10s until 10s grants=1 waiters=0
        "#]],
    );
}

#[test]
fn withdrawing_bytes_leaves_what_was_held_before() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s watch
        1s a acquire inode:1@5..20 session=s
        1s a withdraw inode:1@5..20
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@5..20 fence=2 until 10s gained inode:1@10..20
            1s event 3: a granted inode:1@5..20 fence=2 ttl 10s
            1s grant fence=2 withdrawn
            1s a withdrawn inode:1@10..20 fence=2
            1s list inode:1@0..10 held by a fence=2 since 1s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn withdrawing_a_stale_fence_does_nothing() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s as=first
        1s a release job/x
        1s a acquire job/x session=s
        2s a withdraw job/x grant=first
        2s get job/x
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            1s a granted job/x fence=2 until 10s
            2s grant fence=1 withdrawn, was not there
            2s get job/x: held by a fence=2 since 1s until 10s
        "#]],
    );
}

#[test]
fn withdrawn_upgrade_leaves_its_bytes_held() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 shared session=s
        1s a acquire inode:1@0..10 session=s
        1s a withdraw inode:1@0..10
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@0..10 fence=2 until 10s
            1s a replaced inode:1@0..10 shared fence=1
            1s grant fence=2 withdrawn, was not there
            1s list inode:1@0..10 held by a fence=2 since 1s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn withdrawing_a_set_leaves_bytes_that_were_held_before() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        1s a acquire {job/x, inode:1@5..20} session=s
        2s a withdraw job/x
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted {job/x, inode:1@5..20} fence=2 until 10s
            2s grant fence=2 withdrawn
            2s a withdrawn inode:1@10..20 fence=2
            2s a withdrawn job/x fence=2
            2s list inode:1@0..10 held by a fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}
